"""Logistic likelihood against quadrature in one dimension."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit

from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.sites import Sites
from sureshot.likelihoods import Logistic

D = torch.float64


def test_integral_matches_dense_quadrature() -> None:
    mean = torch.tensor([[-3.0, 0.0, 0.5, 4.0]], dtype=D)
    variance = torch.tensor([[0.5, 2.0, 9.0, 100.0]], dtype=D)
    x = np.linspace(-9, 9, 20001)
    w = np.exp(-0.5 * x**2) / np.exp(-0.5 * x**2).sum()
    exact = expit(mean.numpy()[0][:, None] + np.sqrt(variance.numpy()[0])[:, None] * x) @ w
    p = Logistic().integral(mean, variance)
    np.testing.assert_allclose(p[1].numpy(), exact, atol=6e-7)
    np.testing.assert_allclose(p[0].numpy(), 1 - exact, atol=6e-7)


def test_expected_log_is_the_sigmoid_of_the_mean() -> None:
    mean = torch.linspace(-4, 4, 9, dtype=D).unsqueeze(0)
    p = Logistic().expected_log(mean, torch.full_like(mean, 7.0))
    torch.testing.assert_close(p[1], mean[0].sigmoid(), atol=1e-10, rtol=0)


def test_bound_against_the_exact_evidence_of_one_datum() -> None:
    """One datum: log evidence is log(1/2) by symmetry at any scale, and the bound falls away from it."""
    bounds = []
    for scale in (0.1, 1.0, 16.0, 256.0):
        prior = GramPrior(torch.full((1, 1, 1), scale, dtype=D), torch.tensor(0.0, dtype=D))
        y, zeros = torch.tensor([1]), torch.zeros(1, 1, dtype=D)
        posterior = prior.condition(Sites(zeros, zeros))
        for _ in range(300):
            sites = Logistic().expected_sites(posterior.mean, posterior.variance, y, None)
            posterior = prior.condition(sites)
        bounds.append(float(Logistic().local_bound(posterior.mean, posterior.variance, y, None) - posterior.kl()))
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] == pytest.approx(np.log(0.5), abs=2e-4)
    assert bounds[-1] < np.log(0.5) - 0.5


def test_more_than_two_classes_are_refused_with_advice() -> None:
    assert Logistic().n_latents(2) == 1
    with pytest.raises(ValueError, match="one_vs_each"):
        Logistic().n_latents(3)


def test_one_latent_is_all_it_has() -> None:
    two = torch.zeros(2, 1)
    for call in (
        lambda: Logistic().class_log_likelihood(two),
        lambda: Logistic().integral(two, two + 1),
        lambda: Logistic().expected_log(two, two + 1),
    ):
        with pytest.raises(ValueError, match="one latent function"):
            call()


def test_another_rule_is_named() -> None:
    with pytest.raises(ValueError, match="rule must be one of integral, expected_log, plug_in, got 'plugin'"):
        Logistic().predict(torch.zeros(1, 1), torch.ones(1, 1), "plugin")  # type: ignore[arg-type]
