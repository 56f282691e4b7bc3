"""Trees of classes, with a binary Gaussian process at every node: many classes as many small questions.

`build_tree` makes a `ClassTree` of the classes' prototypes. Every node then asks of the rows of the classes below it on
which side they are.

Reference: Achituve, Navon, Yemini, Chechik & Fetaya 2021, "GP-Tree: A Gaussian process classifier for few-shot
incremental learning".
"""

from sureshot.tree.build import balanced_random_tree, build_tree, class_prototypes, label_order_tree
from sureshot.tree.class_tree import ClassTree
from sureshot.tree.distance import robinson_foulds
from sureshot.tree.drawing import tree_figure, tree_text

__all__ = [
    "ClassTree",
    "balanced_random_tree",
    "build_tree",
    "class_prototypes",
    "label_order_tree",
    "robinson_foulds",
    "tree_figure",
    "tree_text",
]
