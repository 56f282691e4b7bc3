"""Logistic-softmax Gaussian processes by Gibbs sampling, for a batch of tasks.

All chains of all tasks are sampled at once, chains leading, without a gradient graph. Then the drawn sites are
constants, and everything is Gaussian given them:

* *evidence*: the mean over chains of the log evidence of the sites. Its gradient in the kernel and the prior mean is,
  by Fisher's identity, an estimate of the gradient of ``log p(y)``; its value is not one of ``log p(y)`` itself. One
  sweep from the prior is biased towards small output scales; about 20 sweeps from a mean-field start are not.
* *posterior*: one Gaussian for each chain. Probabilities are averaged over chains, not the Gaussians.

The likelihood is not invariant to a shift of all latents, so the paper learns a constant prior mean; its gradient
comes out as well. Far below zero (-5 or less) counts grow with ``exp(-mean / temperature)``, and the time with them
until Polya-Gamma variables of large counts are drawn at once.

References: Snell & Zemel 2021, appendix G (LS by Gibbs with a constant mean); Galy-Fajou et al. 2020 (the sampler).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from sureshot.gaussian.evidence import site_log_evidence
from sureshot.gaussian.gram import GramPosterior
from sureshot.gaussian.sites import Sites
from sureshot.inference.gibbs import run_gibbs
from sureshot.inference.mean_field import initial_posterior, mean_field_step
from sureshot.likelihoods.logistic_softmax import LogisticSoftmax
from sureshot.meta.learners.absent_classes import present_classes
from sureshot.meta.learners.gibbs_inference import GibbsInference
from sureshot.meta.learners.task_inference import TaskProblem, TaskState

_START_STEPS = 10  # of mean field; the chains forget where they started


@dataclass(frozen=True)
class LogisticSoftmaxGibbs(GibbsInference):
    """Gibbs sampling of the logistic-softmax model; one sweep for the evidence is biased (see the module's notes)."""

    temperature: float = 1.0  # of the likelihood
    likelihood: LogisticSoftmax = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "likelihood", LogisticSoftmax(self.temperature))

    def evidence(
        self, problem: TaskProblem, generator: torch.Generator, start: TaskState | None = None
    ) -> tuple[Tensor, None]:
        """A value whose gradient estimates that of ``log p(y)``, (T,); see `TaskInference.evidence`."""
        sites = self.sample_sites(problem, generator, self.n_sweeps_evidence)
        return site_log_evidence(problem.prior.gram, problem.prior.mean, *sites).sum(-1).mean(0), None

    def posterior(
        self, problem: TaskProblem, generator: torch.Generator, start: TaskState | None = None
    ) -> tuple[GramPosterior, None]:
        sites = self.sample_sites(problem, generator, self.n_sweeps_posterior)
        return problem.prior.condition(sites), None

    @torch.no_grad()
    def sample_sites(self, problem: TaskProblem, generator: torch.Generator, n_sweeps: int) -> Sites:
        """The sites of every chain after some sweeps, each (S, T, C, N); zero for absent classes."""
        prior, y, n_classes, weight = problem
        start = None
        if self.start == "mean_field":
            posterior = initial_posterior(prior, self.likelihood, y, n_classes)
            for _ in range(_START_STEPS):
                posterior, _ = mean_field_step(posterior, prior, self.likelihood, y, weight)
            start = (posterior.mean, posterior.variance)
        result = run_gibbs(
            prior, self.likelihood, y, self.n_chains, n_sweeps, weight, generator, n_classes=n_classes, start=start
        )
        absent = ~present_classes(prior.mean)
        return Sites(*(part.masked_fill(absent, 0) for part in result.sites))
