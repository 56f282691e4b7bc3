"""What is assumed of labels, and how their posterior is found: a likelihood and a scheme, by names and numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature

from torch import Tensor

from sureshot.inference import SCHEMES
from sureshot.inference.schemes import PLAIN, Conditioned, Gibbs, LeastSquares, MeanField, Problem, Request, Scheme
from sureshot.likelihoods import LIKELIHOODS, GaussianLabels, Softmax, get_likelihood
from sureshot.likelihoods.base import Likelihood


@dataclass(frozen=True)
class Model:
    """A likelihood and a scheme, as plans and model files hold them."""

    likelihood: str
    inference: str  # one of `schemes_for` the likelihood
    noise: float = 1.0  # variance, of least squares
    likelihood_temperature: float = 1.0  # divides the latents inside softmax and logistic-softmax likelihoods
    prior_mean: float = 0.0
    n_chains: int = 20  # for Gibbs sampling
    n_sweeps: int = 50

    @cached_property
    def scheme(self) -> Scheme:
        """How the posterior is found."""
        kind = SCHEMES[self.inference]
        return kind(self.n_chains, self.n_sweeps) if issubclass(kind, Gibbs) else kind()

    @cached_property
    def training_likelihood(self) -> Likelihood:
        """The likelihood of the labels, with those of the model's parameters that its class takes."""
        known = {"temperature": self.likelihood_temperature, "noise": self.noise}
        taken = signature(LIKELIHOODS[self.likelihood]).parameters
        return get_likelihood(self.likelihood, **{name: value for name, value in known.items() if name in taken})

    @cached_property
    def predictive_likelihood(self) -> Likelihood:
        """The likelihood that turns latents into probabilities.

        Least squares has no categorical likelihood of its own; its latents pass through a softmax whose temperature is
        chosen on leave-one-out predictions.
        """
        return Softmax() if self.scheme.is_exact else self.training_likelihood

    @property
    def one_latent(self) -> bool:
        """Whether the likelihood has one latent function for two classes."""
        return self.training_likelihood.n_latents(2) == 1

    @property
    def sites_see_labels(self) -> bool:
        """Whether no label is left out with its row's own sites, see `Scheme.sites_see_labels`."""
        return self.scheme.sites_see_labels and not self.one_latent

    @property
    def searches(self) -> bool:
        """Whether the posterior is sought step by step, which takes fewer steps by orthogonal features."""
        return not self.scheme.is_exact

    def stand_in(self) -> Model:
        """The model whose leave-one-out predictions choose the settings."""
        return self if self.scheme.has_sites else replace(self, inference=MeanField.name)

    def condition(
        self,
        features: Tensor,  # (N, R)
        y: Tensor,  # (N,), labels 0..n_classes-1; not every class needs rows
        n_classes: int,
        weight: Tensor,  # (N,), how often each row counts
        request: Request = PLAIN,
    ) -> Conditioned:
        """The posterior of the weights given labelled features."""
        return self.scheme.condition(self.problem(features, y, n_classes, weight), request)

    def problem(self, features: Tensor, y: Tensor, n_classes: int, weight: Tensor) -> Problem:
        """What `condition` solves."""
        return Problem(features, self.training_likelihood, y, n_classes, weight, self.prior_mean)


LEAST_SQUARES = Model(GaussianLabels.name, LeastSquares.name)
"""By which kernels are compared."""


def least_squares(noise: float | None) -> Model:
    """With a variance of the noise, if one is stated."""
    return LEAST_SQUARES if noise is None else replace(LEAST_SQUARES, noise=noise)
