"""Class trees for people: as text, and as a figure like a dendrogram.

>>> from sureshot.tree import label_order_tree
>>> print(tree_text(label_order_tree(3), ["cat", "dog", "owl"]))
3 classes
├── cat
└── 2 classes
    ├── dog
    └── owl
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sureshot.tree.class_tree import ClassTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito, without yellow
_GREY = "#555555"
_SHOWN = 4  # classes named of a group that is not drawn further
_LONGEST = 32  # letters of a name in a figure


def tree_text(
    tree: ClassTree,
    names: Sequence[object] | None = None,  # (C,), the classes' numbers by default
    max_depth: int | None = None,  # nodes this far down name some of their classes instead of their sides
) -> str:
    """The tree as lines of text, a left side before its right side."""
    labels = _names(tree, names)

    def what(child: int, depth: int) -> tuple[str, tuple[int, ...]]:
        if child < tree.n_classes:
            return labels[child], ()
        node = child - tree.n_classes
        classes = tree.classes_below(node)
        if max_depth is None or depth < max_depth:
            return f"{len(classes)} classes", tree.children[node]
        some = ", ".join(labels[c] for c in classes[:_SHOWN])
        return f"{len(classes)} classes: {some}{', ...' if len(classes) > _SHOWN else ''}", ()

    lines = []
    waiting: list[tuple[int, int, str, str]] = [(tree.n_classes if tree.children else 0, 0, "", "")]
    while waiting:
        child, depth, before, below = waiting.pop()
        text, sides = what(child, depth)
        lines.append(before + text)
        if sides:
            waiting.append((sides[1], depth + 1, below + "└── ", below + "    "))
            waiting.append((sides[0], depth + 1, below + "├── ", below + "│   "))
    return "\n".join(lines)


def tree_figure(
    tree: ClassTree,
    names: Sequence[object] | None = None,  # (C,), the classes' numbers by default
    title: str | None = None,
) -> Figure:
    """The tree as a figure, root on the left, classes in a column on the right; main branches differ in colour."""
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    labels = [text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…" for text in _names(tree, names)]
    row = 0.17 if tree.n_classes <= 60 else 0.125  # inches for each class
    size = 8 if tree.n_classes <= 60 else 6
    width = 0.12 * max(len(text) for text in labels) * size / 12 + min(1.2 + 0.35 * tree.depth, 6.0)
    figure = Figure(figsize=(max(width, 2.5), row * tree.n_classes + 0.3 + 0.3 * bool(title)), layout="constrained")
    axes = figure.subplots()
    x, y = _coordinates(tree)
    colours = _branch_colours(tree)
    lines, inks = [], []
    for node, sides in enumerate(tree.children):
        place = node + tree.n_classes
        for child in sides:
            lines.append([(x[place], y[place]), (x[place], y[child]), (x[child], y[child])])
            inks.append(colours[child])
    axes.add_collection(LineCollection(lines, colors=inks, linewidths=1.2, capstyle="round", joinstyle="round"))
    right = float(x.max())
    for label in range(tree.n_classes):
        where = right + 0.15, y[label]
        axes.text(*where, labels[label], va="center", fontsize=size, color="#222222", parse_math=False)
    axes.set(xlim=(-0.2, right + 0.1), ylim=(tree.n_classes - 0.4, -0.6))
    axes.set_axis_off()
    if title:
        axes.set_title(title, loc="left", fontsize=9, fontweight="bold", color="#222222", parse_math=False)
    return figure


def _coordinates(tree: ClassTree) -> tuple[np.ndarray, np.ndarray]:
    """Where classes and nodes are drawn, each (2 C - 1,): across by the height of what is below, down by the leaves."""
    height, y = (np.zeros(2 * tree.n_classes - 1) for _ in range(2))
    y[: tree.n_classes] = tree.positions
    for node in reversed(range(tree.n_nodes)):
        sides = list(tree.children[node])
        height[node + tree.n_classes] = 1 + height[sides].max()
        y[node + tree.n_classes] = y[sides].mean()
    return height.max() - height, y


def _branch_colours(tree: ClassTree) -> list[str]:
    """A colour for each of the few largest branches, from the root down, and grey above them."""
    colours = [_GREY] * (2 * tree.n_classes - 1)
    if not tree.children:
        return colours
    sizes = tree.spans.end - tree.spans.begin
    branches = [tree.n_classes]
    while len(branches) < min(len(_COLOURS), tree.n_classes):
        largest = max(branches, key=lambda child: sizes[child - tree.n_classes] if child >= tree.n_classes else 1)
        place = branches.index(largest)
        branches[place : place + 1] = tree.children[largest - tree.n_classes]
    for colour, child in zip(_COLOURS, branches, strict=False):
        waiting = [child]
        while waiting:
            reached = waiting.pop()
            colours[reached] = colour
            if reached >= tree.n_classes:
                waiting += tree.children[reached - tree.n_classes]
    return colours


def _names(tree: ClassTree, names: Sequence[object] | None) -> list[str]:
    if names is None:
        return [str(label) for label in range(tree.n_classes)]
    if len(names) != tree.n_classes:
        raise ValueError(f"names must be one for each of the {tree.n_classes} classes, got {len(names)}.")
    return [" ".join(str(name).split()) for name in names]
