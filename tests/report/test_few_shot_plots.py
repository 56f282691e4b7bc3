"""Panels and lines of few-shot evaluations: what is drawn, and that any number of learners can be."""

from __future__ import annotations

import numpy as np
import pytest

from sureshot.metrics import reliability_curve
from sureshot.report import Measured, Picture, Report, Table, Tile, figure_to_data_uri, render
from sureshot.report.few_shot_plots import difference_intervals, look_of_line, reliability_panels, severity_lines


@pytest.mark.parametrize("n_learners", [1, 5])
def test_a_panel_for_each_learner(n_learners: int) -> None:
    generator = np.random.default_rng(0)
    p = generator.dirichlet(np.ones(3), size=50)
    curve = reliability_curve(p, p.argmax(axis=1))
    figure = reliability_panels({f"$learner_{k}": {"as they are": curve, "tempered": curve} for k in range(n_learners)})
    drawn = [axes for axes in figure.axes if axes.axison]
    assert len(drawn) == n_learners
    assert f"ECE {curve.expected_error:.3f}, {curve.expected_error:.3f}" in drawn[0].texts[0].get_text()
    assert figure_to_data_uri(figure).startswith("data:image/png")


@pytest.mark.parametrize("n_learners", [1, 13])
def test_a_line_for_each_learner_and_kind(n_learners: int) -> None:
    scores = {
        f"learner {k}": {"gaussian_noise": [Measured(0.5, 0.01)] * 2, "defocus_blur": [Measured(0.6, 0.01)] * 2}
        for k in range(n_learners)
    }
    clean = {name: Measured(0.9, 0.01) for name in scores}
    figure = severity_lines(scores, clean, [1, 5], chance=0.2)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["gaussian noise", "defocus blur"]
    lines = [line for line in figure.axes[0].lines if not str(line.get_label()).startswith("_")]
    assert len(lines) == n_learners
    np.testing.assert_array_equal(lines[0].get_xdata(), [0, 1, 5])
    np.testing.assert_array_equal(lines[0].get_ydata(), [0.9, 0.5, 0.5])
    styles = {(line.get_color(), str(line.get_linestyle()), str(line._unscaled_dash_pattern)) for line in lines}
    assert len(styles) == n_learners  # no two lines look the same
    figure_to_data_uri(figure)


def test_differences_are_drawn_with_their_intervals() -> None:
    figure = difference_intervals({"accuracy": {"a": Measured(0.1, 0.01), "b": Measured(-0.2, 0.05)}})
    (axes,) = figure.axes
    (bars,) = axes.collections
    ends = np.array([segment[:, 0] for segment in bars.get_segments()])
    np.testing.assert_allclose(ends, [[0.1 - 0.0196, 0.1 + 0.0196], [-0.2 - 0.098, -0.2 + 0.098]])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_pages_take_tiles_tables_and_pictures() -> None:
    figure = difference_intervals({"accuracy": {"a": Measured(0.1, 0.01)}})
    page = render(
        Report(
            "Two learners",
            verdict="The <first> is better.",
            tiles=(Tile("AUROC", "0.812", "0.5 is chance"),),
            tables=(Table(("learner", "accuracy"), (("a", 0.5),), heading="Corrupted & more"),),
            pictures=(Picture("Differences", figure, "an interval", "paired"),),
        )
    )
    for text in ("The &lt;first&gt; is better.", "0.812", "Corrupted &amp; more", "paired", 'class="wide"'):
        assert text in page
    assert "<footer>" not in page


def test_lines_of_many_methods_look_different() -> None:
    assert len({look_of_line(number) for number in range(28)}) == 28
