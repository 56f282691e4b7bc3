"""Lines, bands and images of learners of numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sureshot.meta.evaluation.shown import Band, CompletedImage
from sureshot.report import Measured, figure_to_data_uri
from sureshot.report.function_plots import by_context, draw_bands, draw_completed


@pytest.mark.parametrize("n_learners", [1, 3])
def test_a_panel_for_each_region_and_a_line_for_each_learner(n_learners: int) -> None:
    by_size = {0: Measured(-1.0, 0.1), 1: Measured(-0.5, math.nan), 20: Measured(1.0, 0.1)}
    learners = {f"learner {k}": by_size for k in range(n_learners)}
    figure = by_context({"inside": learners, "beyond": learners}, "log density")
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "inside the range of training",
        "beyond the range of training",
    ]
    assert [len(axes.lines) for axes in figure.axes] == [n_learners] * 2
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), [-1.0, -0.5, 1.0])
    assert len(figure.legends) == (n_learners > 1)
    figure_to_data_uri(figure)


@pytest.mark.parametrize("end", [None, 1.0])
def test_bands_are_of_two_deviations(end: float | None) -> None:
    band = Band(
        context=2, trained_to=end, x=[0.0, 2.0], mean=[1.0, 1.0], deviation=[0.5, 1.0], context_x=[0.0], context_y=[1.0]
    )
    figure = draw_bands({"a": [band, band], "b": [band, band]})
    assert len(figure.axes) == 4
    corners = figure.axes[0].collections[0].get_paths()[0].vertices
    assert (corners[:, 1].min(), corners[:, 1].max()) == (-1.0, 3.0)  # type: ignore[index]
    assert len(figure.axes[0].lines) == (2 if end is None else 3)
    figure_to_data_uri(figure)


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_that_were_not_seen_have_a_colour_of_their_own(channels: int) -> None:
    values = [255] * 4 * channels
    image = CompletedImage(size=1, shape=[2, 2, channels], known=[1, 0, 0, 0], mean=values, context=values)
    figure = draw_completed({"cnp": [image, image]})
    assert len(figure.axes) == 4
    seen, _, answered, _ = (axes.images[0].get_array() for axes in figure.axes)
    assert seen is not None
    assert answered is not None
    np.testing.assert_array_equal(seen[0, 0], [1, 1, 1])
    assert seen[1, 1, 2] > seen[1, 1, 0]
    np.testing.assert_array_equal(answered, np.ones((2, 2, 3)))
    figure_to_data_uri(figure)
