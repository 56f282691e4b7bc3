"""Gibbs sampling: sites given the latents, latents given the sites, many chains at once.

A sweep is ``likelihood.sample_sites`` and one Gaussian draw. The state of a chain is its *sites*: predictions are
Gaussian given them (Rao-Blackwellised), so the last sweep draws no latents. The class probabilities are those of each
chain's Gaussian, averaged over chains: not those of an averaged Gaussian.

Chains are the leading dimension, before tasks; they start independently from the prior, which is broad enough
for split R-hat to notice chains that have not mixed. The one-vs-each likelihood couples the classes and has its own
sampler, `sureshot.inference.one_vs_each.gibbs`.

References: Polson, Scott & Windle 2013, Bayesian inference for logistic models using Polya-Gamma latent
variables; Wilson et al. 2020, Efficiently sampling functions from Gaussian process posteriors (Matheron's
rule).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.blocks import OF_DRAWS, blocks
from sureshot.gaussian.prior import Prior
from sureshot.gaussian.sites import Sites
from sureshot.inference.objectives import check_rows
from sureshot.likelihoods.auxiliary import require_counts
from sureshot.likelihoods.sites import ConjugateLikelihood

logger = logging.getLogger(__name__)


class GibbsState(NamedTuple):
    """What the next sweep needs: the sites of every chain, each (chains, ..., C, N)."""

    sites: Sites


class GibbsInfo(NamedTuple):
    """What a sweep did: the latents that it drew, (chains, ..., C, N)."""

    latents: Tensor


@dataclass(frozen=True)
class GibbsResult:
    """The last state of every chain, and with ``keep="all"`` what every sweep drew, for split R-hat and ESS."""

    sites: Sites  # each (chains, ..., C, N); condition the prior on them for predictions
    latents: Tensor | None = None  # (sweeps, chains, ..., C, N), the first being the start


@torch.no_grad()
def gibbs_step(
    state: GibbsState,
    prior: Prior,
    likelihood: ConjugateLikelihood,  # with diagonal sites
    y: Tensor,  # (..., N) int64
    weight: Tensor | None,  # (..., N)
    generator: torch.Generator | None,
    prior_sampler: Prior | None = None,  # `Prior.sampler`, to spare a factorisation for every sweep
) -> tuple[GibbsState, GibbsInfo]:
    """One sweep: latents given the sites, exactly, then sites given the latents (Polson, Scott & Windle 2013, 3.1)."""
    latents = draw_latents(prior, state.sites, generator, prior_sampler)
    return GibbsState(likelihood.sample_sites(latents, y, weight, generator)), GibbsInfo(latents)


@torch.no_grad()
def run_gibbs(
    prior: Prior,
    likelihood: ConjugateLikelihood,
    y: Tensor,  # (..., N) int64
    # 20 chains of 50 sweeps are the published setting for few-shot tasks; large kernel variances mix more slowly, so
    # look at split R-hat.
    n_chains: int = 20,
    n_sweeps: int = 50,
    weight: Tensor | None = None,  # (..., N), integers: a datum of weight 2 counts as two equal ones, 0 as absent
    generator: torch.Generator | None = None,
    keep: Literal["last", "all"] = "last",  # "all" also keeps every sweep, for diagnostics
    n_classes: int | None = None,  # the largest label plus 1 by default; needed when a class has no data
    # Mean and variance of the latents, each (..., C, N): start the chains from independent Gaussians (a mean-field
    # solution, say) instead of the prior.
    start: tuple[Tensor, Tensor] | None = None,
) -> GibbsResult:
    """Sample the posterior of the latents under a conjugate likelihood.

    A ValueError says when labels, weights or their number do not fit, see `fit_mean_field`, or weights are fractional.
    """
    if not isinstance(likelihood, ConjugateLikelihood):
        raise TypeError(
            "likelihood must have independent sites for each latent (a ConjugateLikelihood), got "
            f"{type(likelihood).__name__}; one-vs-each has its own sampler, run_one_vs_each_gibbs"
        )
    if n_chains < 1 or n_sweeps < 1:
        raise ValueError(f"n_chains and n_sweeps must be at least 1, got {n_chains} and {n_sweeps}")
    if keep not in ("last", "all"):
        raise ValueError(f"keep must be 'last' or 'all', got {keep!r}")
    classes = likelihood.check_targets(y, weight, n_classes)
    check_rows(prior, y)
    if weight is not None:
        require_counts(weight)
    n_latents = likelihood.n_latents(classes)
    variance = prior.variance
    batch = np.broadcast_shapes(variance.shape[:-2], y.shape[:-1])
    sampler = prior.sampler()
    shape = torch.Size((n_chains, *batch, n_latents))
    if start is None:
        latents = sampler.sample(shape, generator)
    else:
        mean, spread = start
        noise = torch.randn(*shape, y.shape[-1], generator=generator, dtype=variance.dtype, device=variance.device)
        latents = mean + spread.sqrt() * noise
    state = GibbsState(likelihood.sample_sites(latents, y, weight, generator))
    kept = [latents] if keep == "all" else []
    for _ in range(n_sweeps - 1):
        state, info = gibbs_step(state, prior, likelihood, y, weight, generator, sampler)
        if keep == "all":
            kept.append(info.latents)
    logger.debug("Gibbs: %d chains, %d sweeps, latents %s", n_chains, n_sweeps, tuple(shape[1:]))
    return GibbsResult(state.sites, torch.stack(kept) if kept else None)


@torch.no_grad()
def predictive_moments(
    result: GibbsResult,
    prior: Prior,  # the one that was sampled
    cross: Tensor,  # this and the next: the prior's `Queries`
    prior_variance: Tensor,
) -> tuple[Tensor, Tensor]:
    """Each chain's Gaussian over the latents at query inputs: mean and variance, (chains, ..., C, Q)."""
    parts = [prior.condition(sites).query(cross, prior_variance) for sites in _blocks(prior, result.sites)]
    return torch.cat([mean for mean, _ in parts]), torch.cat([variance for _, variance in parts])


def draw_latents(
    prior: Prior,
    sites: Sites,  # (chains, ..., C, N)
    generator: torch.Generator | None,
    prior_sampler: Prior | None = None,  # as in `gibbs_step`
) -> Tensor:
    """One exact draw of the latents given each chain's sites, (chains, ..., C, N)."""
    sampler = prior.sampler() if prior_sampler is None else prior_sampler
    return torch.cat([prior.draw(block, generator, sampler) for block in _blocks(prior, sites)])


def _blocks(prior: Prior, sites: Sites) -> list[Sites]:
    """Cut the chains so that no block holds more than a bounded number of matrix entries."""
    each = sites.precision[0].numel() * prior.width
    return [Sites(*(part[chains] for part in sites)) for chains in blocks(len(sites.precision), each, OF_DRAWS)]
