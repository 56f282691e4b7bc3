"""Figures of predicted numbers: against the true ones, how far off they are, and how often intervals are right."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter
from numpy.typing import NDArray

from sureshot.report.plots import BLUE, GREY, HALF, SMALL, VERMILION, new_figure, tidy

MOST_POINTS = 300  # with intervals, evenly chosen by the true number: more would hide each other
_WIDEST = 6.0  # deviations; what is farther off is drawn at the edge


def predicted_against_true(
    true: NDArray[np.float64],  # (n,)
    mean: NDArray[np.float64],  # (n,)
    lower: NDArray[np.float64],  # (n,)
    upper: NDArray[np.float64],  # (n,)
    logarithmic: bool = False,
) -> Figure:
    """Means and intervals of rows, those apart that the true number is outside of."""
    order = np.argsort(true, kind="stable")
    shown = order[np.unique(np.linspace(0, len(true) - 1, MOST_POINTS).round().astype(int))]
    figure = new_figure(HALF, 4.6)
    axes = figure.subplots()
    inside = (lower <= true) & (true <= upper)
    ends = np.concatenate([true[shown], mean[shown]])
    span = [float(ends.min()), float(ends.max())]
    axes.plot(span, span, color=GREY, linestyle=(0, (4, 3)), linewidth=1.2, zorder=1)
    parts = (shown[inside[shown]], BLUE, "inside"), (shown[~inside[shown]], VERMILION, "outside")
    for rows, colour, name in parts:
        axes.plot(true[rows], mean[rows], "o", color=colour, markersize=3.5, label=f"{name} ({len(rows)})")
    if logarithmic:
        _on_logarithms(axes, "x", "y")
    axes.set_ylim(axes.get_ylim())  # long intervals take no room from points
    for rows, colour, _ in parts:
        axes.vlines(true[rows], lower[rows], upper[rows], color=colour, linewidth=1.0, alpha=0.35)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, fontsize=SMALL, frameon=False)
    axes.set(xlabel="true number", ylabel="predicted, with its interval")
    tidy(axes)
    return figure


def residuals(
    mean: NDArray[np.float64],  # (n,)
    error: NDArray[np.float64],  # (n,), in deviations
    logarithmic: bool = False,
) -> Figure:
    """How far off predictions are, against what is predicted."""
    figure = new_figure(HALF, 4.6)
    axes, near = figure.subplots(), np.clip(error, -_WIDEST, _WIDEST)
    axes.plot(mean, near, "o", color=BLUE, markersize=3, alpha=max(0.08, min(0.6, 150 / len(mean))), rasterized=True)
    axes.axhline(0, color=GREY, linewidth=1.2)
    for line in (-2, 2):
        axes.axhline(line, color=GREY, linestyle=(0, (4, 3)), linewidth=1.2)
    axes.set(xlabel="predicted", ylabel="true less predicted, in deviations", ylim=(-1.05 * _WIDEST, 1.05 * _WIDEST))
    if logarithmic:
        _on_logarithms(axes, "x")
    tidy(axes)
    return figure


def coverage_curve(
    level: NDArray[np.float64],  # (n,), of each row the coverage from which on intervals contain the true number
) -> Figure:
    """How many intervals contain the true number, against how many are meant to."""
    figure = new_figure(HALF, 3.9)
    axes = figure.subplots()
    meant = np.linspace(0.05, 0.95, 19)
    found = (level[:, None] < meant).mean(axis=0)
    width = 1.96 * np.sqrt(found * (1 - found) / len(level))
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=(0, (4, 3)), linewidth=1.2, zorder=1)
    axes.vlines(meant, found - width, found + width, color=BLUE, linewidth=1.6, alpha=0.55)
    axes.plot(meant, found, "o-", color=BLUE, markersize=4.5, linewidth=1.2)
    axes.set(xlabel="coverage asked for", ylabel="true numbers inside", xlim=(0, 1), ylim=(0, 1.02))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title("below the dashed line: too sure", loc="right", color="#5C5C5C", fontsize=SMALL)
    tidy(axes)
    return figure


def _on_logarithms(axes: Axes, *names: str) -> None:
    for name in names:
        axes.set(**{f"{name}scale": "log"})
        axis = getattr(axes, f"{name}axis")
        axis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.set_major_formatter("{x:,.5g}")
        axis.set_minor_formatter(NullFormatter())
