"""What `GPClassifier` has learnt: a plan, features, and the posterior of their weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.estimators import options
from sureshot.estimators.conditioning import Conditioned, condition, training_likelihood
from sureshot.estimators.features import FeatureMap, explicit_features, nystrom_features
from sureshot.estimators.fitted import Fitted, TrainingSet
from sureshot.estimators.layout import aligned
from sureshot.estimators.plan import Plan
from sureshot.estimators.posterior_arrays import rebuilt
from sureshot.estimators.precomputed import MatrixReader
from sureshot.estimators.preprocessing import kernel_inputs
from sureshot.estimators.settings import Settings, in_bytes, memory_budget
from sureshot.estimators.support import Support
from sureshot.estimators.temperature import fit_rule
from sureshot.estimators.threads import threads_for
from sureshot.estimators.uncertainty import entropies
from sureshot.gaussian.posterior import Posterior
from sureshot.gaussian.prior import Queries
from sureshot.inference.inducing import kmeans_inducing
from sureshot.kernels import Expression, feature_map
from sureshot.kernels.dense import as_expression

EXACT_LIMIT = 1500  # rows up to which a kernel without explicit features is used exactly
DEFAULT_INDUCING = 1000
_SMALLEST_VARIANCE = 1e-300


@dataclass(frozen=True)
class GPFitted(Fitted):
    """See `Fitted`. The plan's temperature is the one before `calibrate`."""

    plan: Plan
    feature_map: FeatureMap
    posterior: Posterior
    trace: tuple[float, ...]  # of the bound, along the iterations of mean field or natural gradients

    def inputs(self, kept: np.ndarray) -> Tensor:
        """See `Fitted.inputs`; kernel values as they are, if they are precomputed."""
        device = self.plan.kernel.outputscale.device
        return kernel_inputs(kept, None if self.precomputed else self.plan.scaling, device)

    def queries(self, inputs: Tensor) -> Queries:
        """What the prior says of queries: features (1, Q, R) and prior variances (1, Q)."""
        if not self.precomputed:
            return self.feature_map(inputs)
        assert self.feature_map.inducing is not None
        columns = self.feature_map.inducing[:, 0].to(torch.int64)  # merging rows reordered them
        return self.feature_map.from_cross(inputs[:, columns] * self.plan.kernel.outputscale.detach())

    def moments(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """See `Predictor.moments`: means (S, C, Q) and what the predictive rule needs to know of their spread."""
        prior = self.queries(queries)
        if self.plan.rule == "plug_in":
            mean = self.posterior.query_mean(prior.cross)
            return mean, torch.zeros_like(mean)
        return self.posterior.query(*prior)

    def probabilities(self, moments: tuple[Tensor, ...], temperature: float) -> Tensor:
        """See `Predictor.probabilities`."""
        mean, spread = moments
        likelihood = self.plan.model.predictive_likelihood()
        p = likelihood.predict_mixture(mean / temperature, spread / temperature**2, self.plan.rule).mT
        p = p[:, : len(self.classes)]
        return p / p.sum(1, keepdim=True)

    def latents(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """See `Predictor.latents`; those of the mixture of chains."""
        prior = self.queries(queries)
        means = self.posterior.query_mean(prior.cross)
        variance = self.posterior.query_variance(*prior).mean(0) + means.var(0, correction=0)
        mean = means.mean(0)
        if self.plan.model.one_latent:
            mean = torch.cat([-mean / 2, mean / 2])[: len(self.classes)]
            variance = (variance / 4).expand(2, -1)[: len(self.classes)]
        return mean.mT, variance.mT

    def outlier_scores(self, queries: Tensor) -> Tensor:
        """See `Predictor.outlier_scores`: minus the latent mean of the most likely class in standard deviations.

        Where only differences of latents matter, a prior mean common to all of them says nothing, and is taken off.
        """
        common = self.plan.model.prior_mean if training_likelihood(self.plan.model).translation_invariant else 0.0
        if self.plan.model.one_latent or self.plan.model.inference == "gibbs":
            mean, variance = self.latents(queries)
            top, classes = mean.max(1)
            spread = variance.gather(1, classes[:, None]).squeeze(1)
        else:  # the variance of one class each is much cheaper than that of all
            prior = self.queries(queries)
            top, classes = self.posterior.query_mean(prior.cross)[0].max(0)
            spread = self.posterior.query_variance(*prior, classes)[0]
        return -(top - common) / spread.clamp_min(_SMALLEST_VARIANCE).sqrt()

    def entropies(self, queries: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """See `Predictor.entropies`."""
        mean, spread = self.posterior.query(*self.queries(queries))
        likelihood = self.plan.model.predictive_likelihood()

        def probabilities(latents: Tensor) -> Tensor:
            return likelihood.plug_in(latents / temperature)[:, : len(self.classes)]

        return entropies(mean, spread, probabilities)

    @property
    def kernel(self) -> Expression:
        """The kernel as a value, with the learned scales."""
        with torch.no_grad():
            return as_expression(self.plan.kernel)

    @property
    def precomputed(self) -> bool:
        """Whether X is the kernel matrix."""
        return isinstance(self.reader, MatrixReader)


def fit_posterior(
    settings: Settings,
    plan: Plan,
    support: Support,  # the training set's rows, as the plan's kernel sees them
    training: TrainingSet,
    calibrated_temperature: float | None = None,
) -> GPFitted:
    """The posterior for a plan, and the temperature that suits it."""
    n_rows, width = support.x.shape
    explicit = feature_map(plan.kernel, width)
    finite = None if explicit is None else explicit.rank
    inducing = options.use_inducing(settings.approximation, finite is not None, n_rows, EXACT_LIMIT)
    most = settings.n_inducing or DEFAULT_INDUCING
    _check_memory(settings, plan, support, most if inducing else finite or n_rows)
    with threads_for(n_rows):
        if inducing:
            features = _inducing_features(plan.kernel, support, most)
        elif explicit is not None:
            features = explicit_features(plan.kernel, explicit, support.x)
        else:
            features = nystrom_features(plan.kernel, support.x)
        conditioned = condition(
            plan.model,
            aligned(features(support.x).cross[0]),
            support.y,
            support.n_classes,
            support.weight,
            settings.generator(),
            only_means=plan.rule == "plug_in",
        )
        if plan.rule == "plug_in" and settings.objective is not None and calibrated_temperature is None:
            plan = _with_temperature(settings, plan, support, conditioned)
    return GPFitted(
        classes=training.classes,
        columns=training.columns,
        reader=training.reader,
        rows=training.rows,
        temperature=plan.temperature if calibrated_temperature is None else calibrated_temperature,
        calibrated=calibrated_temperature is not None,
        log_evidence=conditioned.log_evidence,
        plan=plan,
        feature_map=features,
        posterior=rebuilt(conditioned.posterior),
        trace=conditioned.trace,
    )


def _with_temperature(settings: Settings, plan: Plan, support: Support, conditioned: Conditioned) -> Plan:
    """The plan with the temperature that predicts left-out labels best, by the posterior of all rows."""
    if conditioned.sites is None:
        return plan
    mean, variance = conditioned.leave_one_out()
    default = options.starting_temperature(settings.kernel, support.x)
    temperature, pointwise = fit_rule(plan.model.predictive_likelihood(), mean, variance, support, "plug_in", default)
    usable = support.usable
    total = float(usable.sum())
    score = float((usable * pointwise).sum() / total) if total > 0 else plan.score
    return replace(plan, temperature=temperature, score=score)


def _inducing_features(kernel: Kernel, support: Support, most: int) -> FeatureMap:
    """By inducing inputs of each class that has rows, `most` in all."""
    n_present = int((torch.bincount(support.y) > 0).sum())
    return nystrom_features(kernel, kmeans_inducing(support.x, support.y, max(1, most // n_present)))


def _check_memory(settings: Settings, plan: Plan, support: Support, rank: int) -> None:
    """Refuse before memory is taken, with the estimate and what to try; of so many features, or as many as rows."""
    n_rows, n_classes = len(support.y), support.n_classes
    rank = min(n_rows, rank)
    needed, available = 8.0 * plan.model.entries(n_rows, rank, n_classes), memory_budget(settings.memory_limit)
    if needed > available:
        raise MemoryError(
            f"fitting {n_rows} rows, {n_classes} classes and {rank} features would take about "
            f"{in_bytes(needed)}, and {in_bytes(available)} may be used: try approximation='inducing' with a "
            "smaller n_inducing, inference='laplace', fewer rows, or raise memory_limit."
        )
