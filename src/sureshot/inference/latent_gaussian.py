"""Gaussian latents under Gaussian sites: the algebra every inference scheme shares.

A conjugate likelihood turns each datum into a Gaussian factor ``exp(b f - w f^2 / 2)`` per latent function, its
*site*. Given the sites, the posterior, the evidence, its gradients, the leave-one-out cavities and the
predictions are all Gaussian algebra, written once here and used by mean field, Gibbs, Laplace and the objectives.

Two representations of the same prior are interchangeable:

* `GramPrior` holds the kernel matrix ``K``. With ``B = I + W^1/2 K W^1/2`` (eigenvalues at least 1) neither
  ``K^-1`` nor jitter is ever needed, and a precision of zero (no observation) is allowed anywhere.
* `FeaturePrior` holds features ``Phi`` with ``K = Phi Phi'``; with fewer features R than data N everything
  costs ``O(N R^2)`` instead of ``O(N^3)``.

Both have ``condition(sites) -> posterior``; their posteriors share the interface `LatentPosterior`.

References: Rasmussen & Williams 2006, chapter 3 (the B form) and 5.4.2 (leave-one-out).
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Sites(NamedTuple):
    """Gaussian factors ``exp(shift * f - precision * f^2 / 2)``, one for every latent value."""

    precision: Tensor  # (..., C, N), not negative
    shift: Tensor  # (..., C, N)


class LatentPosterior(ABC):
    """The Gaussian posterior of the latents given sites.

    Attributes
    ----------
    prior_mean : Tensor (..., C, 1) or scalar
    sites : Sites
    mean, variance : Tensor (..., C, N)
        Marginal moments at the training inputs.
    log_det : Tensor (..., C)
        ``log|B| = log|K| - log|Sigma|``.
    quadratic : Tensor (..., C)
        ``(m - a)' K^-1 (m - a)``.
    """

    prior_mean: Tensor
    sites: Sites
    mean: Tensor
    variance: Tensor
    log_det: Tensor
    quadratic: Tensor

    def kl(self) -> Tensor:
        """``KL(q(f) || p(f))`` summed over the classes, shape (...)."""
        n = self.mean.shape[-1]
        return 0.5 * (self.trace() - n + self.log_det + self.quadratic).sum(-1)

    def log_evidence(self) -> Tensor:
        """``log of the integral of N(f; a, K) * sites``, summed over the classes, shape (...)."""
        w, b = self.sites
        a = self.prior_mean
        centred = b - w * a
        linear = (a * b - 0.5 * a**2 * w + 0.5 * centred * (self.mean - a)).sum(-1)
        return (linear - 0.5 * self.log_det).sum(-1)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of every latent with its own site removed, each (..., C, N).

        Exact for fixed sites; with sites that were fitted to all the data (mean field, Laplace) an approximation,
        since the remaining sites have seen the left-out label.
        """
        w, b = self.sites
        kept = (1 - w * self.variance).clamp_min(torch.finfo(self.variance.dtype).tiny)
        return (self.mean - b * self.variance) / kept, self.variance / kept

    @abstractmethod
    def trace(self) -> Tensor:
        """``tr(K^-1 Sigma) = tr(B^-1)``, (..., C).

        From the factor of B when asked for: ``N - tr(W Sigma)`` would cancel where precisions are large.
        """

    @abstractmethod
    def query(self, cross: Tensor, prior_variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the latents at query inputs, each (..., C, Q).

        Parameters
        ----------
        cross : Tensor
            Kernel between data and queries (..., C or 1, N, Q) for `GramPosterior`;
            the queries' features (..., C or 1, Q, R) for `FeaturePosterior`.
        prior_variance : Tensor (..., C or 1, Q)
            The kernel's diagonal at the queries.
        """


class LatentPrior(ABC):
    """A Gaussian prior over the latents at the training inputs."""

    mean: Tensor  # scalar or (..., C, 1)

    @property
    @abstractmethod
    def variance(self) -> Tensor:
        """Prior variances (..., C or 1, N)."""

    @abstractmethod
    def condition(self, sites: Sites) -> LatentPosterior:
        """The posterior under these sites."""

    @abstractmethod
    def sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        """Draws of the latents with the leading `shape` (..., C), giving (..., C, N)."""


@dataclass(frozen=True)
class GramPosterior(LatentPosterior):
    """Posterior in function space; see `LatentPosterior`."""

    prior_mean: Tensor
    sites: Sites
    mean: Tensor
    variance: Tensor
    log_det: Tensor
    quadratic: Tensor
    alpha: Tensor  # (..., C, N), K^-1 (m - a)
    root: Tensor  # (..., C, N), W^1/2
    factor: Tensor  # (..., C, N, N), L_B, lower Cholesky factor of B = I + W^1/2 K W^1/2

    def whitened(self, cross: Tensor) -> Tensor:
        """``E = L_B^-1 W^1/2 cross`` (..., C, N, Q): ``E'E`` is what the data explain of the prior covariance."""
        return torch.linalg.solve_triangular(self.factor, self.root.unsqueeze(-1) * cross, upper=False)

    def half(self) -> Tensor:
        """``L_B^-1 W^1/2`` (..., C, N, N), so that ``half' half = W^1/2 B^-1 W^1/2``."""
        return torch.linalg.solve_triangular(self.factor, torch.diag_embed(self.root), upper=False)

    def trace(self) -> Tensor:
        """See `LatentPosterior.trace`."""
        return trace_of_inverse(self.factor)

    def query(self, cross: Tensor, prior_variance: Tensor) -> tuple[Tensor, Tensor]:
        """See `LatentPosterior.query`."""
        mean = self.prior_mean + times_vector(cross.mT, self.alpha)
        return mean, (prior_variance - self.whitened(cross).square().sum(-2)).clamp_min(0)


@dataclass(frozen=True)
class GramPrior(LatentPrior):
    """Prior ``N(a, K)`` held as its kernel matrix.

    Parameters
    ----------
    gram : Tensor (..., C or 1, N, N)
        One matrix shared by the classes (size 1 at that dimension) or one for each.
    mean : Tensor, scalar or (..., C, 1)
    """

    gram: Tensor
    mean: Tensor

    @property
    def variance(self) -> Tensor:
        """Prior variances (..., C or 1, N)."""
        return self.gram.diagonal(dim1=-2, dim2=-1)

    def condition(self, sites: Sites) -> GramPosterior:
        """Condition on sites: ``B = I + W^1/2 K W^1/2``, for each class one Cholesky factor and one triangular solve.

        The solve gives ``E = L_B^-1 W^1/2 K``, of which ``E'E`` is what the data explain of the prior covariance.
        """
        w, b = sites
        observed = w > 0  # the root's gradient at zero would be infinite
        root = torch.where(observed, w, 1).sqrt() * observed
        scaled = root.unsqueeze(-1) * self.gram
        factor = factor_plus_identity(scaled * root.unsqueeze(-2))
        half_gram = torch.linalg.solve_triangular(factor, scaled, upper=False)
        centred = b - w * self.mean
        solved = torch.linalg.solve_triangular(factor.mT, half_gram @ centred.unsqueeze(-1), upper=True)
        alpha = centred - root * solved.squeeze(-1)
        shifted = times_vector(self.gram, alpha)
        return GramPosterior(
            prior_mean=self.mean,
            sites=sites,
            mean=self.mean + shifted,
            variance=(self.variance - half_gram.square().sum(-2)).clamp_min(0),
            log_det=2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1),
            quadratic=(shifted * alpha).sum(-1),
            alpha=alpha,
            root=root,
            factor=factor,
        )

    def sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        """Draw from the prior; only members whose factorisation fails get jitter, with a warning."""
        noise = torch.randn(
            *shape, self.gram.shape[-1], generator=generator, dtype=self.gram.dtype, device=self.gram.device
        )
        factor = cholesky_with_jitter(self.gram)
        return self.mean + times_vector(factor, noise)


