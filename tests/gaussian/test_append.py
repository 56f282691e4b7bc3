"""A posterior that grew row by row is that of all rows at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sureshot.gaussian.append import append_row, append_to_factor
from sureshot.gaussian.gram import GramPosterior, GramPrior
from sureshot.gaussian.sites import Sites

F64 = torch.float64
CLOSE = {"rtol": 1e-10, "atol": 1e-10}
FIELDS = ("mean", "variance", "log_det", "quadratic", "alpha", "root", "factor")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def problem(batch: tuple[int, ...], n: int, n_classes: int, shared: bool) -> tuple[Tensor, Tensor, Sites]:
    """Kernel matrices of singular rank, one for each class or shared, means, and sites, some of precision zero."""
    x = normal(*batch, 1 if shared else n_classes, n, 3)
    precision = normal(*batch, n_classes, n, seed=1).square()
    precision[..., 2] = 0
    return 4 * x @ x.mT, normal(n_classes, 1, seed=2), Sites(precision, normal(*batch, n_classes, n, seed=3))


def grown(gram: Tensor, mean: Tensor, sites: Sites, start: int) -> tuple[GramPrior, GramPosterior]:
    n = gram.shape[-1]
    prior = GramPrior(gram[..., :start, :start], mean)
    posterior = prior.condition(Sites(*(part[..., :start] for part in sites)))
    for j in range(start, n):
        site = Sites(sites.precision[..., j], sites.shift[..., j])
        prior, posterior = append_row(prior, posterior, gram[..., :j, j], gram[..., j, j], site)
    return prior, posterior


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("start", [1, 6])
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_row_by_row_is_all_at_once(batch: tuple[int, ...], start: int, shared: bool) -> None:
    gram, mean, sites = problem(batch, 7, 2, shared)
    prior, posterior = grown(gram, mean, sites, start)
    expected = GramPrior(gram, mean).condition(sites)
    for name in FIELDS:
        torch.testing.assert_close(getattr(posterior, name), getattr(expected, name), **CLOSE)
    torch.testing.assert_close(prior.gram.expand(*batch, 2, 7, 7), gram.expand(*batch, 2, 7, 7), **CLOSE)
    for ours, theirs in zip(posterior.sites, expected.sites, strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(posterior.log_evidence(), expected.log_evidence(), **CLOSE)
    torch.testing.assert_close(posterior.kl(), expected.kl(), **CLOSE)
    cross, variance = normal(*gram.shape[:-1], 4, seed=5), torch.full((*gram.shape[:-2], 4), 60.0, dtype=F64)
    for ours, theirs in zip(posterior.query(cross, variance), expected.query(cross, variance), strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE)


def test_a_row_without_a_label_changes_nothing_before_it() -> None:
    gram, mean, sites = problem((), 5, 2, True)
    prior = GramPrior(gram[..., :4, :4], mean)
    posterior = prior.condition(Sites(*(part[..., :4] for part in sites)))
    none = torch.zeros(2, dtype=F64)
    _, more = append_row(prior, posterior, gram[..., :4, 4], gram[..., 4, 4], Sites(none, none))
    torch.testing.assert_close(more.mean[..., :4], posterior.mean)
    torch.testing.assert_close(more.variance[..., :4], posterior.variance)
    torch.testing.assert_close(more.log_evidence(), posterior.log_evidence())
    moments = posterior.query(gram[..., :4, 4:], gram[..., 4:, 4])
    for entry, expected in zip((more.mean, more.variance), moments, strict=True):
        torch.testing.assert_close(entry[..., 4:], expected, **CLOSE)


def test_a_factor_bordered_by_a_block_is_that_of_the_whole_matrix() -> None:
    x = normal(9, 4)
    whole = x @ x.mT + torch.eye(9, dtype=F64)
    grown_factor = append_to_factor(torch.linalg.cholesky(whole[:6, :6]), whole[:6, 6:], whole[6:, 6:])
    torch.testing.assert_close(grown_factor, torch.linalg.cholesky(whole), **CLOSE)
