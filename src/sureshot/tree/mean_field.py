"""Mean field at every node of a tree.

The nodes' evidence bounds are independent, and so are their fits: a bucket of nodes is a batch of problems, and every
node ends where `sureshot.inference.mean_field.fit_mean_field` ends for it alone. Nodes differ in how many steps they
need, a few and a few hundred, so a node that has converged leaves its bucket, and no bound is computed on the way.

Reference: Achituve et al. 2021, appendix A; the updates are those of `sureshot.likelihoods.logistic`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.gaussian.sites import Sites
from sureshot.inference.objectives import evidence_bound
from sureshot.likelihoods.logistic import Logistic
from sureshot.tree.class_tree import ClassTree
from sureshot.tree.posterior import FittedBucket, TreePart, TreePosterior
from sureshot.tree.problems import NodeBucket, NodeSettings, node_buckets
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
            sites, stands = _stationary_sites(problems, shared, max_steps, tolerance)
            # Once more with the graph of the kernel: at stationary sites this alone carries the whole gradient.
            posterior = problems.prior(shared).condition(sites)
            bound = bound.index_copy(
                0, problems.nodes, evidence_bound(posterior, Logistic(), problems.sides, problems.weight)
            )
            converged[problems.nodes] = stands
            fitted.append(FittedBucket(problems, posterior))
    parts = (TreePart(0, shared, settings, tuple(fitted)),) if tree.n_nodes else ()
    return TreeMeanField(TreePosterior(tree, parts), bound, converged)


@torch.no_grad()
def _stationary_sites(
    problems: NodeBucket, shared: SharedKernel, max_steps: int, tolerance: float
) -> tuple[Sites, Tensor]:
    """Sites (P, 1, n) where mean field ends, and whether it has converged, (P,)."""
    likelihood = Logistic()
    prior = problems.prior(shared)
    start = torch.zeros_like(problems.weight).unsqueeze(1)
    mean, variance = prior.mean.expand_as(start), prior.variance.expand_as(start)
    found = likelihood.expected_sites(mean, variance, problems.sides, problems.weight)
    precision = found.precision
    moving, left = torch.arange(len(start), device=start.device), problems
    for _ in range(max_steps):
        sites = likelihood.expected_sites(mean, variance, left.sides, left.weight)
        precision[moving, :, : sites.precision.shape[-1]] = sites.precision
        posterior = prior.condition(sites)
        change = ((posterior.mean - mean).abs() / (1 + mean.abs())).amax((-2, -1))
        mean, variance = posterior.mean, posterior.variance
        still = change > tolerance
        if not bool(still.all()):
            moving = moving[still]
            if not len(moving):
                break
            left = left.some(still)
            n = left.sides.shape[-1]
            prior = left.prior(shared)
            mean, variance = mean[still, :, :n], variance[still, :, :n]
    converged = torch.ones(len(start), dtype=torch.bool, device=start.device)
    converged[moving] = False
    return Sites(precision, found.shift), converged
