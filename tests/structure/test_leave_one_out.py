"""Rows left out: against conditioning on all others."""

from __future__ import annotations

import pytest
import torch

from sureshot.structure.collapsed import Collapsed
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.leave_one_out import left_out
from sureshot.structure.prediction import averaged_probabilities, class_probabilities, moments
from sureshot.structure.rejuvenation_data import Data
from sureshot.structure.smc import SmcSettings, SmcState, smc_step


def state_of(n_classes: int, later: bool = False) -> SmcState:
    """A few particles that have seen twelve rows; of a class that comes later, if wanted."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    y = torch.arange(12) % n_classes
    state = SmcState.start(KernelPrior(Grammar(), 2), 5, n_classes - later, generator)
    if later:
        y = y.sort().values
        state, _ = smc_step(state, x[:8], y[:8], generator, SmcSettings(), n_classes - 1)
        x, y = x[8:], y[8:]
    return smc_step(state, x, y, generator, SmcSettings(), n_classes)[0]


def without_row(state: SmcState, row: int) -> SmcState:
    """The same kernels and variables, but for those of a row."""
    keep = (state.contrasts.row != row).nonzero().flatten()
    covariance = Data.of(state.prior, state.x, state.contrasts).covariance(state.particles)
    left = state.contrasts.chosen(keep)
    rows = torch.arange(len(state.y)) != row
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


@pytest.mark.parametrize(("n_classes", "later"), [(2, False), (3, False), (3, True)])
def test_a_row_left_out_is_a_query_of_the_others(n_classes: int, later: bool) -> None:
    state = state_of(n_classes, later)
    found = left_out(state)
    uniform = torch.full((5,), 0.2, dtype=torch.float64)
    for row in range(12):
        mean, covariance = moments(without_row(state, row), state.x[[row]])
        less = torch.eye(mean.shape[1], dtype=torch.float64)
        if n_classes > 2:  # up to what all classes share
            less = less - torch.eye(n_classes, dtype=torch.float64)[state.y[row]]
        for q, p in zip(found_row(found, row), (mean, covariance), strict=True):
            q, p = (less @ part if part.dim() == 3 else less @ part[:, 0] @ less.mT for part in (q, p))
            torch.testing.assert_close(q, p, rtol=1e-6, atol=1e-8)
        plug_in = [
            averaged_probabilities(m, v, uniform, 0.7, "plug_in")
            for m, v in ((mean, covariance), found_row(found, row))
        ]
        torch.testing.assert_close(plug_in[1], plug_in[0], rtol=1e-6, atol=1e-8)
        label = class_probabilities(mean, covariance)[:, state.y[row], 0]
        weights = state.log_weights.exp() / label
        rounding = 1e-6 if n_classes == 2 else 0.2  # of quadrature
        torch.testing.assert_close(found.weights[:, row], weights / weights.sum(), rtol=rounding, atol=1e-8)


def found_row(found: tuple[torch.Tensor, torch.Tensor, torch.Tensor], row: int) -> tuple[torch.Tensor, torch.Tensor]:
    mean, covariance, _ = found
    return mean[..., [row]], covariance[:, [row]]


def test_each_query_may_have_its_own_weights() -> None:
    state = state_of(2)
    mean, covariance = moments(state, state.x[:3])
    weights = torch.eye(5, dtype=torch.float64)[:, [4, 0, 2]]
    found = averaged_probabilities(mean, covariance, weights)
    for query, particle in enumerate((4, 0, 2)):
        alone = class_probabilities(mean[[particle]], covariance[[particle]])[0, :, query]
        torch.testing.assert_close(found[query], alone)
