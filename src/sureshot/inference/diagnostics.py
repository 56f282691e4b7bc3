"""Have the chains converged, and how many independent draws are they worth?

Markov chains started apart must end up telling the same story. *Split R-hat* compares the variance between
(half-)chains with the variance within them: 1 means they agree, above about 1.01 they do not yet. The
*effective sample size* (ESS) is the number of independent draws whose mean would be as precise as the mean
of the correlated draws; its square root turns a standard deviation into the standard error of a reported
mean.

Draws are laid out as the samplers keep them, (sweeps, chains, ...): all trailing dimensions are separate
quantities, diagnosed together in one pass. Every half-chain needs at least two draws.

References: Gelman et al. 2013, Bayesian Data Analysis, 11.4-11.5; Geyer 1992, Practical Markov chain Monte
Carlo (initial positive and monotone sequences); Vehtari, Gelman, Simpson, Carpenter & Bürkner 2021,
Rank-normalization, folding, and localization: an improved R-hat.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_FEWEST_SWEEPS = 4


def split_r_hat(
    draws: Tensor,  # (sweeps, chains, ...), at least 4 sweeps; one chain is enough, since it is split
    rank_normalise: bool = False,
) -> Tensor:
    """Potential scale reduction of each quantity, (...), from chains cut in halves; a last odd sweep is left out.

    1 when the chains agree; infinite when they are constant but different; NaN for one shared constant. The default is
    the classical statistic, cheaper and enough for near-Gaussian latents. With ``rank_normalise`` normal scores of
    the pooled ranks replace the draws; the value is then the larger of that for the scores and that for the folded
    draws ``|draw - median|``, which also sees heavy tails and chains that differ only in scale (Vehtari et al. 2021,
    equations 1-4 and section 4).
    """
    halves = _split(draws)
    if not rank_normalise:
        return _r_hat(halves)
    pooled = halves.reshape(-1, *halves.shape[2:])
    middle = pooled.sort(0).values[[(len(pooled) - 1) // 2, len(pooled) // 2]].mean(0)
    folded = (halves - middle).abs()
    return torch.maximum(_r_hat(_normal_scores(halves)), _r_hat(_normal_scores(folded)))


def effective_sample_size(
    draws: Tensor,  # (sweeps, chains, ...), at least 4 sweeps; a last odd sweep is left out
    rank_normalise: bool = False,  # measure normal scores of the pooled ranks ("bulk" ESS) instead of the draws
) -> Tensor:
    """Number of independent draws that the chains are worth for each quantity's mean, (...).

    The autocorrelations of all half-chains are combined (so that chains that disagree count for less) and
    summed in pairs, which are positive and decreasing for a reversible chain, up to the first negative
    pair (Geyer 1992, section 3.3; Vehtari et al. 2021, equations 10-13). At most ``S log10 S`` for S draws in all
    (antithetic chains exceed S); NaN for a constant quantity.
    """
    halves = _split(draws)
    if rank_normalise:
        halves = _normal_scores(halves)
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


def standard_error(draws: Tensor) -> Tensor:
    """Monte-Carlo standard error of each quantity's mean over draws (sweeps, chains, ...), shape (...)."""
    real = draws if draws.is_floating_point() else draws.to(torch.float64)
    return real.flatten(0, 1).std(0) / effective_sample_size(draws).sqrt()


def _split(draws: Tensor) -> Tensor:
    """Cut every chain in two: (sweeps, chains, ...) to (sweeps // 2, 2 chains, ...)."""
    if draws.ndim < 2 or draws.shape[0] < _FEWEST_SWEEPS:
        raise ValueError(
            f"draws must have the shape (sweeps, chains, ...) with at least {_FEWEST_SWEEPS} sweeps; got "
            f"{tuple(draws.shape)}. Keep every sweep of the run (keep='all'), or run longer."
        )
    if not draws.is_floating_point():
        draws = draws.to(torch.float64)
    half = draws.shape[0] // 2
    return torch.cat([draws[:half], draws[half : 2 * half]], dim=1)


def _r_hat(chains: Tensor) -> Tensor:
    """Classical R-hat of chains (sweeps, chains, ...)."""
    n_sweeps, means = chains.shape[0], _means(chains)
    within = (chains - means).square().sum(0).mean(0) / (n_sweeps - 1)
    between = (means - means[0]).var(0)  # exactly zero for equal means
    return (((n_sweeps - 1) / n_sweeps * within + between) / within).sqrt()


def _means(chains: Tensor) -> Tensor:
    """Of chains (sweeps, chains, ...), (chains, ...): of one that never moves its own number, to the last digit."""
    return torch.where((chains == chains[0]).all(0), chains[0], chains.mean(0))


def _autocovariance(chains: Tensor) -> Tensor:
    """Biased autocovariances at all lags, same shape as `chains`, by the fast Fourier transform."""
    n_sweeps = chains.shape[0]
    centred = chains - _means(chains)
    spectrum = torch.fft.rfft(centred, n=2 * n_sweeps, dim=0)
    return torch.fft.irfft(spectrum.abs().square(), n=2 * n_sweeps, dim=0)[:n_sweeps] / n_sweeps


def _normal_scores(chains: Tensor) -> Tensor:
    """Normal quantiles of the pooled ranks (average ranks for ties), same shape."""
    pooled = chains.flatten(0, 1).movedim(0, -1).contiguous()  # (..., draws)
    ordered = pooled.sort(-1).values
    below = torch.searchsorted(ordered, pooled, right=False)
    upto = torch.searchsorted(ordered, pooled, right=True)
    rank = (below + upto + 1).to(chains.dtype) / 2
    scores = torch.special.ndtri((rank - 0.375) / (pooled.shape[-1] + 0.25))
    return scores.movedim(-1, 0).reshape(chains.shape)
