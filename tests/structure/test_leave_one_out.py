"""Rows left out: against conditioning on all others."""

from __future__ import annotations

import pytest
import torch

from sureshot.structure.collapsed import Collapsed
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.leave_one_out import RowsLeftOut, left_out, of_classes
from sureshot.structure.prediction import averaged_probabilities, class_probabilities, moments
from sureshot.structure.rejuvenation_data import Data
from sureshot.structure.removal import without
from sureshot.structure.smc import SmcSettings, SmcState, smc_step
from sureshot.structure.without_rows import moments_without


def state_of(n_classes: int, later: bool = False, twice: bool = False) -> SmcState:
    """A few particles that have seen twelve rows; of a class that comes later, or some of them twice, if wanted."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    y = torch.arange(12) % n_classes
    if twice:
        x[[6, 7, 5]] = x[[0, 1, 2]]  # the last are copies of three classes, of two they contradict each other
    state = SmcState.start(KernelPrior(Grammar(), 2), 5, n_classes - later, generator)
    if later:
        y = y.sort().values
        state, _ = smc_step(state, x[:8], y[:8], generator, SmcSettings(), n_classes - 1)
        x, y = x[8:], y[8:]
    return smc_step(state, x, y, generator, SmcSettings(), n_classes)[0]


def without_rows(state: SmcState, gone: list[int]) -> SmcState:
    """The same kernels and variables, but for those of some rows."""
    rows = ~torch.isin(torch.arange(len(state.y)), torch.tensor(gone))
    keep = rows[state.contrasts.row].nonzero().flatten()
    covariance = Data.of(state.prior, state.x, state.contrasts).covariance(state.particles)
    left = state.contrasts.chosen(keep)
    return SmcState(
        state.prior,
        state.x[rows],
        state.y[rows],
        state.n_classes,
        Contrasts((rows.cumsum(0) - 1)[left.row], left.own, left.other),
        state.particles,
        Collapsed.of(state.latent.omega[:, keep], covariance[:, keep][:, :, keep]),
        state.log_weights,
        0.0,
    )


@pytest.mark.parametrize(
    ("n_classes", "later", "twice"),
    [(2, False, False), (3, False, False), (3, True, False), (2, False, True), (3, False, True)],
)
def test_a_row_left_out_with_its_copies_is_a_query_of_the_others(n_classes: int, later: bool, twice: bool) -> None:
    state = state_of(n_classes, later, twice)
    found = left_out(state)
    uniform = torch.full((5,), 0.2, dtype=torch.float64)
    copies = {0: [6], 1: [7]} | ({2: [5]} if n_classes == 3 else {}) if twice else {}
    asked = [row for row in range(12) if not any(row in rows for rows in copies.values())]
    assert found.copies.first.tolist() == asked
    for place, row in enumerate(asked):
        mean, covariance = moments(without_rows(state, [row, *copies.get(row, [])]), state.x[[row]])
        less = torch.eye(mean.shape[1], dtype=torch.float64)
        if n_classes > 2:  # up to what all classes share
            less = less - torch.eye(n_classes, dtype=torch.float64)[state.y[row]]
        for q, p in zip(found_row(found, place), (mean, covariance), strict=True):
            q, p = (less @ part if part.dim() == 3 else less @ part[:, 0] @ less.mT for part in (q, p))
            torch.testing.assert_close(q, p, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(of_classes(state, found)[:, place], covariance[:, 0], rtol=1e-6, atol=1e-8)
        plug_in = [
            averaged_probabilities(m, v, uniform, 0.7, "plug_in")
            for m, v in ((mean, covariance), found_row(found, place))
        ]
        torch.testing.assert_close(plug_in[1], plug_in[0], rtol=1e-6, atol=1e-8)
        stays = ~torch.isin(torch.arange(12), torch.tensor([row, *copies.get(row, [])]))
        taken_away = without(state, stays).log_weights.exp()
        torch.testing.assert_close(found.weights[:, place], taken_away, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("n_classes", "later"), [(2, False), (3, True)])
def test_queries_without_rows_are_those_of_a_state_that_never_saw_them(n_classes: int, later: bool) -> None:
    state, x = state_of(n_classes, later), torch.linspace(-2, 2, 14, dtype=torch.float64).view(7, 2)
    sets = [torch.tensor(rows) for rows in ([3], [11], [0, 6], [9, 2])]
    found = moments_without(state, x, sets)
    for place, rows in enumerate(sets):
        mean, covariance = moments(without_rows(state, rows.tolist()), x)
        torch.testing.assert_close(found.mean[..., place], mean, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(found.covariance[:, :, place], covariance, rtol=1e-6, atol=1e-8)
        taken_away = without(state, ~torch.isin(torch.arange(12), rows)).log_weights.exp()
        torch.testing.assert_close(found.weights[:, place], taken_away, rtol=1e-6, atol=1e-9)


def found_row(found: RowsLeftOut, place: int) -> tuple[torch.Tensor, torch.Tensor]:
    return found.mean[..., [place]], found.covariance[:, [place]]


def test_each_query_may_have_its_own_weights() -> None:
    state = state_of(2)
    mean, covariance = moments(state, state.x[:3])
    weights = torch.eye(5, dtype=torch.float64)[:, [4, 0, 2]]
    found = averaged_probabilities(mean, covariance, weights)
    for query, particle in enumerate((4, 0, 2)):
        alone = class_probabilities(mean[[particle]], covariance[[particle]])[0, :, query]
        torch.testing.assert_close(found[query], alone)
