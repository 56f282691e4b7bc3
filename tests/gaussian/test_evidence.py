"""The closed-form evidence of Gaussian sites: dense oracles, finite differences, shared kernels, padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from sureshot.gaussian.evidence import site_log_evidence
from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.sites import Sites

# Leading dimensions of K, of the prior mean and of the sites, with N = 4.
BROADCASTS = [
    ((), (1,), (4,)),
    ((3, 2), (3, 2, 1), (3, 2, 4)),
    ((3, 1), (1, 2, 1), (3, 2, 4)),
    ((3, 1), (), (5, 3, 2, 4)),
    ((3, 2), (3, 1, 4), (5, 3, 2, 4)),
    ((1, 2), (1,), (3, 2, 4)),
    ((2, 1, 3), (1,), (3, 4)),
]


def problem(
    gram_batch: tuple[int, ...], mean_shape: tuple[int, ...], site_shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features Phi with ``K = Phi Phi'``, prior mean, precisions (one of them zero) and shifts."""
    generator = torch.Generator().manual_seed(1)
    n = site_shape[-1]
    features = torch.randn(*gram_batch, n, n, generator=generator, dtype=dtype)
    mean = torch.randn(mean_shape, generator=generator, dtype=dtype)
    precision = 0.1 + torch.rand(site_shape, generator=generator, dtype=dtype)
    return features, mean, precision, torch.randn(site_shape, generator=generator, dtype=dtype)


def test_value_is_that_of_a_dense_gaussian() -> None:
    """A site is, up to a factor, a noisy observation of value b / w with variance 1 / w."""
    features, mean, precision, shift = problem((), (1,), (4,), torch.float64)
    gram = features @ features.mT
    value = site_log_evidence(gram, mean, precision, shift)
    w, b = precision.numpy(), shift.numpy()
    noisy = multivariate_normal(np.full(4, float(mean)), gram.numpy() + np.diag(1 / w)).logpdf(b / w)
    factor = 0.5 * (b**2 / w - np.log(w) + np.log(2 * np.pi)).sum()
    assert float(value) == pytest.approx(noisy + factor, abs=1e-10)


@pytest.mark.parametrize(("gram_batch", "mean_shape", "site_shape"), BROADCASTS)
def test_matches_the_posterior_and_its_automatic_gradient(
    gram_batch: tuple[int, ...], mean_shape: tuple[int, ...], site_shape: tuple[int, ...]
) -> None:
    arguments = problem(gram_batch, mean_shape, site_shape, torch.float64)
    leaves = [part.clone().requires_grad_() for part in arguments]
    gram = leaves[0] @ leaves[0].mT
    value = site_log_evidence(gram, *leaves[1:])
    batch = torch.broadcast_shapes(gram_batch, mean_shape[:-1], site_shape[:-1])
    assert value.shape == batch
    upstream = torch.randn(batch, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    gradients = torch.autograd.grad((upstream * value).sum(), leaves)

    others = [part.clone().requires_grad_() for part in arguments]
    full = [part.expand(*batch, site_shape[-1]) for part in others[1:]]
    prior = GramPrior((others[0] @ others[0].mT).unsqueeze(-3), full[0].unsqueeze(-2))
    expected = prior.condition(Sites(full[1].unsqueeze(-2), full[2].unsqueeze(-2))).log_evidence()
    torch.testing.assert_close(value, expected)
    for ours, theirs in zip(gradients, torch.autograd.grad((upstream * expected).sum(), others), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("gram_batch", "mean_shape", "site_shape"), BROADCASTS)
def test_gradient_by_finite_differences(
    gram_batch: tuple[int, ...], mean_shape: tuple[int, ...], site_shape: tuple[int, ...]
) -> None:
    """K is a function of features, so that it stays symmetric when they are moved."""
    leaves = [part.requires_grad_() for part in problem(gram_batch, mean_shape, site_shape, torch.float64)]

    def value(features: Tensor, mean: Tensor, precision: Tensor, shift: Tensor) -> Tensor:
        return site_log_evidence(features @ features.mT, mean, precision, shift)

    assert torch.autograd.gradcheck(value, leaves)


def test_blocks_do_not_change_the_result() -> None:
    """Enough shared matrices that they are worked through in several blocks."""
    features, mean, precision, shift = problem((2, 1), (1,), (40, 2, 3, 60), torch.float64)
    gram = (features @ features.mT / 60).requires_grad_()
    (together,) = torch.autograd.grad(site_log_evidence(gram, mean, precision, shift).sum(), gram)
    apart = torch.zeros_like(gram)
    for chain in range(40):
        apart += torch.autograd.grad(site_log_evidence(gram, mean, precision[chain], shift[chain]).sum(), gram)[0]
    torch.testing.assert_close(together, apart)


def test_padding_changes_nothing() -> None:
    """Rows without a site, whatever their kernel values, leave value and gradient as they are."""
    features, mean, precision, shift = problem((3, 1), (1, 2, 1), (3, 2, 6), torch.float64)
    gram = (features @ features.mT).requires_grad_()
    real = torch.arange(6) < 4
    padded = site_log_evidence(gram, mean, precision * real, shift * real)
    small = site_log_evidence(gram[..., :4, :4], mean, precision[..., :4], shift[..., :4])
    torch.testing.assert_close(padded, small)
    (of_padded,) = torch.autograd.grad(padded.sum(), gram)
    (of_small,) = torch.autograd.grad(small.sum(), gram)
    torch.testing.assert_close(of_padded, of_small)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_float32_is_close_to_float64(scale: float) -> None:
    """A singular K over seven orders of magnitude, relative to the largest entry of each gradient."""
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(2, 1, 40, 10, generator=generator, dtype=torch.float64)
    gram = scale * features @ features.mT / 10
    precision = torch.rand(2, 3, 40, generator=generator, dtype=torch.float64)
    shift = torch.randn(2, 3, 40, generator=generator, dtype=torch.float64)
    results: list[list[Tensor]] = []
    for dtype in (torch.float64, torch.float32):
        leaves = [part.to(dtype).requires_grad_() for part in (gram, precision, shift)]
        value = site_log_evidence(leaves[0], 0.5, leaves[1], leaves[2])
        gradients = torch.autograd.grad(value.sum(), leaves)
        results.append([part.detach().double() for part in (value, *gradients)])
    for exact, rounded in zip(*results, strict=True):
        assert float((exact - rounded).abs().max() / exact.abs().max()) < max(2e-6, 1e-6 * scale)


def test_errors() -> None:
    gram, sites = torch.eye(4), torch.ones(2, 4)
    with pytest.raises(ValueError, match=r"gram must be \(\.\.\., 4, 4\)"):
        site_log_evidence(torch.eye(3), 0.0, sites, sites)
    with pytest.raises(ValueError, match="shift"):
        site_log_evidence(gram, 0.0, sites, torch.ones(2, 3))
    with pytest.raises(torch.linalg.LinAlgError):
        site_log_evidence(gram * float("nan"), 0.0, sites, sites)
