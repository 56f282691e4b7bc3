"""Mean field for a batch of tasks: a few deterministic steps, no learning rate.

The inner loop (the steps) and the outer loop (the kernel's gradient) meet in two ways. *Attached*, the gradient flows
through the steps; *detached*, the sites are constants, and the gradient is that of the bound at fixed sites, exact
once the steps have converged. With the two steps of the paper only the attached gradient is right.

**Cold or warm.** By default every task starts at the prior, and its result depends on nothing else. As published each
task starts where the task in its place in the step before ended (rows in the order of their classes, so that class c
meets class c). Two steps suffice only then: after two cold steps the gradient shrinks the output scale. What is carried
is a `TaskState`; tasks whose classes have other numbers of rows than those before start at the prior. In use every task
starts at the prior and takes more steps.

References: Ke et al. 2023 (CDKT), algorithm 1, eq. 4.4 and 12; section 5 on the coordination of the two loops.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.computing.blocks import entries_by_kernel_matrix
from sureshot.gaussian.gram import GramPosterior
from sureshot.gaussian.gram_blocks import GramBlockPosterior
from sureshot.gaussian.sites import Sites
from sureshot.inference import schemes
from sureshot.inference.mean_field import Unrolled, VariationalState, unrolled_sites
from sureshot.inference.mean_field_blocks import mean_field_by_blocks
from sureshot.inference.objectives import evidence_bound
from sureshot.likelihoods.logistic_softmax import LogisticSoftmax, PoissonGammaState
from sureshot.likelihoods.one_vs_each import OneVsEach
from sureshot.likelihoods.sites import ClassSites
from sureshot.meta.learners.absent_classes import WayGroup, groups_by_way
from sureshot.meta.learners.task_inference import TaskInference, TaskProblem, TaskState

RELEASED_SHAPES = (5.0, 10.0)
"""Between which the code released with the paper draws the first shapes of the rate."""


@dataclass(frozen=True)
class TaskMeanField(TaskInference):
    """Mean field with a fixed number of steps."""

    likelihood: ClassSites  # a `LogisticSoftmax` of ``augmentation="poisson_gamma"`` takes the paper's steps one by one
    n_steps: int = 2  # at most so many, with a tolerance
    detach_inner: bool = False  # whether the sites are constants of the gradient
    # One-vs-each only: the pairs of a row with the other classes count together as this many, whatever their number
    # (each with weight ``pairs_per_row / (C - 1)``). In this composite likelihood a row counts once for every pair, so
    # that its latents grow with the number of classes; with this they do not, and a learner trained on tasks of five
    # classes (4 pairs) keeps its calibration on tasks of fifty. By default every pair counts as one.
    pairs_per_row: float | None = None
    # Steps until no mean moves by more than this, relative to one plus its size; by default so many as `n_steps`.
    tolerance: float | None = None
    warm_start: bool = False  # carry what the steps end with to the next step of training; see the module's notes
    # Draw the first shapes of "poisson_gamma" uniformly between these, (5, 10) in the code released with the paper; by
    # default they are ``1 + C / 2``.
    first_shape: tuple[float, float] | None = None
    covariance_first: bool = False  # Sigma before omega; see `unrolled_sites`

    scheme = schemes.MeanField()

    def __post_init__(self) -> None:
        if self.n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {self.n_steps}")
        if self.pairs_per_row is not None and not (self.pairs_per_row > 0 and isinstance(self.likelihood, OneVsEach)):
            raise ValueError(
                f"pairs_per_row must be positive and belongs to one-vs-each, got {self.pairs_per_row} with "
                f"{self.likelihood.name!r}"
            )

        counted = isinstance(self.likelihood, LogisticSoftmax) and self.likelihood.augmentation == "poisson_gamma"
        if self.first_shape is not None and not (counted and 0 < self.first_shape[0] <= self.first_shape[1]):
            raise ValueError(
                "first_shape must be two positive numbers, the smaller first, and belongs to the augmentation "
                f"'poisson_gamma'; got {self.first_shape} with {self.likelihood.name!r}"
            )
        if self.tolerance is not None and not self.tolerance > 0:
            raise ValueError(f"tolerance must be positive, got {self.tolerance}; leave it out for n_steps steps")

    def row_weight(self, problem: TaskProblem) -> Tensor | None:
        """Weights of the rows in the likelihood, (T, N), from the rows' own; None for ones."""
        prior, y, n_classes, weight = problem
        if self.pairs_per_row is None:
            return weight
        share = self.pairs_per_row / (n_classes - 1)
        return prior.gram.new_full(y.shape, share) if weight is None else share * weight

    def evidence(
        self, problem: TaskProblem, generator: torch.Generator, start: TaskState | None = None
    ) -> tuple[Tensor, TaskState | None]:
        """The evidence bound after the steps, (T,); with `pairs_per_row` that of the likelihood so weighted."""
        total = problem.prior.gram.new_zeros(len(problem.y))
        ended: TaskState | None = None
        for group in groups_by_way(problem):
            found = self._unrolled(group.problem, start, generator)
            posterior = group.problem.prior.condition(found.sites)
            counts, y = self.row_weight(group.problem), group.problem.y
            local = self.likelihood.bound_after_step(posterior.mean, posterior.variance, y, counts, found.carried)
            total = total.index_add(0, group.tasks, local - posterior.kl())
            ended = self._ended(group, posterior.mean, posterior.variance, found)
        return total, ended

    def posterior(
        self, problem: TaskProblem, generator: torch.Generator, start: TaskState | None = None
    ) -> tuple[GramPosterior, TaskState | None]:
        """Absent classes keep their prior."""
        prior, y, n_classes, _ = problem
        size = (len(y), n_classes, y.shape[-1])
        precision, shift = prior.gram.new_zeros(size), prior.gram.new_zeros(size)
        last = None
        for group in groups_by_way(problem):
            found = self._unrolled(group.problem, start, generator)
            place = group.classes.unsqueeze(-1).expand_as(found.sites.precision)
            none = torch.zeros_like(precision[group.tasks])
            precision = precision.index_add(0, group.tasks, none.scatter(1, place, found.sites.precision))
            shift = shift.index_add(0, group.tasks, none.scatter(1, place, found.sites.shift))
            last = group, found
        posterior = prior.condition(Sites(precision.unsqueeze(0), shift.unsqueeze(0)))
        assert last is not None
        return posterior, self._ended(last[0], posterior.mean[0], posterior.variance[0], last[1])

    def condition_alone(self, problem: TaskProblem, generator: torch.Generator) -> tuple[GramBlockPosterior, float]:
        """A block of classes at a time.

        The evidence bound is that of the likelihood itself, also where `pairs_per_row` weights it for the posterior:
        any Gaussian gives a bound, and bounds of weighted likelihoods do not bound the evidence.
        """
        prior, y, n_classes, weight = problem
        shares = self.row_weight(problem)
        if shares is not None:
            shares = shares.unsqueeze(0)
        posterior = mean_field_by_blocks(prior, self.likelihood, y.unsqueeze(0), n_classes, shares, self.n_steps)
        return posterior, float(evidence_bound(posterior, self.likelihood, y, weight))

    def entries(self, n_rows: int, n_classes: int, n_kernels: int) -> int:
        """A matrix for each class of a block."""
        return entries_by_kernel_matrix(n_rows, n_classes, in_blocks=True)

    def _unrolled(self, problem: TaskProblem, before: TaskState | None, generator: torch.Generator) -> Unrolled:
        """The steps of tasks of one size, from the prior or from where the tasks before ended."""
        prior, y, n_classes, _ = problem
        with torch.no_grad() if self.detach_inner else nullcontext():
            weight = self.row_weight(problem)
            start = VariationalState.of_prior(prior, (len(y), n_classes, y.shape[-1]))
            if self.first_shape is not None:
                start = start._replace(carried=self._drawn_shapes(problem, generator))
            if self.warm_start and before is not None:
                start = _continued(start, y, before)
            return unrolled_sites(
                prior.condition,
                self.likelihood,
                start,
                y,
                weight,
                self.n_steps,
                self.tolerance,
                self.covariance_first,
            )

    def _drawn_shapes(self, problem: TaskProblem, generator: torch.Generator) -> PoissonGammaState:
        """First shapes between the bounds; tilting and counts are those of the first step."""
        assert self.first_shape is not None
        low, high = self.first_shape
        gram, y = problem.prior.gram, problem.y
        drawn = torch.rand(y.shape, generator=generator, dtype=gram.dtype, device=gram.device)
        empty = gram.new_zeros(len(y), problem.n_classes, y.shape[-1])
        return PoissonGammaState(empty, empty, low + (high - low) * drawn)

    def _ended(self, group: WayGroup, mean: Tensor, variance: Tensor, found: Unrolled) -> TaskState | None:
        """What the tasks of a batch end with, rows in the order of their classes; None for tasks of several sizes."""
        if not self.warm_start or len(group.tasks) < len(mean) or group.problem.weight is not None:
            return None
        y, order = group.problem.y.sort(dim=-1, stable=True)
        state = {"y": y, "mean": mean, "variance": variance, "precision": found.precision}
        if found.carried is not None:
            state["shape"] = PoissonGammaState(*found.carried).shape_parameter
        return {
            name: value.detach() if name == "y" else value.detach().gather(-1, _like(order, value))
            for name, value in state.items()
        }


