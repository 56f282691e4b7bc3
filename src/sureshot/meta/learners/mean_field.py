"""Mean field for a batch of tasks: a few deterministic steps from the prior, no warm start, no learning rate.

The inner loop (the steps) and the outer loop (the kernel's gradient) meet in two ways. *Attached*, the gradient flows
through the steps; *detached*, the sites are constants, and the gradient is that of the bound at fixed sites, exact
once the steps have converged. With the two steps of the paper only the attached gradient is right.

The papers' Poisson-Gamma augmentation of the logistic-softmax carries the shape of its rate from step to step; the
negative multinomial one, our default, has nothing to carry and a tighter bound.

References: Ke et al. 2023 (CDKT), algorithm 1, eq. 4.4 and 12; section 5 on the coordination of the two loops.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.gaussian.gram import GramPosterior, GramPrior
from sureshot.gaussian.gram_blocks import GramBlockPosterior
from sureshot.gaussian.memory import entries_by_kernel_matrix
from sureshot.gaussian.sites import Sites
from sureshot.inference.mean_field import unrolled_sites
from sureshot.inference.mean_field_blocks import mean_field_by_blocks
from sureshot.inference.objectives import evidence_bound
from sureshot.likelihoods.one_vs_each import OneVsEach
from sureshot.likelihoods.sites import Carried, ClassSites
from sureshot.meta.learners.absent_classes import WayGroup, groups_by_way
from sureshot.meta.learners.task_inference import TaskInference


@dataclass(frozen=True)
class MeanField(TaskInference):
    """Mean field with a fixed number of steps.

    Parameters
    ----------
    likelihood : ClassSites
        A `LogisticSoftmax` with ``augmentation="poisson_gamma"`` takes the paper's steps one by one.
    n_steps : int
        Steps for `evidence` (and for the posterior of predictive-likelihood training, which is the caller's choice).
    detach_inner : bool
        Whether the sites are constants of the gradient.
    rivals : float, optional
        One-vs-each only: the rivals of a class count together as this many, whatever their number (each with weight
        ``rivals / (C - 1)``). One-vs-each is a composite likelihood in which a row counts once for every rival, so
        that its latents grow with the number of classes; with this they do not, and a learner trained on tasks of
        five classes (4 rivals) keeps its calibration on tasks of fifty. By default every rival counts as one.
    """

    likelihood: ClassSites
    n_steps: int = 2
    detach_inner: bool = False
    rivals: float | None = None

    n_chains = 1
    takes_real_weights = True
    compares_classes = True

    def __post_init__(self) -> None:
        if self.n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {self.n_steps}")
        if self.rivals is not None and not (self.rivals > 0 and isinstance(self.likelihood, OneVsEach)):
            raise ValueError(
                f"rivals must be positive and belongs to one-vs-each, got {self.rivals} with {self.likelihood.name!r}"
            )

    def row_weight(self, y: Tensor, n_classes: int, weight: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """Weights of the rows in the likelihood, in the shape of `y`, from the rows' own; None for ones."""
        if self.rivals is None:
            return weight
        share = self.rivals / (n_classes - 1)
        return torch.full(y.shape, share, dtype=dtype, device=y.device) if weight is None else share * weight

    def evidence(
        self, prior: GramPrior, y: Tensor, n_classes: int, weight: Tensor | None, generator: torch.Generator
    ) -> Tensor:
        """The evidence bound after the steps, (T,); with `rivals` that of the likelihood as they weight it."""
        total = prior.gram.new_zeros(len(y))
        for group in groups_by_way(prior, y, n_classes, weight):
            total = total.index_add(0, group.tasks, self._bound(group))
        return total

    def posterior(
        self, prior: GramPrior, y: Tensor, n_classes: int, weight: Tensor | None, generator: torch.Generator
    ) -> GramPosterior:
        """See `TaskInference.posterior`; absent classes keep their prior."""
        size = (len(y), n_classes, y.shape[-1])
        precision, shift = prior.gram.new_zeros(size), prior.gram.new_zeros(size)
        for group in groups_by_way(prior, y, n_classes, weight):
            sites, _ = self._sites(group)
            place = group.classes.unsqueeze(-1).expand_as(sites.precision)
            none = torch.zeros_like(precision[group.tasks])
            precision = precision.index_add(0, group.tasks, none.scatter(1, place, sites.precision))
            shift = shift.index_add(0, group.tasks, none.scatter(1, place, sites.shift))
        return prior.condition(Sites(precision.unsqueeze(0), shift.unsqueeze(0)))

    def condition_alone(
        self, prior: GramPrior, y: Tensor, n_classes: int, weight: Tensor, generator: torch.Generator
    ) -> tuple[GramBlockPosterior, float]:
        """See `TaskInference.condition_alone`; a block of classes at a time.

        The evidence bound is that of the likelihood itself, also where `rivals` weight it for the posterior: any
        Gaussian gives a bound, and bounds of weighted likelihoods do not bound the evidence.
        """
        shares = self.row_weight(y, n_classes, weight, weight.dtype)
        posterior = mean_field_by_blocks(
            prior,
            self.likelihood,
            y.unsqueeze(0),
            n_classes,
            None if shares is None else shares.unsqueeze(0),
            self.n_steps,
        )
        return posterior, float(evidence_bound(posterior, self.likelihood, y, weight))

    def entries(self, n_rows: int, n_classes: int, n_kernels: int) -> int:
        """See `TaskInference.entries`: a matrix for each class of a block."""
        return entries_by_kernel_matrix(n_rows, n_classes, in_blocks=True)

    def _bound(self, group: WayGroup) -> Tensor:
        sites, carried = self._sites(group)
        posterior = group.prior.condition(sites)
        weight = self.row_weight(group.y, group.n_classes, group.weight, posterior.mean.dtype)
        local = self.likelihood.bound_after_step(posterior.mean, posterior.variance, group.y, weight, carried)
        return local - posterior.kl()

    def _sites(self, group: WayGroup) -> tuple[Sites, Carried]:
        """The sites of the last step; the first starts at the prior, ``m = a`` and ``V = diag K``."""
        prior = group.prior
        size = (len(group.y), group.n_classes, group.y.shape[-1])
        with torch.no_grad() if self.detach_inner else nullcontext():
            weight = self.row_weight(group.y, group.n_classes, group.weight, prior.gram.dtype)
            moments = prior.mean.expand(size), prior.variance.expand(size)
            return unrolled_sites(prior.condition, self.likelihood, *moments, group.y, weight, self.n_steps)
