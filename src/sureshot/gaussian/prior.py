"""Gaussian priors of latents at training rows: the interface.

A prior and Gaussian sites make a posterior (`Prior.condition`); everything that inference, objectives and predictions
ask is asked of these two, and nobody asks which kind they are. Two representations of the same prior are
interchangeable:

* `sureshot.gaussian.gram.GramPrior` holds the kernel matrix ``K``. With ``B = I + W^1/2 K W^1/2`` (eigenvalues at least
  1) neither ``K^-1`` nor jitter is ever needed, and a precision of zero (no observation) is allowed anywhere.
* `sureshot.gaussian.features.FeaturePrior` holds features ``Phi`` with ``K = Phi Phi' + diag(residual)``; with fewer
  features R than data N everything costs ``O(N R^2)`` instead of ``O(N^3)``.

What a prior knows of query inputs is a `Queries`, made by the prior itself: `Prior.queries`.

Leading dimensions of every tensor are tasks, nodes of a tree, chains; the classes come next.

References: Rasmussen & Williams 2006, chapter 3 (the B form) and 5.4.2 (leave-one-out).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.gaussian.posterior import SitePosterior
from sureshot.gaussian.sites import Sites


class Queries(NamedTuple):
    """How query inputs covary with the latents at the training rows, as the prior's representation has it."""

    cross: Tensor
    """The kernel between rows and queries (..., C or 1, N, Q), or the queries' features (..., C or 1, Q, R)."""
    variance: Tensor  # (..., C or 1, Q), prior variances of the queries


Covariance = Callable[[Tensor], Queries]
"""Prior moments of query inputs (..., Q, D)."""


class Prior(ABC):
    """A Gaussian prior over the latents at the training rows."""

    mean: Tensor  # scalar or (..., C, 1)
    covariance: Covariance | None
    """With query inputs; None for a prior that is only conditioned."""

    @property
    @abstractmethod
    def variance(self) -> Tensor:
        """Prior variances (..., C or 1, N)."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Columns of the matrix that represents the prior: N or R. What conditioning holds grows with it."""

    def queries(self, x: Tensor) -> Queries:
        """Prior moments of query inputs."""
        if self.covariance is None:
            raise ValueError("this prior does not know its kernel: make it with covariance= to ask about queries")
        return self.covariance(x)

    @abstractmethod
    def some(self, chosen: Tensor, n: int) -> Prior:
        """Of some problems of the first dimension, a mask or numbers, the first n rows; a mean (P, C, 1) for each."""

    @abstractmethod
    def condition(self, sites: Sites) -> SitePosterior:
        """The posterior under these sites, whose precisions may be shared by the classes, (..., C or 1, N)."""

    @abstractmethod
    def log_density(
        self,
        residual: Tensor,  # (..., C, N), values less the prior mean
        precision: Tensor,  # (..., C or 1, N), zero for a value that was not observed
    ) -> Tensor:
        """How probable observed values are, given noise of variance ``1 / precision`` on the latents, (..., C).

        ``-1/2 (r' (K + W^-1)^-1 r + log|I + W^1/2 K W^1/2|)`` in nats: the log density less the normaliser of the
        noise, ``1/2 sum_n log(w_n / 2 pi)``. Residuals are whitened, so small noise does not cancel.
        """

    @abstractmethod
    def sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        """Draws of the latents with the leading `shape` (..., C), giving (..., C, N)."""

    @abstractmethod
    def sampler(self) -> Prior:
        """The same prior with a factor at hand, so that each draw of `sample` is one product."""

    @abstractmethod
    def draw(self, sites: Sites, generator: torch.Generator | None, sampler: Prior) -> Tensor:
        """One exact draw of the latents given sites (..., C, N), in their shape; `sampler` is `Prior.sampler`'s."""
