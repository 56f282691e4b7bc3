"""Least squares: Gaussian-process regression on real targets, P of each row, with one noise.

Everything is exact and in closed form, by any prior and for any batch: `regression_sites`. Targets that share a kernel
share one factorisation. Least-squares classification has a target for each class, +1 for its rows and -1 for the
others, and two uses differ in the prior mean: deep kernel transfer keeps that of its learner, `GPClassifier` takes the
targets' weighted mean (`sureshot.likelihoods.gaussian.label_targets`).

Leave-one-out latents are closed-form too, so kernels can be compared at the cost of one eigendecomposition each:
`leave_one_out_path`, or `leave_one_out_path_by_features` of many rows that have few features, and at a few noise levels
by a factor for each, `leave_one_out_by_factors`.
`leave_one_out_residuals` has them at one noise level, with their gradient in the kernel matrix.

References: Rasmussen & Williams 2006, sections 2.2, 5.4.2 and 6.5; Rifkin & Klautau 2004; Patacchiola et al. 2020.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sureshot.computing.blocks import blocks
from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.posterior import SitePosterior
from sureshot.gaussian.prior import Prior
from sureshot.gaussian.recomputed import SiteWeightPosterior, weight_precision_factor
from sureshot.gaussian.sites import Sites


def regression_sites(
    targets: Tensor,  # (..., P, N)
    weight: Tensor | None,  # (..., N), a row of weight s is s equal ones; one by default
    noise: float | Tensor,  # variance, of all rows or (..., N)
) -> Sites:
    """The exact sites: precision ``s / noise`` (..., 1, N), shared by the targets, and shift (..., P, N)."""
    counts = torch.ones_like(targets[..., 0, :]) if weight is None else weight.to(targets.dtype)
    precision = (counts / noise).unsqueeze(-2)
    return Sites(precision, precision * targets)


def regression_log_evidence(
    prior: Prior,  # mean scalar or (..., P, 1)
    targets: Tensor,  # this and the following as in `regression_sites`
    weight: Tensor | None,
    noise: float | Tensor,
    posterior: SitePosterior | None = None,  # given these sites, where it is at hand: nothing is factorised again
) -> Tensor:
    """Exact log evidence of each of the P targets, (..., P).

    A row of weight 2 is two observations, each with a normaliser of its own.
    """
    precision, _ = regression_sites(targets, weight, noise)
    residual = targets - prior.mean
    counts = torch.ones_like(targets[..., 0, :]) if weight is None else weight.to(targets.dtype)
    variance = torch.as_tensor(noise, dtype=targets.dtype, device=targets.device)
    if posterior is None:
        density = prior.log_density(residual, precision)
    else:  # (K + W^-1)^-1 (t - a) = W (t - m)
        density = -0.5 * ((precision * residual * (targets - posterior.mean)).sum(-1) + posterior.log_det)
    return density - 0.5 * (counts * (2 * math.pi * variance).log()).sum(-1, keepdim=True)


def weight_space_of(
    features: Tensor,  # (N, R)
    targets: Tensor,  # (P, N)
    mean: Tensor,  # (P,), prior means
    weight: Tensor,  # (N,)
    noise: float | Tensor,  # variance
) -> SiteWeightPosterior:
    """The posterior of the features' weights, by one factorisation and one visit to all rows."""
    sites = regression_sites(targets, weight, noise)
    factor = weight_precision_factor(features, sites.precision[0])
    projected = (sites.shift - sites.precision * mean[:, None]) @ features  # (P, R)
    weights = torch.cholesky_solve(projected.mT, factor).mT
    return SiteWeightPosterior(features, weights[None].contiguous(), mean, sites.precision[None])


@dataclass(frozen=True)
class LeaveOneOutPath:
    """Leave-one-out latents along a path of noise levels, from one eigendecomposition."""

    latent: Tensor  # (L, P, N), leave-one-out means at each noise level
    variance: Tensor  # (L, N), of the latents at unit output scale, without noise, the same for all targets
    scale: Tensor  # (L,), the output scale that maximises the evidence at that ratio of noise to output scale


