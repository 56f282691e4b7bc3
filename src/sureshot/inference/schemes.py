"""Inference schemes as objects: what each can do, and one call from labelled rows to a posterior of weights.

A scheme has no state. It says which likelihoods it takes and what its posterior is good for, so that nobody asks for
its name, and conditions: the same features go to least squares, Laplace, mean field, Gibbs or natural gradients, and a
posterior over their weights comes back. Few-shot learners condition batches of tasks with gradients, in function space
and by so many steps as was published: a `sureshot.meta.learners.task_inference.TaskInference` has the scheme that it
is the batch form of.

Classes without a single row take no part in the inference: their latents keep the prior, and they join the
normalisation of the probabilities with it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from sureshot.computing.blocks import entries_by_features
from sureshot.gaussian.features import FeaturePosterior, FeaturePrior
from sureshot.gaussian.posterior import Posterior, WithPriorClasses, leave_one_out
from sureshot.gaussian.recomputed import (
    FactorWeightPosterior,
    SiteWeightPosterior,
    SoftmaxWeightPosterior,
    WeightPosterior,
)
from sureshot.gaussian.sites import Sites
from sureshot.inference.gibbs import run_gibbs
from sureshot.inference.laplace import fit_logistic_laplace, fit_softmax_laplace
from sureshot.inference.least_squares import regression_log_evidence, regression_sites, weight_space_of
from sureshot.inference.mean_field import fit_mean_field
from sureshot.inference.natural_gradient import fit_natural_gradient
from sureshot.inference.one_vs_each.posterior import sample_one_vs_each
from sureshot.likelihoods import GaussianLabels, Logistic, OneVsEach, Softmax
from sureshot.likelihoods.auxiliary import one_hot
from sureshot.likelihoods.base import Likelihood
from sureshot.likelihoods.gaussian import label_targets, signed_labels
from sureshot.likelihoods.sites import ConjugateLikelihood, MeanFieldLikelihood


class Effort(IntEnum):
    """How much is asked of a posterior: what a smaller effort leaves out may be NaN, where that spares time."""

    MODE = 0  # the posterior alone: neither variances at the training rows nor the evidence
    MEANS = 1  # variances good enough for leave-one-out means, which allows short cuts with many classes
    FULL = 2


class Request(NamedTuple):
    """What is asked of a posterior, and what is known before; a scheme reads what it can use."""

    effort: Effort = Effort.FULL
    tolerance: float | None = None  # of a softmax mode, see `fit_softmax_laplace`; to full precision by default
    generator: torch.Generator | None = None  # for Gibbs and natural gradients
    # From where a mode is sought, which changes the time and nothing else.
    dual: Tensor | None = None  # (C, N), `Conditioned.dual` of the same rows under another kernel
    near: Tensor | None = None  # (C, R), weights near the mode

    def of(self, classes: Tensor) -> Request:
        """For some of the classes."""
        dual, near = (None if part is None else part[classes] for part in (self.dual, self.near))
        return self._replace(dual=dual, near=near)


PLAIN = Request()


class Problem(NamedTuple):
    """Labelled rows by their features, and the prior of the latents."""

    features: Tensor  # (N, R), ``K = Phi Phi'``
    likelihood: Likelihood
    y: Tensor  # (N,), labels 0..n_classes-1; not every class needs rows
    n_classes: int
    weight: Tensor  # (N,), how often each row counts
    prior_mean: float = 0.0

    @property
    def prior(self) -> FeaturePrior:
        """Of the latents at the rows."""
        mean = self.features.new_full((self.likelihood.n_latents(self.n_classes), 1), self.prior_mean)
        return FeaturePrior(self.features.unsqueeze(0), mean)


@dataclass(frozen=True)
class Conditioned:
    """A posterior with what is known of how it was reached; `moments` and `sites` of schemes with sites only."""

    posterior: Posterior  # moments at queries (S, C, Q), by features (Q, R)
    moments: tuple[Tensor, Tensor] | None = None  # means and variances at the training rows, each (C, N)
    sites: Sites | None = None  # (C, N)
    log_evidence: float = math.nan  # exact for regression, Laplace's approximation, or the bound; NaN for Gibbs
    trace: tuple[float, ...] = ()  # of the objective along the iterations, where the scheme has one
    dual: Tensor | None = None  # (C, N), Laplace's ``K^-1 (f - a)``, a start for the same data under another kernel

    def leave_one_out(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """Latent means and variances (C, N) without a share (N,) of each row's site, of schemes with sites."""
        assert self.sites is not None
        assert self.moments is not None
        return leave_one_out(*self.moments, *(share * part for part in self.sites))


