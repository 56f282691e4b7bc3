"""Unknown detection against scikit-learn, selective risk by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from sureshot.metrics import auroc_unknown, selective_risk

few_values = st.lists(st.integers(-3, 3), min_size=1, max_size=30)


@given(few_values, few_values)
def test_auroc_agrees_with_scikit_learn_with_ties(known: list[int], unknown: list[int]) -> None:
    truth = [0] * len(known) + [1] * len(unknown)
    assert auroc_unknown(known, unknown) == pytest.approx(roc_auc_score(truth, known + unknown), abs=1e-12)


@given(few_values, few_values)
def test_auroc_is_antisymmetric(known: list[int], unknown: list[int]) -> None:
    assert auroc_unknown(known, unknown) == pytest.approx(1.0 - auroc_unknown(unknown, known), abs=1e-12)


def test_auroc_by_hand() -> None:
    assert auroc_unknown([0.0, 1.0], [2.0, 3.0]) == 1.0
    assert auroc_unknown([1.0, 1.0], [1.0]) == 0.5
    # Pairs (known, unknown): 1 < 2 counts 1, 3 > 2 counts 0, 2 = 2 counts a half.
    assert auroc_unknown([1.0, 3.0, 2.0], [2.0]) == 0.5
    assert auroc_unknown([-np.inf, 0.0], [np.inf]) == 1.0


def test_auroc_refuses() -> None:
    with pytest.raises(ValueError, match="scores_known: expected a non-empty"):
        auroc_unknown([], [1.0])
    with pytest.raises(ValueError, match="scores_unknown: expected numbers, got 1 NaN"):
        auroc_unknown([0.0], [np.nan])
    with pytest.raises(ValueError, match="shape"):
        auroc_unknown([[0.0]], [1.0])
    with pytest.raises(ValueError, match="real numbers"):
        auroc_unknown(["a"], [1.0])


def test_selective_risk_by_hand() -> None:
    probabilities = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]]
    curve = selective_risk(probabilities, [0, 1, 0, 1])  # right, wrong, right, wrong
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert curve.risk == pytest.approx([0.0, 1 / 2, 1 / 3, 1 / 2])
    assert curve.area == pytest.approx((0.0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)


def test_equally_sure_points_are_averaged() -> None:
    curve = selective_risk([[0.8, 0.2]] * 4, [0, 1, 0, 1])
    assert curve.risk == pytest.approx([0.5] * 4)


def test_sorting_by_another_score() -> None:
    probabilities = [[0.9, 0.1], [0.8, 0.2]]
    assert selective_risk(probabilities, [1, 0]).area == pytest.approx((1.0 + 0.5) / 2)
    assert selective_risk(probabilities, [1, 0], confidence=[0.0, 1.0]).area == pytest.approx((0.0 + 0.5) / 2)
    with pytest.raises(ValueError, match="confidence: expected 2"):
        selective_risk(probabilities, [1, 0], confidence=[0.0])


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_selective_risk_properties(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    probabilities = np.round(rng.dirichlet(np.ones(3), size=n), 1)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    y = rng.integers(3, size=n)
    curve = selective_risk(probabilities, y)
    assert ((curve.risk >= 0) & (curve.risk <= 1)).all()
    assert curve.risk[-1] == pytest.approx(np.mean(probabilities.argmax(axis=1) != y))
    order = rng.permutation(n)
    assert selective_risk(probabilities[order], y[order]).risk == pytest.approx(curve.risk, abs=1e-12)
    perfect = selective_risk(np.eye(3)[y], y)
    assert perfect.area == 0.0
