"""Stochastic natural-gradient inference with inducing points, for data that do not fit in one step.

The latents are ``f = o + k u`` plus an independent residual of variance Q, with inducing values u and a
Gaussian ``q(u)`` in natural parameters, ``q(u) proportional to exp(linear' u + u' quadratic u)``. Given
Gaussian sites (precision w, shift b) of a batch of |B| out of N data, the natural gradient of the evidence
bound points to the conjugate update itself, so a step of size rho moves towards it:

``linear <- (1 - rho) linear + rho (N/|B| k' (b - w o) + P m0)``,
``quadratic <- (1 - rho) quadratic - rho/2 (P + N/|B| k' W k)``,

with ``N(m0, P^-1)`` the prior of u. On all the data with rho = 1 this *is* a mean-field step.

The parametrisation is a prior: `InducingPrior.whitened`, ``k = Phi = Kxz L^-T`` with ``Kzz = L L'`` and prior
N(0, I), is well conditioned and also serves exact low-rank features (residual zero). The published one is
``k = Kxz Kzz^-1`` with prior N(a, Kzz).

Reference: Wenzel et al. 2019, "Efficient Gaussian process classification using Polya-Gamma data
augmentation".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sureshot.gaussian.algebra import times_vector
from sureshot.gaussian.features import weight_query
from sureshot.gaussian.posterior import LatentMoments, ProblemPosterior
from sureshot.gaussian.sites import Sites
from sureshot.likelihoods.sites import MeanFieldLikelihood

StepSchedule = Callable[[int], float]


@dataclass(frozen=True)
class InducingPrior:
    """Prior ``N(m0, P^-1)`` of the inducing values."""

    precision: Tensor  # (..., R, R), P
    linear: Tensor  # (..., C or 1, R), ``P m0``
    mean: Tensor  # (..., C or 1, R), m0
    log_det: Tensor  # (...), ``log|P|``

    @classmethod
    def whitened(cls, rank: int, dtype: torch.dtype, device: torch.device | None = None) -> InducingPrior:
        """``N(0, I)``: for features ``Phi = Kxz L^-T``, with the prior mean in the batch's offset."""
        zeros = torch.zeros(1, rank, dtype=dtype, device=device)
        return cls(torch.eye(rank, dtype=dtype, device=device), zeros, zeros, zeros.new_zeros(()))


class NaturalGradientState(NamedTuple):
    """Natural parameters of ``q(u)``, one for every latent function."""

    linear: Tensor  # (..., C, R)
    quadratic: Tensor  # (..., C, R, R), negative definite

    def factor(self) -> Tensor:
        """Lower Cholesky factor of the precision ``Sigma^-1 = -2 quadratic``, (..., C, R, R)."""
        return torch.linalg.cholesky(-2 * self.quadratic)

    def mean(self) -> Tensor:
        """Mean of the inducing values, (..., C, R)."""
        return torch.cholesky_solve(self.linear.unsqueeze(-1), self.factor()).squeeze(-1)


class InducingBatch(NamedTuple):
    """A batch of data as the inducing values see it: ``f = offset + projection u + residual``."""

    projection: Tensor  # (..., 1 or C, B, R), k
    residual: Tensor  # (..., 1 or C, B), variance of f given u, not negative
    offset: Tensor  # scalar, (..., C, 1) or (..., C, B), the o above
    y: Tensor  # (..., B) int64
    weight: Tensor | None = None  # (..., B)


class NaturalGradientInfo(NamedTuple):
    """Diagnostics of one step, at the state *before* it."""

    bound: Tensor  # (...), estimate of the evidence bound from this batch
    sites: Sites  # (..., C, B)