@dataclass(frozen=True)
class Scheme(ABC):
    """How a posterior is found."""

    name: ClassVar[str]
    """The public name, as in ``GPClassifier(inference=name)``."""
    is_exact = False
    """Whether posterior and leave-one-out predictions are exact, for a path of noise levels at the price of one."""
    seeks_mode = False
    """Whether its posterior is at a mode, which may be sought from one nearby."""
    samples = False
    """Whether it draws: its posterior is a mixture of chains without an evidence, and weights of rows are whole."""
    has_sites = True
    """Whether sites give leave-one-out predictions without a refit. Else mean field chooses the settings."""
    sites_see_labels = False
    """Whether, of several classes, sites are made of means that have seen all labels; see `MeanField`."""
    n_chains = 1

    @staticmethod
    def takes(likelihood: type[Likelihood]) -> bool:
        """Whether it works with a likelihood; as a rule with those that give sites."""
        return issubclass(likelihood, MeanFieldLikelihood)

    @property
    def in_parts(self) -> bool:
        """Whether one class after the other is factorised; the others hold the factors of all at once.

        Means alone then take a fraction of the time, see `Effort.MODE`.
        """
        return self.is_exact or self.seeks_mode

    def entries(self, n_rows: int, rank: int, n_classes: int) -> int:
        """Entries of the arrays that `condition` holds at a time, for so many features."""
        n_latents = n_classes * self.n_chains
        return entries_by_features(n_rows, rank, n_latents, 1 if self.in_parts else n_latents, n_classes)

    @torch.no_grad()
    def condition(self, problem: Problem, request: Request = PLAIN) -> Conditioned:
        """The posterior of the weights given labelled features."""
        if self.is_exact:  # a class without rows is a regression, too
            return self._found(problem, request)
        one_latent = problem.likelihood.n_latents(2) == 1
        if one_latent:
            problem = problem._replace(n_classes=2)
        counts = torch.bincount(problem.y, minlength=problem.n_classes)
        present = counts.nonzero().squeeze(-1)
        # Rows of a single class tell it from classes without rows by a mode, which takes a moment for any number.
        if len(present) < (1 if self.seeks_mode else 2):
            prior = problem.prior
            zeros = prior.features.new_zeros(len(prior.mean), len(problem.y))
            return _recomputed(problem.features, prior.condition(Sites(zeros, zeros)), 0.0)
        if one_latent or len(present) in (1, problem.n_classes):
            return self._found(problem, request)
        position = torch.zeros_like(counts)
        position[present] = torch.arange(len(present), device=present.device)
        those = problem._replace(y=position[problem.y], n_classes=len(present))
        return _with_prior_classes(self._found(those, request.of(present)), problem, present)

    @abstractmethod
    def _found(self, problem: Problem, request: Request) -> Conditioned:
        """As a rule there are rows of every class."""

    def row_sites(self, posterior: WeightPosterior, problem: Problem) -> tuple[Tensor, Tensor]:
        """Precisions (S, L or 1, N) of the rows' sites, and how strongly they pull (S, L, N).

        Computed again from labels, likelihood and moments, as posteriors of weights keep no shifts.
        """
        features, likelihood, y, _, weight, _ = problem
        assert isinstance(likelihood, MeanFieldLikelihood)
        mean = posterior.training_mean
        variance = posterior.query_variance(features, features.square().sum(-1)).mean(0) + mean.var(0, correction=0)
        sites = likelihood.expected_sites(mean.mean(0), variance, y, weight)
        precision = posterior.precision if isinstance(posterior, SiteWeightPosterior) else sites.precision[None]
        return precision, sites.shift - precision * mean


