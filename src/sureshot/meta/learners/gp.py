"""The Gaussian-process few-shot learner: deep kernel x likelihood x inference x objective x predictive rule.

It only assembles. Three objectives for meta-training:

* ``"marginal"``: the (approximate) log evidence of all labelled rows of a task, support and query merged;
* ``"predictive"``: condition on the support, score the queries; what is asked of the learner at test time;
* ``"base_classes"``: no episodes; the backbone is trained to classify all base classes under a layer that is then
  dropped, and the kernel stays as it is.

Prior mean and temperature of the latents matter because the logistic-softmax is not invariant to a shift: far below
zero it is a softmax. The papers train with one prior mean and predict with another, so there are two.

References: Patacchiola et al. 2020 (deep kernel transfer); Snell & Zemel 2021 (one-vs-each, both objectives);
Ke et al. 2023 (temperature, prior mean).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.posterior import LatentMoments, Posterior
from sureshot.likelihoods import OneVsEach
from sureshot.likelihoods.base import Likelihood
from sureshot.likelihoods.quadrature import marginal_variance
from sureshot.meta.learners.absent_classes import ABSENT_MEAN
from sureshot.meta.learners.base import Latents, mean_over_rows
from sureshot.meta.learners.embedding import EmbeddedPosterior, EmbeddingLearner
from sureshot.meta.learners.prediction import TASK_RULES, TaskRule, class_probabilities, temper
from sureshot.meta.learners.task_inference import TaskInference, TaskProblem
from sureshot.meta.learners.task_kernel import TaskKernel
from sureshot.meta.tasks import TaskRows, Tasks
from sureshot.networks.precision import Precision

_LEAST_LEFT = 1e-12  # of a class's weight: less is rounding

MOST_SHOTS = 20
"""More labelled rows of each class than these do not change the temperature any more: fitted at one and five shots, its
power of the shots was seen to hold up to here."""

Objective = Literal["marginal", "predictive", "base_classes"]
PredictiveSplit = Literal["support", "first_rows"]


@dataclass(frozen=True)
class GaussianProcessTaskPosterior(EmbeddedPosterior):
    """Latents of every class given the support; see `EmbeddedPosterior`."""

    support: Tensor  # (T, S, D)
    membership: Tensor  # (T, C, S), 1 where a support row is of a class
    kernel: TaskKernel
    prior: GramPrior  # of the latents at the support
    latent: Posterior
    likelihood: Likelihood
    rule: TaskRule
    class_mask: Tensor | None
    temperature: Tensor  # (T,)

    def predict(self, query: Tensor) -> Tensor:
        """Differentiable in the query and the kernel; see `EmbeddedPosterior.predict`."""
        mean, covariance = self._means(query) if self.rule == "plug_in" else self._query(query)
        found = class_probabilities(self.likelihood, mean, covariance, self.rule)
        probabilities = temper(found.mT, self.temperature[:, None, None])
        if self.class_mask is None:
            return probabilities
        kept = probabilities * self.class_mask.unsqueeze(1)
        return kept / kept.sum(-1, keepdim=True)

    def latents(self, query: Tensor) -> Latents:
        """Moments of the mixture over chains; see `EmbeddedPosterior.latents`."""
        mean, covariance = self._query(query)
        centre = mean.mean(0)
        variance = marginal_variance(mean, covariance).mean(0) + (mean - centre).square().mean(0)
        return Latents(centre.mT, variance.mT)

    def outlier_score(self, query: Tensor) -> Tensor:
        return distance_to_classes(self.kernel, self.support, self.membership, query)

    def _query(self, query: Tensor) -> LatentMoments:
        return self.latent.query(*self.prior.queries(query))

    def _means(self, query: Tensor) -> LatentMoments:
        """Means, which are all that the plug-in rule reads and need no factor, with variances of zero."""
        mean = self.latent.query_mean(self.prior.queries(query).cross)
        return LatentMoments(mean, torch.zeros_like(mean))


def distance_to_classes(
    kernel: TaskKernel,
    support: Tensor,  # (T, S, D)
    membership: Tensor,  # (T, C, S), how often a row counts, in its own class; zero elsewhere
    query: Tensor,  # (T, Q, D)
) -> Tensor:
    """Squared distance, in the kernel's feature space, to the nearest class mean of the support, (T, Q).

    ``k(x, x) - 2 mean_i k(x, x_i) + mean_ij k(x_i, x_j)`` over the rows of a class. One-vs-each latents cannot say it:
    only their differences are observed, so far from all data they fall back to the prior together.
    """
    cross = kernel.cross(support, query)  # (T, 1 or C, S, Q)
    shares = membership / membership.sum(-1, keepdim=True).clamp_min(torch.finfo(membership.dtype).tiny)
    to_class = (shares.unsqueeze(-2) @ cross).squeeze(-2)  # (T, C, Q)
    within = (shares.unsqueeze(-2) @ kernel.gram(support) @ shares.unsqueeze(-1)).flatten(2)  # (T, C, 1)
    distance = kernel.variance(query) - 2 * to_class + within
    empty = (membership.sum(-1) == 0).unsqueeze(-1)
    return distance.masked_fill(empty, torch.inf).amin(-2)


def distance_left_out(
    kernel: TaskKernel,
    support: Tensor,  # (T, S, D)
    membership: Tensor,  # (T, C, S), as `distance_to_classes`
    share: Tensor,  # (T or 1, S), of its weight that is left out of each row
) -> Tensor:
    """`distance_to_classes` of each row of the support, a share of its own weight left out of its class, (T, S)."""
    gram = kernel.gram(support)  # (T, 1 or C, S, S)
    own = gram.diagonal(dim1=-2, dim2=-1)  # (T, 1 or C, S)
    less = share.unsqueeze(-2) * membership
    cross = (membership.unsqueeze(-2) @ gram).squeeze(-2)  # sums over the rows of a class
    within = (cross * membership).sum(-1, keepdim=True)
    total = membership.sum(-1, keepdim=True) - less
    kept = total > _LEAST_LEFT * membership.sum(-1, keepdim=True)
    total = torch.where(kept, total, 1.0)
    to_class = (cross - less * own) / total
    among = (within - 2 * less * cross + less.square() * own) / total.square()
    return (own - 2 * to_class + among).masked_fill(~kept, torch.inf).amin(-2)


class GaussianProcessLearner(EmbeddingLearner):
    """A deep-kernel Gaussian-process classifier for tasks."""

    centre: Tensor
    prediction_shift: Tensor
    log_temperature: Tensor
    shot_growth: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        kernel: TaskKernel,
        training: TaskInference,  # for meta-training
        prediction: TaskInference,  # for use; the two may differ in steps, sweeps and chains only
        objective: Objective = "predictive",
        rule: TaskRule = "integral",  # for use and for predictive-likelihood training
        training_rule: TaskRule | None = None,  # another one for that training
        predictive_likelihood: Likelihood | None = None,  # from latents to probabilities; by default the inference's
        prior_mean: float = 0.0,  # of all latents
        prediction_prior_mean: float | None = None,  # in use; the same by default
        learn_prior_mean: bool = False,  # starting from `prior_mean`; use then takes the learned one
        # "first_rows" conditions on the first C x shots rows of the class-major array, as released with the paper on
        # mean field; kept to reproduce its numbers.
        predictive_split: PredictiveSplit = "support",
        # Meta-learn the normalisation of embeddings: whenever meta-training scores the learner on validation classes,
        # it first fits the statistics of batch normalisation to their inputs, and the centre of embeddings in use to
        # theirs as far as it differs from that of the base classes by more than chance. The classes of use are new, and
        # often of another domain, in which the statistics of the base classes are wrong. The centre matters to kernels
        # of directions (cosine, unit_rbf); to linear and polynomial ones it is another origin, to others nothing.
        fit_normalisation: bool = False,
        # Meta-learn a temperature of the predictive probabilities, likewise: by the likelihood of the tasks of
        # validation classes, of two numbers of classes and of two numbers of shots where there are enough, so that
        # tasks of others have theirs. A learner trained on its base classes is too sure of itself on new ones.
        fit_temperature: bool = False,
        # For the objective "base_classes": losses (T,) of tasks of embeddings of single images. Kernel and prior mean
        # then stay as they start, so this is meant for kernels that do not depend on the size of embeddings.
        base_classes: nn.Module | None = None,
        # Normalise every embedding by the batch of its pass (running statistics in use): kernels of directions then see
        # embeddings around their mean, as the cosine kernel of deep kernel transfer does in one of its variants.
        batch_norm: bool = False,
        precision: Precision = "float32",
        tasks_per_pass: int = 1,
    ) -> None:
        super().__init__(backbone, precision, tasks_per_pass)
        for name, value, known in (
            ("objective", objective, get_args(Objective)),
            ("rule", rule, TASK_RULES),
            ("training_rule", training_rule or rule, TASK_RULES),
            ("predictive_split", predictive_split, get_args(PredictiveSplit)),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
        if (base_classes is not None) != (objective == "base_classes"):
            raise ValueError(
                f"objective {objective!r} with{'out' if base_classes is None else ''} a layer for base classes: pass "
                "n_base_classes for the objective 'base_classes', and for no other"
            )
        self.samples_images = objective == "base_classes"
        self.base_classes = base_classes
        self.kernel = kernel.requires_grad_(False) if self.samples_images else kernel
        self.training_inference = training
        self.prediction_inference = prediction
        self.objective: Objective = objective
        self.rule: TaskRule = rule
        self.training_rule: TaskRule = training_rule or rule
        self.predictive_likelihood = predictive_likelihood or prediction.likelihood
        released = "released_expected_log"
        if released in (self.rule, self.training_rule) and not isinstance(self.predictive_likelihood, OneVsEach):
            raise ValueError(
                f"the rule {released!r} belongs to one-vs-each, but the predictive likelihood is "
                f"{self.predictive_likelihood.name!r}"
            )
        self.predictive_split: PredictiveSplit = predictive_split
        learns_mean = learn_prior_mean and not self.samples_images
        self.prior_mean = nn.Parameter(torch.tensor(float(prior_mean), dtype=torch.float32), requires_grad=learns_mean)
        shift = 0.0 if prediction_prior_mean is None else prediction_prior_mean - prior_mean
        self.register_buffer("prediction_shift", torch.tensor(float(shift), dtype=torch.float32))
        self.fits_normalisation = fit_normalisation
        self.register_buffer("centre", torch.zeros(kernel.n_features, dtype=torch.float32))
        normalisation = nn.BatchNorm1d(kernel.n_features, affine=False, dtype=torch.float32) if batch_norm else None
        self.output_normalisation = normalisation
        self.fits_temperature = fit_temperature
        self.register_buffer(
            "log_temperature", torch.zeros(2, dtype=torch.float32)
        )  # intercept, and slope in the log of the classes
        self.register_buffer("shot_growth", torch.zeros((), dtype=torch.float32))  # its slope in the log of the shots

    def set_centre(self, centre: Tensor) -> None:
        """Subtract a vector from all embeddings in use; see `EmbeddingLearner.set_centre`."""
        self.centre.copy_(centre)

    def set_temperature(
        self, temperature: float, way: int = 2, growth: float = 0.0, shots: int = 1, shot_growth: float = 0.0
    ) -> None:
        """Set the temperature of the predictive probabilities; see `ClassLearner.set_temperature`."""
        if not (0 < temperature < math.inf and way >= 1 and shots >= 1):
            raise ValueError(
                "temperature must be positive and finite, and way and shots at least 1, got "
                f"{temperature:g}, {way} and {shots}"
            )
        log_shots = math.log(min(shots, MOST_SHOTS))
        self.log_temperature[0] = math.log(temperature) - growth * math.log(way) - shot_growth * log_shots
        self.log_temperature[1] = growth
        self.shot_growth.fill_(shot_growth)

    def temperature(
        self,
        n_classes: Tensor,  # (T,)
        class_sizes: Tensor,  # (T, P), labelled rows of each class
    ) -> Tensor:
        """The temperature of the predictive probabilities of tasks, (T,).

        The geometric mean over the classes that have any rows counts as the shots of a task, from 1 to `MOST_SHOTS`.
        """
        seen = class_sizes > 0
        log_sizes = torch.where(seen, class_sizes, 1).log().sum(-1) / seen.sum(-1).clamp_min(1)
        intercept, slope = self.log_temperature
        log_shots = log_sizes.clamp(0, math.log(MOST_SHOTS))
        return (intercept + slope * n_classes.log() + self.shot_growth * log_shots).exp()

    def normalised(self, embedded: Tensor) -> Tensor:
        if self.output_normalisation is None:
            return embedded
        found: Tensor = self.output_normalisation(embedded)
        return found

    def task_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        """Negative objective per row, (T,); see `EmbeddingLearner.task_losses`."""
        if self.base_classes is not None:
            losses: Tensor = self.base_classes(tasks)
            return losses
        if self.objective == "marginal":
            problem = _problem(self.kernel, tasks.merged(), self.prior_mean)
            evidence, self.task_state = self.training_inference.evidence(problem, generator, self.task_state)
            rows = problem.y.shape[-1] if problem.weight is None else problem.weight.sum(-1)
            return -evidence / rows
        if self.predictive_split == "first_rows":
            tasks = class_major(tasks)
        posterior = self._condition(tasks.support, generator, training=True)
        chosen = posterior.predict(tasks.query_x).gather(-1, tasks.query_y.unsqueeze(-1)).squeeze(-1)
        return mean_over_rows(-chosen.clamp_min(torch.finfo(chosen.dtype).tiny).log(), tasks.query_mask)

    def condition_embedded(self, support: TaskRows, generator: torch.Generator) -> GaussianProcessTaskPosterior:
        return self._condition(support, generator, training=False)

    def _condition(self, support: TaskRows, generator: torch.Generator, training: bool) -> GaussianProcessTaskPosterior:
        x, _, n_classes, _, class_mask = support
        mean = self.prior_mean if training else self.prior_mean + self.prediction_shift
        kernel = self.kernel if training else copy.deepcopy(self.kernel).requires_grad_(False)
        problem = _problem(kernel, support, mean)
        if training:
            latent, self.task_state = self.training_inference.posterior(problem, generator, self.task_state)
        else:
            latent, _ = self.prediction_inference.posterior(problem, generator)
        rule = self.training_rule if training else self.rule
        membership = support.one_hot().mT
        temperature = x.new_ones(len(x))
        if not training:
            ways = temperature * n_classes if class_mask is None else class_mask.sum(-1).to(x)
            temperature = self.temperature(ways, membership.sum(-1))
        return GaussianProcessTaskPosterior(
            x, membership, kernel, problem.prior, latent, self.predictive_likelihood, rule, class_mask, temperature
        )


def _problem(kernel: TaskKernel, rows: TaskRows, mean: Tensor) -> TaskProblem:
    """Latents with this prior mean () at labelled rows; those of absent classes lie far below."""
    n_classes = rows.n_classes
    if kernel.n_classes not in (None, n_classes):
        raise ValueError(
            f"the kernel has hyper-parameters for {kernel.n_classes} classes, but the task has {n_classes}: "
            "use a kernel shared by the classes"
        )
    class_mean = mean.expand(1, n_classes, 1)
    if rows.class_mask is not None:
        class_mean = class_mean.masked_fill(~rows.class_mask.unsqueeze(-1), ABSENT_MEAN)
    weight = None if rows.mask is None else rows.mask.to(rows.x.dtype)
    return TaskProblem(kernel.prior(rows.x, class_mean), rows.y, n_classes, weight)


def class_major(tasks: Tasks) -> Tasks:
    """Merge support and query class by class and take as many first rows as there were support rows.

    With S support rows these belong to one class at one shot and to two at five: a published mistake.
    """
    x, y, _, mask, _ = tasks.merged()
    if mask is not None or tasks.class_mask is not None:
        raise ValueError("predictive_split='first_rows' needs tasks of one size, without padding")
    n_support = tasks.support_y.shape[1]
    order = y.argsort(dim=1, stable=True)
    x = x.gather(1, order.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
    y = y.gather(1, order)
    return Tasks(x[:, :n_support], y[:, :n_support], x[:, n_support:], y[:, n_support:], tasks.n_classes)
