"""One look for the figures of the experiments: the palette and sizes of `sureshot.report.plots`.

Drawn with matplotlib's objects, without pyplot, so that nothing global changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sureshot.report.few_shot_plots import COLOURS as IN_TURN

INK, GREY = "#222222", "#8C8C8C"
COLOURS = {
    "softmax": "#222222",
    "gaussian": "#D55E00",
    "logistic-softmax": "#0072B2",
    "one-vs-each": "#009E73",
}
"""One colour for each likelihood in every figure (Okabe and Ito's palette)."""


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def tidy(axes: Axes, title: str = "", xlabel: str = "", ylabel: str = "") -> None:
    """Light grid, no frame on top and right, small type."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(labelsize=8, color=GREY, labelcolor=INK)
    axes.grid(color="#E8E8E8", linewidth=0.7)
    axes.set_axisbelow(True)
    label(axes, title, xlabel, ylabel)


def label(axes: Axes, title: str = "", xlabel: str = "", ylabel: str = "") -> None:
    """Title and axis labels in the common sizes; empty ones are left out."""
    if title:
        axes.set_title(title, fontsize=9.5, color=INK)
    if xlabel:
        axes.set_xlabel(xlabel, fontsize=9, color=INK)
    if ylabel:
        axes.set_ylabel(ylabel, fontsize=9, color=INK)


def line_styles(names: Sequence[str], ours: str) -> dict[str, dict[str, Any]]:
    """A colour and a dash for each name, one of them thick and in front of the others."""
    others = [name for name in names if name != ours]
    colours = [colour for colour in IN_TURN if colour != INK]
    found: dict[str, dict[str, Any]] = {
        name: {
            "color": colours[number % len(colours)],
            "linestyle": ("-", "--", ":")[number // len(colours) % 3],
            "linewidth": 1.1,
            "zorder": 2,
        }
        for number, name in enumerate(others)
    }
    return {ours: {"color": INK, "linewidth": 2.4, "zorder": 3}, **found}
