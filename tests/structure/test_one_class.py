"""Rows of one class: shares of the others by how rows come, and queries unlike the rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import beta

from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.leaves import LogNormal
from sureshot.structure.one_class import one_class_probabilities
from sureshot.structure.prediction import distance_from_rows, distances_left_out
from sureshot.structure.smc import SmcState


def state_of(n: int) -> SmcState:
    generator = torch.Generator().manual_seed(0)
    state = SmcState.start(KernelPrior(Grammar(), 2), 2, 2, generator)
    x = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return SmcState(**{**vars(state), "x": x, "y": torch.ones(n, dtype=torch.int64)})


def test_a_row_left_out_is_as_far_as_a_query() -> None:
    state = state_of(9)
    found = distances_left_out(state)
    for row in range(9):
        others = SmcState(**{**vars(state), "x": state.x[torch.arange(9) != row]})
        assert found[row] == pytest.approx(float(distance_from_rows(others, state.x[[row]])), rel=1e-9)


def test_copies_of_a_row_do_not_bring_it_near() -> None:
    state = state_of(9)
    twice = SmcState(**{**vars(state), "x": state.x.repeat(2, 1), "y": state.y.repeat(2)})
    for row, found in enumerate(distances_left_out(twice)):
        others = SmcState(**{**vars(twice), "x": twice.x[torch.arange(18) % 9 != row]})
        assert found == pytest.approx(float(distance_from_rows(others, state.x[[row]])), rel=1e-9)


def test_odds_are_those_of_the_share_of_rows_that_are_as_far() -> None:
    state = state_of(9)
    own = distances_left_out(state)
    x = torch.tensor([[0.2, 0.1], [1.5, -1.0], [30.0, 0.0]], dtype=torch.float64)
    found = one_class_probabilities(state, x, 2)
    random = 2 / 10
    seen = (0.5 + random * 10 / 11) / (1 + random)
    for query, p in zip(x, found, strict=True):
        farther = int((own > distance_from_rows(state, query[None])).sum())
        factor = 10 * float(np.diff(beta(0.5, 1).cdf([farther / 10, (farther + 1) / 10]))[0])  # the density's mean
        assert float(p[0] / p[1]) == pytest.approx((1 - seen) / seen * factor)
    assert found[0, 1] > 0.5 > found[2, 1] > 0.2


def test_where_rows_are_as_far_from_each_other_as_a_query_it_is_no_stranger() -> None:
    """Equal distances leave every p-value possible, and over all of them the mean of the density is one."""
    state = SmcState(**{**vars(state_of(4)), "x": 100 * torch.arange(8, dtype=torch.float64).view(4, 2)})
    found = one_class_probabilities(state, torch.tensor([[-500.0, 900.0]], dtype=torch.float64), 2)
    random = 2 / 5
    assert float(found[0, 1]) == pytest.approx((0.5 + random * 5 / 6) / (1 + random))


@pytest.mark.parametrize("median", [1.0, 2.0])
def test_distances_are_what_observed_rows_leave_of_a_variance_of_one(median: float) -> None:
    """By dense algebra, the length-scale the median of the prior in units of the root of two columns."""
    state = state_of(9)
    grammar = Grammar(relative_lengthscale=LogNormal(math.log(median), 0.5))
    state = SmcState(**{**vars(state), "prior": KernelPrior(grammar, 2)})
    x = torch.tensor([[0.2, 0.1], [1.5, -1.0], [30.0, 0.0]], dtype=torch.float64)
    seen, cross = ((-torch.cdist(state.x, other).square() / (4 * median**2)).exp() for other in (state.x, x))
    explained = (cross * torch.linalg.solve(seen + 0.1 * torch.eye(9, dtype=torch.float64), cross)).sum(0)
    torch.testing.assert_close(distance_from_rows(state, x), 1 - explained)


@pytest.mark.parametrize("n", [0, 1])
def test_of_few_rows_nothing_is_said_but_shares(n: int) -> None:
    found = one_class_probabilities(state_of(n), torch.randn(4, 2, dtype=torch.float64), 3)
    torch.testing.assert_close(found, found[:1].expand(4, -1))
    assert float(found[0, 1]) == pytest.approx([1 / 3, (1 / 3 + 2 / 4) / 2][n])


def test_one_class_that_is_not_joined_by_others_is_certain() -> None:
    state = SmcState(**{**vars(state_of(4)), "y": torch.zeros(4, dtype=torch.int64)})
    assert (one_class_probabilities(state, torch.randn(4, 2, dtype=torch.float64), 1) == 1).all()
