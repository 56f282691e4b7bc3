"""From features and labels to a posterior, by whichever likelihood and inference were asked for.

The estimators hold no linear algebra: they call `condition`, which hands the same features to label regression,
Laplace, mean field, Gibbs or natural gradients and returns one kind of posterior, `WeightPosterior`.

Classes without a single row take no part in the inference: their latents keep the prior, and they join the
normalisation of the probabilities with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.gaussian.features import FeaturePosterior, FeaturePrior
from sureshot.gaussian.recomputed import (
    FactorPosterior,
    SitePosterior,
    SoftmaxPosterior,
    WeightPosterior,
    WithPriorClasses,
)
from sureshot.gaussian.sites import Sites
from sureshot.inference.gibbs import run_gibbs
from sureshot.inference.label_regression import fit_label_regression
from sureshot.inference.laplace import fit_logistic_laplace, fit_softmax_laplace
from sureshot.inference.mean_field import fit_mean_field
from sureshot.inference.natural_gradient import fit_natural_gradient
from sureshot.inference.one_vs_each.posterior import sample_one_vs_each
from sureshot.likelihoods import OneVsEach, get_likelihood
from sureshot.likelihoods.base import ConjugateLikelihood, Likelihood, MeanFieldLikelihood

INFERENCE_FOR = {
    "logistic": ("laplace", "mean_field", "gibbs", "natural_gradient"),
    "one_vs_each": ("mean_field", "gibbs", "natural_gradient"),
    "logistic_softmax": ("mean_field", "gibbs", "natural_gradient"),
    "gaussian": ("exact",),
    "softmax": ("laplace",),
}
"""Inference schemes of each likelihood, the default first."""


@dataclass(frozen=True)
class Model:
    """What is assumed of the labels and how the posterior is found.

    Attributes
    ----------
    likelihood, inference : str
        A pair of `INFERENCE_FOR`.
    noise : float
        Noise variance of label regression.
    likelihood_temperature : float
        Divides the latents inside softmax and logistic-softmax likelihoods.
    prior_mean : float
    n_chains, n_sweeps : int
        For Gibbs sampling.
    """

    likelihood: str
    inference: str
    noise: float = 1.0
    likelihood_temperature: float = 1.0
    prior_mean: float = 0.0
    n_chains: int = 20
    n_sweeps: int = 50

    def predictive_likelihood(self) -> Likelihood:
        """The likelihood that turns latents into probabilities.

        Label regression has no categorical likelihood of its own; its latents pass through a softmax whose
        temperature is chosen on leave-one-out predictions.
        """
        if self.likelihood in ("gaussian", "softmax"):
            temperature = self.likelihood_temperature if self.likelihood == "softmax" else 1.0
            return get_likelihood("softmax", temperature=temperature)
        return training_likelihood(self)


@dataclass(frozen=True)
class Conditioned:
    """A posterior with what is known about how it was reached.

    Attributes
    ----------
    posterior : WeightPosterior
    sites : Sites or None
        Sites (C, N) of deterministic inference; None for Gibbs and natural gradients.
    variance : Tensor (C, N) or None
        Posterior variances at the training rows, for deterministic inference.
    log_evidence : float
        Exact for label regression, Laplace's approximation, the evidence bound for mean field and natural
        gradients; NaN for Gibbs.
    trace : tuple of float
        The objective along the iterations, where the scheme has one.
    dual : Tensor (C, N) or None
        Laplace's ``K^-1 (f - a)``, a start for the same data under another kernel.
    """

    posterior: WeightPosterior
    sites: Sites | None
    variance: Tensor | None
    log_evidence: float
    trace: tuple[float, ...] = ()
    dual: Tensor | None = None


def training_likelihood(model: Model) -> Likelihood:
    """The likelihood object of a model."""
    if model.likelihood in ("logistic_softmax", "softmax"):
        return get_likelihood(model.likelihood, temperature=model.likelihood_temperature)
    if model.likelihood == "gaussian":
        return get_likelihood("gaussian", noise=model.noise)
    return get_likelihood(model.likelihood)


@torch.no_grad()
def condition(
    model: Model,
    features: Tensor,
    y: Tensor,
    n_classes: int,
    weight: Tensor,
    generator: torch.Generator | None = None,
    start: Tensor | None = None,
    only_means: bool = False,
    tolerance: float = 3e-5,
) -> Conditioned:
    """The posterior of the weights given labelled features.

    Parameters
    ----------
    features : Tensor (N, R)
    y : Tensor (N,)
        Labels 0..n_classes-1; not every class needs rows.
    weight : Tensor (N,)
        How often each row counts.
    generator : torch.Generator, optional
        For Gibbs and natural gradients.
    start : Tensor (C, N), optional
        `Conditioned.dual` of a fit with another kernel, from which Laplace's mode is sought.
    only_means : bool
        Training variances are needed for leave-one-out means only, which allows short cuts with many classes.
    tolerance : float
        Of the softmax mode; see `fit_softmax_laplace`.
    """
    if model.likelihood == "gaussian":
        fit = fit_label_regression(features, y, n_classes, weight, model.noise)
        return Conditioned(fit.posterior, fit.sites, fit.variance, float(fit.log_evidence))
    counts = torch.bincount(y, minlength=n_classes)
    present = counts.nonzero().squeeze(-1)
    if model.likelihood == "logistic":
        if len(present) < 2:
            return _prior_only(model, features, 1)
        return _condition_present(model, features, y, 2, weight, generator, start, only_means, tolerance)
    if len(present) < 2:
        return _prior_only(model, features, n_classes)
    position = torch.zeros_like(counts)
    position[present] = torch.arange(len(present), device=y.device)
    chosen = None if start is None else start[present]
    found = _condition_present(
        model, features, position[y], len(present), weight, generator, chosen, only_means, tolerance
    )
    return found if len(present) == n_classes else _spread(model, found, present, n_classes)


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
) -> Conditioned:
    if model.inference == "laplace":
        if model.likelihood == "logistic":
            fit = fit_logistic_laplace(features, y, weight, model.prior_mean, None if start is None else start[0])
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
            )
        return Conditioned(fit.posterior, fit.sites, fit.variance, float(fit.log_evidence), dual=fit.dual)
    likelihood = training_likelihood(model)
    assert isinstance(likelihood, MeanFieldLikelihood)
    mean = features.new_full((likelihood.n_latents(n_classes), 1), model.prior_mean)
    prior = FeaturePrior(features.unsqueeze(0), mean)
    if model.inference == "mean_field":
        result = fit_mean_field(prior, likelihood, y, weight, n_classes)
        assert isinstance(result.posterior, FeaturePosterior)
        site_posterior = SitePosterior(
            features, result.posterior.weights[None], mean.squeeze(-1), result.sites.precision[None]
        )
        trace = tuple(result.bound_trace.tolist())
        return Conditioned(site_posterior, result.sites, result.posterior.variance, float(result.bound), trace)
    if model.inference == "natural_gradient":
        fitted = fit_natural_gradient(
            features, likelihood, y, weight, prior_mean=mean, n_classes=n_classes, generator=generator
        )
        posterior = FactorPosterior(features, fitted.mean[None], mean.squeeze(-1), fitted.factor[None])
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
    sampled = SitePosterior(features, conditional.weights, mean.squeeze(-1), draws.sites.precision)
    return Conditioned(sampled, None, None, float("nan"))


def _prior_only(model: Model, features: Tensor, n_latents: int) -> Conditioned:
    zeros = features.new_zeros(n_latents, len(features))
    posterior = SitePosterior(
        features,
        features.new_zeros(1, n_latents, features.shape[1]),
        features.new_full((n_latents,), model.prior_mean),
        zeros[None],
    )
    return Conditioned(posterior, Sites(zeros, zeros), features.square().sum(-1).expand_as(zeros), 0.0)


def _spread(model: Model, found: Conditioned, present: Tensor, n_classes: int) -> Conditioned:
    """Put the classes with rows at their places among all classes; the others keep the prior."""

    def place(values: Tensor, dim: int, fill: float = 0.0) -> Tensor:
        shape = list(values.shape)
        shape[dim] = n_classes
        return values.new_full(shape, fill).index_copy(dim, present, values)

    old = found.posterior
    weights, mean = place(old.weights, 1), place(old.prior_mean, 0, model.prior_mean)
    posterior: WeightPosterior
    if isinstance(old, SoftmaxPosterior):
        mask = torch.zeros(n_classes, dtype=torch.bool, device=present.device).index_fill(0, present, True)
        posterior = SoftmaxPosterior(old.features, weights, mean, old.row_weight, mask, old.temperature)
    elif isinstance(old, SitePosterior):
        posterior = SitePosterior(old.features, weights, mean, place(old.precision, 1))
    elif isinstance(old, FactorPosterior):
        identity = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
        factors = identity.expand(*weights.shape[:2], -1, -1).clone().index_copy(1, present, old.factors)
        posterior = FactorPosterior(old.features, weights, mean, factors)
    else:
        posterior = WithPriorClasses(old.features, weights, mean, old, present)
    sites = None if found.sites is None else Sites(place(found.sites.precision, 0), place(found.sites.shift, 0))
    dual = None if found.dual is None else place(found.dual, 0)
    variance = None
    if found.variance is not None:
        prior = old.features.square().sum(-1).expand(n_classes, -1).clone()
        variance = prior.index_copy(0, present, found.variance)
    return Conditioned(posterior, sites, variance, found.log_evidence, found.trace, dual)
