"""Laplace's method: a Gaussian at the posterior mode.

Two entry points:

* `fit_logistic_laplace`: two classes, one latent, Newton's method in weight space; the exact Laplace posterior.
* `fit_softmax_laplace`: many classes in weight space. The mode is exact (L-BFGS on the concave log joint, and where
  asked for `softmax_newton` behind it, or from weights that are near it); the curvature keeps its diagonal over
  classes, ``p_c (1 - p_c)``, dropping ``- p_c p_d``: one R x R block for each class.

A mode that is sought from a start, as along a lattice of kernels, is found by L-BFGS in coordinates scaled by the
curvature there: see `_whitening`.

References: Rasmussen & Williams 2006, sections 3.4 and 3.5, algorithms 3.1 to 3.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor

from sureshot.gaussian.recomputed import (
    SiteWeightPosterior,
    SoftmaxWeightPosterior,
    training_moments,
    weight_precision_factor,
    without_negligible,
)
from sureshot.gaussian.sites import Sites
from sureshot.inference.softmax_newton import newton_mode
from sureshot.likelihoods.auxiliary import one_hot
from sureshot.likelihoods.sites import count_classes

LOGISTIC_TOLERANCE = 1e-5  # of the gradient at a logistic mode found by L-BFGS
SOFTMAX_TOLERANCE = 3e-5  # of that at a softmax mode where Newton's steps lead nowhere
ROUGH_TOLERANCE = 1e-2  # of that at a softmax mode, from where on Newton's steps are quicker


@dataclass(frozen=True)
class LaplaceFit:
    """A Laplace posterior in weight space."""

    posterior: SiteWeightPosterior | SoftmaxWeightPosterior
    sites: Sites  # each (C, N), the Gaussian factors that stand for the likelihood at the mode
    variance: Tensor  # (C, N), posterior variances at the training rows
    log_evidence: Tensor  # scalar, Laplace's approximation

    @property
    def dual(self) -> Tensor:
        """``K^-1 (f - a)`` (C, N): the gradient of the log likelihood at the mode, a start for other kernels."""
        return self.sites.shift - self.sites.precision * self.posterior.training_mean[0]


def fit_logistic_laplace(
    features: Tensor,  # (N, R), with ``K = Phi Phi'``
    y: Tensor,  # (N,), 0 and 1
    weight: Tensor,  # (N,), how often each datum counts
    prior_mean: float = 0.0,
    # (N,), ``K^-1 (f - a)`` as a fit with another kernel found it: the mode is then sought from there, and by L-BFGS
    # alone. Without it from zero, and by Newton's method in the end.
    start: Tensor | None = None,
    near: Tensor | None = None,  # (R,), weights near the mode, to begin with in place of L-BFGS
    max_steps: int = 100,
    tolerance: float = 1e-10,  # of the squared Newton decrement
    only_mode: bool = False,  # leave variances and evidence NaN, each of which takes as long as a step
) -> LaplaceFit:
    """Exact Laplace posterior of one latent under the logistic likelihood; ValueError for other labels than 0 and 1."""
    count_classes(y, 2)
    target = y.to(features.dtype)
    if near is None:
        initial = features.new_zeros(features.shape[1]) if start is None else start @ features
        w, value = _logistic_mode_from(initial, features, y, weight, prior_mean)
        near = w if bool(w.isfinite().all()) else initial
    if start is None:
        w, value = _newton(near, features, y, weight, prior_mean, max_steps, tolerance)
    latent = prior_mean + features @ w
    p = torch.sigmoid(latent)
    precision = weight * p * (1 - p)
    sites = Sites(precision[None], (precision * latent + weight * (target - p))[None])
    mean = features.new_full((1,), prior_mean)
    posterior = SiteWeightPosterior(features, w[None, None], mean, precision[None, None])
    if only_mode:
        return _of_mode_alone(posterior, sites)
    moments = training_moments(features, precision[None], 1, only_informative=False)
    return LaplaceFit(posterior, sites, moments.variance, value - 0.5 * moments.log_det)


def _of_mode_alone(posterior: SiteWeightPosterior | SoftmaxWeightPosterior, sites: Sites) -> LaplaceFit:
    unknown = sites.precision.new_full((), torch.nan)
    return LaplaceFit(posterior, sites, unknown.expand_as(sites.precision), unknown)


def _newton(
    w: Tensor, features: Tensor, y: Tensor, weight: Tensor, prior_mean: float, max_steps: int, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Weights (R,) at the logistic mode and the log joint there, from weights anywhere by damped Newton steps."""
    target = y.to(features.dtype)

    def log_joint(candidate: Tensor) -> Tensor:
        latent = prior_mean + features @ candidate
        signed = torch.where(y == 1, latent, -latent)
        return (weight * torch.nn.functional.logsigmoid(signed)).sum() - 0.5 * candidate.square().sum()

    value = log_joint(w)
    for _ in range(max_steps):
        p = torch.sigmoid(prior_mean + features @ w)
        gradient = features.mT @ (weight * (target - p)) - w
        factor = weight_precision_factor(features, weight * p * (1 - p))
        direction = torch.cholesky_solve(gradient[:, None], factor).squeeze(-1)
        decrement = gradient @ direction
        step = 1.0
        while step > 1e-6:
            candidate = w + step * direction
            new_value = log_joint(candidate)
            if new_value >= value + 1e-4 * step * decrement or decrement < 1e-8:
                break
            step /= 2
        w, value = candidate, new_value
        if decrement < tolerance:
            break
    return w, value


