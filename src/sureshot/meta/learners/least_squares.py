"""Least squares for a batch of tasks: deep kernel transfer.

Every class is a Gaussian-process regression on targets +1 (its rows) and -1 (the others), all with the same noise.
Evidence and posterior are exact and in closed form: one Cholesky factor for a task whose classes share a kernel, one
for each class otherwise.

Probabilities are the normalised sigmoids of the latent means, as released (``LogisticSoftmax().plug_in``), or the
model's own (`GaussianLabels`): how probable the targets of each class are, against those of the others. With little
noise these are far more confident.

References: Patacchiola et al. 2020; Rifkin & Klautau 2004; Snell & Zemel 2021, appendix H.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from sureshot.computing.blocks import entries_by_kernel_matrix
from sureshot.gaussian.gram import GramPosterior
from sureshot.gaussian.sites import Sites
from sureshot.inference import schemes
from sureshot.inference.least_squares import regression_log_evidence, regression_sites
from sureshot.likelihoods.gaussian import GaussianLabels, signed_labels
from sureshot.meta.learners.absent_classes import present_classes
from sureshot.meta.learners.task_inference import TaskInference, TaskProblem, TaskState


@dataclass(frozen=True)
class TaskLeastSquares(TaskInference):
    """Gaussian likelihood on -1/+1 targets."""

    noise: float | Tensor = 0.1  # variance, as published; a tensor may carry a gradient
    likelihood: GaussianLabels = field(init=False)

    scheme = schemes.LeastSquares()

    def __post_init__(self) -> None:
        object.__setattr__(self, "likelihood", GaussianLabels(self.noise))

    def evidence(
        self, problem: TaskProblem, generator: torch.Generator, start: TaskState | None = None
    ) -> tuple[Tensor, None]:
        """Exact log evidence of the targets, summed over the classes, (T,); an absent class contributes nothing."""
        targets, present = _targets(problem)
        evidence = regression_log_evidence(problem.prior, targets, problem.weight, self.noise)
        return (evidence * present).sum(-1), None

    def posterior(
        self, problem: TaskProblem, generator: torch.Generator, start: TaskState | None = None
    ) -> tuple[GramPosterior, None]:
        """The exact posterior; see `TaskInference.posterior`. The mean of an absent class stays at its prior."""
        sites = regression_sites(_targets(problem)[0], problem.weight, self.noise)
        return problem.prior.condition(Sites(*(part.unsqueeze(0) for part in sites))), None

    def condition_alone(self, problem: TaskProblem, generator: torch.Generator) -> tuple[GramPosterior, float]:
        """Posterior and log evidence, both exact; see `TaskInference.condition_alone`."""
        posterior, _ = self.posterior(problem, generator)
        evidence, _ = self.evidence(problem, generator)
        return posterior, float(evidence)

    def entries(self, n_rows: int, n_classes: int, n_kernels: int) -> int:
        """A factor for each kernel matrix."""
        return entries_by_kernel_matrix(n_rows, n_kernels)


def _targets(problem: TaskProblem) -> tuple[Tensor, Tensor]:
    """Targets (T, C, N), and which classes are real (T, C): for the others their prior mean, which moves no latent."""
    prior, y, n_classes, _ = problem
    present = present_classes(prior.mean).expand(len(y), n_classes, 1)
    targets = torch.where(present, signed_labels(y, n_classes, prior.gram.dtype), prior.mean)
    return targets, present.squeeze(-1)
