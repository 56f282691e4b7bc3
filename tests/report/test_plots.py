"""Figures draw what they are given, whatever the names, and touch no global state."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from sureshot.metrics import reliability_curve, selective_risk
from sureshot.report import (
    confidence_histogram,
    figure_to_data_uri,
    image_to_data_uri,
    objective_trace,
    outlier_histogram,
    reliability_diagram,
    risk_coverage,
)
from sureshot.report.plots import plain

RNG = np.random.default_rng(0)
PROBABILITIES = RNG.dirichlet(np.full(5, 0.4), size=300)
LABELS = (RNG.random((300, 1)) > PROBABILITIES.cumsum(axis=1)).sum(axis=1).clip(max=4)
CONFIDENCE = PROBABILITIES.max(axis=1)
CORRECT = PROBABILITIES.argmax(axis=1) == LABELS


FIGURES: dict[str, Callable[[], Figure]] = {
    "reliability": lambda: reliability_diagram(reliability_curve(PROBABILITIES, LABELS)),
    "confidence": lambda: confidence_histogram(CONFIDENCE, CORRECT),
    "unlabelled": lambda: confidence_histogram(CONFIDENCE),
    "trace": lambda: objective_trace(-np.geomspace(100, 1, 60), "bound"),
    "single step": lambda: objective_trace([1.0], "bound"),
    "risk": lambda: risk_coverage(selective_risk(PROBABILITIES, LABELS)),
    "outliers": lambda: outlier_histogram(RNG.normal(size=30), RNG.normal(size=10) + 2),
    "infinite outliers": lambda: outlier_histogram(np.array([-np.inf, 0.0]), np.array([np.inf])),
}


def decode(uri: str) -> np.ndarray:
    head, content = uri.split(",")
    assert head == "data:image/png;base64"
    return imread(BytesIO(base64.b64decode(content)))


@pytest.mark.parametrize("name", list(FIGURES))
def test_is_drawn_at_twice_its_width(name: str) -> None:
    """And touches no global state."""
    before = dict(mpl.rcParams)
    figure = FIGURES[name]()
    pixels = decode(figure_to_data_uri(figure))
    assert dict(mpl.rcParams) == before
    if "matplotlib.pyplot" in sys.modules:  # another test may have loaded it
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []
    assert pixels.shape[1] == pytest.approx(2 * 96 * figure.get_figwidth(), abs=2)
    assert figure.get_figwidth() * 96 <= 800
    assert pixels[..., :3].std() > 0.01  # something is drawn
    assert figure.dpi == Figure().dpi


def test_reliability_diagram_shows_the_curve() -> None:
    curve = reliability_curve(PROBABILITIES, LABELS)
    upper, lower = reliability_diagram(curve).axes
    points = upper.lines[-1].get_xydata()
    filled = curve.count > 0
    assert np.asarray(points) == pytest.approx(np.column_stack([curve.confidence, curve.accuracy])[filled])
    assert [bar.get_height() for bar in lower.patches] == curve.count.tolist()


def test_histogram_counts_every_row_once() -> None:
    (axes,) = confidence_histogram(CONFIDENCE, CORRECT).axes
    bars = [bar for container in axes.containers for bar in container.patches]
    assert sum(bar.get_height() for bar in bars) == len(CONFIDENCE)


def test_a_row_far_out_leaves_room_for_the_others() -> None:
    known = np.linspace(0, 1, 1000)
    known[0] = 1000
    (axes,) = outlier_histogram(known, known + 0.5).axes
    assert axes.get_xlim()[1] < 3


def test_a_legend_covers_no_bar() -> None:
    figure = confidence_histogram(CONFIDENCE, CORRECT)
    figure.canvas.draw()
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend is not None
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())


@pytest.mark.parametrize("name", ["$x_{$", "$", r"\frac{", "two\nlines", "_hidden", "x" * 500, ""])
def test_any_name_is_drawn(name: str) -> None:
    figure_to_data_uri(objective_trace([0.0, 1.0], name))


def test_threads_draw_the_same() -> None:
    curve = reliability_curve(PROBABILITIES, LABELS)
    alone = figure_to_data_uri(reliability_diagram(curve))
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda _: figure_to_data_uri(reliability_diagram(curve)), range(2)))
    assert together == [alone] * 2


def test_small_pictures_keep_their_pixels() -> None:
    grey = np.array([[0.0, 8.0], [16.0, 4.0]])
    pixels = decode(image_to_data_uri(grey))
    assert pixels.shape[:2] == (2, 2)
    assert pixels[0, 0, :3] == pytest.approx(1.0)  # nothing is white
    assert pixels[1, 0, :3] == pytest.approx(0.0)  # the largest is black
    assert decode(image_to_data_uri(grey, highest=32.0))[1, 0, 0] == pytest.approx(0.5, abs=0.02)
    colours = np.array([[[255, 0, 0], [0, 128, 0]]])
    assert decode(image_to_data_uri(colours))[..., :3] == pytest.approx(colours / 255, abs=1e-6)
    assert decode(image_to_data_uri(np.zeros((2, 2))))[..., :3] == pytest.approx(1.0)


def test_names_with_an_underscore_are_in_legends() -> None:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([0, 1], label=plain("_under"))
    assert [text.get_text() for text in axes.legend().get_texts()] == [" _under"]
