"""Least squares: everything is exact, so everything is compared with dense Gaussian algebra."""

from __future__ import annotations

import pytest
import torch

from sureshot.gaussian.gram import GramPrior
from sureshot.likelihoods import GaussianLabels

D = torch.float64


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def test_bound_is_the_exact_log_evidence_and_its_gradient_in_the_noise_is_exact() -> None:
    x, y = normal(7, 2), torch.tensor([0, 1, 2, 0, 1, 2, 2])
    gram = torch.exp(-(torch.cdist(x, x) ** 2))
    targets = 2.0 * torch.nn.functional.one_hot(y, 3).mT.to(D) - 1
    noise = torch.tensor(0.2, dtype=D, requires_grad=True)
    a = torch.tensor([[0.1], [-0.4], [-0.2]], dtype=D)
    likelihood = GaussianLabels(noise)
    sites = likelihood.expected_sites(torch.zeros(3, 7, dtype=D), torch.zeros(3, 7, dtype=D), y, None)
    posterior = GramPrior(gram.unsqueeze(0), a).condition(sites)
    bound = likelihood.local_bound(posterior.mean, posterior.variance, y, None) - posterior.kl()
    marginal = torch.distributions.MultivariateNormal(a.expand(3, 7), gram + noise * torch.eye(7, dtype=D))
    exact = marginal.log_prob(targets).sum()
    torch.testing.assert_close(bound, exact)
    slopes = [torch.autograd.grad(value, noise, retain_graph=True)[0] for value in (bound, exact)]
    torch.testing.assert_close(slopes[0], slopes[1])


def test_class_log_likelihood_is_the_sum_of_normal_log_densities() -> None:
    f = normal(2, 3, 4)
    values = GaussianLabels(0.3).class_log_likelihood(f)
    for label in range(3):
        target = torch.full((3, 1), -1.0, dtype=D)
        target[label] = 1
        expected = torch.distributions.Normal(f, 0.3**0.5).log_prob(target).sum(-2)
        torch.testing.assert_close(values[..., label, :], expected)


def test_integral_is_the_density_of_the_targets_under_the_predictive_gaussian() -> None:
    mean, root = normal(3, 2), normal(2, 3, 3, seed=1)
    covariance = root @ root.mT
    predictive = torch.distributions.MultivariateNormal(mean.mT, covariance + 0.5 * torch.eye(3, dtype=D))
    targets = 2 * torch.eye(3, dtype=D) - 1
    expected = torch.softmax(predictive.log_prob(targets.unsqueeze(1)), dim=0)  # (C, Q)
    torch.testing.assert_close(GaussianLabels(0.5).integral(mean, covariance), expected)


def test_noise_must_be_positive() -> None:
    with pytest.raises(ValueError, match="noise must be a positive number"):
        GaussianLabels(0.0)


def test_a_class_far_below_the_others_changes_nothing_in_single_precision() -> None:
    f = torch.tensor([[0.3], [-0.2], [0.1]])
    padded = torch.cat([f, torch.full((1, 1), -1e4)])
    likelihood = GaussianLabels(0.1)
    torch.testing.assert_close(likelihood.plug_in(padded)[:3], likelihood.plug_in(f))
    torch.testing.assert_close(likelihood.plug_in(f), torch.softmax(likelihood.class_log_likelihood(f), 0))
