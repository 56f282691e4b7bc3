"""What the Gibbs samplers of tasks have in common: chains, sweeps, and where they start."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from sureshot.computing.blocks import entries_by_kernel_matrix
from sureshot.gaussian.posterior import Posterior
from sureshot.inference import schemes
from sureshot.meta.learners.task_inference import TaskInference, TaskProblem
from sureshot.ranges import check_counts

Start = Literal["prior", "mean_field"]


@dataclass(frozen=True)
class GibbsInference(TaskInference):
    """Independent chains for each task; the defaults are as published."""

    n_chains: int = 20
    n_sweeps_evidence: int = 1  # draws of the augmenting variables, of which the last one counts
    n_sweeps_posterior: int = 50
    start: Start = "prior"  # where the latents start: at draws from the prior, or from a mean-field Gaussian

    @property
    def scheme(self) -> schemes.Gibbs:
        return schemes.Gibbs(self.n_chains, self.n_sweeps_posterior)

    def __post_init__(self) -> None:
        names = ("n_chains", "n_sweeps_evidence", "n_sweeps_posterior")
        check_counts(1, **{name: getattr(self, name) for name in names})
        if self.start not in get_args(Start):
            raise ValueError(f"start must be one of {', '.join(map(repr, get_args(Start)))}, got {self.start!r}")

    def condition_alone(self, problem: TaskProblem, generator: torch.Generator) -> tuple[Posterior, float]:
        """The chains' posterior; draws have no log evidence."""
        return self.posterior(problem, generator)[0], math.nan

    def entries(self, n_rows: int, n_classes: int, n_kernels: int) -> int:
        """A matrix for each class and chain."""
        return entries_by_kernel_matrix(n_rows, self.n_chains * n_classes, n_kernels)
