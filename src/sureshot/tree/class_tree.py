"""A binary tree over classes, as a value.

C classes hang as leaves under C - 1 internal nodes, the *nodes* for short. The children of all nodes say everything,
by the convention of SciPy's and scikit-learn's hierarchical clustering: a child below C is a class, a child ``C + k``
is node k. Nodes are numbered from the root (node 0) down, all of a left side before its right side, so that

* trees are equal if and only if they are the same tree, with the same left and right sides;
* the nodes below a node have the numbers that follow its own;
* read from left to right, the classes below a node stand side by side: `ClassTree.spans`.

One class is a tree without nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class Spans(NamedTuple):
    """Where the classes below each node stand among `ClassTree.leaves`; all (C - 1,) int64."""

    begin: Integers
    middle: Integers  # where the right side begins
    end: Integers  # one past the last


class Level(NamedTuple):
    """Nodes of one depth, with their children as in `ClassTree.children`; all int64."""

    nodes: Integers
    left: Integers
    right: Integers


@dataclass(frozen=True)
class ClassTree:
    """A binary tree whose leaves are the classes 0..C-1.

    Parameters
    ----------
    children : tuple of pairs of int
        Left and right child of each of the C - 1 nodes, root first, a left side before its right side.

    Raises
    ------
    ValueError
        When a node has not two children, a class or node occurs twice or not at all, or nodes are numbered in another
        order.

    Examples
    --------
    >>> tree = ClassTree(((5, 3), (6, 2), (0, 1)))
    >>> tree.n_classes, tree.leaves.tolist(), tree.depths.tolist()
    (4, [0, 1, 2, 3], [3, 3, 2, 1])
    >>> tree.path(2)
    ((0, 0), (1, 1))
    """

    children: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "children", _pairs(self.children))
        _check(self.children)

    @property
    def n_classes(self) -> int:
        """C."""
        return len(self.children) + 1

    @property
    def n_nodes(self) -> int:
        """C - 1."""
        return len(self.children)

    @cached_property
    def leaves(self) -> Integers:
        """The classes from left to right, (C,)."""
        found, waiting = [], [self.n_classes if self.children else 0]
        while waiting:
            child = waiting.pop()
            if child < self.n_classes:
                found.append(child)
            else:
                left, right = self.children[child - self.n_classes]
                waiting += [right, left]
        return _frozen(np.array(found, dtype=np.int64))

    @cached_property
    def positions(self) -> Integers:
        """The place of each class among `leaves`, (C,)."""
        return _frozen(np.argsort(self.leaves))

    @cached_property
    def spans(self) -> Spans:
        """Where the classes below each node stand among `leaves`."""
        begin, middle, end = (np.zeros(self.n_nodes, dtype=np.int64) for _ in range(3))

        def first_and_last(child: int) -> tuple[int, int]:
            if child < self.n_classes:
                return int(self.positions[child]), int(self.positions[child]) + 1
            return int(begin[child - self.n_classes]), int(end[child - self.n_classes])

        for node in reversed(range(self.n_nodes)):  # children come after their parent
            (begin[node], middle[node]), (_, end[node]) = map(first_and_last, self.children[node])
        return Spans(_frozen(begin), _frozen(middle), _frozen(end))

    @cached_property
    def path_matrix(self) -> NDArray[np.int8]:
        """The path of every class, (C, C - 1): -1 where it turns left at a node, +1 right, 0 where it does not pass."""
        place, spans = self.positions[:, None], self.spans
        right = (spans.middle <= place) & (place < spans.end)
        left = (spans.begin <= place) & (place < spans.middle)
        matrix = right.astype(np.int8) - left.astype(np.int8)
        matrix.flags.writeable = False
        return matrix

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """All nodes, those of one depth together, from the root down."""
        found, nodes = [], np.zeros(min(1, self.n_nodes), dtype=np.int64)
        pairs = np.array(self.children, dtype=np.int64).reshape(-1, 2)
        while len(nodes):
            left, right = pairs[nodes].T
            found.append(Level(*map(_frozen, (nodes, left.copy(), right.copy()))))
            below = np.concatenate([left, right])
            nodes = below[below >= self.n_classes] - self.n_classes
        return tuple(found)

    @cached_property
    def depths(self) -> Integers:
        """How many nodes lead to each class, (C,)."""
        depths = np.zeros(self.n_classes, dtype=np.int64)
        for depth, level in enumerate(self.levels, start=1):
            for side in (level.left, level.right):
                depths[side[side < self.n_classes]] = depth
        return _frozen(depths)

    @property
    def depth(self) -> int:
        """The longest path; 0 for one class."""
        return int(self.depths.max())

    def path(self, label: int) -> tuple[tuple[int, int], ...]:
        """The nodes that lead to a class, each with the side taken: 0 left, 1 right."""
        if label not in range(self.n_classes):
            raise ValueError(f"label must be a class, 0..{self.n_classes - 1}, got {label!r}.")
        row = self.path_matrix[int(label)]
        return tuple((int(node), int(row[node] > 0)) for node in np.flatnonzero(row))

    def classes_below(self, node: int) -> Integers:
        """The classes below a node, from left to right; ValueError for a number that is no node's."""
        if node not in range(self.n_nodes):
            raise ValueError(f"node must be one of 0..{self.n_nodes - 1}, got {node!r}.")
        return self.leaves[self.spans.begin[node] : self.spans.end[node]]

    def nodes_below(self, node: int) -> slice:
        """The numbers of a node and of the nodes below it."""
        return slice(node, node + int(self.spans.end[node] - self.spans.begin[node]) - 1)

    def branches(self, most: int) -> list[tuple[int, int]]:
        """Places among `leaves`, begin and end, of the largest branches that hold at most so many classes."""
        found, waiting = [], [self.n_classes if self.children else 0]
        while waiting:
            child = waiting.pop()
            if child < self.n_classes:
                begin, end = int(self.positions[child]), int(self.positions[child]) + 1
            else:
                begin, end = (int(part[child - self.n_classes]) for part in (self.spans.begin, self.spans.end))
            if end - begin <= most or child < self.n_classes:
                found.append((begin, end))
            else:
                waiting += reversed(self.children[child - self.n_classes])
        return found

    def subtree(self, node: int) -> ClassTree:
        """The tree below a node; its classes are numbered in the order of their numbers here."""
        numbers = {int(label): k for k, label in enumerate(np.sort(self.classes_below(node)))}
        below = self.nodes_below(node)
        shift = len(numbers) - self.n_classes - node

        def renumbered(child: int) -> int:
            return numbers[child] if child < self.n_classes else child + shift

        return ClassTree(tuple((renumbered(left), renumbered(right)) for left, right in self.children[below]))

    def relabelled(self, labels: Sequence[int]) -> ClassTree:
        """The same tree with class c called ``labels[c]``, a permutation."""
        if sorted(labels) != list(range(self.n_classes)):
            raise ValueError(f"labels must hold each of 0..{self.n_classes - 1} once, got {list(labels)}.")

        def named(child: int) -> int:
            return int(labels[child]) if child < self.n_classes else child

        return ClassTree(tuple((named(left), named(right)) for left, right in self.children))

    def joined(self, right: ClassTree) -> ClassTree:
        """This tree and another under a new root; the other's classes come after this one's.

        The nodes of this tree then have numbers from 1 on, in their order, and the other's follow.
        """
        total = self.n_classes + right.n_classes

        def moved(tree: ClassTree, child: int, label: int, node: int) -> int:
            return child + label if child < tree.n_classes else child - tree.n_classes + total + node

        children = []
        tops = []
        for tree, label, node in ((self, 0, 1), (right, self.n_classes, 1 + self.n_nodes)):
            tops.append(moved(tree, tree.n_classes if tree.children else 0, label, node))
            children += [(moved(tree, a, label, node), moved(tree, b, label, node)) for a, b in tree.children]
        return ClassTree(((tops[0], tops[1]), *children))

    def to_dict(self) -> dict[str, Any]:
        """For JSON; flat, so that no tree is too deep for it."""
        return {"n_classes": self.n_classes, "children": [list(pair) for pair in self.children]}

    @classmethod
    def from_dict(cls, config: Any) -> ClassTree:
        """The tree that `to_dict` wrote; malformed data are a ValueError."""
        if not isinstance(config, Mapping) or set(config) != {"n_classes", "children"}:
            raise ValueError("class tree: expected an object with the keys n_classes and children, and no others.")
        children, n_classes = config["children"], config["n_classes"]
        if not isinstance(children, Sequence) or isinstance(children, str):
            raise ValueError(f"class tree: children must be a list of pairs, got {type(children).__name__}.")
        if not _is_whole(n_classes) or n_classes != len(children) + 1:
            raise ValueError(
                f"class tree: {len(children)} nodes make a tree of {len(children) + 1} classes, but n_classes is "
                f"{n_classes!r}."
            )
        return cls(tuple(children))