@dataclass(frozen=True)
class NaturalGradientResult(ProblemPosterior):
    """Posterior of whitened inducing values; queries are features (..., 1 or C, Q, R)."""

    prior_mean: Tensor  # scalar or (..., C, 1)
    mean: Tensor  # (..., C, R)
    factor: Tensor  # (..., C, R, R), lower Cholesky factor of the posterior precision
    state: NaturalGradientState  # for continuing
    bound_trace: Tensor  # (steps, ...), noisy estimates of the evidence bound, one for each step
    bound: Tensor  # (...), evidence bound over all the data at the end

    def some(self, chosen: Tensor) -> NaturalGradientResult:
        return NaturalGradientResult(
            self.prior_mean[chosen],
            self.mean[chosen],
            self.factor[chosen],
            NaturalGradientState(*(part[chosen] for part in self.state)),
            self.bound_trace[:, chosen],
            self.bound[chosen],
        )

    def query(self, cross: Tensor, prior_variance: Tensor) -> LatentMoments:
        return weight_query(self.prior_mean, self.mean, self.factor, cross, prior_variance)

    def query_mean(self, cross: Tensor) -> Tensor:
        return self.prior_mean + times_vector(cross, self.mean)


def prior_state(prior: InducingPrior, shape: torch.Size) -> NaturalGradientState:
    """The state whose ``q(u)`` is the prior, for latents of leading `shape` (..., C)."""
    rank = prior.precision.shape[-1]
    quadratic = -0.5 * prior.precision.unsqueeze(-3)
    return NaturalGradientState(prior.linear.expand(*shape, rank).clone(), quadratic.expand(*shape, rank, rank).clone())


def natural_gradient_step(
    state: NaturalGradientState,
    prior: InducingPrior,
    likelihood: MeanFieldLikelihood,
    batch: InducingBatch,
    scale: float | Tensor = 1.0,  # (...), N/|B|, number of data over number in the batch: in a class tree of the node
    step_size: float = 1.0,  # rho, in (0, 1]; with all data in the batch, 1 is exact coordinate ascent
) -> tuple[NaturalGradientState, NaturalGradientInfo]:
    """One natural-gradient step on a batch."""
    factor, mean = _moments(state)
    latent_mean, latent_variance = _latent_moments(factor, mean, batch)
    sites = likelihood.expected_sites(latent_mean, latent_variance, batch.y, batch.weight)
    local = likelihood.local_bound(latent_mean, latent_variance, batch.y, batch.weight)
    info = NaturalGradientInfo(scale * local - _kl(factor, mean, prior), sites)
    w, b = sites
    k = batch.projection
    factor_of_data = torch.as_tensor(scale, dtype=w.dtype, device=w.device)[..., None, None]
    pull = times_vector(k.mT, b - w * batch.offset)
    information = k.mT @ (w.unsqueeze(-1) * k)
    linear = prior.linear + factor_of_data * pull
    quadratic = -0.5 * (prior.precision.unsqueeze(-3) + factor_of_data.unsqueeze(-1) * information)
    updated = NaturalGradientState(
        state.linear + step_size * (linear - state.linear),
        state.quadratic + step_size * (quadratic - state.quadratic),
    )
    return updated, info


def batch_bound(
    state: NaturalGradientState,
    prior: InducingPrior,
    likelihood: MeanFieldLikelihood,
    batch: InducingBatch,
    scale: float | Tensor = 1.0,  # as in `natural_gradient_step`
) -> Tensor:
    """The estimate of the evidence bound from a batch, (...), differentiable in the batch's projection and residual.

    The auxiliary variables are at their optimum, so this also is the gradient of the bound as they stand.
    """
    factor, mean = _moments(state)
    local = likelihood.local_bound(*_latent_moments(factor, mean, batch), batch.y, batch.weight)
    return scale * local - _kl(factor, mean, prior)


