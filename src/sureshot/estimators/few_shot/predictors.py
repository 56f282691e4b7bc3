"""A few-shot learner conditioned on one support set, for `FewShotClassifier`.

Two kinds of learners answer the same questions. `GaussianPredictor` are those of Gaussian processes: latents with means
and (co)variances, and a rule that turns them into probabilities. `ScorePredictor` are those of learners that give
probabilities of their own, and scores whose uncertainty they do not need.

Classes without rows take no part in the conditioning. For a Gaussian process their latents keep the prior; other
learners have no prior, and give such classes probability 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.blocks import AT_ONCE
from sureshot.computing.memory import in_bytes, memory_budget
from sureshot.estimators.classes.class_fitted import ClassPredictor
from sureshot.estimators.classes.uncertainty import entropies, entropy
from sureshot.estimators.rows.preprocessing import kernel_inputs
from sureshot.estimators.rows.support import Support
from sureshot.gaussian.algebra import weighted_factor
from sureshot.gaussian.gram import GramPosterior, GramPrior
from sureshot.gaussian.gram_blocks import GramBlockPosterior, condition_by_blocks
from sureshot.gaussian.posterior import LatentMoments, Posterior, WithPriorClasses
from sureshot.gaussian.prior import Queries
from sureshot.gaussian.sites import Sites
from sureshot.gaussian.without_rows import RowSites, beside_prior_classes, moments_without
from sureshot.inference.one_vs_each.posterior import OneVsEachPosterior
from sureshot.inference.one_vs_each.without_rows import moments_without as pair_moments_without
from sureshot.likelihoods.quadrature import marginal_variance
from sureshot.meta.learners import ClassLearner, EmbeddingLearner, GaussianProcessLearner, TaskPosterior
from sureshot.meta.learners.gp import distance_left_out, distance_to_classes
from sureshot.meta.learners.prediction import class_probabilities, temper
from sureshot.meta.learners.task_inference import TaskProblem
from sureshot.meta.tasks import TaskRows
from sureshot.networks.backbones import Backbone

_ENTRIES_PER_NUMBER = 256
"""About as many numbers a network holds for each of an input's; of a few layers of 64 channels."""


class ConditionedLearner(ClassPredictor):
    """A learner given a support set."""

    log_evidence: float
    """Of the support's labels, in nats: exact or a lower bound; NaN where the learner has none."""

    entries_per_query: int
    """Intermediate numbers that a query takes."""

    device: torch.device

    @property
    def queries_at_once(self) -> int:
        return 2 * AT_ONCE // self.entries_per_query

    def inputs(self, kept: np.ndarray) -> Tensor:
        return kernel_inputs(kept, None, self.device)

    def outlier_scores_left_out(self, share: Tensor) -> Tensor | None:
        """`outlier_scores` of the support's rows (N,), each without a share (N,) of its weight.

        None where there is no closed form.
        """
        return None


