"""Regression on labels: against its normal equations, and rows left out against those of all others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.copies import Copies
from sureshot.structure.least_squares import LeastSquaresMeans, means_left_out, means_of_queries_without
from sureshot.structure.rejuvenation_data import Data
from sureshot.structure.smc import SmcState
from tests.structure.test_leave_one_out import state_of

QUERIES = torch.linspace(-2, 2, 14, dtype=torch.float64).view(7, 2)


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_two_classes_are_plus_and_minus_two_with_noise_of_variance_four(scale: float) -> None:
    state = state_of(2)
    found = LeastSquaresMeans.of(state, scale).means(state, QUERIES)
    x = scale * state.x
    gram, cross = (state.particles.grams(state.prior, SharedRows(x, other)) for other in (x, scale * QUERIES))
    noise = 4 + state.particles.nuggets(state.prior)
    for k in range(5):
        dual = torch.linalg.solve(gram[k] + noise[k] * torch.eye(12, dtype=torch.float64), 4.0 * state.y.double() - 2)
        torch.testing.assert_close(found[k, 0], cross[k].mT @ dual, rtol=1e-9, atol=1e-9)


def test_latents_of_many_classes_differ_as_their_contrasts() -> None:
    state = state_of(3)
    found = LeastSquaresMeans.of(state, 1.5).means(state, QUERIES)
    assert found.shape == (5, 3, 7)
    contrasts = state.contrasts
    covariance = Data.of(state.prior, 1.5 * state.x, contrasts).covariance(state.particles)
    gram = state.particles.grams(state.prior, SharedRows(1.5 * state.x, 1.5 * QUERIES))
    of_query = Contrasts(torch.arange(7), torch.zeros(7, dtype=torch.int64), torch.ones(7, dtype=torch.int64))
    cross = gram[:, contrasts.row] * contrasts.agreement(of_query)
    seen = torch.full((len(contrasts),), 2.0, dtype=torch.float64)
    for k in range(5):
        dual = torch.linalg.solve(covariance[k] + 4 * torch.eye(len(contrasts), dtype=torch.float64), seen)
        torch.testing.assert_close(found[k, 0] - found[k, 1], cross[k].mT @ dual, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("n_classes", "later"), [(2, False), (3, False), (3, True)])
def test_a_row_left_out_is_a_query_of_the_others(n_classes: int, later: bool) -> None:
    state = state_of(n_classes, later)
    found = means_left_out(state, 1.5, Copies.of(state.x, state.y))
    queries = means_of_queries_without(state, 1.5, QUERIES, [torch.tensor([row]) for row in range(12)])
    for row in range(12):
        others = without_row(state, row)
        regression = LeastSquaresMeans.of(others, 1.5)
        torch.testing.assert_close(queries[..., row], regression.means(others, QUERIES), rtol=1e-6, atol=1e-8)
        mean = regression.means(others, state.x[[row]])[..., 0]
        mean = mean - mean[:, state.y[[row]]] if n_classes > 2 else mean  # up to what all classes share
        torch.testing.assert_close(found[..., row], mean, rtol=1e-6, atol=1e-8)


def without_row(state: SmcState, row: int) -> SmcState:
    left = state.contrasts.chosen((state.contrasts.row != row).nonzero().flatten())
    rows = torch.arange(len(state.y)) != row
    contrasts = Contrasts((rows.cumsum(0) - 1)[left.row], left.own, left.other)
    return replace(state, x=state.x[rows], y=state.y[rows], contrasts=contrasts)