@dataclass(frozen=True)
class FeaturePosterior(LatentPosterior):
    """Posterior in weight space; see `LatentPosterior`."""

    prior_mean: Tensor
    sites: Sites
    mean: Tensor
    variance: Tensor
    log_det: Tensor
    quadratic: Tensor
    weights: Tensor  # (..., C, R), posterior mean of the weights
    factor: Tensor  # (..., C, R, R), lower Cholesky factor of A = I + Phi' W Phi

    def trace(self) -> Tensor:
        """See `LatentPosterior.trace`; ``N - R + tr(A^-1)``."""
        return self.mean.shape[-1] - self.factor.shape[-1] + trace_of_inverse(self.factor)

    def query(self, cross: Tensor, prior_variance: Tensor) -> tuple[Tensor, Tensor]:
        """See `LatentPosterior.query`; variance outside the features' span is kept at its prior value."""
        mean = self.prior_mean + times_vector(cross, self.weights)
        explained = cross.square().sum(-1)
        inside = torch.linalg.solve_triangular(self.factor, cross.mT, upper=False).square().sum(-2)
        return mean, (prior_variance - explained).clamp_min(0) + inside


@dataclass(frozen=True)
class FeaturePrior(LatentPrior):
    """Prior ``N(a, Phi Phi')`` held as features.

    Parameters
    ----------
    features : Tensor (..., C or 1, N, R)
    mean : Tensor, scalar or (..., C, 1)
    """

    features: Tensor
    mean: Tensor

    @property
    def variance(self) -> Tensor:
        """Prior variances (..., C or 1, N)."""
        return self.features.square().sum(-1)

    def condition(self, sites: Sites) -> FeaturePosterior:
        """Condition on sites: ``A = I + Phi' W Phi``, one R x R factor for each class."""
        w, b = sites
        phi = self.features
        factor = factor_plus_identity(phi.mT @ (w.unsqueeze(-1) * phi))
        projected = times_vector(phi.mT, b - w * self.mean)
        weights = torch.cholesky_solve(projected.unsqueeze(-1), factor).squeeze(-1)
        return FeaturePosterior(
            prior_mean=self.mean,
            sites=sites,
            mean=self.mean + times_vector(phi, weights),
            variance=torch.linalg.solve_triangular(factor, phi.mT, upper=False).square().sum(-2),
            log_det=2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1),
            quadratic=weights.square().sum(-1),
            weights=weights,
            factor=factor,
        )

    def sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        """Draw from the prior; exact for any rank, never needs jitter."""
        rank = self.features.shape[-1]
        noise = torch.randn(*shape, rank, generator=generator, dtype=self.features.dtype, device=self.features.device)
        return self.mean + times_vector(self.features, noise)