@dataclass(frozen=True)
class GaussianPredictor(ConditionedLearner):
    """The answers of a Gaussian-process learner."""

    learner: GaussianProcessLearner
    support: Tensor  # (1, N, D)
    membership: Tensor  # (1, P, N), the weight of each row in its own class, zero elsewhere, of classes that have rows
    prior: GramPrior  # at the support
    posterior: Posterior  # of all C classes, for one task: moments (S, 1, C, Q)
    n_classes: int
    log_evidence: float

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where the learner is."""
        return self.support.device

    @property
    def entries_per_query(self) -> int:  # type: ignore[override]
        n_chains = self.learner.prediction_inference.scheme.n_chains
        return n_chains * self.n_classes * max(self.support.shape[1], self.n_classes)

    def moments(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the latents, with variances of zero for the rule that reads none."""
        if self.learner.rule == "plug_in":
            mean = self.posterior.query_mean(self._queries(query).cross)
            return mean, torch.zeros_like(mean)
        return self._latents(query)

    def probabilities(self, moments: tuple[Tensor, ...], temperature: float) -> Tensor:
        mean, covariance = moments
        learner = self.learner
        found = class_probabilities(
            learner.predictive_likelihood, mean / temperature, covariance / temperature**2, learner.rule
        )
        return temper(found.squeeze(0).mT, self._own_temperature)

    def outlier_scores(self, query: Tensor) -> Tensor:
        """The squared distance to the nearest class in the kernel's feature space.

        Relative to the kernel's variance at the labelled rows.
        """
        kernel = self.learner.kernel
        distances = distance_to_classes(kernel, self.support, self.membership, query.unsqueeze(0))
        return distances.squeeze(0) / kernel.variance(self.support).mean()

    def outlier_scores_left_out(self, share: Tensor) -> Tensor | None:
        kernel = self.learner.kernel
        distances = distance_left_out(kernel, self.support, self.membership, share)
        return distances.squeeze(0) / kernel.variance(self.support).mean()

    def latents(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the mixture of chains."""
        mean, covariance = self._latents(query)
        variance = marginal_variance(mean, covariance).mean(0) + mean.var(0, correction=0)
        return mean.mean(0).squeeze(0).mT, variance.squeeze(0).mT

    def entropies(self, query: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        mean, covariance = self._latents(query)
        likelihood, own_temperature = self.learner.predictive_likelihood, self._own_temperature

        def probabilities(latents: Tensor) -> Tensor:
            return temper(likelihood.plug_in(latents / temperature), own_temperature, -2)

        return entropies(mean.squeeze(1), covariance.squeeze(1), probabilities)

    @property
    def entries_without(self) -> int:
        """How many numbers `probabilities_without` takes for each query and row."""
        return self.learner.prediction_inference.scheme.n_chains * self.n_classes**2

    def probabilities_without(self, query: Tensor, place: Tensor, share: Tensor, temperature: float) -> Tensor:
        """Class probabilities (Q, E, C) without each of some rows (E,) of the support, of which a share (E,) leaves.

        Kernel, temperatures and the sites of the other rows stay as they are; see `gaussian.without_rows`.
        """
        queries = self._queries(query)
        given, posterior = self.posterior.query(*queries), self.posterior
        if isinstance(posterior, WithPriorClasses):
            inner, present = posterior.inner, posterior.present
            found = _moments_without(inner, self.prior, inner.query(*queries), queries, place, share)
            found = beside_prior_classes(given, found, present, queries.variance)
        else:
            found = _moments_without(posterior, self.prior, given, queries, place, share)
        mean = found.mean.flatten(-2)
        spread = found.spread.flatten(-4, -3) if found.spread.dim() > found.mean.dim() else found.spread.flatten(-2)
        return self.probabilities((mean, spread), temperature).unflatten(0, (len(query), len(place)))

    @property
    def _own_temperature(self) -> Tensor:
        """What the learner's probabilities over so many classes and rows are tempered with, ()."""
        sizes = self.membership.sum(-1)
        return self.learner.temperature(sizes.new_full((1,), self.n_classes), sizes).squeeze(0)

    def _queries(self, query: Tensor) -> Queries:
        return self.prior.queries(query.unsqueeze(0))

    def _latents(self, query: Tensor) -> LatentMoments:
        """Means (S, 1, C, Q) and variances of that shape, or covariances (S, 1, Q, C, C)."""
        return self.posterior.query(*self._queries(query))


@dataclass(frozen=True)
class ScorePredictor(ConditionedLearner):
    """The answers of a learner without a posterior over its scores."""

    posterior: TaskPosterior  # of one task with the classes that have rows
    shape: tuple[int, ...]  # of a query
    present: Tensor  # (P,) int64
    n_classes: int
    entries_per_query: int
    device: torch.device
    log_evidence: float = math.nan

    def moments(self, query: Tensor) -> tuple[Tensor, ...]:
        """The learner's own probabilities of the classes with rows, (Q, P)."""
        return (self.posterior.predict(self._task(query)).squeeze(0),)

    def probabilities(self, moments: tuple[Tensor, ...], temperature: float) -> Tensor:
        """The learner's own, raised to 1 / temperature and normalised."""
        (own,) = moments
        if temperature != 1:
            own = torch.softmax(own.clamp_min(torch.finfo(own.dtype).tiny).log() / temperature, -1)
        whole = own.new_zeros(len(own), self.n_classes)
        whole[:, self.present] = own
        return whole

    def outlier_scores(self, query: Tensor) -> Tensor:
        """The learner's own."""
        return self.posterior.outlier_score(self._task(query)).squeeze(0)

    def latents(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """The learner's own scores, minus infinity and variance 0 for a class without rows."""
        own = self.posterior.latents(self._task(query))
        scores = own.mean.new_full((len(query), self.n_classes), -torch.inf)
        variances = torch.zeros_like(scores)
        scores[:, self.present], variances[:, self.present] = own.mean.squeeze(0), own.variance.squeeze(0)
        return scores, variances

    def entropies(self, query: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """All of the uncertainty is aleatoric."""
        total = entropy(self.probabilities(self.moments(query), temperature), -1)
        return total, total

    def _task(self, query: Tensor) -> Tensor:
        """Queries (Q, D) as those of one task, (1, Q, ...)."""
        return query.unflatten(1, self.shape).unsqueeze(0)


@torch.no_grad()
def condition_on(
    learner: ClassLearner,  # in evaluation mode and double precision
    support: Support,
    seed: int,  # for learners that sample
) -> ConditionedLearner:
    """Condition a learner on a support set.

    A ValueError refuses weights that are not whole numbers, where the learner cannot use them, and a MemoryError a
    support set that is too large, before anything is allocated.
    """
    generator = torch.Generator(device=support.x.device).manual_seed(seed)
    present, y = torch.unique(support.y, return_inverse=True)
    if isinstance(learner, GaussianProcessLearner):
        return _gaussian(learner, support, y, present, generator)
    repeats = whole_weights(support.weight, type(learner).__name__)
    x, y = support.x.repeat_interleave(repeats, 0), y.repeat_interleave(repeats)
    shape = (x.shape[1],) if isinstance(learner, EmbeddingLearner) else input_shape(learner)
    sets = TaskRows(x.unflatten(1, shape).unsqueeze(0), y.unsqueeze(0), len(present))
    posterior: TaskPosterior
    if isinstance(learner, EmbeddingLearner):
        posterior = learner.condition_embedded(sets, generator)
        entries = len(x) * max(x.shape[1], len(present))
    else:
        posterior = learner.condition_inputs(sets, generator)
        entries = _ENTRIES_PER_NUMBER * x.shape[1]
    return ScorePredictor(posterior, shape, present, support.n_classes, entries, x.device)


def _gaussian(
    learner: GaussianProcessLearner, support: Support, y: Tensor, present: Tensor, generator: torch.Generator
) -> GaussianPredictor:
    x = support.x.unsqueeze(0)
    inference = learner.prediction_inference
    n_present = len(present)
    _check_memory(learner, len(support.y), n_present)
    membership = (torch.nn.functional.one_hot(y, n_present).mT * support.weight).unsqueeze(0)
    if learner.kernel.n_classes not in (None, support.n_classes) or (
        learner.kernel.n_classes is not None and n_present < support.n_classes
    ):
        raise ValueError(
            f"the checkpoint's kernel has parameters for each of {learner.kernel.n_classes} classes, but there are "
            f"{support.n_classes} classes, {n_present} of them with rows: use a checkpoint whose classes share a "
            "kernel (any preset but 'paper' of dkt)."
        )
    shift = learner.prior_mean + learner.prediction_shift
    prior = learner.kernel.prior(x, shift.expand(1, n_present, 1))
    if n_present < 2 and not inference.scheme.is_exact:  # there is one class
        zeros = x.new_zeros(1, 1, support.n_classes, len(y))
        nothing = condition_by_blocks(replace(prior, mean=shift.expand(1, support.n_classes, 1)), Sites(zeros, zeros))
        return GaussianPredictor(learner, x, membership, prior, nothing, support.n_classes, 0.0)
    if inference.scheme.samples:
        whole_weights(support.weight, "a learner that samples")
    problem = TaskProblem(prior, y.unsqueeze(0), n_present, support.weight.unsqueeze(0))
    posterior, evidence = inference.condition_alone(problem, generator)
    if n_present < support.n_classes:
        posterior = WithPriorClasses(posterior, present, shift.expand(support.n_classes))
    return GaussianPredictor(learner, x, membership, prior, posterior, support.n_classes, evidence)


def input_shape(learner: ClassLearner) -> tuple[int, ...]:
    """Of one row."""
    assert isinstance(learner.network, Backbone)
    return learner.network.input_shape


def whole_weights(weight: Tensor, who: str, instead: str = "a mean-field or least-squares learner") -> Tensor:
    """Weights as whole numbers."""
    if bool((weight != weight.round()).any()):
        first = float(weight[weight != weight.round()][0])
        raise ValueError(
            f"sample_weight must be whole numbers for this checkpoint, but it has {first:g}: {who} takes rows, not "
            f"shares of rows. Use {instead} for real weights."
        )
    return weight.round().to(torch.int64)


def _check_memory(learner: GaussianProcessLearner, n: int, n_present: int) -> None:
    """Refuse before memory is taken, with the estimate and what to try."""
    needed = 8.0 * learner.prediction_inference.entries(n, n_present, learner.kernel.n_classes or 1)
    available = memory_budget("auto")
    if needed > available:
        raise MemoryError(
            f"conditioning on {n} distinct rows of {n_present} classes would take about {in_bytes(needed)}, and "
            f"{in_bytes(available)} are free: FewShotClassifier is for a few rows of each class; use GPClassifier, "
            "on this checkpoint's embeddings if need be, or fewer rows."
        )


def _moments_without(
    posterior: Posterior, prior: GramPrior, given: LatentMoments, queries: Queries, place: Tensor, share: Tensor
) -> LatentMoments:
    """Moments (S, 1, C, Q, E), and covariances (S, 1, Q, E, C, C), of classes that have rows."""
    if isinstance(posterior, OneVsEachPosterior):
        cross, diagonal = queries.cross[0, 0], queries.variance[0, 0]
        found = pair_moments_without(posterior.result, cross, diagonal, place, share)
        return LatentMoments(*(part.unsqueeze(1) for part in found))
    assert isinstance(posterior, GramPosterior | GramBlockPosterior)
    root = posterior.sites.precision.sqrt().unsqueeze(-1)
    factor = weighted_factor(prior.gram, root.squeeze(-1))
    explained = prior.gram @ (root * torch.cholesky_solve(root * queries.cross, factor))
    covariance = (queries.cross - explained).mT
    sites = RowSites(posterior.sites.precision, posterior.alpha, posterior.variance)
    return LatentMoments(*moments_without(*given, covariance, sites, place, share))
