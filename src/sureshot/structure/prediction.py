"""Predictions by weighted particles: latents that are a mixture of Gaussians, and class probabilities.

Two classes have one latent, ``psi = (f_1 - f_0) / sqrt(2)``, more have ``f_c / sqrt(2)`` each.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor

from sureshot.approximations.inducing import Inducing, unexplained
from sureshot.gaussian.algebra import times_vector
from sureshot.kernels import RBF
from sureshot.kernels.shared_rows import SharedRows
from sureshot.likelihoods import OneVsEach
from sureshot.likelihoods.base import PredictiveRule
from sureshot.structure.collapsed import Collapsed
from sureshot.structure.copies import Copies
from sureshot.structure.inducing import Inputs
from sureshot.structure.links import LOGISTIC, Link
from sureshot.structure.smc import SmcState
from sureshot.structure.sparse import Features, Sparse
from sureshot.structure.whitened import Whitened

_LEAST_VARIANCE = 1e-12
_ROW_NOISE = 0.1


def class_moments(
    state: SmcState,
    x: Tensor,  # (Q, D)
) -> tuple[Tensor, Tensor]:
    """Means (M, C, Q) and covariances (M, Q, C, C) of ``f_c / sqrt(2)`` under each particle, by exact latents.

    Where a particle's overflow they are those of independent N(0, 1), which say nothing.
    """
    return _moments(state, x, state.contrasts.of_classes(state.n_classes) / 2**0.5, 0.5)


def moments(
    state: SmcState,
    x: Tensor,  # (Q, D)
) -> tuple[Tensor, Tensor]:
    """The same for two classes of their difference alone, (M, 1, Q) and (M, Q, 1, 1)."""
    if state.inducing is not None and isinstance(state.latent, Sparse):
        phi, own = Inputs.of(x, state.inducing).features(state.prior, state.particles)
        return in_contrasts(state, *state.latent.moments(phi, own, 1 if state.n_classes == 2 else state.n_classes))
    if state.n_classes != 2:
        return class_moments(state, x)
    return _moments(state, x, latent_coefficients(state), 1.0)


def in_contrasts(
    state: SmcState,
    mean: Tensor,  # (M, Q, L), of the latents of `Sparse`
    covariance: Tensor,  # (M, Q, L, L)
) -> tuple[Tensor, Tensor]:
    """As `moments` are."""
    scale = 1.0 if state.n_classes == 2 else 0.5
    return where_finite(scale**0.5 * mean.mT, scale * covariance)


def latent_coefficients(state: SmcState) -> Tensor:
    """Of the contrasts with the latents of `moments` (P, L)."""
    if state.n_classes == 2:
        return (2.0 * state.contrasts.own - 1).unsqueeze(-1)
    return state.contrasts.of_classes(state.n_classes) / 2**0.5


def probabilities(
    state: SmcState,
    x: Tensor,  # (Q, D)
    n_draws: int | None = None,  # of a query's latent under each particle; None for quadrature
    generator: torch.Generator | None = None,  # of the draws
) -> Tensor:
    """Class probabilities of queries, averaged over the particles, (Q, C).

    With `n_draws`, K of the paper's eq. 29, they are a Monte-Carlo average, for two classes only.
    """
    if n_draws is not None and (n_draws < 1 or state.n_classes != 2):
        raise ValueError(f"n_draws must be at least 1, of two classes, got {n_draws} of {state.n_classes}")
    mean, covariance = moments(state, x)
    weights = state.log_weights.exp()
    if n_draws is None:
        return averaged_probabilities(mean, covariance, weights, link=state.latent.link)
    noise = torch.randn(n_draws, *mean[:, 0].shape, generator=generator, dtype=torch.float64)
    latents = mean[:, 0] + covariance[..., 0, 0].sqrt() * noise
    second = times_vector(state.latent.link.log_probability(latents).exp().mean(0).mT, weights)
    return torch.stack([1 - second, second], -1)


def averaged_probabilities(
    mean: Tensor,  # (M, L, Q)
    covariance: Tensor,  # (M, Q, L, L)
    weights: Tensor,  # (M,), or (M, Q) where each query has its own
    temperature: float = 1.0,  # latents are divided by it
    rule: PredictiveRule = "integral",
    link: Link = LOGISTIC,
) -> Tensor:
    """Class probabilities (Q, C) of `moments`: averaged over the particles, or by "plug_in" at their latents' mean."""
    weights = weights.view(len(weights), -1).expand(-1, mean.shape[-1])
    mean, covariance = mean / temperature, covariance / temperature**2
    if rule == "plug_in":
        overall = torch.einsum("mq,mlq->lq", weights, mean).unsqueeze(0)
        return class_probabilities(overall, covariance[:1], rule, link)[0].mT
    return torch.einsum("mq,mcq->qc", weights, class_probabilities(mean, covariance, rule, link))


def class_probabilities(
    mean: Tensor,  # (M, L, Q)
    covariance: Tensor,  # (M, Q, L, L)
    rule: PredictiveRule = "integral",
    link: Link = LOGISTIC,
) -> Tensor:
    """Class probabilities (M, C, Q) under each particle."""
    if mean.shape[1] > 1:
        return OneVsEach().predict(mean, covariance, rule)
    if rule == "plug_in":
        second = link.log_probability(mean).exp()
    else:
        second = link.log_expected(mean, covariance[..., 0].mT).exp()
    return torch.cat([1 - second, second], 1)


