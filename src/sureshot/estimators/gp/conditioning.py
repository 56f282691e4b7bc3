"""From features and labels to a posterior, by whichever likelihood and inference were asked for.

The estimators hold no linear algebra: they call `condition`, which hands the same features to least squares,
Laplace, mean field, Gibbs or natural gradients and returns a posterior over their weights.

Classes without a single row take no part in the inference: their latents keep the prior, and they join the
normalisation of the probabilities with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from inspect import signature

import torch
from torch import Tensor

from sureshot.computing.blocks import entries_by_features
from sureshot.gaussian.features import FeaturePosterior, FeaturePrior
from sureshot.gaussian.posterior import Posterior, WithPriorClasses, leave_one_out
from sureshot.gaussian.recomputed import FactorWeightPosterior, SiteWeightPosterior, weight_precision_factor
from sureshot.gaussian.sites import Sites
from sureshot.inference.gibbs import run_gibbs
from sureshot.inference.laplace import fit_logistic_laplace, fit_softmax_laplace
from sureshot.inference.least_squares import regression_log_evidence, regression_sites
from sureshot.inference.mean_field import fit_mean_field
from sureshot.inference.natural_gradient import fit_natural_gradient
from sureshot.inference.one_vs_each.posterior import sample_one_vs_each
from sureshot.likelihoods import LIKELIHOODS, GaussianLabels, Logistic, OneVsEach, Softmax, get_likelihood
from sureshot.likelihoods.base import Likelihood
from sureshot.likelihoods.gaussian import label_targets
from sureshot.likelihoods.sites import ConjugateLikelihood, MeanFieldLikelihood

INFERENCE_NAMES = ("laplace", "mean_field", "gibbs", "natural_gradient")

STAND_IN = {"gibbs": "mean_field", "natural_gradient": "mean_field"}
"""Whose leave-one-out predictions choose the settings of a scheme that has none, or that are noisy."""

ONE_FACTOR = ("laplace", "exact")
"""Schemes that hold the factor of one class at a time; the others hold those of all classes."""


@dataclass(frozen=True)
class Model:
    """What is assumed of the labels and how the posterior is found."""

    likelihood: str
    inference: str  # one of `schemes_for` the likelihood
    noise: float = 1.0  # variance, of least squares
    likelihood_temperature: float = 1.0  # divides the latents inside softmax and logistic-softmax likelihoods
    prior_mean: float = 0.0
    n_chains: int = 20  # for Gibbs sampling
    n_sweeps: int = 50

    def predictive_likelihood(self) -> Likelihood:
        """The likelihood that turns latents into probabilities.

        Least squares has no categorical likelihood of its own; its latents pass through a softmax whose
        temperature is chosen on leave-one-out predictions.
        """
        return get_likelihood("softmax") if self.likelihood == "least_squares" else training_likelihood(self)

    @property
    def one_latent(self) -> bool:
        """Whether the likelihood tells two classes apart by one latent function."""
        return training_likelihood(self).n_latents(2) == 1

    @property
    def sites_see_labels(self) -> bool:
        """Whether no label is left out with its row's own sites, as all others are made of means that have seen it.

        So it is with mean field over several classes, the more the larger the output scale: of 60 digits, six a class,
        one-vs-each predicts left-out labels with a log loss of .42 by their sites and .79 by refits at scale 10, and of
        .15 and 1.75 at 1000.
        """
        return self.inference == "mean_field" and not self.one_latent

    @property
    def searches(self) -> bool:
        """Whether the posterior is sought step by step, which takes fewer steps by orthogonal features."""
        return self.likelihood != "least_squares"

    def stand_in(self) -> Model:
        """The model whose leave-one-out predictions choose the settings."""
        return replace(self, inference=STAND_IN.get(self.inference, self.inference))

    def entries(self, n_rows: int, rank: int, n_classes: int) -> int:
        """Entries of the arrays that `condition` holds at a time, for so many features."""
        n_latents = n_classes * (self.n_chains if self.inference == "gibbs" else 1)
        blocks = 1 if self.inference in ONE_FACTOR else n_latents
        return entries_by_features(n_rows, rank, n_latents, blocks, n_classes)


@dataclass(frozen=True)
class Conditioned:
    """A posterior with what is known of how it was reached; `moments` and `sites` of deterministic inference only."""

    posterior: Posterior  # moments at queries (S, C, Q), by features (Q, R)
    moments: tuple[Tensor, Tensor] | None  # means and variances at the training rows, each (C, N)
    sites: Sites | None  # (C, N)
    log_evidence: float  # exact for regression, Laplace's approximation, or the evidence bound; NaN for Gibbs
    trace: tuple[float, ...] = ()  # of the objective along the iterations, where the scheme has one
    dual: Tensor | None = None  # (C, N), Laplace's ``K^-1 (f - a)``, a start for the same data under another kernel

    def leave_one_out(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """Latent means and variances (C, N) without a share (N,) of each row's site, of deterministic inference."""
        assert self.sites is not None
        assert self.moments is not None
        return leave_one_out(*self.moments, *(share * part for part in self.sites))


