"""What a likelihood must say, and nothing more.

Given its auxiliary variables, each *conjugate* likelihood is a Gaussian factor in the latents (a *site*,
see `sureshot.gaussian.latent`). So a likelihood only says: its density, its sites given a sample
of the latents (Gibbs), its expected sites given their Gaussian marginals (mean field), its local terms of
the evidence bound, and its predictive rules. Inference needs no knowledge of the particular likelihood, and
a new likelihood needs no new inference.

Shapes: ``f`` (..., C, N) with any leading batch dimensions (tasks, chains); ``y`` (..., N) int64 in 0..C-1;
``weight`` (..., N), one for each datum, a datum of weight 2 counting as two equal ones. A likelihood for two
classes with a single latent function (`Logistic`) has C = 1 latent rows while its probabilities have two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, final

import torch
from torch import Tensor

from sureshot.gaussian.sites import Sites

PredictiveRule = Literal["integral", "expected_log", "plug_in"]

Carried = tuple[Tensor, ...] | None
"""Variational parameters that one step of mean field hands to the next: the likelihood's own affair."""


class Likelihood(ABC):
    """Density and predictive rules of a categorical likelihood."""

    name: str
    """The public name, as in ``GPClassifier(likelihood=name)``."""

    translation_invariant = False
    """Whether one number added to all latents changes nothing."""

    def n_latents(self, n_classes: int) -> int:
        """Latent functions needed for that many classes (one for each by default)."""
        return n_classes

    @abstractmethod
    def class_log_likelihood(self, f: Tensor) -> Tensor:
        """``log L(f | y = c)`` for every class c, (..., classes, N); need not be normalised over classes."""

    def class_logits(self, f: Tensor) -> Tensor:
        """`class_log_likelihood` less what all classes share, which may be so large that it swallows differences."""
        return self.class_log_likelihood(f)

    def log_likelihood(self, f: Tensor, y: Tensor) -> Tensor:
        """``log L(f | y)`` of the observed labels, (..., N)."""
        values = self.class_log_likelihood(f)
        index = y.unsqueeze(-2).expand(*values.shape[:-2], 1, values.shape[-1])
        return values.gather(-2, index).squeeze(-2)

    def log_plug_in(self, mean: Tensor) -> Tensor:
        """Log of `plug_in`, accurate where probabilities underflow."""
        return torch.log_softmax(self.class_logits(mean), dim=-2)

    def plug_in(self, mean: Tensor) -> Tensor:
        """Normalised likelihood at the latent means, (..., classes, Q)."""
        return torch.softmax(self.class_logits(mean), dim=-2)

    @abstractmethod
    def integral(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """``E[L(f | y = c)]`` normalised over classes, (..., classes, Q).

        Parameters
        ----------
        mean : Tensor (..., C, Q)
        covariance : Tensor
            Variances (..., C, Q) of independent latents, or full covariances over the classes (..., Q, C, C).
        """

    @abstractmethod
    def expected_log(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """Softmax over classes of ``E[log L(f | y = c)]``, (..., classes, Q); arguments as in `integral`."""

    def predict(self, mean: Tensor, covariance: Tensor, rule: PredictiveRule) -> Tensor:
        """Class probabilities (..., classes, Q) by the named rule."""
        if rule == "plug_in":
            return self.plug_in(mean)
        if rule == "expected_log":
            return self.expected_log(mean, covariance)
        return self.integral(mean, covariance)

    def predict_mixture(self, mean: Tensor, covariance: Tensor, rule: PredictiveRule) -> Tensor:
        """Class probabilities (..., classes, Q) of a mixture of Gaussians (S, ..., C, Q), such as a sampler's chains.

        Those of the Gaussians, averaged: each is normalised on its own.
        """
        return self.predict(mean, covariance, rule).mean(0)


class MeanFieldLikelihood(Likelihood):
    """A likelihood whose auxiliary variables factorise into one Gaussian site for every latent value."""

    @abstractmethod
    def expected_sites(self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None) -> Sites:
        """Sites with the auxiliary variables at their optimal mean-field expectation, each (..., C, N)."""

    @abstractmethod
    def local_bound(self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """The data's terms of the evidence bound, (...): the bound is this minus ``KL(q(f) || p(f))``.

        The auxiliary variables are at their optimum for these moments, so its derivatives are the expected
        sites: ``d / d mean = shift - precision * mean`` and ``d / d variance = -precision / 2``.
        """

    @abstractmethod
    def step(
        self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None, carried: Carried = None
    ) -> tuple[Sites, Carried]:
        """Sites of one step of mean field, and what the auxiliary variables carry over to the next one.

        Parameters
        ----------
        mean, variance, y, weight
            As in `expected_sites`.
        carried : optional
            From the step before; None for the first.
        """

    @abstractmethod
    def bound_after_step(
        self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None, carried: Carried
    ) -> Tensor:
        """`local_bound` with the auxiliary variables where `step` left them, (...)."""


class AuxiliariesAtOptimum(MeanFieldLikelihood):
    """A likelihood whose auxiliary variables are at their optimum in every step, so that none carries anything."""

    @final
    def step(
        self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None, carried: Carried = None
    ) -> tuple[Sites, Carried]:
        """`expected_sites`, and None."""
        return self.expected_sites(mean, variance, y, weight), None

    @final
    def bound_after_step(
        self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None, carried: Carried
    ) -> Tensor:
        """`local_bound`."""
        return self.local_bound(mean, variance, y, weight)


class ConjugateLikelihood(MeanFieldLikelihood):
    """A likelihood that is Gaussian, independently over the latents, given drawn auxiliary variables."""

    @abstractmethod
    def sample_sites(self, f: Tensor, y: Tensor, weight: Tensor | None, generator: torch.Generator | None) -> Sites:
        """Draw the auxiliary variables given latents ``f`` (..., C, N) and return the sites they imply."""
