"""Figures of classes that arrive in sessions: scores after each session, and what is left of each session's classes.

Palette and sizes are those of `sureshot.report.plots`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sureshot.report.content import Measured
from sureshot.report.few_shot_plots import look_of_line
from sureshot.report.plots import FULL, INK, NORMAL, SMALL, legend_below, new_figure, plain, tidy

_COLUMNS = 2
_MATRICES = 4
_BAR = 0.5  # inches


def session_lines(
    panels: Mapping[str, Mapping[str, Sequence[Measured]]],  # by score, then by method: a value for each session
) -> Figure:
    """A panel for each score, a line for each method, with standard errors as bands; NaN is left out."""
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    methods = list(dict.fromkeys(name for by_method in panels.values() for name in by_method))
    figure = new_figure(FULL, 2.75 * rows + 0.22 * (-(-len(methods) // 3)))
    all_axes = figure.subplots(rows, columns, squeeze=False)
    for axes, (score, by_method) in zip(all_axes.flat, panels.items(), strict=False):
        for number, name in enumerate(methods):
            points = by_method.get(name)
            if points is None:
                continue
            mean, error = (np.array([getattr(point, part) for point in points]) for part in ("mean", "error"))
            x, error = np.arange(len(points)), np.nan_to_num(error)
            colour, style = look_of_line(number)
            axes.fill_between(x, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
            axes.plot(
                x, mean, color=colour, linestyle=style, marker="o", markersize=3, linewidth=1.4, label=plain(name)
            )
        axes.set_title(score, loc="left", color=INK, fontsize=NORMAL, weight="bold")
        axes.set_xlabel("session")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        tidy(axes)
    for axes in all_axes.flat[len(panels) :]:
        axes.set_axis_off()
    legend_below(figure, all_axes.flat[0])
    return figure


def session_matrices(
    matrices: Mapping[str, NDArray[np.float64]],  # by method, (K, K), NaN above the diagonal
) -> Figure:
    """What each method knows of each session's classes after each session, darker is more."""
    columns = min(_MATRICES, len(matrices))
    rows = -(-len(matrices) // columns)
    side = FULL / max(columns, 3)  # few matrices are as large as three, on a narrower figure
    figure = new_figure(FULL if columns > 2 else columns * side + _BAR, rows * (side + 0.1) + 0.35)
    all_axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    low = min(float(np.nanmin(matrix)) for matrix in matrices.values())
    image = None
    for axes, (name, matrix) in zip(all_axes.flat, matrices.items(), strict=False):
        image = axes.imshow(matrix, cmap="Blues", vmin=max(0.0, low - 0.1), vmax=1)
        axes.set_title(plain(name, 26), loc="left", color=INK, fontsize=SMALL, weight="bold")
        tidy(axes)
        axes.grid(visible=False)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    for axes in all_axes.flat[len(matrices) :]:
        axes.set_axis_off()
    figure.supxlabel("classes of session", fontsize=NORMAL, color=INK)
    figure.supylabel("after session", fontsize=NORMAL, color=INK)
    assert image is not None
    bar = figure.colorbar(image, ax=all_axes, shrink=0.8, aspect=25)
    bar.ax.tick_params(labelsize=SMALL)
    bar.outline.set_visible(False)
    return figure
