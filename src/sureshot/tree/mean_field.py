"""Mean field at every node of a tree.

The nodes' evidence bounds are independent, and so are their fits: a bucket of nodes is a batch of problems to
`sureshot.inference.mean_field.fit_mean_field`, in which a converged one stands still.

Reference: Achituve et al. 2021, appendix A; the updates are those of `sureshot.likelihoods.logistic`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.inference.mean_field import fit_mean_field
from sureshot.likelihoods.logistic import Logistic
from sureshot.tree.class_tree import ClassTree
from sureshot.tree.posterior import FittedBucket, TreePart, TreePosterior
from sureshot.tree.problems import NodeSettings, node_buckets
from sureshot.tree.shared_kernel import SharedKernel


@dataclass(frozen=True)
class TreeMeanField:
    """A mean-field fit of all nodes."""

    posterior: TreePosterior
    bound: Tensor  # (C - 1,), evidence bounds in nats; 0 where there are no rows. Differentiable in the kernel's values
    converged: Tensor  # (C - 1,) bool


def fit_tree_mean_field(
    tree: ClassTree,
    shared: SharedKernel,
    y: Tensor,  # (N,) int64
    weight: Tensor | None = None,  # (N,); a row of weight 2 counts as two equal ones, of 0 as absent
    *,
    prior_mean: float | Tensor = 0.0,  # of all nodes, or (C - 1,); positive leans to the right
    output_scale: float | Tensor = 1.0,  # of all nodes, or (C - 1,)
    max_steps: int = 200,  # this and the next as in `fit_mean_field`
    tolerance: float = 1e-4,
) -> TreeMeanField:
    """Fit a binary Gaussian process at every node to the rows of the classes below it.

    Raises
    ------
    ValueError
        For labels, weights or settings that do not fit the tree and the kernel's rows; see `node_buckets`.
    """
    settings = NodeSettings.of(tree, shared.values, prior_mean, output_scale)
    bound = shared.values.new_zeros(tree.n_nodes)
    converged = torch.ones(tree.n_nodes, dtype=torch.bool, device=bound.device)
    fitted = []
    with torch.set_grad_enabled(torch.is_grad_enabled() and shared.values.requires_grad):
        for problems in node_buckets(tree, shared, y, weight, settings):
            found = fit_mean_field(
                problems.prior(shared), Logistic(), problems.sides, problems.weight, 2, max_steps, tolerance
            )
            bound = bound.index_copy(0, problems.nodes, found.bound)
            converged[problems.nodes] = found.converged
            fitted.append(FittedBucket(problems, found.posterior))
    parts = (TreePart(0, shared, settings, tuple(fitted)),) if tree.n_nodes else ()
    return TreeMeanField(TreePosterior(tree, parts), bound, converged)