def grow(
    n_classes: int,
    # From the classes below a node, two or more, to those of its left and of its right side, neither empty.
    split: Callable[[Integers], tuple[Integers, Integers]],
) -> ClassTree:
    """The tree that comes of splitting all classes, then each side, and so on."""
    if n_classes < 1:
        raise ValueError(f"a class tree needs at least one class, got {n_classes}.")
    children: list[list[int]] = []
    waiting: list[tuple[Integers, int, int]] = [(np.arange(n_classes), -1, 0)]
    while waiting:
        classes, parent, side = waiting.pop()
        child = int(classes[0])
        if len(classes) > 1:
            child = n_classes + len(children)
            left, right = split(classes)
            waiting += [(right, len(children), 1), (left, len(children), 0)]
            children.append([0, 0])
        if parent >= 0:
            children[parent][side] = child
    return ClassTree(tuple((left, right) for left, right in children))


def _pairs(children: Any) -> tuple[tuple[int, int], ...]:
    """Lists and arrays as tuples, NumPy's whole numbers as Python's."""
    nodes = _as_list(children)
    if nodes is None:
        raise ValueError(f"children must be pairs, one for each node, got {children!r}.")
    pairs = [_as_list(pair) for pair in nodes]
    for node, pair in enumerate(pairs):
        if pair is None or len(pair) != 2:
            raise ValueError(f"children must be pairs: node {node} must have two children, got {nodes[node]!r}.")
    return tuple((pair[0], pair[1]) for pair in pairs if pair is not None)


