"""One Gaussian process of those that `GPClassifier` averages, or the only one: a plan, features, and a posterior."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.estimators.conditioning import training_likelihood
from sureshot.estimators.features import FeatureMap
from sureshot.estimators.plan import Plan
from sureshot.estimators.preprocessing import kernel_inputs
from sureshot.estimators.uncertainty import average_and_entropy
from sureshot.gaussian.posterior import Posterior
from sureshot.gaussian.prior import Queries
from sureshot.kernels import Expression
from sureshot.kernels.dense import as_expression

_SMALLEST_VARIANCE = 1e-300


@dataclass(frozen=True)
class Member:
    """What it says of rows (Q, D) as they are kept, or of rows of kernel values if these are precomputed.

    The plan's temperature is the one before `calibrate`.
    """

    plan: Plan
    feature_map: FeatureMap
    posterior: Posterior
    log_evidence: float  # in nats
    trace: tuple[float, ...]  # of the bound, along the iterations of mean field or natural gradients
    precomputed: bool

    def queries(self, rows: Tensor) -> Queries:
        """What the prior says of them: features (1, Q, R) and prior variances (1, Q)."""
        device = self.plan.kernel.outputscale.device
        inputs = kernel_inputs(rows.numpy(), None if self.precomputed else self.plan.scaling, device)
        if not self.precomputed:
            return self.feature_map(inputs)
        assert self.feature_map.inducing is not None
        columns = self.feature_map.inducing[:, 0].to(torch.int64)  # merging rows reordered them
        return self.feature_map.from_cross(inputs[:, columns] * self.plan.kernel.outputscale.detach())

    def moments(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Means (S, C, Q) and what the predictive rule needs to know of their spread."""
        prior = self.queries(rows)
        if self.plan.rule == "plug_in":
            mean = self.posterior.query_mean(prior.cross)
            return mean, torch.zeros_like(mean)
        return self.posterior.query(*prior)

    def probabilities(self, mean: Tensor, spread: Tensor, temperature: float, n_classes: int) -> Tensor:
        """Class probabilities (Q, C), from moments divided by a temperature."""
        likelihood = self.plan.model.predictive_likelihood()
        p = likelihood.predict_mixture(mean / temperature, spread / temperature**2, self.plan.rule).mT
        p = p[:, :n_classes]
        return p / p.sum(1, keepdim=True)

    def latents(self, rows: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
        """Means and variances (Q, C) of the mixture of chains."""
        prior = self.queries(rows)
        means = self.posterior.query_mean(prior.cross)
        variance = self.posterior.query_variance(*prior).mean(0) + means.var(0, correction=0)
        mean = means.mean(0)
        if self.plan.model.one_latent:
            mean = torch.cat([-mean / 2, mean / 2])[:n_classes]
            variance = (variance / 4).expand(2, -1)[:n_classes]
        return mean.mT, variance.mT

    def outlier_scores(self, rows: Tensor, n_classes: int) -> Tensor:
        """Minus the latent mean of the most likely class in standard deviations, (Q,).

        Where only differences of latents matter, a prior mean common to all of them says nothing, and is taken off.
        """
        common = self.plan.model.prior_mean if training_likelihood(self.plan.model).translation_invariant else 0.0
        if self.plan.model.one_latent or self.plan.model.inference == "gibbs":
            mean, variance = self.latents(rows, n_classes)
            top, classes = mean.max(1)
            spread = variance.gather(1, classes[:, None]).squeeze(1)
        else:  # the variance of one class each is much cheaper than that of all
            prior = self.queries(rows)
            top, classes = self.posterior.query_mean(prior.cross)[0].max(0)
            spread = self.posterior.query_variance(*prior, classes)[0]
        return -(top - common) / spread.clamp_min(_SMALLEST_VARIANCE).sqrt()

    def average_and_entropy(self, rows: Tensor, temperature: float, n_classes: int) -> tuple[Tensor, Tensor]:
        """Mean probabilities (C, Q) over the whole posterior, and the mean entropy of probabilities (Q,)."""
        mean, spread = self.posterior.query(*self.queries(rows))
        likelihood = self.plan.model.predictive_likelihood()

        def probabilities(latents: Tensor) -> Tensor:
            return likelihood.plug_in(latents / temperature)[:, :n_classes]

        return average_and_entropy(mean, spread, probabilities)

    @property
    def kernel(self) -> Expression:
        """The kernel as a value, with the learned scales."""
        with torch.no_grad():
            return as_expression(self.plan.kernel)