def _logistic_mode_from(
    initial: Tensor, features: Tensor, y: Tensor, weight: Tensor, prior_mean: float
) -> tuple[Tensor, Tensor]:
    """As `_newton` to fewer digits, without a factorisation for every step; quickest where features are orthogonal."""
    p = torch.sigmoid(prior_mean + features @ initial)
    scale = _whitening(features, weight, (weight * p * (1 - p)).sum())
    inputs = features * scale
    sign = 2 * y.to(features.dtype) - 1

    def negative_log_joint(flat: np.ndarray) -> tuple[float, np.ndarray]:
        v = torch.from_numpy(flat).to(features)
        signed = sign * (prior_mean + inputs @ v)
        w = scale * v
        value = 0.5 * w.square().sum() - (weight * torch.nn.functional.logsigmoid(signed)).sum()
        gradient = scale * w - inputs.mT @ (weight * sign * torch.sigmoid(-signed))
        return float(value), gradient.cpu().numpy().astype(np.float64)

    found = _minimize(negative_log_joint, (initial / scale).cpu().numpy(), LOGISTIC_TOLERANCE, 1000)
    return scale * torch.from_numpy(found.x).to(features), features.new_tensor(-found.fun)


def fit_softmax_laplace(
    features: Tensor,  # (N, R)
    y: Tensor,  # (N,), 0..n_classes-1
    n_classes: int,
    weight: Tensor,  # (N,)
    temperature: float = 1.0,  # divides the latents inside the softmax
    start: Tensor | None = None,  # (C, N), as in `fit_logistic_laplace`; the mode is unique, so it changes speed only
    only_informative: bool = False,  # as in `training_moments`
    # Of every component of the gradient, in whitened coordinates, so of natural size 1. By default the search ends with
    # Newton's steps, to full precision.
    tolerance: float | None = None,
    max_steps: int = 1000,
    prior_mean: float = 0.0,  # without influence on the probabilities: softmax is translation invariant
    near: Tensor | None = None,  # (C, R), weights near the mode, to begin with in place of L-BFGS
    only_mode: bool = False,  # leave variances and evidence NaN, which cost most with many classes
) -> LaplaceFit:
    """Exact mode and class-diagonal Laplace posterior under the softmax likelihood."""
    data = features, y, n_classes, weight, temperature
    found = None if near is None else newton_mode(features, y, weight, temperature, near)
    if found is None and tolerance is None:
        zero = features.new_zeros(n_classes, len(y)) if start is None else start
        rough = _softmax_mode(*data, zero, ROUGH_TOLERANCE, max_steps)[0]
        found = newton_mode(features, y, weight, temperature, rough)
    if found is None:
        found = _softmax_mode(*data, start, tolerance or SOFTMAX_TOLERANCE, max_steps)
    w, lowest = found
    latent = prior_mean + w @ features.mT  # (C, N)
    p = torch.softmax(latent / temperature, dim=0)
    precision = weight * p * (1 - p) / temperature**2
    labels = one_hot(y, n_classes, features.dtype)
    sites = Sites(precision, precision * latent + weight * (labels - p) / temperature)
    means = features.new_full((n_classes,), prior_mean)
    posterior = SoftmaxWeightPosterior(features, w[None], means, weight, temperature)
    if only_mode:
        return _of_mode_alone(posterior, sites)
    kept = without_negligible(features, precision)
    moments = training_moments(features, kept, n_classes, only_informative)
    return LaplaceFit(posterior, sites, moments.variance, -lowest - 0.5 * moments.log_det)