def _as_list(values: Any) -> list[Any] | None:
    """Entries of a sequence or an array, or None of anything else."""
    found = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(found, Sequence) or isinstance(found, str | bytes):
        return None
    return [int(value) if isinstance(value, np.integer) else value for value in found]


def _check(children: tuple[tuple[int, int], ...]) -> None:
    n_classes = len(children) + 1
    seen = np.zeros(n_classes, dtype=bool)
    waiting, node = [n_classes] if children else [], 0
    while waiting:
        child = waiting.pop()
        if not _is_whole(child) or not 0 <= child < n_classes + len(children):
            raise ValueError(
                f"children must be classes 0..{n_classes - 1} or nodes {n_classes}..{2 * n_classes - 2} of a tree "
                f"with {len(children)} nodes, got {child!r}."
            )
        if child < n_classes:
            if seen[child]:
                raise ValueError(f"children must hold every class once, but class {child} occurs twice.")
            seen[child] = True
            continue
        if child != n_classes + node:
            raise ValueError(
                f"children must number the nodes from the root down, a left side before its right side: where node "
                f"{node} was expected stands node {child - n_classes}."
            )
        waiting += reversed(children[node])
        node += 1
    if node < len(children):
        raise ValueError(f"children must make one tree, but node {node} is not below the root.")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _frozen(values: Integers) -> Integers:
    values.flags.writeable = False
    return values
