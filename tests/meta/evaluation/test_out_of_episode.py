"""Areas within and across episodes, against the metric and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sureshot.meta.evaluation.out_of_episode import PRIMARY_SCORE, detect, outlier_scores
from sureshot.metrics import auroc_unknown


def test_areas_within_episodes_are_those_of_the_metric() -> None:
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 6, size=(9, 20)).astype(np.float64)  # with ties
    outside = np.tile(np.arange(20) >= 12, (9, 1))
    found = detect(scores, outside)
    expected = [auroc_unknown(row[:12], row[12:]) for row in scores]
    np.testing.assert_allclose(found.areas, expected)
    assert found.per_episode.mean == pytest.approx(np.mean(expected))
    assert found.pooled == pytest.approx(auroc_unknown(scores[:, :12].ravel(), scores[:, 12:].ravel()))


def test_pooling_asks_for_one_threshold() -> None:
    """Each episode is separated perfectly, but at its own level."""
    found = detect(np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([[False, True], [False, True]]))
    assert found.per_episode.mean == 1.0
    assert found.pooled == 0.75


def test_padding_is_left_out() -> None:
    scores = np.array([[0.3, 0.9, -5.0, 0.1, 0.7, 99.0]])
    outside = np.array([[False, False, False, True, True, True]])
    mask = np.array([[True, True, False, True, True, False]])
    found = detect(scores, outside, mask)
    assert found.areas[0] == auroc_unknown([0.3, 0.9], [0.1, 0.7])
    assert found.inside.size == found.outside.size == 2


def test_scores_by_hand() -> None:
    mean = np.array([[[1.0, 3.0, 9.0]]])
    variance = np.array([[[0.25, 4.0, 1.0]]])
    probabilities = np.array([[[0.3, 0.7, 0.0]]])
    present = np.array([[True, True, False]])
    found = outlier_scores(mean, variance, probabilities, present)
    assert found[PRIMARY_SCORE].item() == -3.0
    assert found["negative_max_standardised_logit"].item() == -2.0
    assert found["negative_max_probability"].item() == -0.7


def test_learners_without_variances_have_no_standardised_score() -> None:
    found = outlier_scores(np.ones((1, 2, 3)), np.zeros((1, 2, 3)), np.full((1, 2, 3), 1 / 3))
    assert set(found) == {PRIMARY_SCORE, "negative_max_probability"}