def _softmax_mode(
    features: Tensor,
    y: Tensor,
    n_classes: int,
    weight: Tensor,
    temperature: float,
    start: Tensor | None,
    tolerance: float,
    max_steps: int,
) -> tuple[Tensor, Tensor]:
    """Weights (C, R) at the mode and the negative log joint there, by L-BFGS."""
    rank = features.shape[1]
    labels = one_hot(y, n_classes, features.dtype)  # (C, N)
    initial, scale = features.new_zeros(n_classes, rank), features.new_ones(rank)
    if start is not None:
        initial = start @ features
        p = torch.softmax(initial @ features.mT / temperature, dim=0)
        curvature = ((p * (1 - p)) @ weight).mean() / temperature**2
        scale = _whitening(features, weight, curvature)
    inputs = features * scale

    def negative_log_joint(flat: np.ndarray) -> tuple[float, np.ndarray]:
        v = torch.from_numpy(flat).to(features).reshape(n_classes, rank)
        w = scale * v
        log_p = torch.log_softmax((v @ inputs.mT).div_(temperature), dim=0)
        data = -(weight @ log_p.gather(0, y[None])[0])
        error = log_p.exp_().sub_(labels).mul_(weight / temperature)
        gradient = error @ inputs + scale * w
        value = data + 0.5 * w.square().sum()
        return float(value), gradient.ravel().cpu().numpy().astype(np.float64)

    found = _minimize(negative_log_joint, (initial / scale).reshape(-1).cpu().numpy(), tolerance, max_steps)
    return scale * torch.from_numpy(found.x).to(features).reshape(n_classes, rank), features.new_tensor(found.fun)


def _whitening(features: Tensor, weight: Tensor, curvature: Tensor) -> Tensor:
    """Scales (R,) of the weights in which the negative log joint is nearly as curved in every direction.

    ``(1 + h sum_n s_n phi_nr^2)^-1/2`` with h the mean curvature of a datum (`curvature` is that of all of them): the
    Hessian's inverse root where all data are curved alike and features are orthogonal, as those from an
    eigendecomposition are. A curvature for every class and datum was slower: it changes on the way to the mode.
    """
    return (1 + curvature / weight.sum() * (weight @ features.square())).rsqrt()


def _minimize(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]], initial: np.ndarray, tolerance: float, max_steps: int
) -> OptimizeResult:
    """The minimum by L-BFGS, where no component of the gradient exceeds the tolerance."""
    return minimize(
        function,
        initial,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_steps, "maxfun": 2 * max_steps, "gtol": tolerance, "ftol": 0.0, "maxcor": 10},
    )
