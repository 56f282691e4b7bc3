"""Quadrature against dense reference integrals, tails, gradients, and the fixed point set."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, log_expit
from torch import Tensor

from sureshot.likelihoods import Softmax, quadrature
from sureshot.likelihoods.quadrature import (
    expected_log_sigmoid,
    gaussian_expectation,
    log_expected_sigmoid,
    log_gaussian_expectation,
    standard_normal_points,
)

MEANS = np.linspace(-30, 30, 121)
X = np.linspace(-10, 10, 20001)
W = np.exp(-0.5 * X**2) / np.exp(-0.5 * X**2).sum()


@pytest.mark.parametrize("variance", [0.0, 1e-3, 0.5, 1.999, 2.0, 4.0, 16.0, 64.0, 1024.0])
def test_errors_are_at_most_six_in_ten_million(variance: float) -> None:
    grid = MEANS[:, None] + math.sqrt(variance) * X
    m, v = torch.from_numpy(MEANS), torch.full((len(MEANS),), variance, dtype=torch.float64)
    assert np.abs(log_expected_sigmoid(m, v).exp().numpy() - expit(grid) @ W).max() < 6e-7
    assert np.abs(expected_log_sigmoid(m, v).numpy() - log_expit(grid) @ W).max() < 6e-7
    reference = np.log(expit(grid) @ W)
    errors = np.abs(log_expected_sigmoid(m, v).numpy() - reference)
    # The reference's own grid ends at ten deviations, too early for the lower tail at large variances.
    assert errors[-0.5 * variance - 5 < MEANS].max() < (2e-6 if variance < 100 else 1e-5)


def test_gauss_hermite_alone_is_off_by_a_hundredth_at_variance_64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why the second rule exists: the 20-point rule everywhere is wrong at large variances."""
    m, v = torch.from_numpy(MEANS), torch.full((len(MEANS),), 64.0, dtype=torch.float64)
    exact = expit(MEANS[:, None] + 8 * X) @ W
    monkeypatch.setattr(quadrature, "_LARGE_VARIANCE", math.inf)
    assert np.abs(log_expected_sigmoid(m, v).exp().numpy() - exact).max() > 1e-2


@given(st.floats(-1e4, 1e4), st.floats(0, 1e4))
def test_identities_and_bounds(mean: float, variance: float) -> None:
    m, v = torch.tensor(mean, dtype=torch.float64), torch.tensor(variance, dtype=torch.float64)
    p, q = log_expected_sigmoid(m, v).exp(), log_expected_sigmoid(-m, v).exp()
    assert float(p + q) == pytest.approx(1, abs=2e-6)
    log_p, expected_log = float(log_expected_sigmoid(m, v)), float(expected_log_sigmoid(m, v))
    assert math.isfinite(log_p)
    assert expected_log <= log_p + 1e-6 * (1 + abs(log_p))  # Jensen
    assert log_p <= min(0.0, mean + variance / 2) + 1e-6 * (1 + abs(log_p))  # sigma(f) <= min(1, e^f)


def test_log_stays_exact_where_the_expectation_underflows() -> None:
    m = torch.tensor([-1e4, -800.0, -800.0], dtype=torch.float64)
    v = torch.tensor([1.0, 1.0, 64.0], dtype=torch.float64)
    torch.testing.assert_close(log_expected_sigmoid(m, v), m + v / 2, atol=1e-9, rtol=1e-9)


