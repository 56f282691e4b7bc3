"""Stochastic natural gradients at every node of a tree, for rows that do not fit in one step.

The nodes share whitened features (of inducing points, say), and each has a Gaussian over their weights. A batch of rows
moves the nodes that have some of them below them, each by `sureshot.inference.natural_gradient`'s step with its own
N / |B|: how many rows are below it in all, over how many of them are in the batch. All other nodes stay as they are. A
batch of all rows and a step of one is mean field.

Reference: Achituve et al. 2021, appendix A.2, whose eq. 17 has N / (2 |B|) in the place of N / |B|.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.inference.natural_gradient import (
    InducingBatch,
    InducingPrior,
    NaturalGradientResult,
    NaturalGradientState,
    StepSchedule,
    decaying_steps,
    full_steps,
    natural_gradient_step,
    prior_state,
)
from sureshot.likelihoods.logistic import Logistic
from sureshot.tree.class_tree import ClassTree
from sureshot.tree.posterior import FittedBucket, TreePart, TreePosterior
from sureshot.tree.problems import NodeBucket, NodeSettings, node_buckets
from sureshot.tree.shared_kernel import SharedFeatures


@dataclass(frozen=True)
class TreeNaturalGradient:
    """A fit by natural gradients."""

    posterior: TreePosterior
    bound: Tensor  # (C - 1,), evidence bounds over all rows at the end, in nats; 0 where there are none
    state: NaturalGradientState  # (C - 1, 1, R), for continuing


def tree_natural_gradient_step(
    state: NaturalGradientState,  # (C - 1, 1, R) and (C - 1, 1, R, R)
    tree: ClassTree,
    batch: SharedFeatures,  # of the batch's rows
    y: Tensor,  # (B,) int64
    weight: Tensor | None,  # (B,)
    settings: NodeSettings,
    n_rows: Tensor,  # (C - 1,), how many rows are below each node in all
    step_size: float = 1.0,  # in (0, 1]
) -> NaturalGradientState:
    """One step of all nodes that have rows of the batch below them."""
    linear, quadratic = state.linear.clone(), state.quadratic.clone()
    prior = InducingPrior.whitened(batch.rank, batch.features.dtype, batch.features.device)
    for problems in node_buckets(tree, batch, y, weight, settings):
        nodes = problems.nodes
        scale = n_rows[nodes] / problems.bucket.present.sum(-1)
        own = NaturalGradientState(state.linear[nodes], state.quadratic[nodes])
        seen = _as_inducing(problems, batch)
        own, _ = natural_gradient_step(own, prior, Logistic(), seen, scale.to(linear), step_size)
        linear[nodes], quadratic[nodes] = own
    return NaturalGradientState(linear, quadratic)


@torch.no_grad()
def fit_tree_natural_gradient(
    tree: ClassTree,
    shared: SharedFeatures,  # whitened: ``Kxz L^-T`` with ``Kzz = L L'``, or exact features
    y: Tensor,  # (N,) int64
    weight: Tensor | None = None,  # (N,)
    *,
    prior_mean: float | Tensor = 0.0,  # of all nodes, or (C - 1,); positive leans to the right
    output_scale: float | Tensor = 1.0,  # of all nodes, or (C - 1,)
    batch_size: int = 1024,  # at most; rows are split into batches of nearly equal size
    n_epochs: int = 20,
    generator: torch.Generator | None = None,  # for the order of the rows; a fresh one with seed 0 by default
    # Step size by the number of the step, from 0; by default 1 if one batch holds all rows, else `decaying_steps`.
    schedule: StepSchedule | None = None,
) -> TreeNaturalGradient:
    """Fit the weights of the shared features at every node by stochastic natural gradients.

    Memory is ``O(C R^2)`` beyond the features and one bucket of a batch.

    Raises
    ------
    ValueError
        For labels, weights or settings that do not fit the tree and the features' rows.
    """
    if batch_size < 1 or n_epochs < 1:
        raise ValueError(f"batch_size and n_epochs must be at least 1, but they are {batch_size} and {n_epochs}.")
    settings = NodeSettings.of(tree, shared.features, prior_mean, output_scale)
    problems = node_buckets(tree, shared, y, weight, settings)
    n_rows = torch.zeros(tree.n_nodes, dtype=torch.int64, device=y.device)
    for some in problems:
        n_rows[some.nodes] = some.bucket.present.sum(-1)
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    n_batches = -(-len(y) // batch_size)
    steps = schedule or (full_steps if n_batches == 1 else decaying_steps(delay=n_batches))
    prior = InducingPrior.whitened(shared.rank, shared.features.dtype, shared.features.device)
    state = prior_state(prior, torch.Size([tree.n_nodes, 1]))
    for epoch in range(n_epochs if tree.n_nodes else 0):
        order = torch.randperm(len(y), generator=generator, device=generator.device).to(y.device)
        for place, rows in enumerate(order.tensor_split(n_batches)):
            residual = None if shared.residual is None else shared.residual[rows]
            batch = SharedFeatures(shared.features[rows], shared.covariance, residual)
            share = None if weight is None else weight[rows]
            size = steps(epoch * n_batches + place)
            state = tree_natural_gradient_step(state, tree, batch, y[rows], share, settings, n_rows, size)
    bound = shared.features.new_zeros(tree.n_nodes)
    fitted = []
    for some in problems:
        own = NaturalGradientState(state.linear[some.nodes], state.quadratic[some.nodes])
        _, info = natural_gradient_step(own, prior, Logistic(), _as_inducing(some, shared))
        bound[some.nodes] = info.bound
        found = NaturalGradientResult(
            some.mean[:, None, None], own.mean(), own.factor(), own, info.bound.unsqueeze(0), info.bound
        )
        fitted.append(FittedBucket(some, found))
    parts = (TreePart(0, shared, settings, tuple(fitted)),) if tree.n_nodes else ()
    return TreeNaturalGradient(TreePosterior(tree, parts), bound, state)


def _as_inducing(problems: NodeBucket, shared: SharedFeatures) -> InducingBatch:
    """The rows of a bucket's nodes as the weights of the features see them."""
    prior = shared.prior(problems.bucket, problems.mean, problems.scale)
    residual = torch.zeros_like(prior.features[..., 0]) if prior.residual is None else prior.residual
    offset = prior.mean.expand(*prior.features.shape[:-1])
    return InducingBatch(prior.features, residual, offset, problems.sides, problems.weight)
