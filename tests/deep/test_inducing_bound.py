"""The bound in batches against dense normals by SciPy and NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from sureshot.deep.inducing_bound import bound_step
from sureshot.inference.natural_gradient import NaturalGradientState

RNG = np.random.default_rng(0)
X, Z, Y = (torch.from_numpy(RNG.normal(size=shape)) for shape in ((60, 2), (7, 2), (2, 60)))
WEIGHT = torch.ones(60, dtype=torch.float64)
SCALE, NOISE = torch.tensor(1.4, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)


def covariance(one: Tensor, other: Tensor) -> np.ndarray:
    """By the formula."""
    squared = ((one.numpy()[:, None] - other.numpy()[None]) ** 2).sum(-1)
    found: np.ndarray = 1.4 * np.exp(-0.5 * squared)
    return found


def exact() -> float:
    """The log evidence of all numbers."""
    normal = multivariate_normal(np.zeros(60), covariance(X, X) + 0.3 * np.eye(60))
    return float(sum(normal.logpdf(y) for y in Y.numpy()))


def one_step(inputs: Tensor) -> tuple[NaturalGradientState, float]:
    state, bound = bound_step(None, inputs, X, SCALE, NOISE, Y, WEIGHT)
    return state, float(bound)


def test_it_is_the_evidence_where_all_rows_are_inducing_inputs() -> None:
    assert one_step(X)[1] == pytest.approx(exact(), abs=1e-6)


def test_one_step_on_all_rows_is_the_bound_without_q() -> None:
    cross = covariance(Z, X)
    low_rank = cross.T @ np.linalg.solve(covariance(Z, Z), cross)
    normal = multivariate_normal(np.zeros(60), low_rank + 0.3 * np.eye(60))
    expected = sum(normal.logpdf(y) for y in Y.numpy()) - 2 * (60 * 1.4 - np.trace(low_rank)) / (2 * 0.3)
    found = one_step(Z)[1]
    assert found == pytest.approx(float(expected), abs=1e-6)
    assert found < exact() - 1


def test_rows_count_by_their_weight() -> None:
    twice = torch.cat([torch.arange(60), torch.tensor([3])])
    rows = X[twice], SCALE, NOISE, Y[:, twice], torch.ones(61, dtype=torch.float64)
    _, expected = bound_step(None, Z, *rows)
    weight = WEIGHT.index_fill(0, torch.tensor([3]), 2.0)
    _, found = bound_step(None, Z, X, SCALE, NOISE, Y, weight)
    assert float(found) == pytest.approx(float(expected), abs=1e-9)


def dense_bound(state: NaturalGradientState, places: slice) -> float:
    """Of q: expected log density of a third of the rows, three times, less the divergence of q from its prior."""
    lower = np.linalg.cholesky(covariance(Z, Z))
    phi, bound = np.linalg.solve(lower, covariance(Z, X[places])).T, 0.0
    for k, y in enumerate(Y.numpy()[:, places]):
        spread = np.linalg.inv(-2 * state.quadratic[k].numpy())
        mean = spread @ state.linear[k].numpy()
        variance = 1.4 - (phi**2).sum(1) + np.einsum("nr,rs,ns->n", phi, spread, phi)
        logs = -0.5 * math.log(2 * math.pi * 0.3) - ((y - phi @ mean) ** 2 + variance) / (2 * 0.3)
        divergence = 0.5 * (np.trace(spread) + mean @ mean - 7 - np.linalg.slogdet(spread)[1])
        bound += 3 * logs.sum() - divergence
    return float(bound)


def test_batches_estimate_the_bound_of_their_q() -> None:
    state: NaturalGradientState | None = None
    for epoch in range(20):
        for places in (slice(0, 20), slice(20, 40), slice(40, 60)):
            state, found = bound_step(state, Z, X[places], SCALE, NOISE, Y[:, places], WEIGHT[places], 1 / 3)
            if epoch in (0, 19):
                assert float(found) == pytest.approx(dense_bound(state, places), abs=1e-6)
    assert state is not None
    mean = np.mean([dense_bound(state, slice(start, start + 20)) for start in (0, 20, 40)])
    assert mean < exact()
    assert mean > one_step(Z)[1] - 10  # q is near its best, that of all rows


def test_gradients() -> None:
    arguments = [part.clone().requires_grad_() for part in (Z, X[:15], SCALE, NOISE)]
    assert torch.autograd.gradcheck(lambda *values: bound_step(None, *values, Y[:, :15], WEIGHT[:15])[1], arguments)