def test_the_sum_of_error_functions_is_that_of_logarithms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Down to probabilities of 1e-300, and continuous where one takes over from the other."""
    m = torch.linspace(-900, 300, 2401, dtype=torch.float64)
    for variance in (2.0, 9.0, 100.0, 255.9):
        v = torch.full_like(m, variance)
        summed = log_expected_sigmoid(m, v)
        with monkeypatch.context() as patch:
            patch.setattr(quadrature, "_NARROW", 0.0)
            torch.testing.assert_close(summed, log_expected_sigmoid(m, v), rtol=1e-11, atol=1e-14)
    edge = torch.tensor([256.0, 256 * (1 + 1e-12)], dtype=torch.float64)
    below, above = log_expected_sigmoid(torch.full_like(edge, -128.0), edge)
    torch.testing.assert_close(below, above, rtol=1e-10, atol=0)
    single = log_expected_sigmoid(m.float(), torch.full_like(m, 250.0).float())
    assert bool(torch.isfinite(single).all())


@pytest.mark.parametrize("function", [expected_log_sigmoid, log_expected_sigmoid])
def test_gradients(function: object) -> None:
    assert callable(function)
    m = torch.tensor([-3.0, 0.0, 0.7, 5.0, -9.0], dtype=torch.float64, requires_grad=True)
    v = torch.tensor([0.3, 1.5, 3.0, 20.0, 4.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, (m, v))
    zero = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    grads = torch.autograd.grad(function(m, zero).sum(), (m, zero))
    assert all(bool(g.isfinite().all()) for g in grads)


def test_blocks_do_not_change_results(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(0)
    m = torch.randn(3, 50, generator=g, dtype=torch.float64)
    v = 5 * torch.rand(3, 50, generator=g, dtype=torch.float64)
    whole = [log_expected_sigmoid(m, v), expected_log_sigmoid(m, v), Softmax().integral(m, v)]
    monkeypatch.setattr(quadrature, "MAX_NUMBERS", 1000)
    parts = [log_expected_sigmoid(m, v), expected_log_sigmoid(m, v), Softmax().integral(m, v)]
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, atol=1e-14, rtol=0)


def test_each_number_has_the_rule_of_its_own_variance() -> None:
    m, v = torch.linspace(-4, 4, 40, dtype=torch.float64), torch.linspace(0, 9, 40, dtype=torch.float64)
    v = v[torch.randperm(40, generator=torch.Generator().manual_seed(0))]  # both rules side by side
    for function in (log_expected_sigmoid, expected_log_sigmoid):
        alone = torch.cat([function(*one) for one in zip(m.split(1), v.split(1), strict=True)])
        assert torch.equal(function(m.view(8, 5), v.view(8, 5)).flatten(), alone)


def test_point_set_is_fixed_and_standard_normal() -> None:
    points = standard_normal_points(4)
    assert points.shape == (256, 4)
    assert torch.equal(points, standard_normal_points(4))
    assert float(points.mean(0).abs().max()) < 5e-3
    torch.testing.assert_close(points.mT @ points / 256, torch.eye(4, dtype=torch.float64), atol=5e-2, rtol=0)
    assert standard_normal_points(3, 100, torch.float32).shape == (128, 3)


def test_point_set_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="plug_in"):
        standard_normal_points(30_000)
    with pytest.raises(ValueError, match="n_points"):
        standard_normal_points(3, 1)


def test_expectation_of_a_correlated_exponential() -> None:
    """``E[exp(a'f)] = exp(a'm + a'Va/2)``, batch dimensions and singular covariances included."""
    g = torch.Generator().manual_seed(1)
    mean = torch.randn(2, 3, 4, generator=g, dtype=torch.float64)
    root = 0.4 * torch.randn(2, 4, 3, 2, generator=g, dtype=torch.float64)  # rank 2 of 3
    covariance = root @ root.mT
    a = torch.tensor([0.5, -0.3, 0.8], dtype=torch.float64)

    def log_function(f: Tensor) -> Tensor:
        return torch.einsum("c,scm->sm", a, f).unsqueeze(-2)

    value = log_gaussian_expectation(log_function, mean, covariance, 4096)
    expected = (a @ mean).unsqueeze(-2) + 0.5 * ((covariance @ a) * a).sum(-1).unsqueeze(-2)
    assert value.shape == (2, 1, 4)
    torch.testing.assert_close(value, expected, atol=2e-3, rtol=0)
    plain = gaussian_expectation(lambda f: log_function(f).exp(), mean, covariance, 4096)
    torch.testing.assert_close(plain.log(), value)
    variances = covariance.diagonal(dim1=-2, dim2=-1).mT
    plain = gaussian_expectation(lambda f: log_function(f).exp(), mean, variances)
    torch.testing.assert_close(plain.log(), log_gaussian_expectation(log_function, mean, variances))


def test_wrong_covariance_shape_is_named() -> None:
    with pytest.raises(ValueError, match=r"covariance must be"):
        Softmax().integral(torch.zeros(3, 4), torch.zeros(4, 3, 2))
