"""The figures of a report, drawn with matplotlib's objects: no pyplot, no global state.

One palette (Okabe and Ito's, distinct under every common colour blindness), one type size, sizes that are
read without zooming at 800 pixels. Names of classes are shown as they are: dollar signs are not taken for
formulas. Each function returns a new ``Figure``; `figure_to_data_uri` turns it into text for an ``<img>``.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import ArrayLike, NDArray

from sureshot.metrics import ReliabilityCurve, RiskCoverage

BLUE, VERMILION, GREEN, GREY, INK = "#0072B2", "#D55E00", "#009E73", "#8C8C8C", "#222222"
SMALL, NORMAL = 9, 10  # points
PIXELS_PER_INCH = 96  # of a browser
HALF, FULL = 4.9, 8.3  # inches: about 470 and 800 pixels


def reliability_diagram(curve: ReliabilityCurve) -> Figure:
    """Accuracy against confidence with 95 % intervals, and the number of predictions in each bin beneath.

    Intervals are Wilson's (1927), which hold for bins of a few predictions too.
    """
    figure = new_figure(HALF, 4.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3.4, 1.0])
    filled = curve.count > 0
    confidence, accuracy, count = curve.confidence[filled], curve.accuracy[filled], curve.count[filled]
    centre, half_width = _wilson_interval(accuracy, count)
    upper.plot([0, 1], [0, 1], color=GREY, linestyle=(0, (4, 3)), linewidth=1.2, zorder=1)
    upper.vlines(confidence, centre - half_width, centre + half_width, color=BLUE, linewidth=1.6, alpha=0.55)
    upper.plot(confidence, accuracy, "o-", color=BLUE, markersize=5.5, linewidth=1.2, zorder=3)
    upper.set_title(f"ECE {curve.expected_error:.3f}", loc="left", color=INK, fontsize=NORMAL, weight="bold")
    upper.set_title("below the dashed line: too sure", loc="right", color="#5C5C5C", fontsize=SMALL)
    upper.set(ylabel="fraction right", xlim=(0, 1), ylim=(0, 1.02))
    width = np.diff(curve.edges)
    lower.bar(curve.edges[:-1], curve.count, width=width, align="edge", color=BLUE, edgecolor="white", linewidth=0.8)
    lower.set(xlabel="confidence (largest probability)", ylabel="rows")
    lower.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    tidy(upper, lower)
    return figure


def confidence_histogram(
    confidence: NDArray[np.float64],  # (n,)
    correct: NDArray[np.bool_] | None = None,  # (n,)
) -> Figure:
    """How sure the classifier is, with right and wrong answers apart where they are known."""
    figure = new_figure(HALF, 4.6)
    axes = figure.subplots()
    edges = np.linspace(0, 1, 21).tolist()
    if correct is None:
        axes.hist(confidence, edges, color=BLUE, edgecolor="white", linewidth=0.8)
    else:
        right, wrong = confidence[correct], confidence[~correct]
        axes.hist(
            [right, wrong],
            edges,
            stacked=True,
            color=[BLUE, VERMILION],
            label=[f"right ({right.size})", f"wrong ({wrong.size})"],
            edgecolor="white",
            linewidth=0.8,
        )
        mean, rate = float(confidence.mean()), float(correct.mean())
        axes.axvline(mean, color=INK, linewidth=1.4, label=f"mean confidence {mean:.3f}")
        axes.axvline(rate, color=INK, linewidth=1.4, linestyle=(0, (2, 2)), label=f"accuracy {rate:.3f}")
        axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, fontsize=SMALL, frameon=False)
    axes.set(xlabel="confidence (largest probability)", ylabel="rows", xlim=(0, 1))
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    tidy(axes)
    return figure


def objective_trace(values: ArrayLike, name: str) -> Figure:
    """An objective (evidence lower bound, loss) against the iteration of its optimisation."""
    trace = np.asarray(values, dtype=np.float64)
    figure = new_figure(HALF, 3.3)
    axes = figure.subplots()
    few = trace.size <= 40
    steps = np.arange(1, trace.size + 1)
    axes.plot(steps, trace, color=BLUE, linewidth=1.6, marker="o" if few else "", markersize=4)
    axes.set(xlabel="iteration", ylabel=plain(name, 60))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    tidy(axes)
    return figure


def risk_coverage(curve: RiskCoverage) -> Figure:
    """Error rate if only the surest answers are given, against the fraction answered."""
    figure = new_figure(HALF, 3.3)
    axes = figure.subplots()
    axes.plot(curve.coverage, curve.risk, color=BLUE, linewidth=1.8)
    axes.fill_between(curve.coverage, curve.risk, color=BLUE, alpha=0.12, linewidth=0)
    axes.set_title(f"area {curve.area:.4f}", loc="left", color=INK, fontsize=NORMAL, weight="bold")
    axes.set(xlabel="fraction answered, surest first", ylabel="fraction wrong", xlim=(0, 1))
    axes.set_ylim(0, max(0.02, 1.15 * float(curve.risk.max())))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    tidy(axes)
    return figure


def outlier_histogram(known: NDArray[np.float64], unknown: NDArray[np.float64]) -> Figure:
    """Outlier scores of rows of known and of unknown classes, each as a fraction of its own kind.

    The outermost hundredth of the scores, and infinite ones, are drawn at the ends: a few rows far out would leave no
    room for the others.
    """
    figure = new_figure(HALF, 3.3)
    axes = figure.subplots()
    both = np.concatenate([known, unknown])
    finite = both[np.isfinite(both)]
    low, high = np.quantile(finite, [0.005, 0.995]).tolist() if finite.size else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1.0, 31).tolist()
    for scores, colour, name in ((known, BLUE, "known classes"), (unknown, VERMILION, "unknown")):
        clipped = np.clip(scores, edges[0], edges[-1])
        weights = np.full(scores.size, 1.0 / max(scores.size, 1))
        name = f"{name} ({scores.size})"
        axes.hist(clipped, edges, weights=weights, histtype="stepfilled", color=colour, alpha=0.35, label=name)
        axes.hist(clipped, edges, weights=weights, histtype="step", color=colour, linewidth=1.4)
    axes.legend(fontsize=SMALL, frameon=False)
    axes.set(xlabel="outlier score", ylabel="fraction of rows")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    tidy(axes)
    return figure


def figure_to_data_uri(figure: Figure) -> str:
    """The figure as a ``data:`` address, so that a page needs no other file; twice a browser's resolution."""
    buffer = io.BytesIO()
    write_png(figure, buffer, 2 * PIXELS_PER_INCH)
    return _data_uri(buffer)


