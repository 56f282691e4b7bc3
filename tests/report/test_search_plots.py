"""Figures of a search over kernels, from the least that they may be given to the most."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from sureshot.report.few_shot_plots import COLOURS
from sureshot.report.plots import figure_to_data_uri
from sureshot.report.search_plots import class_map, genealogy, particle_health, particle_maps, posterior_over_time

EXTENT = (0.0, 1.0, 0.0, 1.0)
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("n_batches", [1, 50])
def test_masses_are_stacked_to_one_and_what_is_heavy_now_is_below(n_batches: int) -> None:
    batches = [{"LINEAR": 0.7, "MATERN": 0.3}] * (n_batches - 1)
    batches.append({"MATERN": 0.5, "LINEAR": 0.2, **{f"PERIODIC x {k}": 0.03 for k in range(10)}})
    figure = posterior_over_time(batches, {"LINEAR": [0.5] * n_batches, "a $ sign": [0.1] * n_batches})
    left, right = figure.axes
    bars = [bar for bar in left.patches if bar.get_x() + bar.get_width() / 2 == pytest.approx(n_batches)]
    assert sum(bar.get_height() for bar in bars) == pytest.approx(1)
    assert len(bars) == 6 + 1  # the others together
    assert bars[0].get_facecolor()[:3] == to_rgb(COLOURS[0])
    assert bars[0].get_height() == 0.5
    assert bars[-1].get_height() == pytest.approx(0.3 - 4 * 0.03)
    assert len(right.lines) == 2
    assert figure_to_data_uri(figure).startswith("data:image/png")


def test_health_of_one_batch_and_of_a_divided_one() -> None:
    figure = particle_health([[3.0]], [False], {}, 8)
    assert figure_to_data_uri(figure).startswith("data:image/png")
    figure = particle_health([[3.0, 1.5], [7.0]], [True, False], {"grow or prune": [0.2, np.nan]}, 8)
    assert figure.axes[0].lines[1].get_ydata().tolist() == [1.5, 7.0]  # type: ignore[union-attr]
    assert figure_to_data_uri(figure).startswith("data:image/png")


def test_lines_lead_to_ancestors() -> None:
    ancestors = np.array([[0, 0, 2, 2], [1, 1, 1, 3]])
    figure = genealogy(ancestors)
    (axes,) = figure.axes
    assert "4 particles come from 2 of the first 4" in axes.get_title(loc="left")
    drawn = {tuple(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in axes.lines}  # type: ignore[arg-type]
    assert {((1, 1), (2, 0)), ((1, 3), (2, 3)), ((0, 0), (1, 1)), ((0, 2), (1, 3)), ((0, 0), (1, 0))} <= drawn
    assert len(drawn) == 8
    assert figure_to_data_uri(genealogy(np.zeros((1, 1), dtype=int))).startswith("data:image/png")


@pytest.mark.parametrize("n_classes", [2, 9])
def test_maps_of_any_number_of_classes(n_classes: int) -> None:
    """Where classes have borders, and where all are as probable everywhere."""
    p = np.full((5, 12, 12, n_classes), 1 / n_classes)
    p[:2] = 0
    p[:2, :, :6, 0] = p[:2, :, 6:, 1] = 1
    x, y = RNG.random((20, 2)), np.arange(20) % n_classes
    classes = [f"class ${k}" for k in range(n_classes)]
    assert figure_to_data_uri(class_map(p[0], EXTENT, x, y, classes, ("a_b$", "c"))).startswith("data:image/png")
    assert figure_to_data_uri(particle_maps(p, EXTENT, ["0.2 LIN"] * 5, x, y)).startswith("data:image/png")