@dataclass(frozen=True)
class LeastSquares(Scheme):
    """Regression on -1/+1 targets with their weighted means as prior means; exact."""

    name = "exact"
    is_exact = True

    @staticmethod
    def takes(likelihood: type[Likelihood]) -> bool:
        return likelihood is GaussianLabels

    def _found(self, problem: Problem, request: Request) -> Conditioned:
        features, likelihood, y, n_classes, weight, _ = problem
        assert isinstance(likelihood, GaussianLabels)
        targets, prior_mean = label_targets(y, n_classes, weight)
        if request.effort is Effort.MODE:
            return Conditioned(weight_space_of(features, targets, prior_mean, weight, likelihood.noise))
        prior = FeaturePrior(features.unsqueeze(0), prior_mean.unsqueeze(-1))
        posterior = prior.condition(regression_sites(targets, weight, likelihood.noise))
        evidence = regression_log_evidence(prior, targets, weight, likelihood.noise, posterior)
        return _recomputed(features, posterior, float(evidence.sum()))

    def row_sites(self, posterior: WeightPosterior, problem: Problem) -> tuple[Tensor, Tensor]:
        assert isinstance(posterior, SiteWeightPosterior)
        targets = signed_labels(problem.y, problem.n_classes, problem.features.dtype)
        return posterior.precision, posterior.precision * (targets - posterior.training_mean)


@dataclass(frozen=True)
class Laplace(Scheme):
    """A Gaussian at the mode, for the two likelihoods whose curvature it knows."""

    name = "laplace"
    seeks_mode = True

    @staticmethod
    def takes(likelihood: type[Likelihood]) -> bool:
        return likelihood in (Logistic, Softmax)

    def _found(self, problem: Problem, request: Request) -> Conditioned:
        features, likelihood, y, n_classes, weight, prior_mean = problem
        only_mode = request.effort is Effort.MODE
        if isinstance(likelihood, Softmax):
            fit = fit_softmax_laplace(
                features,
                y,
                n_classes,
                weight,
                float(likelihood.temperature),
                request.dual,
                request.effort is Effort.MEANS,
                request.tolerance,
                prior_mean=prior_mean,
                near=request.near,
                only_mode=only_mode,
            )
        else:
            dual, near = (None if part is None else part[0] for part in (request.dual, request.near))
            fit = fit_logistic_laplace(features, y, weight, prior_mean, dual, near, only_mode=only_mode)
        moments = fit.posterior.training_mean[0], fit.variance
        return Conditioned(fit.posterior, moments, fit.sites, float(fit.log_evidence), dual=fit.dual)

    def row_sites(self, posterior: WeightPosterior, problem: Problem) -> tuple[Tensor, Tensor]:
        """By the gradient at the mode."""
        mean = posterior.training_mean
        if isinstance(posterior, SoftmaxWeightPosterior):
            error = one_hot(problem.y, problem.n_classes, mean.dtype) - torch.softmax(mean / posterior.temperature, 1)
            return posterior.precision, posterior.row_weight * error / posterior.temperature
        assert isinstance(posterior, SiteWeightPosterior)
        return posterior.precision, problem.weight * (problem.y - torch.sigmoid(mean))


