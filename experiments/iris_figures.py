"""Figures of the Iris study: scores by training size, and maps of the largest probability."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from experiments.figures import COLOURS, label, new_figure, tidy
from experiments.iris_tables import MAIN, METRICS, Map, Scores, half_width

CLASS_COLOURS = ListedColormap(["#E69F00", "#CC79A7", "#FFFFFF"])


def draw_curves(scores: Scores) -> Figure:
    """One panel for each metric; the bound is shown relative to the softmax Laplace posterior's."""
    figure = new_figure(9.4, 6.2)
    panels = figure.subplots(2, 2, sharex=True)
    sizes = np.array(scores.sizes)
    for axes, (metric, title) in zip(panels.flat, METRICS.items(), strict=True):
        relative = metric == "elbo"
        for model in MAIN:
            colour = COLOURS[model.split(" (")[0]]
            values = np.stack([scores.values[size, model][metric] for size in scores.sizes])  # (sizes, splits)
            if relative:
                values = values - np.stack([scores.values[size, MAIN[-1]][metric] for size in scores.sizes])
            mean = values.mean(1)
            width = np.array([half_width(row) for row in values])
            dashed = (0, (4, 2)) if model == MAIN[-1] else "-"
            axes.plot(sizes, mean, "o", linestyle=dashed, color=colour, markersize=3.5, linewidth=1.5, label=model)
            axes.fill_between(sizes, mean - width, mean + width, color=colour, alpha=0.18, linewidth=0)
        tidy(axes, "Bound under softmax, minus Laplace's" if relative else title)
    for axes in panels[1]:
        axes.set_xscale("log")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        label(axes, xlabel="training examples per class")
    panels[0, 0].legend(fontsize=8.5, frameon=False)
    panels[1, 1].set_ylabel("nats", fontsize=9)
    return figure


def draw_maps(plane: Map) -> Figure:
    """The largest probability over the plane, a panel for each model, on one scale."""
    figure = new_figure(9.4, 7.4)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    levels = np.linspace(1 / 3, 1, 13)
    for axes, (model, p) in zip(panels.flat, plane.probabilities.items(), strict=True):
        filled = axes.contourf(plane.first, plane.second, p.max(0).T, levels, cmap="viridis")
        for c in range(p.shape[0]):
            rest = np.delete(p, c, 0).max(0)
            axes.contour(plane.first, plane.second, (p[c] - rest).T, [0.0], colors="white", linewidths=1.2)
        axes.scatter(
            *plane.x.T, c=plane.y, cmap=CLASS_COLOURS, s=22, edgecolors="black", linewidths=0.7, vmin=0, vmax=2
        )
        axes.tick_params(labelsize=8)
        label(axes, model)
    for axes in panels[1]:
        label(axes, xlabel="sepal length (cm)")
    for axes in panels[:, 0]:
        label(axes, ylabel="sepal width (cm)")
    bar = figure.colorbar(filled, ax=panels, shrink=0.6, aspect=30, ticks=[0.4, 0.6, 0.8, 1.0])
    bar.ax.tick_params(labelsize=8)
    bar.set_label("largest probability", fontsize=9)
    return figure
