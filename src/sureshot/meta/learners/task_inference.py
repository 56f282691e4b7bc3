"""How a Gaussian-process learner gets from labels to latents, for a batch of tasks.

A learner is a kernel, a likelihood, a `TaskInference` and an objective. The inference gives two things, both
differentiable in the prior: the (approximate) log evidence of a labelled set, which marginal-likelihood training
maximises, and a posterior for queries, which predictive-likelihood training and prediction use.

Chains are the leading dimension of what a posterior returns; deterministic schemes have one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from sureshot.inference.latent_gaussian import GramPrior
from sureshot.likelihoods.base import Likelihood


class QueryPosterior(ABC):
    """The latents of T tasks given their support sets."""

    @abstractmethod
    def query(self, cross: Tensor, prior_variance: Tensor) -> tuple[Tensor, Tensor]:
        """The latents at queries, for S chains.

        Parameters
        ----------
        cross : Tensor (T, 1 or C, N, Q)
            Kernel between support and queries.
        prior_variance : Tensor (T, 1 or C, Q)
            The kernel's diagonal at the queries.

        Returns
        -------
        mean : Tensor (S, T, C, Q)
        covariance : Tensor
            Variances (S, T, C, Q), or full covariances over the classes (S, T, Q, C, C).
        """


class TaskInference(ABC):
    """A scheme of inference; stateless."""

    likelihood: Likelihood
    """What turns latents into class probabilities."""

    @abstractmethod
    def evidence(
        self, prior: GramPrior, y: Tensor, n_classes: int, weight: Tensor | None, generator: torch.Generator
    ) -> Tensor:
        """What marginal-likelihood training maximises, (T,), in nats: log evidence, bound, or a surrogate of it.

        Parameters
        ----------
        prior : GramPrior
            ``gram`` (T, 1 or C, N, N), ``mean`` scalar or (T or 1, C, 1).
        y : Tensor (T, N) int64
        n_classes : int
            C.
        weight : Tensor (T, N), optional
            One by default, zero for padding.
        generator : torch.Generator
        """

    @abstractmethod
    def posterior(
        self, prior: GramPrior, y: Tensor, n_classes: int, weight: Tensor | None, generator: torch.Generator
    ) -> QueryPosterior:
        """The posterior given a support set; arguments as in `evidence`."""
