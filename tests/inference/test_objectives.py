"""Objectives against dense integrals, quadrature and the gradient formulas."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.gram import GramPrior, matheron_sample
from sureshot.inference.mean_field import fit_mean_field
from sureshot.inference.objectives import evidence_bound
from sureshot.likelihoods.gaussian import GaussianLabels
from sureshot.likelihoods.logistic import Logistic
from sureshot.likelihoods.one_vs_each import OneVsEach

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
ZERO = torch.tensor(0.0, dtype=torch.float64)


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rbf(n, scale, seed=0):
    x = normal(n, 2, seed=seed)
    return scale * torch.exp(-0.5 * torch.cdist(x, x) ** 2)


def binary_log_evidence(gram, y, nodes=40):
    """Log evidence of a binary logistic model by a Gauss-Hermite grid over its latents."""
    n = y.numel()
    points, weights = (torch.tensor(part) for part in np.polynomial.hermite_e.hermegauss(nodes))
    indices = torch.cartesian_prod(*[torch.arange(nodes)] * n).reshape(-1, n)
    f = points[indices] @ torch.linalg.cholesky(gram).T
    mass = (weights / weights.sum())[indices].prod(-1)
    return (mass * logsigmoid((2 * y - 1) * f).sum(-1).exp()).sum().log()


def posterior_sites(prior, y, chains, sweeps, seed):
    """Independent Gibbs chains of the binary logistic model; the last draw of each, (chains, 1, N)."""
    generator = torch.Generator().manual_seed(seed)
    f = prior.sample(torch.Size([chains, 1]), generator)
    for sweep in range(sweeps):
        sites = Logistic().sample_sites(f, y, None, generator)
        if sweep < sweeps - 1:
            start = prior.sample(torch.Size([chains, 1]), generator)
            f = matheron_sample(prior, sites, start, generator)
    return sites


# Fisher's identity


def test_fisher_identity_gives_the_gradient_of_the_evidence():
    """Independent posterior draws: within four standard errors of the brute-force derivative."""
    gram, y, chains = rbf(3, 9.0, seed=5), torch.tensor([1, 1, 0]), 1500
    h = 1e-3
    sides = [binary_log_evidence(gram * math.exp(step), y) for step in (h, -h)]
    exact = (sides[0] - sides[1]) / (2 * h)
    sites = posterior_sites(GramPrior(gram.unsqueeze(0), ZERO), y, chains, 40, seed=6)
    log_scale = torch.zeros(chains, dtype=torch.float64, requires_grad=True)  # one scale for each chain
    prior = GramPrior(gram * log_scale.exp()[:, None, None, None], ZERO)
    (per_chain,) = torch.autograd.grad(prior.condition(sites).log_evidence().mean(0) * chains, log_scale)
    error = per_chain.std() / math.sqrt(chains)
    assert float(error) < 0.03
    assert abs(float(per_chain.mean() - exact)) < 4 * float(error)


def test_one_gibbs_step_from_a_prior_draw_is_far_too_small():
    """The published one-vs-each training draws omega given a *prior* f; draws from the posterior are right.

    The kernel is linear with rank two, so that the derivative of the evidence is a two-dimensional integral.
    """
    x = torch.linspace(-1, 1, 40, dtype=torch.float64)
    y = (x > 0.07).long()
    features = 4 * torch.stack([torch.ones_like(x), x], -1)
    grid = torch.cartesian_prod(*[torch.linspace(-8, 8, 401, dtype=torch.float64)] * 2)

    def log_evidence(log_scale):
        scores = math.exp(log_scale / 2) * (2 * y - 1) * (grid @ features.T)
        return torch.logsumexp(logsigmoid(scores).sum(-1) - 0.5 * grid.square().sum(-1), 0)

    exact = float(log_evidence(0.01) - log_evidence(-0.01)) / 0.02
    gradients = {}
    for sweeps in (1, 30):
        sites = weight_space_sites(FeaturePrior(features.unsqueeze(0), ZERO), y, 400, sweeps)
        log_scale = torch.zeros((), dtype=torch.float64, requires_grad=True)
        scaled = FeaturePrior(features.unsqueeze(0) * (log_scale / 2).exp(), ZERO)
        gradients[sweeps] = float(torch.autograd.grad(scaled.condition(sites).log_evidence().mean(0), log_scale)[0])
    assert gradients[1] < 0.5 * exact
    assert gradients[30] == pytest.approx(exact, rel=0.1)


def weight_space_sites(prior, y, chains, sweeps):
    """Gibbs for features of low rank: draws of the weights are cheap and need no jitter."""
    generator = torch.Generator().manual_seed(7)
    f = prior.sample(torch.Size([chains, 1]), generator)
    for sweep in range(sweeps):
        sites = Logistic().sample_sites(f, y, None, generator)
        if sweep < sweeps - 1:
            posterior = prior.condition(sites)
            noise = torch.randn(posterior.weights.shape, generator=generator, dtype=torch.float64)
            spread = torch.linalg.solve_triangular(posterior.factor.mT, noise.unsqueeze(-1), upper=True)
            f = (prior.features @ (posterior.weights.unsqueeze(-1) + spread)).squeeze(-1)
    return sites


# Shapes and gradients


@pytest.mark.parametrize("likelihood", [OneVsEach(), GaussianLabels()])
def test_the_bound_is_batched_and_differentiable(likelihood):
    x = normal(2, 5, 2, seed=14)
    log_scale = torch.zeros((), dtype=torch.float64, requires_grad=True)
    gram = log_scale.exp() * torch.exp(-0.5 * torch.cdist(x, x) ** 2).unsqueeze(-3)
    y = torch.tensor([[0, 1, 2, 0, 1], [2, 2, 1, 0, 0]])
    fit = fit_mean_field(GramPrior(gram, ZERO), likelihood, y)
    value = evidence_bound(fit.posterior, likelihood, y)
    assert value.shape == (2,)
    (gradient,) = torch.autograd.grad(value.sum(), log_scale)
    assert bool(torch.isfinite(gradient))
    assert float(gradient) != 0
