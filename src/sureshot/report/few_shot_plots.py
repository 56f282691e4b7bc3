"""Figures of few-shot evaluations: many reliability diagrams side by side, and scores against severity.

Panels of one figure share their axes, so that learners can be compared by eye. Palette and sizes are those of
`sureshot.report.plots`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sureshot.metrics import ReliabilityCurve
from sureshot.report.content import Measured
from sureshot.report.plots import (
    BLUE,
    FULL,
    GREEN,
    GREY,
    HALF,
    INK,
    NORMAL,
    SMALL,
    VERMILION,
    legend_below,
    new_figure,
    plain,
    tidy,
)

COLOURS = (BLUE, VERMILION, GREEN, "#CC79A7", "#E69F00", "#56B4E9", INK)
"""Okabe and Ito's palette without its yellow, which is too light for lines."""

_STYLES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
_COLUMNS = 4


def look_of_line(number: int) -> tuple[str, str | tuple[int, tuple[float, ...]]]:
    """Colour and dashes of a line among others; of 28 no two look alike."""
    return COLOURS[number % len(COLOURS)], _STYLES[number // len(COLOURS) % len(_STYLES)]


def reliability_panels(
    curves: Mapping[str, Mapping[str, ReliabilityCurve]],  # by learner, then by variant
) -> Figure:
    """A small reliability diagram for each learner, with one line for each calibration variant.

    The area of a point is the share of queries in its bin.
    """
    columns = min(_COLUMNS, len(curves))
    rows = -(-len(curves) // columns)
    side = FULL / max(columns, 3)
    figure = new_figure(max(side * columns, HALF), rows * (side + 0.15) + 0.45)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    variants: dict[str, str] = {}
    for axes, (name, by_variant) in zip(panels.flat, curves.items(), strict=False):
        axes.plot([0, 1], [0, 1], color=GREY, linestyle=(0, (4, 3)), linewidth=1.0, zorder=1)
        for variant, curve in by_variant.items():
            colour = variants.setdefault(variant, COLOURS[len(variants) % len(COLOURS)])
            filled = curve.count > 0
            share = curve.count[filled] / curve.count.sum()
            x, y = curve.confidence[filled], curve.accuracy[filled]
            axes.plot(x, y, color=colour, linewidth=1.2)
            axes.scatter(x, y, 6 + 160 * share, color=colour, alpha=0.75, clip_on=False)
        errors = ", ".join(f"{curve.expected_error:.3f}" for curve in by_variant.values())
        axes.set_title(plain(name, 24), loc="left", color=INK, fontsize=SMALL, weight="bold")
        axes.text(0.97, 0.05, f"ECE {errors}", transform=axes.transAxes, ha="right", fontsize=SMALL, color=INK)
        axes.set(xlim=(0, 1), ylim=(0, 1.02), aspect="equal")
        tidy(axes)
    for axes in panels.flat[len(curves) :]:
        axes.set_axis_off()
    figure.supxlabel("confidence (largest probability)", fontsize=NORMAL, color=INK)
    figure.supylabel("fraction right", fontsize=NORMAL, color=INK)
    if len(variants) > 1:
        lines = [figure.axes[0].plot([], [], color=colour, marker="o", markersize=4)[0] for colour in variants.values()]
        figure.legend(
            lines, list(variants), loc="outside upper left", ncols=len(variants), fontsize=SMALL, frameon=False
        )
    return figure


def severity_lines(
    scores: Mapping[str, Mapping[str, Sequence[Measured]]],  # by learner, then by kind: a value for each severity
    clean: Mapping[str, Measured],  # by learner: the value at severity 0
    severities: Sequence[int],
    chance: float | None = None,  # drawn as a dashed line
) -> Figure:
    """Accuracy with 95 % intervals against severity, one panel for each kind of corruption, a line for each learner."""
    kinds = list(next(iter(scores.values())))
    figure = new_figure(FULL, 3.2 + 0.2 * (-(-len(scores) // 3) if len(scores) > 1 else 0))
    panels = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    for axes, kind in zip(panels, kinds, strict=True):
        for number, (name, by_kind) in enumerate(scores.items()):
            points = [clean[name], *by_kind[kind]]
            x = np.array([0, *severities])
            mean = np.array([point.mean for point in points])
            half = 1.96 * np.array([point.error for point in points])
            colour, style = look_of_line(number)
            axes.fill_between(x, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0)
            axes.plot(
                x, mean, color=colour, linestyle=style, marker="o", markersize=3.5, linewidth=1.4, label=plain(name)
            )
        if chance is not None:
            axes.axhline(chance, color=GREY, linestyle=(0, (4, 3)), linewidth=1.0)
        axes.set_title(kind.replace("_", " "), loc="left", color=INK, fontsize=NORMAL, weight="bold")
        axes.set_xlabel("severity (0: clean)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        tidy(axes)
    panels[0].set_ylabel("accuracy")
    if len(scores) > 1:
        legend_below(figure, panels[0])
    return figure


def difference_intervals(
    differences: Mapping[str, Mapping[str, Measured]],  # by score, then by learner
) -> Figure:
    """Differences from a reference with 95 % intervals, one panel for each score, one line for each learner."""
    names = list(next(iter(differences.values())))
    figure = new_figure(FULL, 0.75 + 0.27 * len(names))
    panels = figure.subplots(1, len(differences), squeeze=False, sharey=True)[0]
    position = np.arange(len(names))
    for axes, (score, by_name) in zip(panels, differences.items(), strict=True):
        mean = np.array([by_name[name].mean for name in names])
        half = 1.96 * np.array([by_name[name].error for name in names])
        axes.axvline(0, color=GREY, linewidth=1.0)
        axes.errorbar(mean, position, xerr=half, fmt="o", color=BLUE, markersize=5, linewidth=1.6)
        axes.set_xlabel(score)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        tidy(axes, grid="x")
    panels[0].set_yticks(position, [plain(name) for name in names])
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    return figure