def fit_natural_gradient(
    features: Tensor,  # (..., 1 or C, N, R), ``Kxz`` times a whitening matrix, or exact low-rank ones
    likelihood: MeanFieldLikelihood,
    y: Tensor,  # (..., N) int64
    weight: Tensor | None = None,  # (..., N)
    *,
    prior_mean: Tensor | float = 0.0,  # scalar or (..., C, 1)
    residual: Tensor
    | None = None,  # (..., 1 or C, N), prior variance that the features do not explain; zero by default
    n_classes: int | None = None,  # ``max(y) + 1`` and at least 2 by default
    batch_size: int = 1024,  # at most; data are split into batches of nearly equal size
    n_epochs: int = 20,
    generator: torch.Generator | None = None,  # for the order of the data; a fresh one with seed 0 by default
    # Step size by the number of the step, from 0; by default 1 if one batch holds all data, else `decaying_steps`.
    schedule: StepSchedule | None = None,
) -> NaturalGradientResult:
    """Fit whitened inducing values by stochastic natural gradients.

    Memory is ``O(C R^2 + B R)`` beyond the features; a step costs ``O(C (B R^2 + R^3))``.
    """
    classes = likelihood.check_targets(y, weight, n_classes)
    if batch_size < 1 or n_epochs < 1:
        raise ValueError(f"batch_size and n_epochs must be at least 1, but they are {batch_size} and {n_epochs}")
    n, rank = features.shape[-2:]
    if y.shape[-1] != n:
        raise ValueError(f"features must have one row for each of the {y.shape[-1]} labels, but they have {n}")
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    n_batches = -(-n // batch_size)
    steps = schedule or (full_steps if n_batches == 1 else decaying_steps(delay=n_batches))
    offset = torch.as_tensor(prior_mean, dtype=features.dtype, device=features.device)
    unexplained = features.new_zeros(1, n) if residual is None else residual

    def take(rows: Tensor) -> InducingBatch:
        return InducingBatch(
            features[..., rows, :],
            unexplained[..., rows],
            offset,
            y[..., rows],
            None if weight is None else weight[..., rows],
        )

    with torch.no_grad():
        prior = InducingPrior.whitened(rank, features.dtype, features.device)
        leading = np.broadcast_shapes(features.shape[:-3], y.shape[:-1], offset.shape[:-2])
        state = prior_state(prior, torch.Size([*leading, likelihood.n_latents(classes)]))
        trace: list[Tensor] = []
        for _ in range(n_epochs):
            order = torch.randperm(n, generator=generator, device=generator.device).to(y.device)
            for rows in order.tensor_split(n_batches):
                batch, scale = take(rows), n / rows.numel()
                state, info = natural_gradient_step(state, prior, likelihood, batch, scale, steps(len(trace)))
                trace.append(info.bound)
        factor, mean = _moments(state)
        bound = -_kl(factor, mean, prior)
        for rows in torch.arange(n, device=y.device).tensor_split(n_batches):
            batch = take(rows)
            moments = _latent_moments(factor, mean, batch)
            bound = bound + likelihood.local_bound(*moments, batch.y, batch.weight)
    return NaturalGradientResult(offset, mean, factor, state, torch.stack(trace), bound)


def decaying_steps(delay: float = 1.0, exponent: float = 0.7) -> StepSchedule:
    """Step sizes ``(1 + t / delay)^-exponent``, starting at 1; the sum converges for exponents above 0.5.

    A first step of 1 forgets the start at once; convergence of stochastic steps needs an exponent in (0.5,
    1].
    """
    return lambda step: (1 + step / delay) ** -exponent


def full_steps(step: int) -> float:
    """Steps of size one: coordinate ascent, for a batch of all the data."""
    return 1.0


def _moments(state: NaturalGradientState) -> tuple[Tensor, Tensor]:
    """Cholesky factor of the precision (..., C, R, R) and mean (..., C, R), factorised once."""
    factor = state.factor()
    return factor, torch.cholesky_solve(state.linear.unsqueeze(-1), factor).squeeze(-1)


def _latent_moments(factor: Tensor, mean: Tensor, batch: InducingBatch) -> tuple[Tensor, Tensor]:
    """Mean and variance of the latents of a batch, each (..., C, B)."""
    k = batch.projection
    inside = torch.linalg.solve_triangular(factor, k.mT, upper=False).square().sum(-2)
    return batch.offset + times_vector(k, mean), batch.residual + inside


def _kl(factor: Tensor, mean: Tensor, prior: InducingPrior) -> Tensor:
    difference = (mean - prior.mean).unsqueeze(-1)
    precision = prior.precision.unsqueeze(-3)
    trace = (torch.cholesky_inverse(factor) * precision).sum((-2, -1))
    quadratic = (difference.mT @ precision @ difference).squeeze((-2, -1))
    log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    rank = prior.precision.shape[-1]
    return 0.5 * (trace + quadratic - rank + log_det - prior.log_det.unsqueeze(-1)).sum(-1)
