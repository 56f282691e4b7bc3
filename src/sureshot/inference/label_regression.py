"""Label regression: Gaussian-process regression on -1/+1 targets, one column for each class.

Every class shares one factorisation, and leave-one-out latents are closed-form, so kernels can be compared at the
cost of one eigendecomposition each. Targets are centred on their weighted mean, the prior mean of class c's latent,
``2 n_c / n - 1``: far from all data a class falls back to its frequency, and a class without rows to -1.

References: Rasmussen & Williams 2006, sections 5.4.2 and 6.5; Patacchiola et al. 2020 (deep kernel transfer).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.gaussian.recomputed import SitePosterior, weight_precision_factor
from sureshot.gaussian.sites import Sites


def label_targets(y: Tensor, n_classes: int, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Targets -1/+1 (C, N) and their weighted means (C,)."""
    one_hot = torch.nn.functional.one_hot(y, n_classes).to(weight.dtype).mT
    targets = 2 * one_hot - 1
    return targets, (targets * weight).sum(-1) / weight.sum()


@dataclass(frozen=True)
class LabelRegressionFit:
    """The exact posterior and its evidence; see `fit_label_regression`."""

    posterior: SitePosterior
    sites: Sites
    variance: Tensor  # (C, N), at the training rows
    log_evidence: Tensor


def fit_label_regression(
    features: Tensor, y: Tensor, n_classes: int, weight: Tensor, noise: float
) -> LabelRegressionFit:
    """Exact Gaussian posterior of the weights.

    Parameters
    ----------
    features : Tensor (N, R)
        Features with ``K = Phi Phi'``.
    y : Tensor (N,)
    n_classes : int
    weight : Tensor (N,)
        A datum of weight s counts as s equal ones: for the posterior, one of noise variance ``noise / s``.
    noise : float
        Noise variance.
    """
    targets, mean = label_targets(y, n_classes, weight)
    centred = targets - mean[:, None]
    precision = weight / noise
    factor = weight_precision_factor(features, precision)
    projected = features.mT @ (precision * centred).mT  # (R, C)
    weights = torch.cholesky_solve(projected, factor).mT.contiguous()
    posterior = SitePosterior(features, weights[None], mean, precision[None, None])
    fit = (precision * centred * (centred - weights @ features.mT)).sum()
    log_det = 2 * factor.diagonal().log().sum()
    # A row of weight 2 is two observations, each with a normaliser of its own.
    evidence = -0.5 * (fit + n_classes * (log_det + weight.sum() * math.log(2 * math.pi * noise)))
    inside = torch.linalg.solve_triangular(factor, features.mT, upper=False).square().sum(0)
    sites = Sites(precision.expand_as(targets), precision * targets)
    return LabelRegressionFit(posterior, sites, inside.expand_as(targets), evidence)


@dataclass(frozen=True)
class LabelRegressionPath:
    """Leave-one-out latents along a path of noise levels, from one eigendecomposition.

    Attributes
    ----------
    latent : Tensor (L, C, N)
        Leave-one-out means at each noise level.
    variance : Tensor (L, N)
        Leave-one-out variances of the latents, without noise, the same for all classes.
    scale : Tensor (L,)
        The output scale that maximises the evidence at that ratio of noise to output scale.
    """

    latent: Tensor
    variance: Tensor
    scale: Tensor


def leave_one_out_path(
    eigenvalues: Tensor, basis: Tensor, y: Tensor, n_classes: int, weight: Tensor, noise_ratios: Tensor
) -> LabelRegressionPath:
    """Leave-one-out latents of every datum for many ratios of noise to output scale at once.

    Parameters
    ----------
    eigenvalues, basis : Tensor (N,) and (N, N)
        Of ``S^1/2 K S^1/2`` with S the weights and K the kernel matrix at unit output scale.
    y : Tensor (N,)
    n_classes : int
    weight : Tensor (N,)
    noise_ratios : Tensor (L,)
        Noise variance divided by output scale.
    """
    targets, mean = label_targets(y, n_classes, weight)
    root = weight.sqrt()
    scaled = (targets - mean[:, None]) * root  # (C, N)
    gain = 1 / (eigenvalues.clamp_min(0) + noise_ratios[:, None])  # (L, N)
    solved = ((scaled @ basis) * gain[:, None, :]) @ basis.mT  # (L, C, N)
    diagonal = gain @ basis.square().mT  # (L, N)
    scale = (scaled * solved).sum((-2, -1)) / (weight.sum() * n_classes)
    variance = scale[:, None] * (1 / diagonal - noise_ratios[:, None]).clamp_min(0) / weight
    return LabelRegressionPath(targets - solved / diagonal.unsqueeze(1) / root, variance, scale)
