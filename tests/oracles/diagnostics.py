"""Have the chains converged, and how many independent draws are they worth?

Markov chains started apart must end up telling the same story. *Split R-hat* compares the variance between
(half-)chains with the variance within them: 1 means they agree, above about 1.01 they do not yet. The
*effective sample size* (ESS) is the number of independent draws whose mean would be as precise as the mean
of the correlated draws.

Draws are laid out as the samplers keep them, (sweeps, chains, ...): all trailing dimensions are separate
quantities, diagnosed together in one pass. Every half-chain needs at least two draws.

References: Gelman et al. 2013, Bayesian Data Analysis, 11.4-11.5; Geyer 1992, Practical Markov chain Monte
Carlo (initial positive and monotone sequences); Vehtari, Gelman, Simpson, Carpenter & Bürkner 2021,
Rank-normalization, folding, and localization: an improved R-hat, equations 10-13.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_FEWEST_SWEEPS = 4


def split_r_hat(draws: Tensor) -> Tensor:
    """Potential scale reduction of each quantity, (...), of draws (sweeps, chains, ...) in chains cut in halves.

    1 when the chains agree; infinite when they are constant but different; NaN for one shared constant. A last odd
    sweep is left out; one chain is enough.
    """
    chains = _split(draws)
    n_sweeps, means = chains.shape[0], _means(chains)
    within = (chains - means).square().sum(0).mean(0) / (n_sweeps - 1)
    between = (means - means[0]).var(0)  # exactly zero for equal means
    return (((n_sweeps - 1) / n_sweeps * within + between) / within).sqrt()


def effective_sample_size(draws: Tensor) -> Tensor:
    """Number of independent draws that draws (sweeps, chains, ...) are worth for each quantity's mean, (...).

    The autocorrelations of all half-chains are combined (so that chains that disagree count for less) and
    summed in pairs, which are positive and decreasing for a reversible chain, up to the first negative
    pair (Geyer 1992, section 3.3; Vehtari et al. 2021, equations 10-13). At most ``S log10 S`` for S draws in all
    (antithetic chains exceed S); NaN for a constant quantity.
    """
    halves = _split(draws)
    n_sweeps, n_chains = halves.shape[:2]
    covariance = _autocovariance(halves).mean(1)  # (lags, ...), each half-chain's average
    within = covariance[0] * n_sweeps / (n_sweeps - 1)
    total = covariance[0] + _means(halves).var(0) if n_chains > 1 else covariance[0]
    correlation = 1 - (within - covariance * n_sweeps / (n_sweeps - 1)) / total  # (lags, ...)
    correlation[0] = 1
    n_pairs = n_sweeps // 2
    pairs = correlation[: 2 * n_pairs].unflatten(0, (n_pairs, 2)).sum(1)
    alive = (pairs > 0).cumprod(0).to(pairs.dtype)
    monotone = pairs.cummin(0).values * alive
    n_draws = n_sweeps * n_chains
    time = (2 * monotone.sum(0) - 1).clamp_min(1 / math.log10(n_draws))
    return torch.where(within > 0, n_draws / time, math.nan)


def _split(draws: Tensor) -> Tensor:
    """Cut every chain in two: (sweeps, chains, ...) to (sweeps // 2, 2 chains, ...)."""
    if draws.ndim < 2 or draws.shape[0] < _FEWEST_SWEEPS:
        raise ValueError(f"draws must be (sweeps, chains, ...) with at least {_FEWEST_SWEEPS} sweeps: {draws.shape}")
    half = draws.shape[0] // 2
    return torch.cat([draws[:half], draws[half : 2 * half]], dim=1)


def _means(chains: Tensor) -> Tensor:
    """Of chains (sweeps, chains, ...), (chains, ...): of one that never moves its own number, to the last digit."""
    return torch.where((chains == chains[0]).all(0), chains[0], chains.mean(0))


def _autocovariance(chains: Tensor) -> Tensor:
    """Biased autocovariances at all lags, same shape as `chains`, by the fast Fourier transform."""
    n_sweeps = chains.shape[0]
    centred = chains - _means(chains)
    spectrum = torch.fft.rfft(centred, n=2 * n_sweeps, dim=0)
    return torch.fft.irfft(spectrum.abs().square(), n=2 * n_sweeps, dim=0)[:n_sweeps] / n_sweeps