def training_likelihood(model: Model) -> Likelihood:
    """The likelihood object of a model, with those of the model's parameters that its class takes."""
    known = {"temperature": model.likelihood_temperature, "noise": model.noise}
    taken = _parameters(LIKELIHOODS[model.likelihood])
    return get_likelihood(model.likelihood, **{name: value for name, value in known.items() if name in taken})


@cache
def _parameters(kind: type[Likelihood]) -> frozenset[str]:
    return frozenset(signature(kind).parameters)


def schemes_for(likelihood: str) -> tuple[str, ...]:
    """Inference schemes of a likelihood, the default first, which follow from what it gives; none for another name.

    Laplace's approximation is written for the two likelihoods whose curvature it knows, and least squares needs no
    scheme, since its posterior is exact. One-vs-each gives sites of pairs of classes, for a sampler of its own.
    """
    if likelihood not in LIKELIHOODS:
        return ()
    kind = LIKELIHOODS[likelihood]
    if kind is GaussianLabels:
        return ("exact",)
    works = {
        "laplace": kind in (Logistic, Softmax),
        "mean_field": issubclass(kind, MeanFieldLikelihood),
        "gibbs": issubclass(kind, ConjugateLikelihood) or kind is OneVsEach,
        "natural_gradient": issubclass(kind, MeanFieldLikelihood),
    }
    return tuple(name for name in INFERENCE_NAMES if works[name])


@torch.no_grad()
def condition(
    model: Model,
    features: Tensor,  # (N, R)
    y: Tensor,  # (N,), labels 0..n_classes-1; not every class needs rows
    n_classes: int,
    weight: Tensor,  # (N,), how often each row counts
    generator: torch.Generator | None = None,  # for Gibbs and natural gradients
    start: Tensor | None = None,  # (C, N), `Conditioned.dual` of a fit with another kernel, to seek Laplace's mode from
    # Training variances are needed for leave-one-out means only, which allows short cuts with many classes.
    only_means: bool = False,
    tolerance: float = 3e-5,  # of the softmax mode; see `fit_softmax_laplace`
    near: Tensor | None = None,  # (C, R), weights near Laplace's mode
    exact: bool = False,  # the softmax mode to full precision
    only_mode: bool = False,  # of `ONE_FACTOR`: variances at the training rows and the evidence are left NaN
) -> Conditioned:
    """The posterior of the weights given labelled features."""
    if model.likelihood == "least_squares":
        return (_regression_weights if only_mode else _regress)(features, y, n_classes, weight, model.noise)
    counts = torch.bincount(y, minlength=n_classes)
    present = counts.nonzero().squeeze(-1)
    # Rows of a single class tell it from classes without rows by Laplace's method, which takes a moment for any number.
    compared = 1 if model.inference == "laplace" else 2
    if len(present) < compared:
        return _prior_only(model, features, 1 if model.one_latent else n_classes)
    if model.one_latent:
        common = generator, start, only_means, tolerance, near, exact, only_mode
        return _condition_present(model, features, y, 2, weight, *common)
    if len(present) == 1:
        present = torch.arange(n_classes, device=y.device)
    position = torch.zeros_like(counts)
    position[present] = torch.arange(len(present), device=y.device)
    start, near = (None if part is None else part[present] for part in (start, near))
    common = generator, start, only_means, tolerance, near, exact, only_mode
    found = _condition_present(model, features, position[y], len(present), weight, *common)
    return found if len(present) == n_classes else _with_prior_classes(model, found, features, present, n_classes)


