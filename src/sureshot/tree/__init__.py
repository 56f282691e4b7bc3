"""Trees of classes, with a binary Gaussian process at every node: many classes as many small questions.

`build_tree` makes a `ClassTree` of the classes' prototypes. Every node then asks of the rows of the classes below it on
which side they are: `fit_tree_mean_field` answers for all nodes at once, by a kernel that they share, and the
`TreePosterior` multiplies their answers along the paths to the classes.

>>> import torch
>>> from sureshot.gaussian import Queries
>>> x = torch.tensor([[0.0, 1.0], [0.6, 0.8], [0.8, -0.6], [1.0, 0.0]], dtype=torch.float64)
>>> tree = build_tree(class_prototypes(x, torch.arange(4), 4))
>>> kernel = SharedGram(x @ x.mT, lambda query: Queries(x @ query.mT, query.square().sum(-1)))
>>> fit = fit_tree_mean_field(tree, kernel, torch.arange(4), output_scale=9.0)
>>> fit.posterior.probabilities(x).argmax(0).tolist()
[0, 1, 2, 3]

Reference: Achituve, Navon, Yemini, Chechik & Fetaya 2021, "GP-Tree: A Gaussian process classifier for few-shot
incremental learning".
"""

from sureshot.tree.build import balanced_random_tree, build_tree, class_prototypes, label_order_tree
from sureshot.tree.class_tree import ClassTree
from sureshot.tree.distance import robinson_foulds
from sureshot.tree.drawing import tree_figure, tree_text
from sureshot.tree.gibbs import run_tree_gibbs
from sureshot.tree.mean_field import TreeMeanField, fit_tree_mean_field
from sureshot.tree.natural_gradient import TreeNaturalGradient, fit_tree_natural_gradient, tree_natural_gradient_step
from sureshot.tree.node_inducing import InducingNodes, NodeInducing, rows_below
from sureshot.tree.path_probabilities import NodeRule, SideLogProbabilities, class_log_probabilities
from sureshot.tree.posterior import TreePosterior
from sureshot.tree.shared_kernel import SharedFeatures, SharedGram, SharedKernel
from sureshot.tree.shared_rows import SharedRows

__all__ = [
    "ClassTree",
    "InducingNodes",
    "NodeInducing",
    "NodeRule",
    "SharedFeatures",
    "SharedGram",
    "SharedKernel",
    "SharedRows",
    "SideLogProbabilities",
    "TreeMeanField",
    "TreeNaturalGradient",
    "TreePosterior",
    "balanced_random_tree",
    "build_tree",
    "class_log_probabilities",
    "class_prototypes",
    "fit_tree_mean_field",
    "fit_tree_natural_gradient",
    "label_order_tree",
    "robinson_foulds",
    "rows_below",
    "run_tree_gibbs",
    "tree_figure",
    "tree_natural_gradient_step",
    "tree_text",
]
