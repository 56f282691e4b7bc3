"""Mean field at every node of a tree.

The nodes' evidence bounds are independent, and so are their fits: a bucket of nodes is a batch of problems, and every
node ends where `sureshot.inference.mean_field.fit_mean_field` ends for it alone. It comes there sooner: large nodes
need dozens of plain steps, and mixing them (`sureshot.inference.anderson`) a dozen. A mixed step that lowers a node's
bound is taken back, and a plain one made instead. A node that has converged leaves its bucket.

References: Achituve et al. 2021, appendix A; the updates are those of `sureshot.likelihoods.logistic`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.gaussian.posterior import ProblemPosterior
from sureshot.gaussian.sites import Sites
from sureshot.inference.anderson import Mixing
from sureshot.inference.objectives import evidence_bound
from sureshot.likelihoods.logistic import Logistic
from sureshot.tree.class_tree import ClassTree
from sureshot.tree.posterior import FittedBucket, TreePart, TreePosterior
from sureshot.tree.problems import NodeBucket, NodeSettings, node_buckets
from sureshot.tree.shared_kernel import SharedKernel

_ROUNDING = 1e-8  # of a bound, relative to its size: no reason to go back


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
    max_steps: int = 200,
    # A node stands still when the root mean square of no latent would move by more, relative to one plus its size.
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
            assert isinstance(posterior, ProblemPosterior)
            fitted.append(FittedBucket(problems, posterior))
    parts = (TreePart(0, shared, settings, tuple(fitted)),) if tree.n_nodes else ()
    return TreeMeanField(TreePosterior(tree, parts), bound, converged)


@torch.no_grad()
def _stationary_sites(
    problems: NodeBucket, shared: SharedKernel, max_steps: int, tolerance: float
) -> tuple[Sites, Tensor]:
    """Sites (P, 1, n) where mean field ends, and whether it has converged, (P,).

    Sites are a function of the latents' second moments, so these are what is mixed, as ``log(1 + E[f^2])``.
    """
    likelihood, left, prior = Logistic(), problems, problems.prior(shared)
    point = (prior.mean.square() + prior.variance).log1p().expand_as(problems.weight.unsqueeze(1))
    found, moving = point.clone(), torch.arange(len(point), device=point.device)
    best, mixing = point.new_full((len(point),), -torch.inf), Mixing.start(point)
    for _ in range(max_steps):
        moment, zero = point.clamp_min(0).expm1(), torch.zeros_like(point)
        sites = likelihood.expected_sites(zero, moment, left.sides, left.weight)
        posterior = prior.condition(sites)
        image = (posterior.mean.square() + posterior.variance).log1p()
        # The bound with the auxiliary variables of these moments: a step of mean field never lowers it.
        local = likelihood.local_bound(zero, moment, left.sides, left.weight)
        bound = posterior.log_evidence() + local + 0.5 * (sites.precision * moment).sum((-2, -1))
        worse = bound < best - _ROUNDING * (1 + best.abs())
        change = (image.expm1().sqrt() - moment.sqrt()).abs() / (1 + moment.sqrt())
        still = worse | ((change * (left.weight.unsqueeze(1) > 0)).amax((-2, -1)) > tolerance)
        mixing = mixing.moved(point, image, worse.unsqueeze(-1))
        best = torch.where(worse, best, bound)
        found[moving, :, : image.shape[-1]] = mixing.images[..., -1, :]
        point = mixing.next()
        if not bool(still.all()):
            moving = moving[still]
            if not len(moving):
                break
            left = left.some(still)
            n = left.sides.shape[-1]
            prior, mixing = prior.some(still, n), mixing.some(still, n)
            point, best = point[still, :, :n], best[still]
    converged = torch.ones(len(found), dtype=torch.bool, device=found.device)
    converged[moving] = False
    return likelihood.expected_sites(torch.zeros_like(found), found.expm1(), problems.sides, problems.weight), converged
