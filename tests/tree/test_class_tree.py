"""Class trees as values: structure, JSON, joining, relabelling, comparison, drawing."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sureshot.tree import ClassTree, balanced_random_tree, label_order_tree, robinson_foulds, tree_figure, tree_text

FOUR = ClassTree(((5, 3), (6, 2), (0, 1)))


def check(tree: ClassTree) -> None:
    """Everything a tree says of itself, from its children alone."""
    n_classes = tree.n_classes
    assert tree.n_nodes == n_classes - 1
    assert sorted(tree.leaves.tolist()) == list(range(n_classes))
    assert (
        sorted(c for pair in tree.children for c in pair)
        == [c for c in range(2 * n_classes - 1) if c != n_classes or n_classes == 1][: 2 * tree.n_nodes]
    )
    for label in range(n_classes):
        child = n_classes if tree.children else 0
        for node, side in tree.path(label):
            assert child == n_classes + node
            assert label in tree.classes_below(node)
            child = tree.children[node][side]
        assert child == label
        assert tree.depths[label] == len(tree.path(label))
    for node in range(tree.n_nodes):
        below = set(tree.classes_below(node).tolist())
        assert below == {c for c in range(n_classes) if node in dict(tree.path(c))}
        inside = [k for k in range(tree.n_nodes) if set(tree.classes_below(k).tolist()) <= below]
        assert inside == list(range(tree.n_nodes))[tree.nodes_below(node)]
    assert tree.depth == max(tree.depths)


@settings(max_examples=25)
@given(n_classes=st.integers(1, 30), seed=st.integers(0, 5))
def test_trees_are_consistent(n_classes: int, seed: int) -> None:
    for tree in (balanced_random_tree(n_classes, seed), label_order_tree(n_classes)):
        check(tree)
        assert ClassTree.from_dict(json.loads(json.dumps(tree.to_dict()))) == tree
        check(tree.joined(balanced_random_tree(3)))


def test_known_shapes() -> None:
    assert label_order_tree(1) == ClassTree()
    assert label_order_tree(2).children == ((0, 1),)
    assert label_order_tree(4).children == ((0, 5), (1, 6), (2, 3))
    assert label_order_tree(1000).depth == 999
    assert balanced_random_tree(64).depth == 6
    assert balanced_random_tree(65).depth == 7
    assert balanced_random_tree(9, 1) == balanced_random_tree(9, 1) != balanced_random_tree(9, 2)
    np.testing.assert_array_equal(FOUR.path_matrix, [[-1, -1, -1], [-1, -1, 1], [-1, 1, 0], [1, 0, 0]])


def test_joined_trees_hold_both() -> None:
    left, right = FOUR, label_order_tree(3)
    tree = left.joined(right)
    assert tree.classes_below(1).tolist() == left.leaves.tolist()
    assert tree.subtree(1) == left
    assert tree.subtree(1 + left.n_nodes) == right
    assert ClassTree().joined(ClassTree()) == ClassTree(((0, 1),))
    assert ClassTree().joined(left).subtree(1) == left


def test_relabelling_permutes_paths() -> None:
    labels = [2, 0, 3, 1]
    renamed = FOUR.relabelled(labels)
    for label, new in enumerate(labels):
        assert renamed.path(new) == FOUR.path(label)
    with pytest.raises(ValueError, match=r"labels must hold each of 0\.\.3 once"):
        FOUR.relabelled([0, 0, 1, 2])


def test_a_tree_is_a_value() -> None:
    pairs = ((5, 3), (6, 2), (0, 1))
    for children in (pairs, list(map(list, pairs)), np.array(pairs), tuple(map(tuple, np.array(pairs)))):
        tree = ClassTree(children)  # type: ignore[arg-type]
        assert tree == FOUR
        assert hash(tree) == hash(FOUR)
        assert {type(child) for pair in tree.children for child in pair} == {int}
    with pytest.raises(ValueError, match="read-only"):
        FOUR.leaves[0] = 3


@pytest.mark.parametrize(
    ("children", "message"),
    [
        (((0, 0),), "class 0 occurs twice"),
        (((0, 2),), "where node 1 was expected|got 2|node 0"),
        (((0, 7),), "got 7"),
        (((0, -1),), "got -1"),
        (((0, 1.0),), "got 1.0"),
        (((0, True),), "got True"),
        (((5, 3), (0, 2), (6, 1)), "occurs|expected|not below"),
        (((0, 1), (2, 0)), "occurs twice|not below|got"),
        (((0, 1), (4, 2)), "node 1 is not below the root"),
        (((0, 1, 2),), r"node 0 must have two children, got \(0, 1, 2\)"),
        (((3, 2), (0,)), r"node 1 must have two children, got \(0,\)"),
        ((3,), "node 0 must have two children, got 3"),
        (("01",), "node 0 must have two children, got '01'"),
        (3, "must be pairs, one for each node, got 3"),
        (((0, np.float64(1.0)),), "got .*1.0"),
    ],
)
def test_children_that_make_no_tree(children: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClassTree(children)


@pytest.mark.parametrize("label", [-1, 4, "0", None])
def test_paths_are_of_classes(label: Any) -> None:
    assert FOUR.path(np.int64(3)) == FOUR.path(3.0) == FOUR.path(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"label must be a class, 0..3, got "):
        FOUR.path(label)


def test_classes_are_below_nodes() -> None:
    with pytest.raises(ValueError, match=r"node must be one of 0..2, got -1"):
        FOUR.classes_below(-1)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], "keys n_classes and children"),
        ({"children": []}, "keys n_classes and children"),
        ({"n_classes": 1, "children": [], "more": 1}, "no others"),
        ({"n_classes": 1, "children": "ab"}, "list of pairs"),
        ({"n_classes": 3, "children": [[0, 1]]}, "tree of 2 classes, but n_classes is 3"),
        ({"n_classes": "2", "children": [[0, 1]]}, "n_classes is '2'"),
        ({"n_classes": 2, "children": [[0, 1, 2]]}, "node 0 must have two children"),
        ({"n_classes": 2, "children": [3]}, "node 0 must have two children"),
        ({"n_classes": 2, "children": [[0, None]]}, "got None"),
        ({"n_classes": 2, "children": [[0, {}]]}, "got {}"),
    ],
)
def test_malformed_files(config: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClassTree.from_dict(config)


def test_distance_of_trees() -> None:
    swapped = ClassTree(((3, 5), (2, 6), (1, 0)))
    assert robinson_foulds(FOUR, swapped) == 0
    assert robinson_foulds(FOUR, label_order_tree(4)) == 1  # {0,1}, {0,1,2} against {1,2,3}, {2,3}
    pairs = ClassTree(((5, 6), (0, 1), (2, 3)))
    assert robinson_foulds(FOUR, pairs, normalised=False) == 2  # {0,1,2} against {2,3}
    assert robinson_foulds(FOUR, pairs) == 0.5
    assert robinson_foulds(ClassTree(), ClassTree()) == robinson_foulds(ClassTree(((0, 1),)), ClassTree(((1, 0),))) == 0
    with pytest.raises(ValueError, match="got 4 and 3"):
        robinson_foulds(FOUR, label_order_tree(3))


def test_text() -> None:
    assert tree_text(FOUR, ["ant", "bee", "cat", "dog"]) == (
        "4 classes\n├── 3 classes\n│   ├── 2 classes\n│   │   ├── ant\n│   │   └── bee\n│   └── cat\n└── dog"
    )
    assert tree_text(FOUR, max_depth=1) == "4 classes\n├── 3 classes: 0, 1, 2\n└── 3"
    assert tree_text(balanced_random_tree(9), max_depth=0).endswith(", ...")
    assert tree_text(ClassTree(), ["only"]) == "only"
    assert len(tree_text(label_order_tree(1500)).splitlines()) == 2999
    with pytest.raises(ValueError, match="names must be one for each of the 4 classes, got 1"):
        tree_text(FOUR, ["ant"])


@pytest.mark.parametrize("n_classes", [1, 2, 3, 40])
def test_figure_names_every_class(n_classes: int) -> None:
    names = [f"class {k} " + "x" * k for k in range(n_classes)]
    figure = tree_figure(balanced_random_tree(n_classes), names, "Title")
    axes = figure.axes[0]
    shown = [text.get_text() for text in axes.texts]
    assert len(shown) == n_classes
    assert max(map(len, shown)) <= 32
    assert axes.get_title("left") == "Title"
    assert len(axes.collections[0].get_paths()) == 2 * (n_classes - 1)
    heights = sorted(text.get_position()[1] for text in axes.texts)
    assert heights == list(range(n_classes))


def test_dollar_signs_are_no_formulas() -> None:
    names = ["$a_", "b$ to $c$", r"$\nothing$"]
    figure = tree_figure(label_order_tree(3), names, r"$\nothing$")
    figure.savefig(io.BytesIO())  # reads the texts
    assert [text.get_text() for text in figure.axes[0].texts] == names