def matheron_sample(prior: GramPrior, sites: Sites, prior_draw: Tensor, generator: torch.Generator | None) -> Tensor:
    """One exact posterior draw from one prior draw (Matheron's rule), shape of `prior_draw` (..., C, N).

    ``r' = b - W g - W^1/2 e`` with prior draw g and e ~ N(0, I); then ``f = g + K (r' - G K r')``.
    """
    w, b = sites
    root = w.sqrt()
    noise = torch.randn(prior_draw.shape, generator=generator, dtype=w.dtype, device=w.device)
    residual = b - w * prior_draw - root * noise
    factor = weighted_factor(prior.gram, root)
    solved = torch.cholesky_solve((root * times_vector(prior.gram, residual)).unsqueeze(-1), factor).squeeze(-1)
    return prior_draw + times_vector(prior.gram, residual - root * solved)


def times_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    """Matrices (..., M, N) times vectors (..., N), giving (..., M).

    Where the two broadcast, one matrix meets many vectors in a single product; ``@`` would copy it for each of them.
    """
    return torch.einsum("...mn,...n->...m", matrix, vector)


def weighted_factor(gram: Tensor, root: Tensor) -> Tensor:
    """Lower Cholesky factor of ``B = I + W^1/2 K W^1/2`` (..., N, N), given K and the diagonal (..., N) of W^1/2."""
    return factor_plus_identity(root.unsqueeze(-1) * gram * root.unsqueeze(-2))


def factor_plus_identity(matrix: Tensor) -> Tensor:
    """Lower Cholesky factor of ``I + matrix`` (..., N, N); overwrites the argument, so give it a temporary."""
    matrix.diagonal(dim1=-2, dim2=-1).add_(1)
    return torch.linalg.cholesky(matrix)


def trace_of_inverse(factor: Tensor) -> Tensor:
    """``tr((L L')^-1)`` (...) from Cholesky factors (..., N, N): the sum of the squares of ``L^-1``."""
    eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False).square().sum((-2, -1))


def cholesky_with_jitter(gram: Tensor) -> Tensor:
    """Lower Cholesky factor of (..., N, N); members that fail get growing jitter and one warning says how much.

    Raises
    ------
    ValueError
        When a matrix is not positive semi-definite even with jitter of 1e-3 of its mean diagonal.
    """
    factor, info = torch.linalg.cholesky_ex(gram)
    if not bool((info > 0).any()):
        return factor
    scale = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    smallest = math.ceil(math.log10(torch.finfo(gram.dtype).eps)) + 1
    for exponent in range(smallest, -2):
        failed = (info > 0)[..., None, None]
        retry, retry_info = torch.linalg.cholesky_ex(gram + 10.0**exponent * scale * eye)
        factor = torch.where(failed, retry, factor)
        info = torch.where(info > 0, retry_info, info)
        if not bool((info > 0).any()):
            warnings.warn(
                f"added jitter of 1e{exponent} times the mean variance to sample a singular prior",
                RuntimeWarning,
                stacklevel=3,
            )
            return factor
    raise ValueError(
        "the kernel matrix is not positive semi-definite: even jitter of 1e-3 of its mean diagonal does not "
        "make it factorisable. Check a custom kernel for asymmetry or negative eigenvalues."
    )