def write_png(figure: Figure, to: Path | BinaryIO, dots_per_inch: float, **options: Any) -> None:
    """What `savefig` writes, drawn once: that draws another time before, for the layout alone."""
    canvas, dots = figure.canvas, figure.dpi
    try:
        figure.dpi = dots_per_inch
        FigureCanvasAgg(figure).print_png(to, **options)
    finally:
        figure.dpi, figure.canvas = dots, canvas


def image_to_data_uri(
    image: ArrayLike,  # (H, W) grey, darkest is largest, or (H, W, 3) colours in 0..255 (integers) or 0..1
    highest: float | None = None,
) -> str:
    """One small picture, pixel for pixel, as a ``data:`` address.

    ``highest`` is the grey value drawn black, so that several pictures share a scale; by default the image's own
    largest.
    """
    pixels = np.asarray(image)
    buffer = io.BytesIO()
    if pixels.ndim == 2:
        top = float(pixels.max()) if highest is None else highest
        low = min(0.0, float(pixels.min()))
        imsave(buffer, pixels, cmap="gray_r", vmin=low, vmax=max(top, 1e-12), format="png")
    else:
        colours = pixels.astype(np.uint8) if pixels.dtype.kind in "iu" else np.clip(pixels, 0.0, 1.0)
        imsave(buffer, colours, format="png")
    return _data_uri(buffer)


def _data_uri(png: io.BytesIO) -> str:
    return f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode('ascii')}"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def tidy(*all_axes: Axes, grid: Literal["x", "y"] = "y") -> None:
    """Light grid behind, no frame on top and right, one type size."""
    for axes in all_axes:
        axes.set_facecolor("white")
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(GREY)
        axes.tick_params(labelsize=SMALL, color=GREY, labelcolor=INK)
        axes.xaxis.label.set(size=NORMAL, color=INK)
        axes.yaxis.label.set(size=NORMAL, color=INK)
        axes.grid(axis=grid, color="#E6E6E6", linewidth=0.8)
        axes.set_axisbelow(True)


def legend_below(figure: Figure, axes: Axes) -> None:
    """The names of the lines of one panel, for all panels."""
    lines, names = axes.get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=3, fontsize=SMALL, frameon=False)


def plain(value: object, longest: int = 34) -> str:
    """A name as one short line in which a dollar sign is a dollar sign, not the start of a formula.

    One that begins with an underscore gets a space in front: Matplotlib's legends leave it out otherwise.
    """
    text = " ".join(str(value).split())
    text = f" {text}" if text.startswith("_") else text
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return text.replace("$", r"\$")


def _wilson_interval(
    rate: NDArray[np.float64], count: NDArray[np.int64], z: float = 1.96
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centre and half width of Wilson's interval for a rate among ``count`` trials."""
    shrink = 1.0 + z**2 / count
    centre = (rate + z**2 / (2 * count)) / shrink
    half_width = z / shrink * np.sqrt(rate * (1 - rate) / count + z**2 / (4 * count**2))
    return centre, half_width
