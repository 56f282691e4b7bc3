"""Figures of predicted numbers: what is thinned, coloured and counted."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from sureshot.report.number_plots import MOST_POINTS, coverage_curve, predicted_against_true, residuals

RNG = np.random.default_rng(0)


def points(figure: Figure) -> list[np.ndarray]:
    return [np.asarray(line.get_xydata()) for line in figure.axes[0].lines]


@pytest.mark.parametrize("n", [1, 5, 20_000])
def test_points_are_thinned_and_those_outside_apart(n: int) -> None:
    true = RNG.normal(size=n)
    mean = true + np.where(np.arange(n) % 10 == 0, 2.0, 0.1)
    figure = predicted_against_true(true, mean, mean - 1, mean + 1)
    _, inside, outside = points(figure)
    assert len(inside) + len(outside) == min(n, MOST_POINTS)
    if n > 1:
        np.testing.assert_allclose(inside[:, 1] - inside[:, 0], 0.1)
    np.testing.assert_allclose(outside[:, 1] - outside[:, 0], 2.0)
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]  # type: ignore[union-attr]
    assert labels == [f"inside ({len(inside)})", f"outside ({len(outside)})"]


def test_what_is_far_off_is_at_the_edge() -> None:
    shown = points(residuals(np.array([1.0, 2.0]), np.array([-40.0, 0.5]), logarithmic=True))[0]
    np.testing.assert_allclose(shown, [[1.0, -6.0], [2.0, 0.5]])


def test_coverage_is_the_share_inside() -> None:
    level = np.linspace(0, 1, 1001)[:-1]
    curve = points(coverage_curve(level))[1]
    np.testing.assert_allclose(curve[:, 1], curve[:, 0], atol=1.1e-3)
