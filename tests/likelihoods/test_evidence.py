"""The converged bound of every mean-field likelihood: monotone, and below the evidence by brute force."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.sites import Sites
from sureshot.likelihoods import GaussianLabels, Logistic, LogisticSoftmax, MeanFieldLikelihood, OneVsEach


class Case(NamedTuple):
    label: str
    likelihood: MeanFieldLikelihood
    n_classes: int

    @property
    def n_latents(self) -> int:
        return self.likelihood.n_latents(self.n_classes)


CASES = [
    Case("logistic", Logistic(), 2),
    Case("one_vs_each", OneVsEach(), 3),
    Case("logistic_softmax", LogisticSoftmax(), 2),
    Case("logistic_softmax_tau", LogisticSoftmax(0.5), 3),
    Case("logistic_softmax_poisson", LogisticSoftmax(0.5, "poisson_gamma"), 3),
    Case("least_squares", GaussianLabels(1.0), 3),
]


def fixed_point(case: Case, gram: Tensor, prior_mean: Tensor, y: Tensor) -> Tensor:
    """The converged evidence bound, and a check that it never fell."""
    likelihood, prior = case.likelihood, GramPrior(gram.unsqueeze(-3), prior_mean)
    zeros = torch.zeros(case.n_latents, y.shape[-1], dtype=gram.dtype)
    posterior = prior.condition(Sites(zeros, zeros))
    bounds = []
    for _ in range(60):
        posterior = prior.condition(likelihood.expected_sites(posterior.mean, posterior.variance, y, None))
        bounds.append(likelihood.local_bound(posterior.mean, posterior.variance, y, None) - posterior.kl())
    trace = torch.stack(bounds)
    assert bool((trace.diff() >= -1e-10).all())
    return trace[-1]


def brute_force_log_evidence(case: Case, gram: Tensor, prior_mean: Tensor, y: Tensor) -> tuple[float, float]:
    """Log of the mean likelihood over 60,000 prior draws, and its standard error; exact for the Gaussian."""
    if isinstance(case.likelihood, GaussianLabels):
        noise_covariance = case.likelihood.noise * torch.eye(y.shape[-1], dtype=gram.dtype)
        prior = torch.distributions.MultivariateNormal(prior_mean.expand(y.shape), gram + noise_covariance)
        targets = 2.0 * torch.nn.functional.one_hot(y, case.n_classes).mT - 1
        return float(prior.log_prob(targets.to(gram.dtype)).sum()), 1e-10
    noise = torch.randn(
        60_000, case.n_latents, y.shape[-1], generator=torch.Generator().manual_seed(9), dtype=torch.float64
    )
    f = prior_mean + noise @ torch.linalg.cholesky(gram).mT
    logs = case.likelihood.log_likelihood(f, y).sum(-1)
    value = logs.logsumexp(0) - math.log(len(logs))
    error = (logs - value).exp().std() / math.sqrt(len(logs))
    return float(value), float(error)


@pytest.mark.parametrize("case", CASES, ids=[case.label for case in CASES])
@pytest.mark.parametrize(("prior_mean", "scale"), [(0.0, 0.5), (0.0, 4.0), (-3.0, 2.0)])
def test_bound_is_below_the_brute_force_evidence(case: Case, prior_mean: float, scale: float) -> None:
    gram = scale * torch.tensor([[1.0, 0.6], [0.6, 1.0]], dtype=torch.float64)
    mean = torch.tensor(prior_mean, dtype=torch.float64)
    for y in (torch.tensor([0, 1]), torch.tensor([1, 1])):
        bound = float(fixed_point(case, gram, mean, y))
        exact, error = brute_force_log_evidence(case, gram, mean, y)
        assert error < 0.05
        assert bound < exact + 5 * error
        # A bound that is far too low would hide mistakes; the Gaussian's is exact.
        if case.likelihood.name == "least_squares":
            assert abs(bound - exact) < 1e-8
        elif scale < 1:
            assert bound > exact - (1.0 if "poisson" in case.label else 0.5)
