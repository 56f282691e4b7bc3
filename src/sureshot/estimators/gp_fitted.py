"""What `GPClassifier` has learnt: one Gaussian process, or several that are averaged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.estimators import options
from sureshot.estimators.conditioning import Conditioned, condition
from sureshot.estimators.features import FeatureMap, explicit_features, nystrom_features
from sureshot.estimators.fitted import Fitted, TrainingSet
from sureshot.estimators.gp_member import Member
from sureshot.estimators.layout import aligned
from sureshot.estimators.plan import Plan
from sureshot.estimators.posterior_arrays import rebuilt
from sureshot.estimators.precomputed import MatrixReader
from sureshot.estimators.settings import Settings, in_bytes, memory_budget
from sureshot.estimators.support import Support
from sureshot.estimators.temperature import fit_rule, plug_in_temperatures
from sureshot.estimators.threads import threads_for
from sureshot.estimators.uncertainty import entropy
from sureshot.estimators.validation import LabelledRows
from sureshot.inference.inducing import kmeans_inducing
from sureshot.kernels import Expression, feature_map
from sureshot.likelihoods.softmax import Softmax

EXACT_LIMIT = 1500  # rows up to which a kernel without explicit features is used exactly
DEFAULT_INDUCING = 1000
_SMALLEST_PROBABILITY = 1e-300


class EnsembleMember(NamedTuple):
    """What a user is told of a member."""

    weight: float
    kernel: Expression
    likelihood: str
    ranks: bool  # whether the kernel sees normal scores of the columns' ranks


@dataclass(frozen=True)
class GPFitted(Fitted):
    """See `Fitted`. Queries are rows as they are kept: each member scales columns in its own way.

    The temperature divides the latents of the only member, or the log probabilities of an average, whose members have
    temperatures of their own besides.
    """

    members: tuple[Member, ...]  # the heaviest first
    score: float  # mean leave-one-out log probability in nats; NaN where no row could be left out
    weight_of_class: np.ndarray  # (C,), of all its rows, those of `class_weight` multiplied in

    @property
    def frequencies(self) -> np.ndarray:
        """See `Fitted.frequencies`; by the weights that were learnt with."""
        return self.weight_of_class

    def inputs(self, kept: np.ndarray) -> Tensor:
        """See `Fitted.inputs`; kernel values as they are, if they are precomputed."""
        return torch.from_numpy(np.require(kept, requirements=["W"]))

    def moments(self, queries: Tensor) -> tuple[Tensor, ...]:
        """See `Predictor.moments`: two tensors for each member."""
        return tuple(part for member in self.members for part in member.moments(queries))

    def probabilities(self, moments: tuple[Tensor, ...], temperature: float) -> Tensor:
        """See `Predictor.probabilities`."""
        if len(self.members) == 1:
            mean, spread = moments
            return self.heaviest.probabilities(mean, spread, temperature, len(self.classes))
        parts = (
            member.probabilities(mean, spread, member.plan.temperature, len(self.classes))
            for member, mean, spread in zip(self.members, moments[::2], moments[1::2], strict=True)
        )
        return torch.softmax(_log(self._average(parts)) / temperature, 1)

    def latents(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """See `Predictor.latents`; those of the mixture of chains, and of members.

        Members' latents are divided by their temperatures first, without which they are not comparable.
        """
        n_classes = len(self.classes)
        if len(self.members) == 1:
            return self.heaviest.latents(queries, n_classes)
        found = [(*member.latents(queries, n_classes), member.plan.temperature) for member in self.members]
        means = [mean / temperature for mean, _, temperature in found]
        average = self._average(means)
        spreads = [
            variance / temperature**2 + (mean - average).square()
            for mean, (_, variance, temperature) in zip(means, found, strict=True)
        ]
        return average, self._average(spreads)

    def outlier_scores(self, queries: Tensor) -> Tensor:
        """See `Predictor.outlier_scores`: the average of the members'."""
        return self._average([member.outlier_scores(queries, len(self.classes)) for member in self.members])

    def entropies(self, queries: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """See `Predictor.entropies`: what members disagree about is epistemic too."""
        single = len(self.members) == 1
        found = [
            member.average_and_entropy(
                queries, temperature if single else temperature * member.plan.temperature, len(self.classes)
            )
            for member in self.members
        ]
        average, aleatoric = (self._average(parts) for parts in zip(*found, strict=True))
        return entropy(average, 0), aleatoric

    @property
    def has_distances(self) -> bool:
        """See `Fitted.has_distances`: not if kernel values are all there is."""
        return not self.precomputed

    def _average(self, parts: Iterable[Tensor]) -> Tensor:
        """By the members' weights."""
        weighted = [member.plan.weight * part for member, part in zip(self.members, parts, strict=True)]
        return torch.stack(weighted).sum(0) if len(weighted) > 1 else weighted[0]

    @property
    def heaviest(self) -> Member:
        """The member of the largest weight."""
        return self.members[0]

    @property
    def kernel(self) -> Expression:
        """The heaviest member's kernel as a value, with the learned scales."""
        return self.heaviest.kernel

    @property
    def summary(self) -> tuple[EnsembleMember, ...]:
        """The members as a user is told of them."""
        return tuple(
            EnsembleMember(plan.weight, member.kernel, plan.model.likelihood, plan.scaling.ranks is not None)
            for member in self.members
            for plan in [member.plan]
        )

    @property
    def relevance(self) -> np.ndarray:
        """Factors of the columns (D,), the average of the members'; 0 for columns that none looks at."""
        if self.precomputed:
            return np.ones(self.columns.n_features)
        found = np.zeros(self.columns.n_features)
        for plan in (member.plan for member in self.members):
            found[plan.scaling.kept] += plan.weight * (
                1.0 if plan.scaling.relevance is None else plan.scaling.relevance
            )
        return found

    @property
    def precomputed(self) -> bool:
        """Whether X is the kernel matrix."""
        return isinstance(self.reader, MatrixReader)


def fit_members(
    settings: Settings,
    plans: Sequence[tuple[Plan, Support]],  # the heaviest first, each with the rows as its kernel sees them
    rows: LabelledRows,  # the training set's, the weights of their classes multiplied in
    training: TrainingSet,
    calibrated_temperature: float | None = None,
) -> GPFitted:
    """The posteriors for the plans, and the temperatures that suit them."""
    n_classes, tuned = len(training.classes), settings.objective is not None and calibrated_temperature is None
    members, left_out = [], []
    for plan, support in plans:
        member, scores = _fit_member(settings, plan, support, len(plans) > 1, tuned)
        members.append(member)
        left_out.append(scores)
    temperature, score = members[0].plan.temperature, members[0].plan.score
    if len(members) > 1:
        temperature, score = _of_average(members, left_out, support)
    return GPFitted(
        classes=training.classes,
        columns=training.columns,
        reader=training.reader,
        rows=training.rows,
        temperature=temperature if calibrated_temperature is None else calibrated_temperature,
        calibrated=calibrated_temperature is not None,
        log_evidence=members[0].log_evidence,
        members=tuple(members),
        score=score,
        weight_of_class=np.bincount(rows.y, rows.weight, minlength=n_classes),
    )


def _fit_member(
    settings: Settings, plan: Plan, support: Support, averaged: bool, tuned: bool
) -> tuple[Member, Tensor | None]:
    """A member, and of an average its probabilities (C, N) of the rows if they are left out, where it knows them.

    Relevance has been learnt from all rows: predictions of one that is left out would be flattered.
    """
    n_rows, width = support.x.shape
    explicit = feature_map(plan.kernel, width)
    finite = None if explicit is None else explicit.rank
    inducing = options.use_inducing(settings.approximation, finite is not None, n_rows, EXACT_LIMIT)
    most = settings.n_inducing or DEFAULT_INDUCING
    _check_memory(settings, plan, support, most if inducing else finite or n_rows)
    probabilities = None
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
        if plan.rule == "plug_in" and tuned:
            plan = _with_temperature(settings, plan, support, conditioned)
        if averaged and conditioned.sites is not None and plan.scaling.relevance is None:
            mean, variance = (part / plan.temperature**k for k, part in enumerate(conditioned.leave_one_out(), 1))
            likelihood = plan.model.predictive_likelihood()
            probabilities = likelihood.predict(mean, variance, plan.rule)[: support.n_classes]
    posterior = rebuilt(conditioned.posterior)
    return (
        Member(plan, features, posterior, conditioned.log_evidence, conditioned.trace, settings.precomputed),
        probabilities,
    )


def _of_average(members: Sequence[Member], left_out: Sequence[Tensor | None], support: Support) -> tuple[float, float]:
    """Temperature and score of an average, by its probabilities of left-out labels where all members know theirs."""
    known = [part for part in left_out if part is not None]
    if len(known) < len(members):
        return 1.0, sum(member.plan.weight * member.plan.score for member in members)
    average = torch.stack([member.plan.weight * part for member, part in zip(members, known, strict=True)]).sum(0)
    temperatures, pointwise = plug_in_temperatures(Softmax(), _log(average)[None], support, 1.0)
    total = float(support.usable.sum())
    return float(temperatures[0]), float((support.usable * pointwise[0]).sum()) / total


def _with_temperature(settings: Settings, plan: Plan, support: Support, conditioned: Conditioned) -> Plan:
    """The plan with the temperature that predicts left-out labels best, by the posterior of all rows.

    Relevance has seen these labels, which makes for a smaller one: the temperature that was found without them is kept.
    """
    if conditioned.sites is None:
        return plan
    mean, variance = conditioned.leave_one_out()
    default = options.starting_temperature(settings.kernel, support.x)
    temperature, pointwise = fit_rule(plan.model.predictive_likelihood(), mean, variance, support, "plug_in", default)
    usable = support.usable
    total = float(usable.sum())
    score = float((usable * pointwise).sum() / total) if total > 0 else plan.score
    if plan.scaling.relevance is not None:
        return replace(plan, temperature=max(temperature, plan.temperature))
    return replace(plan, temperature=temperature, score=score)


def _log(probabilities: Tensor) -> Tensor:
    return probabilities.clamp_min(_SMALLEST_PROBABILITY).log()


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