def leave_one_out_path(
    eigenvalues: Tensor,  # (N,), of ``S^1/2 K S^1/2`` with S the weights and K the kernel matrix at unit output scale
    basis: Tensor,  # (N, N), its eigenvectors
    targets: Tensor,  # (P, N)
    mean: Tensor,  # (P,), prior means
    weight: Tensor,  # (N,)
    noise_ratios: Tensor,  # (L,), noise variance divided by output scale
    share: Tensor,  # (N,), of its weight that is left out of a row
) -> LeaveOneOutPath:
    """Leave-one-out latents of every datum for many ratios of noise to output scale at once."""
    root = weight.sqrt()
    scaled = (targets - mean[:, None]) * root  # (P, N)
    gain = 1 / (eigenvalues.clamp_min(0) + noise_ratios[:, None])  # (L, N)
    solved = ((scaled @ basis) * gain[:, None, :]) @ basis.mT  # (L, P, N)
    diagonal = gain @ basis.square().mT  # (L, N)
    noise, scale = noise_ratios[:, None], (scaled * solved).sum((-2, -1)) / (weight.sum() * len(targets))
    residual, variance = _without(noise.unsqueeze(1) * solved, noise * diagonal, share)
    return LeaveOneOutPath(targets - residual / root, noise * variance / weight, scale)


@dataclass(frozen=True)
class FactoredLeastSquares:
    """Least squares at one noise level, with its leave-one-out predictions."""

    latent: Tensor  # (P, N), leave-one-out means
    variance: Tensor  # (N,), leave-one-out variances of latents at unit output scale
    scale: float  # the output scale that maximises the evidence at that ratio of noise to output scale
    dual: Tensor  # (P, N), ``K^-1 (f - a)`` at the mean, of the kernel at unit output scale
    fit: float  # ``(t - a)' (K + N)^-1 (t - a)`` at unit output scale, of all targets
    log_det: float  # ``log|I + K N^-1|`` of one target

    def log_evidence(self, weight: Tensor, noise: float, output_scale: float) -> float:
        """In nats, as `regression_log_evidence`, at an output scale and the noise that belongs to it."""
        each = self.log_det + float(weight.sum()) * math.log(2 * math.pi * noise)
        return -0.5 * (self.fit / output_scale + len(self.latent) * each)


def leave_one_out_by_factors(
    gram: Tensor,  # (N, N), K at unit output scale
    targets: Tensor,  # (P, N)
    mean: Tensor,  # (P,), prior means
    weight: Tensor,  # (N,)
    noise_ratios: Tensor,  # (L,), noise variance divided by output scale
    share: Tensor,  # (N,), of its weight that is left out of a row
) -> Iterator[FactoredLeastSquares]:
    """As `leave_one_out_path`, a ratio at a time, by a Cholesky factor: each takes a fifth of an eigendecomposition."""
    root = weight.sqrt()
    scaled = (targets - mean[:, None]) * root
    weighted = root[:, None] * gram * root
    for ratio in noise_ratios.split(1):
        noisy = weighted.clone()
        noisy.diagonal().add_(ratio)
        factor = torch.linalg.cholesky(noisy)
        inverse = torch.cholesky_inverse(factor)
        solved = scaled @ inverse
        residual, unknown = _without(ratio * solved, ratio * inverse.diagonal(), share)
        fit = float((scaled * solved).sum())
        yield FactoredLeastSquares(
            latent=targets - residual / root,
            variance=ratio * unknown / weight,
            scale=fit / (float(weight.sum()) * len(targets)),
            dual=solved * root,
            fit=fit,
            log_det=float(2 * factor.diagonal().log().sum() - len(root) * ratio.log()),
        )


def leave_one_out_path_by_features(
    features: Tensor,  # (N, R), ``K = Phi Phi'`` at unit output scale
    targets: Tensor,  # (P, N)
    mean: Tensor,  # (P,), prior means
    weight: Tensor,  # (N,)
    noise_ratios: Tensor,  # (L,), noise variance divided by output scale
    share: Tensor,  # (N,), of its weight that is left out of a row
    rows: Tensor,  # (M,), those to leave out
) -> LeaveOneOutPath:
    """As `leave_one_out_path` for some of the rows, (L, P, M) and (L, M): all rows are learnt from.

    In O(N R min(N, R)).
    """
    root = weight.sqrt()
    scaled = (targets - mean[:, None]) * root  # (P, N)
    eigenvalues, vectors = _directions(features, weight)
    gain = 1 / (eigenvalues.clamp_min(0) + noise_ratios[:, None])  # (L, R)
    along = ((scaled * root) @ features) @ vectors  # (P, R), of the targets
    left_out = features[rows] @ vectors  # (M, R)
    residual = scaled[:, rows] - root[rows] * ((along * gain[:, None, :]) @ left_out.mT)  # (L, P, M)
    unknown = 1 - weight[rows] * (gain @ left_out.square().mT)  # (L, M)
    scale = (scaled.square().sum() - (along.square() * gain[:, None, :]).sum((-2, -1))) / noise_ratios
    scale = scale / (weight.sum() * len(targets))
    residual, variance = _without(residual, unknown, share[rows])
    variance = noise_ratios[:, None] * variance / weight[rows]
    return LeaveOneOutPath(targets[:, rows] - residual / root[rows], variance, scale)


