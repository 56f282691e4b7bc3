"""Gibbs sampling: sites given the latents, latents given the sites, many chains at once.

Every conjugate likelihood turns into Gaussian factors once its auxiliary variables are drawn, so two exact
conditional draws make a sampler of the true posterior, whatever the likelihood: ``likelihood.sample_sites``
and one Gaussian draw. The state of a chain is its *sites*: predictions are Gaussian given them
(Rao-Blackwellised), so latents are drawn only when the next sites need them, and the last sweep draws none.
The class probabilities are those of each chain's Gaussian, averaged over chains: not those of an averaged
Gaussian.

Chains are the leading dimension, before tasks; they start independently from the prior, which is broad enough
for split R-hat to notice chains that have not mixed. `sureshot.inference.diagnostics` judges a run kept with
``keep="all"``. The one-vs-each likelihood couples the classes and has its own sampler,
`sureshot.inference.one_vs_each.gibbs`.

References: Polson, Scott & Windle 2013, Bayesian inference for logistic models using Polya-Gamma latent
variables; Wilson et al. 2020, Efficiently sampling functions from Gaussian process posteriors (Matheron's
rule).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from sureshot.gaussian.algebra import factor_plus_identity, symmetric_root, times_vector
from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.gram import GramPrior, matheron_sample
from sureshot.gaussian.latent import LatentPrior
from sureshot.gaussian.sites import Sites
from sureshot.likelihoods.auxiliary import require_counts
from sureshot.likelihoods.base import ConjugateLikelihood, PredictiveRule

logger = logging.getLogger(__name__)

_LARGEST_BLOCK = 2**26  # numbers held at once; more chains than fit are worked through in blocks


class GibbsState(NamedTuple):
    """What the next sweep needs: the sites of every chain, each (chains, ..., C, N)."""

    sites: Sites


class GibbsInfo(NamedTuple):
    """What a sweep did: the latents that it drew, (chains, ..., C, N)."""

    latents: Tensor


@dataclass(frozen=True)
class GibbsResult:
    """The last state of every chain.

    Attributes
    ----------
    sites : Sites
        Each (chains, ..., C, N); condition the prior on them for predictions.
    latents : Tensor (sweeps, chains, ..., C, N) or None
        With ``keep="all"``, the latents of every sweep, the first being the start.
    sites_trace : Sites or None
        With ``keep="all"``, the sites of every sweep, each (sweeps, chains, ..., C, N).
    """

    sites: Sites
    latents: Tensor | None
    sites_trace: Sites | None


@torch.no_grad()
def gibbs_step(
    state: GibbsState,
    prior: LatentPrior,
    likelihood: ConjugateLikelihood,
    y: Tensor,
    weight: Tensor | None,
    generator: torch.Generator | None,
    prior_sampler: LatentPrior | None = None,
) -> tuple[GibbsState, GibbsInfo]:
    """One sweep: latents given the sites, exactly, then sites given the latents.

    Parameters
    ----------
    state : GibbsState
    prior : LatentPrior
        `GramPrior` (Matheron's rule in function space) or `FeaturePrior` (weight space).
    likelihood : ConjugateLikelihood
        With diagonal sites.
    y : Tensor (..., N) int64
    weight : Tensor (..., N) or None
    generator : torch.Generator or None
    prior_sampler : LatentPrior or None
        The same prior with its factor at hand (see `sampler_of`), to spare a factorisation for every sweep.

    References
    ----------
    Polson, Scott & Windle 2013, section 3.1.
    """
    latents = draw_latents(prior, state.sites, generator, prior_sampler)
    return GibbsState(likelihood.sample_sites(latents, y, weight, generator)), GibbsInfo(latents)


@torch.no_grad()
def run_gibbs(
    prior: LatentPrior,
    likelihood: ConjugateLikelihood,
    y: Tensor,
    n_chains: int = 20,
    n_sweeps: int = 50,
    weight: Tensor | None = None,
    generator: torch.Generator | None = None,
    keep: Literal["last", "all"] = "last",
    n_classes: int | None = None,
    start: tuple[Tensor, Tensor] | None = None,
) -> GibbsResult:
    """Sample the posterior of the latents under a conjugate likelihood.

    Parameters
    ----------
    prior : LatentPrior
    likelihood : ConjugateLikelihood
    y : Tensor (..., N) int64
    n_chains, n_sweeps : int
        20 chains of 50 sweeps by default, the published setting for few-shot tasks; large kernel variances
        mix more slowly, so look at split R-hat.
    weight : Tensor (..., N) or None
        Integers: a datum of weight 2 counts as two equal ones, 0 as absent.
    generator : torch.Generator or None
    keep : "last" or "all"
        "all" also keeps every sweep, for diagnostics.
    n_classes : int or None
        The largest label plus 1 by default; needed when a class has no data.
    start : (mean, variance) of the latents, each (..., C, N), or None
        Start the chains from independent Gaussians (a mean-field solution, say) instead of the prior.

    Raises
    ------
    TypeError
        For a likelihood without independent sites (one-vs-each).
    ValueError
        For fractional, negative or non-finite weights, or counts of chains or sweeps below 1.
    """
    if not isinstance(likelihood, ConjugateLikelihood):
        raise TypeError(
            "likelihood must have independent sites for each latent (a ConjugateLikelihood), got "
            f"{type(likelihood).__name__}; one-vs-each has its own sampler, run_one_vs_each_gibbs"
        )
    if n_chains < 1 or n_sweeps < 1:
        raise ValueError(f"n_chains and n_sweeps must be at least 1, got {n_chains} and {n_sweeps}")
    if weight is not None:
        require_counts(weight)
    classes = int(y.max()) + 1 if n_classes is None else n_classes
    n_latents = likelihood.n_latents(max(classes, 2))
    matrix = prior.gram if isinstance(prior, GramPrior) else _features(prior)
    batch = torch.broadcast_shapes(matrix.shape[:-3], y.shape[:-1])
    sampler = sampler_of(prior)
    shape = torch.Size((n_chains, *batch, n_latents))
    if start is None:
        latents = sampler.sample(shape, generator)
    else:
        mean, variance = start
        noise = torch.randn(*shape, y.shape[-1], generator=generator, dtype=matrix.dtype, device=matrix.device)
        latents = mean + variance.sqrt() * noise
    state = GibbsState(likelihood.sample_sites(latents, y, weight, generator))
    kept = [(latents, state.sites)] if keep == "all" else []
    for _ in range(n_sweeps - 1):
        state, info = gibbs_step(state, prior, likelihood, y, weight, generator, sampler)
        if keep == "all":
            kept.append((info.latents, state.sites))
    logger.debug("Gibbs: %d chains, %d sweeps, latents %s", n_chains, n_sweeps, tuple(shape[1:]))
    if not kept:
        return GibbsResult(state.sites, None, None)
    trace = Sites(*(torch.stack(part) for part in zip(*(sites for _, sites in kept), strict=True)))
    return GibbsResult(state.sites, torch.stack([drawn for drawn, _ in kept]), trace)


@torch.no_grad()
def predictive_moments(
    result: GibbsResult, prior: LatentPrior, cross: Tensor, prior_variance: Tensor
) -> tuple[Tensor, Tensor]:
    """Each chain's Gaussian over the latents at query inputs: mean and variance, (chains, ..., C, Q).

    Parameters
    ----------
    result : GibbsResult
    prior : LatentPrior
        The one that was sampled.
    cross, prior_variance : Tensor
        As for `sureshot.gaussian.latent.LatentPosterior.query`.
    """
    parts = [prior.condition(sites).query(cross, prior_variance) for sites in _blocks(prior, result.sites)]
    return torch.cat([mean for mean, _ in parts]), torch.cat([variance for _, variance in parts])


def predictive_probabilities(
    result: GibbsResult,
    prior: LatentPrior,
    likelihood: ConjugateLikelihood,
    cross: Tensor,
    prior_variance: Tensor,
    rule: PredictiveRule = "integral",
) -> Tensor:
    """Class probabilities (..., classes, Q) of the mixture of the chains, by the named rule."""
    mean, variance = predictive_moments(result, prior, cross, prior_variance)
    return likelihood.predict_mixture(mean, variance, rule)


def sampler_of(prior: LatentPrior) -> LatentPrior:
    """The same prior with a factor of its kernel matrix at hand, so that every draw is one product.

    Singular kernel matrices need no jitter here: the factor comes from the eigenvalues.
    """
    if isinstance(prior, GramPrior):
        root = symmetric_root(prior.gram).to(prior.gram.dtype)
        return FeaturePrior(root, prior.mean)
    return prior


def draw_latents(
    prior: LatentPrior,
    sites: Sites,
    generator: torch.Generator | None,
    prior_sampler: LatentPrior | None = None,
) -> Tensor:
    """One exact draw of the latents given each chain's sites, (chains, ..., C, N).

    Parameters
    ----------
    prior : LatentPrior
    sites : Sites
        Each (chains, ..., C, N).
    generator : torch.Generator or None
    prior_sampler : LatentPrior or None
        As in `gibbs_step`.
    """
    sampler = sampler_of(prior) if prior_sampler is None else prior_sampler
    parts = []
    for block in _blocks(prior, sites):
        if isinstance(prior, GramPrior):
            start = sampler.sample(block.precision.shape[:-1], generator)
            parts.append(matheron_sample(prior, block, start, generator))
        else:
            parts.append(_weight_space_draw(_features(prior), prior.mean, block, generator))
    return torch.cat(parts)


def _weight_space_draw(features: Tensor, prior_mean: Tensor, sites: Sites, generator: torch.Generator | None) -> Tensor:
    """``f = a + Phi v`` with ``v ~ N(A^-1 Phi' (b - w a), A^-1)``, ``A = I + Phi' W Phi``."""
    w, b = sites
    rank = features.shape[-1]
    factor = factor_plus_identity(features.mT @ (w.unsqueeze(-1) * features))
    noise = torch.randn(*w.shape[:-1], rank, 1, generator=generator, dtype=w.dtype, device=w.device)
    projected = times_vector(features.mT, b - w * prior_mean).unsqueeze(-1)
    half = torch.linalg.solve_triangular(factor, projected, upper=False)
    weights = torch.linalg.solve_triangular(factor.mT, half + noise, upper=True)
    return prior_mean + times_vector(features, weights.squeeze(-1))


def _features(prior: LatentPrior) -> Tensor:
    if isinstance(prior, FeaturePrior):
        return prior.features
    raise TypeError(f"prior must be a GramPrior or a FeaturePrior, got {type(prior).__name__}")


def _blocks(prior: LatentPrior, sites: Sites) -> list[Sites]:
    """Cut the chains so that no block holds more than a bounded number of matrix entries."""
    n = sites.precision.shape[-1]
    width = n if isinstance(prior, GramPrior) else _features(prior).shape[-1]
    per_chain = sites.precision[0].numel() * width
    size = max(1, _LARGEST_BLOCK // max(per_chain, 1))
    return [Sites(w, b) for w, b in zip(sites.precision.split(size), sites.shift.split(size), strict=True)]
