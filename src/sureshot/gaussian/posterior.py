"""Gaussian posteriors of latents: the interface.

A `Posterior` says what is known of the latents at queries, whatever holds it: a kernel matrix, features, factors kept
or recomputed, one Gaussian or a mixture of those of a sampler's chains. A `SitePosterior` is one that Gaussian sites
made: it has moments at the training rows too, the evidence, and leave-one-out cavities.

==========================================  ===================================================================
`gram.GramPosterior`                        kernel matrix, factors kept: small problems in batches, gradients
`gram_blocks.GramBlockPosterior`            kernel matrix, factors recomputed: many classes of one large table
`features.FeaturePosterior`                 features, factors kept
`recomputed.WeightPosterior`                features, factors recomputed: what estimators keep
`WithPriorClasses`                          any of them, joined by classes that keep their prior
``OneVsEachPosterior`` (in ``inference``)   classes coupled by labels that compare them
==========================================  ===================================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sureshot.gaussian.sites import Sites

_SMALLEST_CAVITY = 1e-12  # share of a latent's precision that is not its own site's


class LatentMoments(NamedTuple):
    """Gaussians of the latents at queries; leading dimensions are chains and tasks."""

    mean: Tensor  # (..., C, Q)
    spread: Tensor  # variances (..., C, Q), or covariances over the classes (..., Q, C, C) where they are coupled


class Posterior(ABC):
    """What is known of the latents; frozen."""

    @abstractmethod
    def query(self, cross: Tensor, prior_variance: Tensor) -> LatentMoments:
        """The latents at queries; the arguments are the prior's `Queries`."""

    @abstractmethod
    def query_mean(self, cross: Tensor) -> Tensor:
        """The means of `query` alone, (..., C, Q): no factorisation is needed for them."""

    def held(self) -> Posterior:
        """The same for many calls of `query`: what each of them would find anew, found once, as memory allows."""
        return self

    def query_variance(
        self,
        cross: Tensor,
        prior_variance: Tensor,
        classes: Tensor | None = None,  # (Q,), one class for each query, whose variance alone is wanted
    ) -> Tensor:
        """Marginal variances at queries: of all classes (..., C, Q), or of the class of each, (..., Q)."""
        mean, spread = self.query(cross, prior_variance)
        coupled = spread.dim() > mean.dim()
        variance = spread.diagonal(dim1=-2, dim2=-1).mT.clamp_min(0) if coupled else spread
        return variance if classes is None else of_classes(variance, classes)


class ProblemPosterior(Posterior):
    """Of many problems at once, one for each place of the first dimension (behind chains, if there are any)."""

    @abstractmethod
    def some(self, chosen: Tensor) -> ProblemPosterior:
        """That of some problems, numbers (P,)."""


class SitePosterior(Posterior):
    """The Gaussian posterior of the latents given sites."""

    prior_mean: Tensor  # (..., C, 1) or scalar
    sites: Sites
    mean: Tensor  # (..., C, N), at the training rows
    variance: Tensor  # (..., C, N), at the training rows
    log_det: Tensor  # (..., C), ``log|B| = log|K| - log|Sigma|``
    quadratic: Tensor  # (..., C), ``(m - a)' K^-1 (m - a)``

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

    @abstractmethod
    def trace(self) -> Tensor:
        """``tr(K^-1 Sigma) = tr(B^-1)``, (..., C).

        From the factor of B when asked for: ``N - tr(W Sigma)`` would cancel where precisions are large.
        """


@dataclass(frozen=True)
class WithPriorClasses(Posterior):
    """A posterior over some classes, joined by classes that keep their prior, independent of the others."""

    inner: Posterior  # over P of the classes
    present: Tensor  # (P,) int64, their places, increasing
    prior_mean: Tensor  # (C,)

    def query(self, cross: Tensor, prior_variance: Tensor) -> LatentMoments:
        """The kernel's diagonal must be shared by the classes, (..., 1, Q)."""
        mean, spread = self.inner.query(cross, prior_variance)
        shape = (*mean.shape[:-2], len(self.prior_mean), mean.shape[-1])
        whole = prior_variance.expand(shape)
        if spread.dim() == mean.dim():
            return LatentMoments(self._joined(mean), whole.index_copy(-2, self.present, spread))
        full = torch.diag_embed(whole.mT)
        full[..., self.present.unsqueeze(-1), self.present] = spread
        return LatentMoments(self._joined(mean), full)

    def query_mean(self, cross: Tensor) -> Tensor:
        return self._joined(self.inner.query_mean(cross))

    def query_variance(self, cross: Tensor, prior_variance: Tensor, classes: Tensor | None = None) -> Tensor:
        if classes is None:
            own = self.inner.query_variance(cross, prior_variance)
            whole = prior_variance.expand(*own.shape[:-2], len(self.prior_mean), own.shape[-1])
            return whole.index_copy(-2, self.present, own)
        absent = torch.ones_like(self.prior_mean, dtype=torch.bool).index_fill(0, self.present, False)
        place = absent.logical_not().cumsum(0).sub(1).clamp_min(0)
        own = self.inner.query_variance(cross, prior_variance, place[classes])
        return torch.where(absent[classes], prior_variance.squeeze(-2), own)

    def _joined(self, mean: Tensor) -> Tensor:
        whole = self.prior_mean.to(mean).unsqueeze(-1).expand(*mean.shape[:-2], -1, mean.shape[-1])
        return whole.index_copy(-2, self.present, mean)


def of_problems(posterior: SitePosterior, chosen: Tensor) -> dict[str, Any]:
    """The fields of a dataclass whose tensors all begin with the problems, for some of these, numbers (P,)."""
    found: dict[str, Any] = {}
    for field in fields(posterior):  # type: ignore[arg-type]
        value = getattr(posterior, field.name)
        if isinstance(value, Sites):
            found[field.name] = Sites(*(part[chosen] for part in value))
        else:
            found[field.name] = None if value is None else value[chosen]
    return found


def leave_one_out(mean: Tensor, variance: Tensor, precision: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances with each row's own site removed, from posterior moments and sites, each (..., C, N)."""
    kept = (1 - precision * variance).clamp_min(_SMALLEST_CAVITY)
    return (mean - shift * variance) / kept, variance / kept


def of_classes(values: Tensor, classes: Tensor) -> Tensor:
    """From values (..., C, Q) those of one class for each query, (..., Q)."""
    return values.gather(-2, classes.expand(*values.shape[:-2], 1, -1)).squeeze(-2)