def _directions(features: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (K,) of ``Phi' W Phi``, of features (N, R), and their vectors (R, K): all that are not zero."""
    n_rows, width = features.shape
    if n_rows >= width:
        information = features.new_zeros(width, width)
        for block in blocks(n_rows, width):
            information += (features[block] * weight[block, None]).mT @ features[block]
        eigenvalues, vectors = torch.linalg.eigh(information)
        return eigenvalues, vectors
    scaled = features * weight.sqrt()[:, None]
    eigenvalues, basis = torch.linalg.eigh(scaled @ scaled.mT)
    found = eigenvalues > torch.finfo(eigenvalues.dtype).eps * n_rows * eigenvalues[-1].clamp_min(0)
    return eigenvalues[found], scaled.mT @ (basis[:, found] / eigenvalues[found].sqrt())


def leave_one_out_residuals(
    gram: Tensor,  # (N, N), K at unit output scale
    noise_ratio: Tensor,  # (), noise variance divided by output scale
    targets: Tensor,  # (P, N)
    mean: Tensor,  # (P,), prior means
    weight: Tensor,  # (N,)
    share: Tensor,  # (N,), of its weight that is left out of a row
) -> tuple[Tensor, Tensor]:
    """Targets less their leave-one-out means (P, N), and their variance (N,) in units of the output scale.

    Differentiable once in kernel matrix and noise, by one factor and one inverse.
    """
    root = weight.sqrt()
    noisy = root[:, None] * gram * root + torch.diag(noise_ratio.expand_as(root))
    solved, diagonal = _Solved.apply(noisy, (targets - mean[:, None]) * root)
    residual, variance = _without(noise_ratio * solved, noise_ratio * diagonal, share)
    return residual / root, noise_ratio * (variance / weight + 1)


def mean_log_density(
    gram: Tensor,  # (N, N)
    noise: Tensor,  # (), variance
    targets: Tensor,  # (P, N)
    mean: Tensor,  # (P,), prior means
    weight: Tensor,  # (N,)
    share: Tensor | None,  # (N,), of its weight that is left out of a row; None: of all rows together, the evidence
    counts: Tensor,  # (N,), what rows count that are left out
) -> Tensor:
    """For each row and target, in nats; differentiable once."""
    if share is None:
        evidence = regression_log_evidence(GramPrior(gram[None], mean[:, None]), targets, weight, noise)
        return evidence.mean() / weight.sum()
    residual, variance = leave_one_out_residuals(gram, noise, targets, mean, weight, share)
    pointwise = -0.5 * (residual.square() / variance + (2 * math.pi * variance).log())
    return (pointwise @ counts).mean() / counts.sum()


def _without(residual: Tensor, unknown: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Residuals (..., P, N) and latent variances (..., N) of rows, without a share (N,) of each row's own site.

    In units of the row's noise, from what they are given all rows: the residuals, and one less the variances.
    """
    kept = 1 - share + share * unknown
    return residual / kept.unsqueeze(-2), (1 - unknown).clamp_min(0) / kept


class _Solved(torch.autograd.Function):
    """``B^-1 t`` (P, N) of vectors t, and the diagonal (N,) of ``B^-1``; ``d B^-1 = - B^-1 dB B^-1``."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(matrix))
        solved = vectors @ inverse
        ctx.save_for_backward(inverse, solved)
        return solved, inverse.diagonal().clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_solved: Tensor, of_diagonal: Tensor) -> tuple[Tensor, None]:
        inverse, solved = ctx.saved_tensors
        outer = solved.mT @ (of_solved @ inverse)
        return -(outer + outer.mT) / 2 - (inverse * of_diagonal) @ inverse, None
