"""One-vs-each by Gibbs sampling for a batch of tasks: the posterior couples the classes, and nothing is approximated.

Chains of Polya-Gamma variables are drawn without a gradient. Given them everything is Gaussian: the evidence and the
posterior at queries are differentiable in the kernel and the prior mean, with gradients in closed form.

**Which gradient.** Draws from the *posterior* give the gradient of the evidence (Fisher's identity). The published
training draws once, given latents from the *prior* (``start="prior"``, one sweep): its gradient in the output scale
has the wrong sign at moderate scales, so keep the scale fixed there. ``start="mean_field"`` with about 20 sweeps is
close to converged.

References: Snell & Zemel 2021, algorithm 1 and section 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from sureshot.inference.one_vs_each.evidence import mean_collapsed_log_evidence
from sureshot.inference.one_vs_each.gibbs import OneVsEachGibbsResult, run_one_vs_each_gibbs
from sureshot.inference.one_vs_each.posterior import OneVsEachPosterior
from sureshot.likelihoods.one_vs_each import OneVsEach
from sureshot.meta.learners.gibbs_inference import GibbsInference
from sureshot.meta.learners.mean_field import TaskMeanField
from sureshot.meta.learners.task_inference import TaskProblem, TaskState

_MEAN_FIELD_STEPS = 5  # enough to begin a chain near the posterior


@dataclass(frozen=True)
class OneVsEachGibbs(GibbsInference):
    """Gibbs sampling of the one-vs-each model."""

    likelihood: OneVsEach = field(
        default_factory=OneVsEach
    )  # for its predictive rules; the sampler does not depend on it

    def evidence(
        self, problem: TaskProblem, generator: torch.Generator, start: TaskState | None = None
    ) -> tuple[Tensor, None]:
        """``log p(y | omega)`` averaged over the chains, (T,); its gradient is what counts, see the module's notes."""
        gram, class_mean = _task_prior(problem)
        result = self._sample(problem, gram, class_mean, generator, self.n_sweeps_evidence)
        return mean_collapsed_log_evidence(gram, class_mean, result.prior.star(), result.last), None

    def posterior(
        self, problem: TaskProblem, generator: torch.Generator, start: TaskState | None = None
    ) -> tuple[OneVsEachPosterior, None]:
        gram, class_mean = _task_prior(problem)
        result = self._sample(problem, gram, class_mean, generator, self.n_sweeps_posterior)
        return OneVsEachPosterior(result, gram, class_mean), None

    @torch.no_grad()
    def _sample(
        self,
        problem: TaskProblem,
        gram: Tensor,  # that of its prior, (T, N, N)
        class_mean: Tensor,  # (T, C)
        generator: torch.Generator,
        n_sweeps: int,
    ) -> OneVsEachGibbsResult:
        _, y, n_classes, weight = problem
        if weight is not None:  # a row that does not count must not enter through rounding either
            kept = (weight > 0).to(gram.dtype)
            gram = gram * kept.unsqueeze(-1) * kept.unsqueeze(-2)
        start = None
        if self.start == "mean_field":
            first = TaskMeanField(self.likelihood, _MEAN_FIELD_STEPS)
            fitted, _ = first.posterior(problem, generator)
            start = fitted.mean.squeeze(0), fitted.variance.squeeze(0)
        return run_one_vs_each_gibbs(
            gram, class_mean, y, n_classes, self.n_chains, n_sweeps, weight, generator, start=start
        )


def _task_prior(problem: TaskProblem) -> tuple[Tensor, Tensor]:
    """Kernel matrices (T, N, N) and prior means (T, C)."""
    prior, (tasks, n) = problem.prior, problem.y.shape
    if prior.gram.shape[-3] != 1:
        raise ValueError(
            f"one-vs-each by Gibbs takes one kernel for all classes, got kernel matrices of shape "
            f"{tuple(prior.gram.shape)}: use a kernel shared by the classes, or mean field"
        )
    mean = prior.mean if prior.mean.dim() == 0 else prior.mean.squeeze(-1)
    return prior.gram.squeeze(-3).expand(tasks, n, n), mean.expand(tasks, problem.n_classes).to(prior.gram.dtype)