def _condition_present(
    model: Model,
    features: Tensor,
    y: Tensor,
    n_classes: int,
    weight: Tensor,
    generator: torch.Generator | None,
    start: Tensor | None,
    only_means: bool,
    tolerance: float,
    near: Tensor | None = None,
    exact: bool = False,
    only_mode: bool = False,
) -> Conditioned:
    if model.inference == "laplace":
        if model.likelihood == "logistic":
            fit = fit_logistic_laplace(
                features,
                y,
                weight,
                model.prior_mean,
                start=None if start is None else start[0],
                near=None if near is None else near[0],
                only_mode=only_mode,
            )
        else:
            temperature = model.likelihood_temperature
            fit = fit_softmax_laplace(
                features,
                y,
                n_classes,
                weight,
                temperature,
                start,
                only_means,
                tolerance,
                prior_mean=model.prior_mean,
                near=near,
                exact=exact,
                only_mode=only_mode,
            )
        moments = fit.posterior.training_mean[0], fit.variance
        return Conditioned(fit.posterior, moments, fit.sites, float(fit.log_evidence), dual=fit.dual)
    likelihood = training_likelihood(model)
    assert isinstance(likelihood, MeanFieldLikelihood)
    mean = features.new_full((likelihood.n_latents(n_classes), 1), model.prior_mean)
    prior = FeaturePrior(features.unsqueeze(0), mean)
    if model.inference == "mean_field":
        result = fit_mean_field(prior, likelihood, y, weight, n_classes)
        assert isinstance(result.posterior, FeaturePosterior)
        return _recomputed(features, result.posterior, float(result.bound), tuple(result.bound_trace.tolist()))
    if model.inference == "natural_gradient":
        fitted = fit_natural_gradient(
            features, likelihood, y, weight, prior_mean=mean, n_classes=n_classes, generator=generator
        )
        posterior = FactorWeightPosterior(features, fitted.mean[None], mean.squeeze(-1), fitted.factor[None])
        trace = tuple(fitted.bound_trace.tolist())
        return Conditioned(posterior, None, None, float(fitted.bound), trace)
    if isinstance(likelihood, OneVsEach):
        chains = sample_one_vs_each(
            features, y, n_classes, weight, model.prior_mean, model.n_chains, model.n_sweeps, generator
        )
        return Conditioned(chains, None, None, float("nan"))
    assert isinstance(likelihood, ConjugateLikelihood)
    draws = run_gibbs(prior, likelihood, y, model.n_chains, model.n_sweeps, weight, generator, n_classes=n_classes)
    conditional = prior.condition(draws.sites)
    sampled = SiteWeightPosterior(features, conditional.weights, mean.squeeze(-1), draws.sites.precision)
    return Conditioned(sampled, None, None, float("nan"))


def _regress(features: Tensor, y: Tensor, n_classes: int, weight: Tensor, noise: float) -> Conditioned:
    """Least squares with the weighted mean of the targets as prior mean."""
    targets, mean = label_targets(y, n_classes, weight)
    prior = FeaturePrior(features.unsqueeze(0), mean.unsqueeze(-1))
    posterior = prior.condition(regression_sites(targets, weight, noise))
    evidence = regression_log_evidence(prior, targets, weight, noise, posterior)
    return _recomputed(features, posterior, float(evidence.sum()))


def _regression_weights(features: Tensor, y: Tensor, n_classes: int, weight: Tensor, noise: float) -> Conditioned:
    """As `_regress`, with one factorisation and no other visit to all rows."""
    targets, prior_mean = label_targets(y, n_classes, weight)
    sites, mean = regression_sites(targets, weight, noise), prior_mean.unsqueeze(-1)
    factor = weight_precision_factor(features, sites.precision[0])
    projected = (sites.shift - sites.precision * mean) @ features  # (C, R)
    weights = torch.cholesky_solve(projected.mT, factor).mT
    posterior = SiteWeightPosterior(features, weights[None].contiguous(), mean.squeeze(-1), sites.precision[None])
    return Conditioned(posterior, None, None, float("nan"))


def _recomputed(
    features: Tensor, posterior: FeaturePosterior, log_evidence: float, trace: tuple[float, ...] = ()
) -> Conditioned:
    """The posterior in the form that estimators keep."""
    kept = SiteWeightPosterior(
        features, posterior.weights[None], posterior.prior_mean.squeeze(-1), posterior.sites.precision[None]
    )
    sites = Sites(*(part.expand_as(posterior.mean) for part in posterior.sites))
    return Conditioned(kept, (posterior.mean, posterior.variance), sites, log_evidence, trace)


def _prior_only(model: Model, features: Tensor, n_latents: int) -> Conditioned:
    prior = FeaturePrior(features.unsqueeze(0), features.new_full((n_latents, 1), model.prior_mean))
    zeros = features.new_zeros(n_latents, len(features))
    return _recomputed(features, prior.condition(Sites(zeros, zeros)), 0.0)


def _with_prior_classes(
    model: Model, found: Conditioned, features: Tensor, present: Tensor, n_classes: int
) -> Conditioned:
    """What was found of the classes with rows, `present`, for all classes: the others keep the prior."""

    def place(values: Tensor, fill: float = 0.0) -> Tensor:
        return values.new_full((n_classes, values.shape[1]), fill).index_copy(0, present, values)

    posterior = WithPriorClasses(found.posterior, present, features.new_full((n_classes,), model.prior_mean))
    moments = None
    if found.moments is not None:
        mean, variance = found.moments
        prior = features.square().sum(-1).expand(n_classes, -1)
        moments = place(mean, model.prior_mean), prior.index_copy(0, present, variance)
    sites = None if found.sites is None else Sites(*map(place, found.sites))
    dual = None if found.dual is None else place(found.dual)
    return Conditioned(posterior, moments, sites, found.log_evidence, found.trace, dual)