@dataclass(frozen=True)
class MeanField(Scheme):
    """Coordinate ascent until nothing moves.

    Without a row's own site its label is still in the other sites, which depend on means that have seen it, the more
    the larger the output scale. So leave-one-out predictions need refits.
    """

    name = "mean_field"
    sites_see_labels = True

    def _found(self, problem: Problem, request: Request) -> Conditioned:
        features, likelihood, y, n_classes, weight, _ = problem
        assert isinstance(likelihood, MeanFieldLikelihood)
        found = fit_mean_field(problem.prior, likelihood, y, weight, n_classes)
        assert isinstance(found.posterior, FeaturePosterior)
        return _recomputed(features, found.posterior, float(found.bound), tuple(found.bound_trace.tolist()))


@dataclass(frozen=True)
class NaturalGradient(Scheme):
    """Mean field by stochastic steps, for many rows with few features."""

    name = "natural_gradient"
    has_sites = False

    def _found(self, problem: Problem, request: Request) -> Conditioned:
        features, likelihood, y, n_classes, weight, _ = problem
        assert isinstance(likelihood, MeanFieldLikelihood)
        mean = problem.prior.mean
        found = fit_natural_gradient(
            features, likelihood, y, weight, prior_mean=mean, n_classes=n_classes, generator=request.generator
        )
        posterior = FactorWeightPosterior(features, found.mean[None], mean.squeeze(-1), found.factor[None])
        return Conditioned(posterior, log_evidence=float(found.bound), trace=tuple(found.bound_trace.tolist()))


@dataclass(frozen=True)
class Gibbs(Scheme):
    """Chains of Polya-Gamma variables, each a Gaussian; one-vs-each has a sampler of its own."""

    n_chains: int = 20
    n_sweeps: int = 50

    name = "gibbs"
    samples = True
    has_sites = False

    @staticmethod
    def takes(likelihood: type[Likelihood]) -> bool:
        return issubclass(likelihood, ConjugateLikelihood) or likelihood is OneVsEach

    def _found(self, problem: Problem, request: Request) -> Conditioned:
        features, likelihood, y, n_classes, weight, prior_mean = problem
        chains = self.n_chains, self.n_sweeps
        if isinstance(likelihood, OneVsEach):
            sampled = sample_one_vs_each(features, y, n_classes, weight, prior_mean, *chains, request.generator)
            return Conditioned(sampled)
        assert isinstance(likelihood, ConjugateLikelihood)
        prior = problem.prior
        draws = run_gibbs(prior, likelihood, y, *chains, weight, request.generator, n_classes=n_classes)
        weights = prior.condition(draws.sites).weights
        return Conditioned(SiteWeightPosterior(features, weights, prior.mean.squeeze(-1), draws.sites.precision))


def _recomputed(
    features: Tensor, posterior: FeaturePosterior, log_evidence: float, trace: tuple[float, ...] = ()
) -> Conditioned:
    """The posterior in the form that estimators keep."""
    kept = SiteWeightPosterior(
        features, posterior.weights[None], posterior.prior_mean.squeeze(-1), posterior.sites.precision[None]
    )
    sites = Sites(*(part.expand_as(posterior.mean) for part in posterior.sites))
    return Conditioned(kept, (posterior.mean, posterior.variance), sites, log_evidence, trace)


def _with_prior_classes(found: Conditioned, problem: Problem, present: Tensor) -> Conditioned:
    """What was found of the classes with rows, `present`, for all classes: the others keep the prior."""
    features, n_classes, prior_mean = problem.features, problem.n_classes, problem.prior_mean

    def place(values: Tensor, fill: float = 0.0) -> Tensor:
        return values.new_full((n_classes, values.shape[1]), fill).index_copy(0, present, values)

    posterior = WithPriorClasses(found.posterior, present, features.new_full((n_classes,), prior_mean))
    moments = None
    if found.moments is not None:
        mean, variance = found.moments
        prior = features.square().sum(-1).expand(n_classes, -1)
        moments = place(mean, prior_mean), prior.index_copy(0, present, variance)
    sites = None if found.sites is None else Sites(*map(place, found.sites))
    dual = None if found.dual is None else place(found.dual)
    return Conditioned(posterior, moments, sites, found.log_evidence, found.trace, dual)
