"""Figures of learners of numbers: scores by size of the context, bands along a function, completed images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from sureshot.meta.evaluation.shown import Band, CompletedImage
from sureshot.report.content import Measured
from sureshot.report.few_shot_plots import look_of_line
from sureshot.report.plots import BLUE, FULL, GREY, INK, SMALL, legend_below, new_figure, plain, tidy

_UNKNOWN = (0.35, 0.45, 0.75)  # the colour of pixels that were not seen


def by_context(scores: Mapping[str, Mapping[str, Mapping[int, Measured]]], score: str) -> Figure:
    """Scores by region, learner and size, with 95 % intervals: a panel for each region, a line for each learner."""
    learners = next(iter(scores.values()))
    figure = new_figure(FULL, 3.0 + 0.2 * (-(-len(learners) // 3) if len(learners) > 1 else 0))
    panels = figure.subplots(1, len(scores), squeeze=False)[0]
    for axes, (region, by_learner) in zip(panels, scores.items(), strict=True):
        for number, (name, by_size) in enumerate(by_learner.items()):
            mean = np.array([found.mean for found in by_size.values()])
            half = 1.96 * np.nan_to_num([found.error for found in by_size.values()])
            colour, style = look_of_line(number)
            axes.fill_between(list(by_size), mean - half, mean + half, color=colour, alpha=0.15, linewidth=0)
            axes.plot(list(by_size), mean, color=colour, linestyle=style, marker="o", markersize=3.5, label=plain(name))
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xticks(list(by_size), list(map(str, by_size)))
        axes.set_title(f"{region} the range of training" if len(scores) > 1 else "", loc="left", fontsize=SMALL)
        axes.set_xlabel("rows of context")
        tidy(axes)
    panels[0].set_ylabel(score)
    if len(learners) > 1:
        legend_below(figure, panels[0])
    return figure


def draw_bands(shown: Mapping[str, Sequence[Band]]) -> Figure:
    """One function, its rows as dots, means and bands of two deviations: a row for each size, a column for each method.

    A dotted line is where the training's inputs end.
    """
    sizes = len(next(iter(shown.values())))
    figure = new_figure(2.3 * max(2, len(shown)), 2.0 * sizes)
    panels = figure.subplots(sizes, len(shown), sharex=True, sharey=True, squeeze=False)
    for column, (name, bands) in enumerate(shown.items()):
        for row, band in enumerate(bands):
            axes, mean, half = panels[row, column], np.array(band["mean"]), 2 * np.array(band["deviation"])
            axes.fill_between(band["x"], mean - half, mean + half, color=BLUE, alpha=0.25, linewidth=0)
            axes.plot(band["x"], mean, color=BLUE, linewidth=1.2)
            axes.plot(band["context_x"], band["context_y"], ".", color=INK, markersize=4)
            if band["trained_to"] is not None:
                axes.axvline(band["trained_to"], color=GREY, linewidth=0.8, linestyle=":")
            axes.set_title(plain(name, 24) if row == 0 else "", fontsize=SMALL, color=INK)
            axes.set_ylabel(f"{band['context']} rows" if column == 0 else "")
            tidy(axes)
    seen = np.concatenate([band["context_y"] for bands in shown.values() for band in bands])
    middle, reach = float(np.mean(seen)), max(float(np.ptp(seen)), 2.0)
    panels[0, 0].set_ylim(middle - 1.3 * reach, middle + 1.3 * reach)
    return figure


def draw_completed(shown: Mapping[str, Sequence[CompletedImage]]) -> Figure:
    """What was seen in the first row, then the means of each learner; a column for each size."""
    first = next(iter(shown.values()))
    figure = new_figure(1.3 * len(first), 1.3 * (len(shown) + 1))
    panels = figure.subplots(len(shown) + 1, len(first), squeeze=False)
    for column, part in enumerate(first):
        known = np.array(part["known"], dtype=bool).reshape(*part["shape"][:2], 1)
        panels[0, column].imshow(np.where(known, _coloured(part["context"], part["shape"]), _UNKNOWN))
        panels[0, column].set_title(f"{part['size']} pixels", fontsize=SMALL, color=INK)
    panels[0, 0].set_ylabel("seen")
    for row, (name, parts) in enumerate(shown.items(), start=1):
        for axes, part in zip(panels[row], parts, strict=True):
            axes.imshow(_coloured(part["mean"], part["shape"]))
        panels[row, 0].set_ylabel(plain(name, 24))
    for axes in panels.flat:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.yaxis.label.set(size=SMALL, color=INK)
    return figure


def _coloured(values: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    """Three channels, of one or three, from 0 to 1."""
    return np.broadcast_to(np.array(values).reshape(shape) / 255, (*shape[:2], 3))
