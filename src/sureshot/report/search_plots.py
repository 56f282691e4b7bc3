"""Figures of a search over kernels: which are held probable, how the particles fare, and what they predict.

Palette and sizes are those of `sureshot.report.plots`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from sureshot.report.few_shot_plots import COLOURS, look_of_line
from sureshot.report.plots import BLUE, FULL, GREY, INK, NORMAL, SMALL, VERMILION, new_figure, plain, tidy

_LIGHT = "#DADADA"
_MOST_STRUCTURES = 6
_COLUMNS = 4


def posterior_over_time(
    batches: Sequence[Mapping[str, float]],  # masses by structure after each batch
    leaves: Mapping[str, Sequence[float]],  # by leaf: the mass of the structures that have it, after each batch
) -> Figure:
    """Stacked masses of the structures that were heaviest, the last batches counting most; and of leaves."""
    total: dict[str, float] = {}
    share = 0.7 ** (10 / max(10, len(batches)))  # that a batch counts of the next
    for age, masses in enumerate(reversed(batches)):
        for structure, mass in masses.items():
            total[structure] = total.get(structure, 0.0) + mass * share**age
    shown = sorted(total, key=lambda structure: -total[structure])[:_MOST_STRUCTURES]
    shown.sort(key=lambda structure: -batches[-1].get(structure, 0.0))
    figure = new_figure(FULL, 3.5 + 0.2 * (len(shown) + 1))
    left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
    x, below = np.arange(1, len(batches) + 1), np.zeros(len(batches))
    width = 0.9 if len(batches) <= 30 else 1.0
    for number, structure in enumerate(shown):
        heights = np.array([batch.get(structure, 0.0) for batch in batches])
        left.bar(x, heights, width, below, color=COLOURS[number], label=plain(structure, 90))
        below += heights
    if (below < 1 - 1e-6).any():
        left.bar(x, 1 - below, width, below, color=_LIGHT, label="all others")
    left.set(ylim=(0, 1), ylabel="posterior mass", xlabel="batch")
    for number, (leaf, shares) in enumerate(leaves.items()):
        colour, style = look_of_line(number)
        right.plot(x, shares, color=colour, linestyle=style, marker=_dot(len(x)), markersize=3.5, label=leaf)
    right.set(ylim=(-0.02, 1.02), ylabel="probability to be in the kernel", xlabel="batch")
    _legend_below(right)
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    tidy(left, right)
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower left", fontsize=SMALL, frameon=False)
    return figure


def particle_health(
    sizes: Sequence[Sequence[float]],  # effective sample sizes of the parts of each batch
    resampled: Sequence[bool],
    acceptance: Mapping[str, Sequence[float]],  # by kind of move, a share for each batch
    n_particles: int,
) -> Figure:
    """Effective sample sizes, and the shares of proposals that were accepted, batch by batch."""
    figure = new_figure(FULL, 3.5)
    left, right = figure.subplots(1, 2)
    x = np.arange(1, len(sizes) + 1)
    first = np.array([parts[0] for parts in sizes])
    lowest = np.array([min(parts) for parts in sizes])
    left.axhline(n_particles / 2, color=GREY, linestyle=(0, (4, 3)), linewidth=1.0)
    left.vlines(x, lowest, first, color=BLUE, linewidth=1.2)
    left.plot(x, lowest, color=BLUE, linewidth=1.2)
    chosen = np.array(resampled, dtype=bool)
    for which, filled, name in ((chosen, VERMILION, "resampled"), (~chosen, BLUE, "kept")):
        if which.any():
            left.scatter(x[which], lowest[which], 26, color=filled, label=name, zorder=3)
    left.set(ylim=(0, 1.05 * n_particles), xlabel="batch", ylabel="effective sample size")
    _legend_below(left)
    for number, (move, rates) in enumerate(acceptance.items()):
        right.plot(x, rates, color=COLOURS[number % len(COLOURS)], marker=_dot(len(x)), markersize=3.5, label=move)
    if acceptance:
        _legend_below(right)
    right.set(ylim=(-0.02, 1.02), xlabel="batch", ylabel="proposals accepted")
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    tidy(left, right)
    return figure


def genealogy(
    ancestors: NDArray[np.int64],  # (T, M): of each particle after a batch, its place before
) -> Figure:
    """A line from every particle to the one that it comes from; lines that lead to the present are dark."""
    n_batches, n_particles = ancestors.shape
    figure = new_figure(FULL, float(np.clip(1.2 + 0.07 * n_particles, 2.2, 5.0)))
    axes = figure.subplots()
    lives = np.zeros((n_batches + 1, n_particles), dtype=bool)
    lives[-1] = True
    for t in reversed(range(n_batches)):
        lives[t, ancestors[t, lives[t + 1]]] = True
    for t in range(n_batches):
        for alive, colour, width in ((False, "#C9C9C9", 0.7), (True, BLUE, 1.2)):
            places = np.flatnonzero(lives[t + 1] == alive)
            if len(places):
                ends = np.stack([ancestors[t, places], places])
                axes.plot([t, t + 1], ends, color=colour, linewidth=width, zorder=2 if alive else 1)
    counts = lives.sum(1)
    axes.set_title(
        f"today's {n_particles} particles come from {counts[0]} of the first {n_particles}",
        loc="left",
        color=INK,
        fontsize=NORMAL,
        weight="bold",
    )
    axes.set(xlabel="batch", ylabel="particle", xlim=(0, n_batches), ylim=(-0.5, n_particles - 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    tidy(axes)
    axes.grid(visible=False)
    return figure


def class_map(
    probabilities: NDArray[np.float64],  # (G, G, C) on a grid, its second axis along the first column
    extent: tuple[float, float, float, float],  # left, right, bottom, top
    x: NDArray[np.float64],  # (N, 2)
    y: NDArray[np.int64],  # (N,), class numbers
    classes: ArrayLike,
    columns: Sequence[str] = ("", ""),
) -> Figure:
    """Class probabilities in the plane, with the rows."""
    figure = new_figure(FULL, 4.6)
    axes = figure.subplots()
    _draw_map(axes, probabilities, extent)
    labels = np.asarray(classes).tolist()
    for number, label in enumerate(labels):
        mine = y == number
        axes.scatter(
            x[mine, 0],
            x[mine, 1],
            24,
            color=COLOURS[number % len(COLOURS)],
            edgecolor="white",
            linewidth=0.7,
            label=plain(label),
        )
    axes.set(xlim=extent[:2], ylim=extent[2:], xlabel=plain(columns[0], 60), ylabel=plain(columns[1], 60))
    tidy(axes)
    axes.grid(visible=False)
    figure.legend(loc="outside right upper", fontsize=SMALL, frameon=False)
    return figure


def particle_maps(
    probabilities: NDArray[np.float64],  # (M, G, G, C)
    extent: tuple[float, float, float, float],
    titles: Sequence[str],  # (M,)
    x: NDArray[np.float64],  # (N, 2)
    y: NDArray[np.int64],  # (N,)
) -> Figure:
    """The same for each of several particles."""
    columns = min(_COLUMNS, len(probabilities))
    rows = -(-len(probabilities) // columns)
    figure = new_figure(FULL, 2.35 * rows)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes, found, title in zip(panels.flat, probabilities, titles, strict=False):
        _draw_map(axes, found, extent)
        colours = [COLOURS[number % len(COLOURS)] for number in y]
        axes.scatter(x[:, 0], x[:, 1], 5, color=colours, edgecolor="white", linewidth=0.2)
        axes.set(xlim=extent[:2], ylim=extent[2:])
        axes.set_title(plain(title, 32), loc="left", color=INK, fontsize=SMALL - 1)
        tidy(axes)
        axes.grid(visible=False)
    for axes in panels.flat[len(probabilities) :]:
        axes.set_axis_off()
    return figure


def _draw_map(axes: Axes, probabilities: NDArray[np.float64], extent: tuple[float, float, float, float]) -> None:
    """White where nothing is known, the colour of a class where it is certain; lines at 1/4, 1/2 and 3/4."""
    n_classes = probabilities.shape[-1]
    colours = np.array([to_rgb(COLOURS[number % len(COLOURS)]) for number in range(n_classes)])
    sure = (probabilities - 1 / n_classes).clip(0) / (1 - 1 / max(n_classes, 2)) * 0.65
    image = 1 - np.einsum("ghc,ck->ghk", sure, 1 - colours)
    axes.imshow(image.clip(0, 1), extent=extent, origin="lower", aspect="auto", interpolation="bilinear", zorder=0)
    if n_classes == 2:
        for level, width, style in ((0.25, 0.5, "--"), (0.5, 1.1, "-"), (0.75, 0.5, "--")):
            if probabilities[..., 1].min() < level < probabilities[..., 1].max():
                axes.contour(
                    probabilities[..., 1], [level], extent=extent, colors=INK, linewidths=width, linestyles=style
                )
    elif n_classes > 2:
        for number in range(n_classes):
            ahead = probabilities[..., number] - np.delete(probabilities, number, -1).max(-1)
            if ahead.min() < 0 < ahead.max():
                axes.contour(ahead, [0], extent=extent, colors=INK, linewidths=0.8)


def _legend_below(axes: Axes) -> None:
    axes.legend(fontsize=SMALL - 1, frameon=False, loc="upper center", bbox_to_anchor=(0.45, -0.18), ncols=2)


def _dot(n: int) -> str:
    return "o" if n <= 40 else ""
