"""Gibbs sampling at every node of a tree.

A bucket of nodes is a batch of problems to `sureshot.inference.gibbs.run_gibbs`, chains in front. Of a chain its last
sites are kept, given which the latents of a node are Gaussian; probabilities are averaged over the chains of each node,
and then multiplied along the paths (Achituve et al. 2021, section 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.computing.blocks import OF_DRAWS
from sureshot.gaussian.posterior import LatentMoments, Posterior, ProblemPosterior
from sureshot.gaussian.prior import Prior
from sureshot.gaussian.sites import Sites
from sureshot.inference.gibbs import GibbsResult, predictive_moments, run_gibbs
from sureshot.likelihoods.auxiliary import require_counts
from sureshot.likelihoods.logistic import Logistic
from sureshot.tree.class_tree import ClassTree
from sureshot.tree.posterior import FittedBucket, TreePart, TreePosterior
from sureshot.tree.problems import NodeSettings, node_buckets
from sureshot.tree.shared_kernel import SharedKernel


@dataclass(frozen=True)
class ChainPosterior(ProblemPosterior):
    """The Gaussians of a sampler's chains, conditioned anew when asked, a block of chains at a time."""

    prior: Prior
    result: GibbsResult

    def some(self, chosen: Tensor) -> ChainPosterior:
        sites = Sites(*(part[:, chosen] for part in self.result.sites))
        return ChainPosterior(self.prior.some(chosen, sites.precision.shape[-1]), GibbsResult(sites))

    def query(self, cross: Tensor, prior_variance: Tensor) -> LatentMoments:
        """(chains, ..., C, Q)."""
        return LatentMoments(*predictive_moments(self.result, self.prior, cross, prior_variance))

    def query_mean(self, cross: Tensor) -> Tensor:
        return self.prior.condition(self.result.sites).query_mean(cross)

    def held(self) -> Posterior:
        """All chains conditioned, where that is one block of theirs."""
        sites = self.result.sites
        fits = sites.precision.numel() * self.prior.width <= OF_DRAWS
        return self.prior.condition(sites) if fits else self


def run_tree_gibbs(
    tree: ClassTree,
    shared: SharedKernel,
    y: Tensor,  # (N,) int64
    weight: Tensor | None = None,  # (N,), whole numbers: a row of weight 2 counts as two equal ones
    *,
    prior_mean: float | Tensor = 0.0,  # of all nodes, or (C - 1,); positive leans to the right
    output_scale: float | Tensor = 1.0,  # of all nodes, or (C - 1,)
    # Four chains are nearly as accurate as twenty (appendix D.1); sweeps as in `run_gibbs`.
    n_chains: int = 20,
    n_sweeps: int = 50,
    generator: torch.Generator | None = None,
) -> TreePosterior:
    """Sample the latents of every node given the rows of the classes below it.

    Raises
    ------
    ValueError
        For labels, weights or settings that do not fit the tree and the kernel's rows, and for weights that are not
        whole numbers.
    """
    if weight is not None:
        require_counts(weight)
    settings = NodeSettings.of(tree, shared.values, prior_mean, output_scale)
    fitted = []
    for problems in node_buckets(tree, shared, y, weight, settings):
        prior = problems.prior(shared)
        found = run_gibbs(
            prior,
            Logistic(),
            problems.sides,
            n_chains,
            n_sweeps,
            problems.weight,
            generator,
            n_classes=2,
        )
        fitted.append(FittedBucket(problems, ChainPosterior(prior, found)))
    parts = (TreePart(0, shared, settings, tuple(fitted)),) if tree.n_nodes else ()
    return TreePosterior(tree, parts)