def _continued(start: VariationalState, y: Tensor, before: TaskState) -> VariationalState:
    """Where the tasks before ended, for those with as many rows of each class; the others stay at `start`."""
    ordered, order = y.sort(dim=-1, stable=True)
    if before["mean"].shape != start.mean.shape:
        return start
    same = (before["y"] == ordered).all(-1)
    back = order.argsort(dim=-1)

    def taken(name: str, otherwise: Tensor) -> Tensor:
        value = before[name].gather(-1, _like(back, before[name]))
        return torch.where(same.view(-1, *[1] * (value.dim() - 1)), value, otherwise)

    carried = start.carried
    if "shape" in before:
        first = torch.full_like(before["shape"], 1 + start.mean.shape[-2] / 2)
        if carried is not None:
            first = PoissonGammaState(*carried).shape_parameter
        carried = PoissonGammaState(torch.zeros_like(start.mean), torch.zeros_like(start.mean), taken("shape", first))
    precision = taken("precision", before["precision"]) if bool(same.all()) else None
    return VariationalState(taken("mean", start.mean), taken("variance", start.variance), precision, carried)


def _like(order: Tensor, value: Tensor) -> Tensor:
    """An order of rows (T, N) for values (T, N) or (T, C, N)."""
    return order if value.dim() == order.dim() else order.unsqueeze(-2).expand_as(value)
