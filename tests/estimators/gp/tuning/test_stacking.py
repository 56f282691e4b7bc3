"""Weights of averages: against a general optimiser, cross-fitting by hand, and what is dropped."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from sureshot.estimators.gp.model import Model
from sureshot.estimators.gp.tuning.family_search import Candidate
from sureshot.estimators.gp.tuning.stacking import (
    MOST_MEMBERS,
    cross_fitted,
    most_members,
    stacking_weights,
)
from sureshot.estimators.rows.folds import FOLDS, row_folds


def scores_of(n_groups: int, n_rows: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return -torch.rand(n_groups, n_rows, generator=generator, dtype=torch.float64).pow(-0.5)


@pytest.mark.parametrize("pseudo_counts", [1.0, 5.0])
def test_the_weights_are_the_maximum(pseudo_counts: float) -> None:
    scores = scores_of(3, 200)
    usable = torch.rand(200, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def maximum(of: Tensor) -> Tensor:
        def loss(free: np.ndarray) -> float:
            weights = torch.softmax(torch.from_numpy(np.append(free, 0.0)), 0)
            fit = usable @ (weights @ of.exp()).log()
            return -float(fit + pseudo_counts / len(of) * weights.log().sum())

        found = minimize(loss, np.zeros(len(of) - 1)).x
        return torch.softmax(torch.from_numpy(np.append(found, 0.0)), 0)

    expected = maximum(scores)
    torch.testing.assert_close(
        stacking_weights(scores, usable, MOST_MEMBERS, pseudo_counts), expected, atol=1e-3, rtol=0
    )
    # Of two at most it is the lightest that goes; the others are weighed without it.
    assert float(expected.diff().abs().min()) > 0.01
    heavier = expected > expected.min()
    of_two = torch.zeros(3, dtype=torch.float64)
    of_two[heavier] = maximum(scores[heavier])
    torch.testing.assert_close(stacking_weights(scores, usable, 2, pseudo_counts), of_two, atol=1e-3, rtol=0)


def test_few_labels_share_the_weight_evenly() -> None:
    weights = stacking_weights(scores_of(4, 60), torch.full((60,), 1e-9, dtype=torch.float64), MOST_MEMBERS)
    torch.testing.assert_close(weights, torch.full((4,), 0.25, dtype=torch.float64))


def test_the_lightest_go_where_members_are_too_many() -> None:
    scores = torch.zeros(9, 500, dtype=torch.float64)
    scores[0] = -50.0
    weights = stacking_weights(scores, torch.ones(500, dtype=torch.float64), MOST_MEMBERS)
    assert weights[0] == 0
    assert (weights > 0).sum() == MOST_MEMBERS
    assert float(weights.sum()) == pytest.approx(1)


def test_the_untuned_start_with_half_of_the_weight_and_stay() -> None:
    none = torch.full((60,), 1e-9, dtype=torch.float64)
    weights = stacking_weights(scores_of(4, 60), none, MOST_MEMBERS, untuned=scores_of(1, 60, seed=1)[0])
    torch.testing.assert_close(weights, torch.tensor([0.125] * 4 + [0.5], dtype=torch.float64))
    hopeless = torch.full((12, 400), -50.0, dtype=torch.float64)
    weights = stacking_weights(hopeless, torch.ones(400, dtype=torch.float64), 5, untuned=torch.zeros(400).double())
    assert (weights[:12] > 0).sum() == 5
    assert float(weights[12]) == pytest.approx(1, abs=0.01)


def test_rows_count_with_the_scales_that_were_chosen_without_them() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(40) % 3
    usable, folds = torch.ones(40, dtype=torch.float64), row_folds(y)
    pointwise = -torch.rand(4, 40, generator=generator, dtype=torch.float64)
    priors = [-0.1, -0.2, 0.0, -3.0]
    model = Model("softmax", "laplace")
    candidates = [
        Candidate(0, 1.0, 1.0, model, 1.0, row, float(row.sum()) + prior)
        for row, prior in zip(pointwise, priors, strict=True)
    ]
    found = cross_fitted([candidates], usable, folds)[0]
    for fold in range(FOLDS):
        outside = [float(row[folds != fold].sum()) + prior for row, prior in zip(pointwise, priors, strict=True)]
        best = int(np.argmax(outside))
        torch.testing.assert_close(found[folds == fold], pointwise[best, folds == fold])


def test_every_fold_has_its_share_of_every_class() -> None:
    y = torch.tensor([0] * 23 + [1] * 7 + [2])
    folds = row_folds(y)
    assert folds.bincount(minlength=FOLDS).max() - folds.bincount(minlength=FOLDS).min() <= 1
    assert folds[y == 0].bincount(minlength=FOLDS).min() >= 4


def test_members_are_few_where_rows_are_many() -> None:
    assert [most_members(n) for n in (60, 1500, 1501, 10**6)] == [5, 5, 2, 2]
