"""Gaussian likelihoods: of real targets, and of labels as -1/+1 targets (least-squares classification).

Every class is a regression on targets ``t = +1`` (its own data) and ``-1`` (the others) with the same
noise, so the posterior is exact and in closed form: the sites need no auxiliary variables and no iteration.
As a likelihood of labels it is misspecified, yet with a tuned noise it is a strong and very cheap
classifier.

References: Patacchiola et al. 2020 (deep kernel transfer); Rasmussen & Williams 2006, 6.5.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sureshot.gaussian.sites import Sites
from sureshot.likelihoods.auxiliary import one_hot, per_class, positive, total
from sureshot.likelihoods.quadrature import is_full_covariance
from sureshot.likelihoods.sites import AuxiliariesAtOptimum, ClassSites, ConjugateLikelihood, check_weight


class GaussianNoise(AuxiliariesAtOptimum, ConjugateLikelihood):
    """Regression: real targets ``t ~ N(f, noise)``, (..., N) of one latent function or (..., C, N) of C.

    ``noise`` is a positive *variance*, in squared units of the targets (as in GPyTorch).
    """

    def __init__(self, noise: float | Tensor) -> None:
        self.noise = positive("noise", noise)

    def n_latents(self, n_classes: int) -> int:
        """One latent function, whatever is asked: there are no classes."""
        return 1

    def check_targets(self, y: Tensor, weight: Tensor | None, n_classes: int | None) -> int:
        """Check that targets are finite real numbers; there is one "class"."""
        check_weight(y, weight)
        if not y.dtype.is_floating_point or y.numel() == 0 or not bool(torch.isfinite(y).all()):
            raise ValueError(
                f"y must be a non-empty tensor of finite real targets, but its dtype is {y.dtype} and its shape "
                f"{tuple(y.shape)}; for labels take a likelihood of classes"
            )
        return 1

    def sample_sites(self, f: Tensor, y: Tensor, weight: Tensor | None, generator: torch.Generator | None) -> Sites:
        """The sites; there is nothing to sample."""
        return self.expected_sites(f, torch.zeros_like(f), y, weight)

    def expected_sites(self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None) -> Sites:
        """Precision ``s / noise`` and shift ``s t / noise``, whatever the latents."""
        scale = per_class(weight) * torch.ones_like(mean) / self.noise
        return Sites(scale, scale * _targets(y, mean))

    def local_bound(self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """``E[sum of s log N(t; f, noise)]``, (...); minus the divergence it *is* the log evidence."""
        squared = (_targets(y, mean) - mean) ** 2 + variance
        return total((self.log_normaliser(mean) - squared / (2 * self.noise)).sum(-2), weight)

    def log_normaliser(self, like: Tensor) -> Tensor:
        """``-1/2 log(2 pi noise)`` in the dtype and on the device of a tensor."""
        return -0.5 * (2 * math.pi * torch.as_tensor(self.noise, dtype=like.dtype, device=like.device)).log()


def _targets(y: Tensor, like: Tensor) -> Tensor:
    """Targets (..., N) or (..., C, N) in the shape of latents (..., C, N)."""
    return y if y.dim() >= 2 and y.shape[-2:] == like.shape[-2:] else y.unsqueeze(-2)


def signed_labels(y: Tensor, n_classes: int, dtype: torch.dtype) -> Tensor:
    """Targets (..., C, N) of labels (..., N): +1 of the label, -1 of the other classes."""
    return 2 * one_hot(y, n_classes, dtype) - 1


def label_targets(y: Tensor, n_classes: int, weight: Tensor) -> tuple[Tensor, Tensor]:
    """`signed_labels` (..., C, N) of weighted rows, and their means (..., C).

    The mean of class c is ``2 n_c / n - 1``: as a prior mean it lets a class fall back to its frequency far from all
    data, and one without rows to -1.
    """
    targets = signed_labels(y, n_classes, weight.dtype)
    return targets, (targets * weight.unsqueeze(-2)).sum(-1) / weight.sum(-1, keepdim=True)


class GaussianLabels(AuxiliariesAtOptimum, ConjugateLikelihood, ClassSites):
    """Least-squares classification: ``t_c ~ N(f_c, noise)`` with targets -1/+1 for each class.

    ``noise`` is a variance, as in `GaussianNoise`. The default leaves a small-sample posterior enough doubt; learn it
    from the evidence, which is exact here.
    """

    name = "least_squares"

    def __init__(self, noise: float | Tensor = 0.1) -> None:
        self._regression = GaussianNoise(noise)
        self.noise = self._regression.noise

    def class_log_likelihood(self, f: Tensor) -> Tensor:
        """Sum over the C regressions of the log densities of class c's targets, (..., C, N)."""
        against = -((f + 1) ** 2).sum(-2, keepdim=True)  # every target -1; class c then changes its own
        constant = f.shape[-2] * self._regression.log_normaliser(f)
        return (against + 4 * f) / (2 * self.noise) + constant

    def class_logits(self, f: Tensor) -> Tensor:
        """Class c's own part, ``2 f_c / noise``."""
        return 2 * f / self.noise

    def integral(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """Density of each class's targets under the predictive Gaussian, normalised; closed form."""
        if not is_full_covariance(mean, covariance):
            return torch.softmax(2 * mean / (covariance + self.noise), dim=-2)
        eye = torch.eye(mean.shape[-2], dtype=mean.dtype, device=mean.device)
        factor = torch.linalg.cholesky(covariance + self.noise * eye)
        inverse = torch.cholesky_inverse(factor)  # (..., Q, C, C)
        residual = (inverse @ (-1 - mean.mT).unsqueeze(-1)).squeeze(-1)
        logs = -2 * (inverse.diagonal(dim1=-2, dim2=-1) + residual)
        return torch.softmax(logs.mT, dim=-2)

    def expected_log(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """Softmax of the expected log densities, ``softmax(2 mean / noise)`` at every covariance."""
        is_full_covariance(mean, covariance)
        return self.plug_in(mean)

    def sample_sites(self, f: Tensor, y: Tensor, weight: Tensor | None, generator: torch.Generator | None) -> Sites:
        """Those of `GaussianNoise`; there is nothing to sample."""
        return self._regression.sample_sites(f, self._targets(y, f), weight, generator)

    def expected_sites(self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None) -> Sites:
        """Those of `GaussianNoise`."""
        return self._regression.expected_sites(mean, variance, self._targets(y, mean), weight)

    def local_bound(self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """That of `GaussianNoise`, summed over the classes."""
        return self._regression.local_bound(mean, variance, self._targets(y, mean), weight)

    @staticmethod
    def _targets(y: Tensor, like: Tensor) -> Tensor:
        return signed_labels(y, like.shape[-2], like.dtype)
