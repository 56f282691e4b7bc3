"""How different two class trees are: the Robinson-Foulds distance.

Every node of a rooted tree is the group of classes below it. The distance counts the groups that one tree has and the
other has not; which side is left does not matter. Divided by the largest possible count it is 0 for trees that split
alike and 1 for trees that share no group but all classes.

Reference: Robinson & Foulds 1981, Comparison of phylogenetic trees (in the form for rooted trees).
"""

from __future__ import annotations

from sureshot.tree.class_tree import ClassTree


def robinson_foulds(first: ClassTree, second: ClassTree, normalised: bool = True) -> float:
    """The distance of two trees over the same classes; with fewer than three classes it is 0."""
    if first.n_classes != second.n_classes:
        raise ValueError(
            f"trees can be compared over the same classes only, got {first.n_classes} and {second.n_classes} classes."
        )
    different = len(_groups(first) ^ _groups(second))
    most = 2 * (first.n_classes - 2)
    return float(different) if not normalised else different / most if most > 0 else 0.0


def _groups(tree: ClassTree) -> set[frozenset[int]]:
    return {frozenset(tree.classes_below(node).tolist()) for node in range(1, tree.n_nodes)}
