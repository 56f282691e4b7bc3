"""Geweke's joint-distribution test: a right sampler of latents, fed with its own data, keeps the prior.

Alternating ``y ~ p(y | f)`` with one Gibbs sweep leaves the joint distribution of labels and latents
unchanged, so the latents keep their prior marginal and the labels their prior predictive. Many short chains
that start from the exact joint must still have it at the end, which needs no convergence argument at all.
Labels can only be simulated from a likelihood that sums to one: one-vs-each does not, see
test_gibbs_moments.

Reference: Geweke 2004, Getting it right: joint distribution tests of posterior simulators.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sureshot.inference.gibbs import GibbsState, gibbs_step, sampler_of
from sureshot.inference.latent_gaussian import FeaturePrior, GramPrior, LatentPrior, Sites
from sureshot.likelihoods.base import ConjugateLikelihood
from sureshot.likelihoods.logistic import Logistic
from sureshot.likelihoods.logistic_softmax import LogisticSoftmax

F64 = torch.float64
N_CHAINS = 20_000
N_ROUNDS = 8
LIMIT = 4.2


def prior_of(kind: str, n_latents: int) -> LatentPrior:
    x = torch.tensor([0.0, 0.7, 2.0], dtype=F64).unsqueeze(-1)
    gram = 5.0 * torch.exp(-0.5 * torch.cdist(x, x) ** 2)
    mean = torch.tensor([1.2, -0.8, 0.3], dtype=F64)[:n_latents].unsqueeze(-1)
    if kind == "gram":
        return GramPrior(gram.unsqueeze(0), mean)
    return FeaturePrior(torch.linalg.cholesky(gram).unsqueeze(0), mean)


def simulate_labels(likelihood: ConjugateLikelihood, f: Tensor, generator: torch.Generator) -> Tensor:
    logs = likelihood.class_log_likelihood(f)
    gumbel = -torch.empty_like(logs).exponential_(generator=generator).log()
    return (logs + gumbel).argmax(-2)


def after_rounds(
    likelihood: ConjugateLikelihood,
    prior: LatentPrior,
    n_latents: int,
    sweep: Callable[[Tensor, Tensor, torch.Generator], Tensor],
) -> Tensor:
    """Latents (chains, C, N) after rounds of new labels and one sweep, from an exact start."""
    generator = torch.Generator().manual_seed(0)
    f = sampler_of(prior).sample(torch.Size((N_CHAINS, n_latents)), generator)
    for _ in range(N_ROUNDS):
        y = simulate_labels(likelihood, f, generator)
        f = sweep(f, y, generator)
    return f


def prior_scores(f: Tensor, prior: LatentPrior) -> Tensor:
    """Standard scores of the means and of the second moments of whitened latents, whose prior is N(0, I)."""
    gram = prior.gram if isinstance(prior, GramPrior) else prior.features @ prior.features.mT
    white = torch.linalg.solve_triangular(
        torch.linalg.cholesky(gram[0]), (f - prior.mean).mT, upper=False
    )  # (chains, N, C)
    flat = white.flatten(1)
    means = flat.mean(0) * N_CHAINS**0.5
    product = flat.unsqueeze(-1) * flat.unsqueeze(-2) - torch.eye(flat.shape[-1], dtype=F64)
    seconds = product.mean(0) / product.std(0) * N_CHAINS**0.5
    return torch.cat([means, seconds.flatten()])


LIKELIHOODS: dict[str, tuple[ConjugateLikelihood, int]] = {
    "logistic": (Logistic(), 1),
    "logistic-softmax": (LogisticSoftmax(), 3),
    "logistic-softmax, temperature 0.5": (LogisticSoftmax(0.5), 3),
    "logistic-softmax, Poisson-gamma": (LogisticSoftmax(augmentation="poisson_gamma"), 3),
}


@pytest.mark.parametrize("kind", ["gram", "features"])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_joint_distribution_is_kept(name: str, kind: str) -> None:
    likelihood, n_latents = LIKELIHOODS[name]
    prior = prior_of(kind, n_latents)
    sampler = sampler_of(prior)

    def sweep(f: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        state = GibbsState(likelihood.sample_sites(f, y, None, generator))
        return gibbs_step(state, prior, likelihood, y, None, generator, sampler)[1].latents

    f = after_rounds(likelihood, prior, n_latents, sweep)
    assert float(prior_scores(f, prior).abs().max()) < LIMIT


@pytest.mark.parametrize("fault", ["no prior mean", "half the shift", "expected sites"])
def test_wrong_sweeps_leave_the_prior(fault: str) -> None:
    """The test rejects a sweep without prior mean, with a wrong shift, or with omega at its expectation."""
    likelihood = Logistic()
    prior = prior_of("gram", 1)
    assert isinstance(prior, GramPrior)
    mean = torch.tensor(0.0, dtype=F64) if fault == "no prior mean" else prior.mean
    used = GramPrior(prior.gram, mean)

    def sweep(f: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        sites = likelihood.sample_sites(f, y, None, generator)
        if fault == "half the shift":
            sites = Sites(sites.precision, 0.5 * sites.shift)
        if fault == "expected sites":
            sites = likelihood.expected_sites(f, torch.zeros_like(f), y, None)
        return gibbs_step(GibbsState(sites), used, likelihood, y, None, generator)[1].latents

    f = after_rounds(likelihood, prior, 1, sweep)
    assert float(prior_scores(f, prior).abs().max()) > 8
