"""Figures of Gaussian processes in one column: bands are two deviations of the function, without noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures import INK, new_figure, tidy
from experiments.gp_posteriors import Moments
from sureshot.report.plots import BLUE, GREEN, VERMILION

WIDTH = 9.4
EXACT, OTHER = BLUE, VERMILION
"""Colours of what the kernel itself says, and of what is compared with it."""
LINES = (BLUE, VERMILION, GREEN, "#CC79A7", "#E69F00", "#56B4E9")
BAND = 2.0


class Rows(NamedTuple):
    """Labelled rows."""

    x: np.ndarray  # (N,)
    y: np.ndarray  # (N,)


class Stage(NamedTuple):
    """What is known of a function, given some rows."""

    title: str
    moments: Moments  # on a grid
    draws: np.ndarray  # (S, Q)
    rows: Rows


class Views(NamedTuple):
    """One model, by its weights and by its kernel, on a grid."""

    name: str
    by_weights: np.ndarray  # (S, Q), draws
    by_kernel: np.ndarray  # (S, Q)
    kernel: np.ndarray  # (Q,), with the input 1
    sampled: tuple[np.ndarray, np.ndarray]  # the same (Q,), of many draws by weights and by the kernel


class Scores(NamedTuple):
    """By the length-scale, in nats."""

    lengthscale: np.ndarray  # (L,)
    fit: np.ndarray
    complexity: np.ndarray
    left_out: np.ndarray

    @property
    def evidence(self) -> np.ndarray:
        """Their sum."""
        return self.fit + self.complexity


def draw_views(x: np.ndarray, views: Sequence[Views]) -> Figure:
    """A row for each model: functions by weights, functions by the kernel matrix, covariances."""
    figure = new_figure(WIDTH, 2.6 * len(views))
    grid = figure.subplots(len(views), 3, squeeze=False)
    for (left, middle, right), view in zip(grid, views, strict=True):
        for axes, draws in ((left, view.by_weights), (middle, view.by_kernel)):
            _lines(axes, x, draws)
            axes.set_ylim(*_limits(np.concatenate([view.by_weights, view.by_kernel])))
        tidy(left, f"{view.name}: weights drawn", "x", "f(x)")
        tidy(middle, f"{view.name}: function values drawn", "x")
        right.plot(x, view.kernel, color=INK, linewidth=1.6, label="kernel k(x, 1)")
        for sampled, colour, mark, what in zip(
            view.sampled, (BLUE, VERMILION), "ox", ("weights", "values"), strict=True
        ):
            right.plot(x[::8], sampled[::8], mark, color=colour, markersize=5, label=f"of drawn {what}", alpha=0.8)
        tidy(right, "covariance of f(x) and f(1)", "x")
        right.legend(fontsize=8, frameon=False)
    return figure


def draw_conditioning(x: np.ndarray, stages: Sequence[Stage]) -> Figure:
    """A panel for each number of rows: band, mean and draws."""
    figure = new_figure(WIDTH, 2.9)
    panels = figure.subplots(1, len(stages), sharey=True)
    for axes, (title, moments, draws, rows) in zip(panels, stages, strict=True):
        _band(axes, x, moments, EXACT)
        _lines(axes, x, draws, 0.9, LINES[1:])
        _dots(axes, rows, 24)
        tidy(axes, title, "x", "f(x)" if axes is panels[0] else "")
    return figure


def draw_scales(x: np.ndarray, panels: Mapping[tuple[float, float], np.ndarray]) -> Figure:
    """A row for each amplitude, a column for each length-scale."""
    amplitudes = sorted({amplitude for amplitude, _ in panels})
    lengthscales = sorted({lengthscale for _, lengthscale in panels})
    figure = new_figure(WIDTH, 1.8 * len(amplitudes) + 0.4)
    grid = figure.subplots(len(amplitudes), len(lengthscales), sharex=True, sharey=True, squeeze=False)
    for i, amplitude in enumerate(amplitudes):
        for j, lengthscale in enumerate(lengthscales):
            axes = grid[i, j]
            axes.axhspan(-BAND * amplitude, BAND * amplitude, color=EXACT, alpha=0.12, linewidth=0)
            _lines(axes, x, panels[amplitude, lengthscale], 1.1)
            title = f"length-scale {lengthscale:g}" if i == 0 else ""
            below = "x" if i == len(amplitudes) - 1 else ""
            tidy(axes, title, below, f"amplitude {amplitude:g}\nf(x)" if j == 0 else "")
    return figure


def draw_evidence(x: np.ndarray, scores: Scores, fits: Mapping[str, Moments], rows: Rows) -> Figure:
    """The two terms and what they sum to, above posteriors at three length-scales."""
    figure = new_figure(WIDTH, 5.6)
    layout: list[Any] = [["scores"] * len(fits), [*fits]]
    panels = figure.subplot_mosaic(layout, height_ratios=[1.35, 1.0])
    axes = panels["scores"]
    at, evidence = scores.lengthscale, scores.evidence
    axes.plot(at, scores.fit, color=GREEN, linestyle=(0, (4, 2)), label="fit")
    axes.plot(at, scores.complexity, color=VERMILION, linestyle=(0, (4, 2)), label="complexity")
    for values, colour, style, what in (
        (evidence, BLUE, "-", "their sum, the log evidence: most at"),
        (scores.left_out, INK, (0, (1, 1.5)), "left-out rows: most probable at"),
    ):
        best = int(values.argmax())
        axes.plot(at, values, color=colour, linestyle=style, linewidth=2.0, label=f"{what} {at[best]:.2f}")
        axes.plot(at[best], values[best], "o", color=colour, markersize=7, zorder=4)
        axes.axvline(at[best], color=colour, linewidth=0.8, linestyle=(0, (2, 3)))
    top = max(float(scores.complexity.max()), float(scores.left_out.max()))
    axes.set_ylim(2.2 * float(evidence[: len(evidence) // 2].min()), top + 0.15 * abs(top) + 12)
    axes.set_xscale("log")
    tidy(axes, "", "length-scale", "nats")
    axes.legend(fontsize=8.5, frameon=False, loc="lower left")
    for place, (title, moments) in enumerate(fits.items()):
        _band(panels[title], x, moments, EXACT)
        _dots(panels[title], rows)
        panels[title].set_ylim(*_limits(np.stack([rows.y - 1.5, rows.y + 2.0])))
        tidy(panels[title], title, "x", "f(x)" if place == 0 else "")
    return figure


def draw_posteriors(
    x: np.ndarray,
    exact: Moments,
    others: Mapping[str, Moments],
    rows: Rows,
    inputs: Mapping[str, np.ndarray],  # inducing inputs, of those that have any
    columns: int = 3,
) -> Figure:
    """A panel for each approximation, above the exact band."""
    n_rows = -(-len(others) // columns)
    figure = new_figure(WIDTH, 2.05 * n_rows + 0.5)
    grid = figure.subplots(n_rows, columns, sharex=True, sharey=True, squeeze=False)
    reach = _reach(exact, rows)
    for place, (axes, (name, moments)) in enumerate(zip(grid.flat, others.items(), strict=False)):
        _band(axes, x, exact, EXACT, "exact")
        _band(axes, x, moments, OTHER, "approximation", outline=True)
        _dots(axes, rows)
        if name in inputs:
            axes.plot(inputs[name], np.full(len(inputs[name]), -0.95 * reach), "^", color=OTHER, markersize=5)
        axes.set(ylim=(-reach, reach), xlim=(x[0], x[-1]))
        below = "x" if place + columns >= len(others) else ""
        tidy(axes, name, below, "f(x)" if place % columns == 0 else "")
        axes.xaxis.set_tick_params(labelbottom=True)
    for axes in grid.flat[len(others) :]:
        axes.set_axis_off()
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=2, fontsize=9, frameon=False)
    return figure


def draw_covariances(
    distance: np.ndarray,
    kernel: np.ndarray,
    covariances: Mapping[str, np.ndarray],
) -> Figure:
    """How functions at a distance hang together, by the kernel and by features."""
    figure = new_figure(WIDTH, 2.6)
    panels = figure.subplots(1, len(covariances), sharey=True)
    for axes, (name, values) in zip(panels, covariances.items(), strict=True):
        axes.plot(distance, values, color=OTHER, linewidth=1.2, label="of features")
        axes.plot(distance, kernel, color=EXACT, linewidth=1.8, label="of the kernel")
        tidy(axes, name, "distance |x - x'|", "covariance" if axes is panels[0] else "")
    panels[-1].legend(fontsize=8.5, frameon=False)
    return figure


def draw_noise(
    x: np.ndarray,
    own: np.ndarray,
    at: np.ndarray,
    noise: float,
    learnt: Mapping[str, Sequence[float]],
    counts: Sequence[int],
) -> Figure:
    """What FITC takes for noise of each place, and the noise that evidence learns by numbers of inducing inputs."""
    figure = new_figure(WIDTH, 3.0)
    left, right = figure.subplots(1, 2)
    left.plot(x, own, color=VERMILION, linewidth=1.8, label="noise of a row, as FITC has it")
    left.axhline(noise, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), label="noise of the model")
    left.plot(at, np.zeros(len(at)), "^", color=VERMILION, markersize=6, clip_on=False, label="inducing inputs")
    left.set_ylim(0, 1.35 * float(own.max()))
    tidy(left, "fitc: rows between inducing inputs look noisy", "x", "deviation")
    left.legend(fontsize=8, frameon=False, loc="upper center", ncols=2)
    for (name, values), colour, mark in zip(learnt.items(), (VERMILION, GREEN), "os", strict=True):
        right.plot(counts, values, mark, linestyle="-", color=colour, markersize=5, label=name)
    right.axhline(noise, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), label="noise of the data")
    tidy(right, "noise that evidence learns", "inducing inputs", "deviation")
    right.legend(fontsize=8.5, frameon=False)
    return figure


def draw_overfitting(
    counts: Sequence[int],
    lines: Mapping[str, tuple[Sequence[float], float]],  # by what they are: values, and the exact one
    x: np.ndarray,
    exact: Moments,
    sparse: Moments,
    rows: Rows,
) -> Figure:
    """Scores by numbers of learnt frequencies, beside the posterior of the most."""
    figure = new_figure(WIDTH, 3.1)
    left, right = figure.subplots(1, 2, width_ratios=[1.0, 1.25])
    for (name, (values, reference)), colour in zip(lines.items(), (BLUE, INK, "#CC79A7"), strict=True):
        left.plot(counts, values, "o-", color=colour, markersize=4.5, label=name)
        left.axhline(reference, color=colour, linewidth=1.0, linestyle=(0, (4, 2)))
    left.set_xscale("log", base=2)
    left.set_xticks(counts, [str(count) for count in counts])
    tidy(left, "dashed: the exact kernel's", "learnt frequencies", "nats a row")
    left.legend(fontsize=8, frameon=False)
    _band(right, x, exact, EXACT, "exact")
    _band(right, x, sparse, OTHER, f"ssgp, {counts[-1]} frequencies", outline=True)
    _dots(right, rows)
    reach = _reach(exact, rows)
    right.set(xlim=(x[0], x[-1]), ylim=(-reach, 1.3 * reach))
    tidy(right, "", "x", "f(x)")
    right.legend(fontsize=8, frameon=False, loc="upper right", ncols=2)
    return figure


def _band(axes: Axes, x: np.ndarray, moments: Moments, colour: str, name: str = "", outline: bool = False) -> None:
    low, high = moments.mean - BAND * moments.deviation, moments.mean + BAND * moments.deviation
    axes.fill_between(x, low, high, color=colour, alpha=0.13 if outline else 0.2, linewidth=0)
    axes.plot(x, moments.mean, color=colour, linewidth=1.6, label=name)
    if outline:
        axes.plot(x, np.stack([low, high], 1), color=colour, linewidth=0.8)


def _lines(axes: Axes, x: np.ndarray, draws: np.ndarray, width: float = 1.2, colours: Sequence[str] = LINES) -> None:
    for draw, colour in zip(draws, colours, strict=False):
        axes.plot(x, draw, color=colour, linewidth=width)


def _dots(axes: Axes, rows: Rows, size: float = 9) -> None:
    axes.scatter(rows.x, rows.y, s=size, color=INK, linewidths=0, zorder=4)


def _limits(values: np.ndarray) -> tuple[float, float]:
    """That show all values."""
    low, high = float(values.min()), float(values.max())
    return low - 0.05 * (high - low), high + 0.05 * (high - low)


def _reach(exact: Moments, rows: Rows) -> float:
    """How far from zero posteriors are shown."""
    return 1.25 * float(max((exact.mean + BAND * exact.deviation).max(), np.abs(rows.y).max()))
