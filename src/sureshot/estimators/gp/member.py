"""One Gaussian process of those that `GPClassifier` averages, or the only one: a plan, features, and a posterior."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sureshot.computing.layout import aligned
from sureshot.estimators.classes.temperature import with_noise
from sureshot.estimators.classes.uncertainty import average_and_entropy
from sureshot.estimators.gp.conditioning import STAND_IN, Conditioned, condition, training_likelihood
from sureshot.estimators.gp.features import FeatureMap
from sureshot.estimators.gp.leaving import Leaving, leaving
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.gp.posterior_arrays import pack_posterior
from sureshot.estimators.gp.weight_space import Known, WeightSpace
from sureshot.estimators.rows.folds import by_folds
from sureshot.estimators.rows.preprocessing import kernel_inputs
from sureshot.estimators.rows.support import Support
from sureshot.estimators.rows.validation import LabelledRows
from sureshot.gaussian.posterior import LatentMoments, Posterior, leave_one_out
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
    feature_map: FeatureMap  # what means are linear in
    coefficients: Tensor  # (S, C, R or M), of the means
    prior_mean: Tensor  # (C,)
    space: WeightSpace
    log_evidence: float  # in nats
    trace: tuple[float, ...]  # of the bound, along the iterations of mean field or natural gradients
    precomputed: bool

    @property
    def posterior(self) -> Posterior:
        """Of the weights, as variances need it."""
        return self.space.posterior

    def values(self, rows: Tensor) -> Queries:
        """Values of the feature map (1, Q, R or M), and prior variances (1, Q)."""
        device = self.plan.device
        inputs = kernel_inputs(rows.numpy(), None if self.precomputed else self.plan.scaling, device)
        if not self.precomputed:
            return self.feature_map(inputs)
        assert self.feature_map.inducing is not None
        columns = self.feature_map.inducing[:, 0].to(torch.int64)  # merging rows reordered them
        return self.feature_map.from_cross(inputs[:, columns] * self.plan.kernel.outputscale.detach())

    def means(self, values: Queries) -> Tensor:
        """Posterior means (S, C, Q)."""
        return self.prior_mean[:, None] + self.coefficients @ values.cross[0].mT

    def queries(self, values: Queries) -> Queries:
        """What the posterior is asked by: features (1, Q, R) and prior variances (1, Q)."""
        if self.space.projection is None:
            return values
        features = values.cross @ self.space.projection
        if not self.precomputed:
            return Queries(features, values.variance)
        # A mean stands in for the unknown diagonal, where the features do not explain more.
        return Queries(features, features.square().sum(-1).maximum(values.variance))

    def moments(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Means (S, C, Q) and what the predictive rule needs to know of their spread."""
        return self._moments(self.values(rows))

    def _moments(self, values: Queries) -> tuple[Tensor, Tensor]:
        mean = self.means(values)
        if self.plan.rule == "plug_in":
            return mean, torch.zeros_like(mean)
        return mean, self.posterior.query(*self.queries(values)).spread

    def probabilities(self, mean: Tensor, spread: Tensor, temperature: float, n_classes: int) -> Tensor:
        """Class probabilities (Q, C), from moments divided by a temperature."""
        likelihood = self.plan.model.predictive_likelihood()
        p = likelihood.predict_mixture(mean / temperature, spread / temperature**2, self.plan.rule).mT
        p = p[:, :n_classes]
        return p / p.sum(1, keepdim=True)

    def latents(self, rows: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
        """Means and variances (Q, C) of the mixture of chains."""
        return self._latents(self.values(rows), n_classes)

    def _latents(self, values: Queries, n_classes: int) -> tuple[Tensor, Tensor]:
        means = self.means(values)
        variance = self.posterior.query_variance(*self.queries(values)).mean(0) + means.var(0, correction=0)
        mean, variance = self._of_classes(means.mean(0), variance, n_classes)
        return mean.mT, variance.mT

    def _of_classes(self, mean: Tensor, variance: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
        """Moments of the latents (L, Q) as those of a latent for each class (C, Q)."""
        if not self.plan.model.one_latent:
            return mean, variance
        return torch.cat([-mean / 2, mean / 2])[:n_classes], (variance / 4).expand(2, -1)[:n_classes]

    def outlier_scores(self, rows: Tensor, n_classes: int) -> Tensor:
        """Minus the latent mean of the most likely class in standard deviations, (Q,).

        Where only differences of latents matter, a prior mean common to all of them says nothing, and is taken off.
        """
        return self._outlier_scores(self.values(rows), n_classes)

    def _outlier_scores(self, values: Queries, n_classes: int) -> Tensor:
        if self.plan.model.one_latent or self.plan.model.inference == "gibbs":
            return self._doubt(*(part.mT for part in self._latents(values, n_classes)))
        # The variance of one class each is much cheaper than that of all.
        top, classes = self.means(values)[0].max(0)
        return self._deviations(top, self.posterior.query_variance(*self.queries(values), classes)[0])

    def _doubt(self, mean: Tensor, variance: Tensor) -> Tensor:
        """The same from moments of all classes (C, Q)."""
        top, classes = mean.max(0)
        return self._deviations(top, variance.gather(0, classes[None]).squeeze(0))

    def _deviations(self, top: Tensor, variance: Tensor) -> Tensor:
        common = self.plan.model.prior_mean if training_likelihood(self.plan.model).translation_invariant else 0.0
        return -(top - common) / variance.clamp_min(_SMALLEST_VARIANCE).sqrt()

    def _with_posterior(self, posterior: Posterior) -> Member:
        """Where the values of rows are features already."""
        _, weights, arrays = pack_posterior(posterior)
        return replace(self, coefficients=weights, prior_mean=arrays["prior_mean"], space=Known(None, posterior))

    def left_out(
        self,
        rows: LabelledRows,  # with the weights that they were learnt with
        n_classes: int,
        temperature: float,
    ) -> tuple[Tensor, Tensor]:
        """Class probabilities (N, C) and `outlier_scores` (N,) of labelled rows, each without itself.

        In closed form by the sites of Laplace's method and of label regression, for which it is exact but for the prior
        mean: the frequency of each class, the row's own label among them. Mean field over several classes makes sites
        of means that have seen the label; these and samplers are asked by folds.
        """
        device = self.plan.device
        support, model = Support.of(rows, n_classes, self.plan.scaling, device), self.plan.model
        values, projection, left = self.feature_map(support.x), self.space.projection, support.left_out
        cross = aligned(values.cross if projection is None else values.cross @ projection)
        prior, features = Queries(cross, values.variance), cross[0]

        def conditioned(at: Tensor, weight: Tensor) -> Conditioned:
            generator = torch.Generator(device=device).manual_seed(0)
            return condition(model, features[at], support.y[at], n_classes, weight, generator)

        def said(stays: Tensor, weight: Tensor, fold: Tensor) -> Tensor:
            without = self._with_posterior(conditioned(stays, weight).posterior)
            queries = Queries(*(part[:, fold] for part in prior))
            p = without.probabilities(*without._moments(queries), temperature, n_classes)
            return torch.cat([p, without._outlier_scores(queries, n_classes).unsqueeze(-1)], -1)

        if model.sites_see_labels or model.inference in STAND_IN:
            both = by_folds(support.y, support.weight, left, said)
            return both[:, :-1], both[:, -1]
        found = conditioned(torch.arange(len(support.y), device=device), support.weight)
        assert found.moments is not None
        assert found.sites is not None
        mean, variance = leave_one_out(*found.moments, *(left * part for part in found.sites))
        variance = variance + (prior.variance[0] - features.square().sum(-1)).clamp_min(0)
        p = self.probabilities(mean[None], variance[None], temperature, n_classes)
        return p, self._doubt(*self._of_classes(mean, variance, n_classes))

    def average_and_entropy(
        self, rows: Tensor, temperature: float, n_classes: int, noise: float
    ) -> tuple[Tensor, Tensor]:
        """Mean probabilities (C, Q) over the whole posterior, and the mean entropy of probabilities (Q,)."""
        values = self.values(rows)
        mean, spread = self.means(values), self.posterior.query(*self.queries(values)).spread
        likelihood = self.plan.model.predictive_likelihood()

        def probabilities(latents: Tensor) -> Tensor:
            return with_noise(likelihood.plug_in(latents / temperature)[:, :n_classes], noise)

        return average_and_entropy(mean, spread, probabilities)

    def leaving(self, y: Tensor, weight: Tensor, n_classes: int) -> Leaving:
        """The posterior without each of its labelled rows, with the weights that they were learnt with."""
        return leaving(self.posterior, self.plan.model, y, weight, n_classes)

    def probabilities_without(
        self,
        rows: Tensor,  # (Q, D)
        without: Leaving,
        place: Tensor,  # (E,)
        share: Tensor,  # (E,)
        temperature: float,
        n_classes: int,
    ) -> Tensor:
        """Class probabilities (Q, E, C) of rows without each of some labelled ones."""
        values = self.values(rows)
        given = LatentMoments(*self._moments(values))
        mean, spread = without.moments(given, self.queries(values), place, share)
        mean = mean.flatten(-2)
        if self.plan.rule == "plug_in":
            spread = torch.zeros_like(mean)
        spread = spread.flatten(1, 2) if spread.dim() == 5 else spread.reshape(mean.shape)
        return self.probabilities(mean, spread, temperature, n_classes).unflatten(0, (len(rows), len(place)))

    @property
    def kernel(self) -> Expression:
        """The kernel as a value, with the learned scales."""
        with torch.no_grad():
            return as_expression(self.plan.kernel)