def unexplained_variance(
    state: SmcState,
    x: Tensor,  # (Q, D)
    covariance: Tensor,  # (M, Q, L, L), of `moments`
    weights: Tensor | None = None,  # (M, Q), of the particles where each query has its own
) -> Tensor:
    """Which share of the prior variance of its latents the data leave, (Q,): at most 1.

    Near 1 where data say nothing, which is not to say far from all rows: a line is known best far away. Of several
    latents labels tell differences only: what all have in common keeps its prior variance, and is left out.
    """
    n_latents = covariance.shape[-1]
    left = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)
    if n_latents > 1:
        left = (left - covariance.sum((-2, -1)) / n_latents) / (n_latents - 1)
    scale = 1.0 if state.n_classes == 2 else 0.5
    own = state.particles.diagonals(state.prior, x) - state.prior.grammar.mean_variance
    left = left - scale * state.particles.nuggets(state.prior).unsqueeze(-1)
    weights = state.log_weights.exp().unsqueeze(-1) if weights is None else weights
    return ((left / (scale * own)).clamp_max(1) * weights).sum(0)


def distance_from_rows(
    state: SmcState,
    x: Tensor,  # (Q, D)
) -> Tensor:
    """How far queries are from all rows, whatever kernels and labels say, (Q,): 0 among many, 1 far away.

    The variance that is left of a process of variance 1 that was observed at every row, with a little noise. Its kernel
    is squared-exponential, its length-scale the prior's median.
    """
    if state.inducing is not None:
        latent, _ = _covered(state, state.inducing)
        return latent.moments(*_covering_features(state, state.inducing, x), 1)[1].flatten()
    kernel, factor = _covering(state)
    solved = torch.linalg.solve_triangular(factor, kernel.on(SharedRows(state.x, x)), upper=False)
    return 1 - solved.square().sum(0)


def distances_left_out(state: SmcState) -> Tensor:
    """The same of each of the K rows that differ from all others, (K,)."""
    copies = Copies.of(state.x, state.y)
    if state.inducing is not None:
        latent, features = _covered(state, state.inducing)
        return latent.left_out(features, copies)[1].flatten()
    inverse = torch.cholesky_inverse(_covering(state)[1])
    found = inverse.new_empty(len(copies.first))
    for those, rows in copies.sets():
        found[those] = torch.linalg.inv(inverse[rows.unsqueeze(-1), rows.unsqueeze(-2)])[:, 0, 0]
    return found - _ROW_NOISE


def _covering_kernel(state: SmcState) -> RBF:
    lengthscale = math.sqrt(state.prior.width) * math.exp(state.prior.grammar.relative_lengthscale.mean)
    return RBF(torch.tensor([lengthscale], dtype=state.x.dtype))


def _covering(state: SmcState) -> tuple[RBF, Tensor]:
    """The kernel of distances, and the triangle (N, N) of what was observed."""
    kernel = _covering_kernel(state)
    gram = kernel.on(SharedRows(state.x))
    return kernel, torch.linalg.cholesky(gram + _ROW_NOISE * torch.eye(len(gram), dtype=gram.dtype))


def _covering_features(state: SmcState, inducing: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """By the kernel of distances, of rows (Q, D): (1, Q, m), and what they leave of its variance (1, Q)."""
    features, variance = Inducing(_covering_kernel(state), inducing).queries(x.unsqueeze(0))
    return features, unexplained(variance, features)


def _covered(state: SmcState, inducing: Tensor) -> tuple[Sparse, Features]:
    """What was observed, seen through inducing inputs; the values that were seen do not matter."""
    phi, own = _covering_features(state, inducing, state.x)
    n = len(state.x)
    features = Features(phi, own, state.x.new_ones(n, 1, 1), torch.arange(n))
    return Sparse.of(torch.full_like(own, 1 / _ROW_NOISE), features), features


def _moments(
    state: SmcState,
    x: Tensor,  # (Q, D)
    coefficients: Tensor,  # (P, L), of the contrasts with the latents
    scale: float,  # of the latents' prior variance
) -> tuple[Tensor, Tensor]:
    gram = state.particles.grams(state.prior, SharedRows(state.x, x))  # (M, N, Q)
    own = state.particles.diagonals(state.prior, x) + state.particles.nuggets(state.prior).unsqueeze(-1)
    covariance = torch.diag_embed((scale * own).unsqueeze(-1).expand(*own.shape, coefficients.shape[-1]))
    cross = gram[:, state.contrasts.row].unsqueeze(-1) * coefficients.unsqueeze(1)  # (M, P, Q, L)
    mean, solved = cast(Collapsed | Whitened, state.latent).predicted(cross.flatten(-2))
    solved = solved.unflatten(-1, cross.shape[-2:])
    covariance = covariance - torch.einsum("mpqc,mpqd->mqcd", solved, solved)
    covariance.diagonal(dim1=-2, dim2=-1).clamp_(min=_LEAST_VARIANCE)
    return where_finite(mean.unflatten(-1, cross.shape[-2:]).mT, covariance)


def where_finite(
    mean: Tensor,  # (..., L, Q)
    covariance: Tensor,  # (..., Q, L, L)
) -> tuple[Tensor, Tensor]:
    """The moments, where they are numbers; those of independent N(0, 1), which say nothing, where they overflow."""
    known = mean.isfinite().all(-2) & covariance.isfinite().flatten(-2).all(-1)  # (..., Q)
    nothing = torch.eye(mean.shape[-2], dtype=mean.dtype)
    covariance = torch.where(known[..., None, None], covariance, nothing)
    return torch.where(known.unsqueeze(-2), mean, 0.0), covariance
