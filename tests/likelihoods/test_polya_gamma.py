"""Polya-Gamma draws against the package `polyagamma` and against exact moments; functions against mpmath."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import polyagamma
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import ks_2samp
from torch import Tensor

from sureshot.likelihoods import polya_gamma as module
from sureshot.likelihoods.polya_gamma import (
    half_tanh_ratio,
    log_cosh_half,
    polya_gamma_variance,
    sample_polya_gamma,
)
from tests.oracles.polya_gamma import log_density

DRAWS = 200_000
LOCATIONS = [0.0, 0.1, -0.5, 1.0, -2.0, 3.0, 6.0, -15.0, 60.0, 150.0, -500.0]
C_SQUARED = [0.0, 1e-12, 1e-4, 0.2, 0.9999, 1.0001, 9.0, 100.0, 2500.0]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def oracle(z: np.ndarray, seed: int) -> np.ndarray:
    """`polyagamma` at h = 1. Its default chooses a method that breaks down from about |z| = 200 (mean 64 times
    too large); its alternating-series method does not."""
    large = float(np.abs(z).max()) > 100
    options = {"method": "alternate"} if large else {}
    return polyagamma.random_polyagamma(1, z, random_state=np.random.default_rng(seed), **options)


def check_moments(draws: Tensor, h: float, z: float, *, mean_within: float, variance_within: float) -> None:
    """Mean and variance within 4.5 standard errors, which must be small enough to see the stated relative error."""
    x = draws.to(torch.float64)
    location = torch.tensor(z, dtype=torch.float64)
    mean, variance = h * float(half_tanh_ratio(location.square())), h * float(polya_gamma_variance(location))
    centred = (x - mean).square()
    mean_tolerance = 4.5 * math.sqrt(variance / len(x))
    variance_tolerance = 4.5 * float(centred.std()) / math.sqrt(len(x))
    assert mean_tolerance < mean_within * mean
    assert variance_tolerance < variance_within * variance
    assert abs(float(x.mean()) - mean) < mean_tolerance
    assert abs(float(centred.mean()) - variance) < variance_tolerance


@pytest.mark.parametrize("z", LOCATIONS)
def test_unit_draws_have_the_right_distribution(z: float) -> None:
    seed = LOCATIONS.index(z)
    draws = sample_polya_gamma(1, torch.full((DRAWS,), z, dtype=torch.float64), generator(seed))
    assert bool((draws > 0).all())
    check_moments(draws, 1, z, mean_within=0.01, variance_within=0.03)
    assert ks_2samp(draws.numpy(), oracle(np.full(DRAWS, z), seed)).pvalue > 1e-3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_locations_of_every_size_in_one_call(dtype: torch.dtype) -> None:
    z = 3 * torch.randn(DRAWS, generator=generator(0), dtype=dtype)
    draws = sample_polya_gamma(1, z, generator(1))
    assert draws.dtype == dtype
    draws = draws.double()
    assert ks_2samp(draws.numpy(), oracle(z.double().numpy(), 2)).pvalue > 1e-3
    standard = (draws - half_tanh_ratio(z.double().square())) / polya_gamma_variance(z.double()).sqrt()
    for chosen in (z.abs() < 1, (z.abs() >= 1) & (z.abs() < 3), z.abs() >= 3):
        part = standard[chosen]
        assert abs(float(part.mean())) < 4.5 / math.sqrt(len(part))
        assert abs(float(part.var()) - 1) < 4.5 * float(part.square().std()) / math.sqrt(len(part))


@pytest.mark.parametrize("size", [1, 60])
def test_small_calls_with_several_tries_at_once(size: int) -> None:
    source = generator(3)
    z = torch.full((size,), 0.4, dtype=torch.float64)
    draws = torch.cat([sample_polya_gamma(1, z, source) for _ in range(500)])
    assert ks_2samp(draws.numpy(), oracle(np.full(DRAWS, 0.4), 4)).pvalue > 1e-3


def test_proposals_in_single_precision() -> None:
    """What a device without float64 runs."""
    k = torch.full((DRAWS,), 0.5)
    draws, rejected = module._propose(k, torch.empty(10, DRAWS + 1), generator(5))
    accepted = torch.ones(DRAWS, dtype=torch.bool)
    accepted[rejected] = False
    expected = 1 / (1 + math.exp(-1.0))
    assert abs(float(accepted.float().mean()) - expected) < 4.5 * math.sqrt(expected * (1 - expected) / DRAWS)
    assert ks_2samp(draws[accepted].double().numpy(), oracle(np.full(DRAWS, 1.0), 6)).pvalue > 1e-3


def test_acceptance_probability_is_jacobis_product() -> None:
    x = torch.cat([torch.logspace(-2, 1.3, 60, dtype=torch.float64), torch.tensor([2.4999, 2.5001])])
    with mpmath.workdps(40):
        exact = []
        for value in x.tolist():
            q = mpmath.exp(-4 / mpmath.mpf(value))
            factors = int(60 / -mpmath.log(q)) + 1  # those left out differ from 1 by less than e^-60
            exact.append(float(mpmath.fprod((1 - q**n) ** 3 for n in range(1, factors))))
    difference = module._acceptance_probability(1 / x) - torch.tensor(exact, dtype=torch.float64)
    assert float(difference.abs().max()) < 1e-15


@pytest.mark.parametrize(("h", "z"), [(2, 0.3), (3, -2.5), (7, 1.0)])
def test_whole_h_against_sums_and_against_devroye(h: int, z: float) -> None:
    count = DRAWS
    draws = sample_polya_gamma(h, torch.full((count,), z, dtype=torch.float64), generator(h))
    check_moments(draws, h, z, mean_within=0.01, variance_within=0.03)
    sums = oracle(np.full((count, h), z), h).sum(1)
    assert ks_2samp(draws.numpy(), sums).pvalue > 1e-3
    source = np.random.default_rng(h)
    devroye = polyagamma.random_polyagamma(h, z, size=count, method="devroye", random_state=source)
    assert ks_2samp(draws.numpy(), devroye).pvalue > 1e-3


def test_mixed_h_in_one_tensor() -> None:
    h = torch.tensor([0, 1, 2, 5, 12])
    z = torch.tensor([[0.0], [4.0]], dtype=torch.float32).expand(2, 5)
    draws = sample_polya_gamma(h, z.expand(40_000, 2, 5), generator(0))
    assert draws.shape == (40_000, 2, 5)
    assert draws.dtype == torch.float32
    assert bool((draws[..., 0] == 0).all())
    for row in range(2):
        for column in range(1, 5):
            check_moments(
                draws[:, row, column],
                float(h[column]),
                float(z[row, column]),
                mean_within=0.02,
                variance_within=0.08,
            )


@pytest.mark.parametrize("z", [0.0, 0.9, 1.1, 4.0, 7.0, 8.0, 15.0, 60.0, 500.0])
def test_the_shifted_gamma_is_near_the_sum(z: float) -> None:
    h = module._SUMMED_BELOW
    at = torch.tensor(z, dtype=torch.float64)
    mean, variance = h * half_tanh_ratio(at.square()), h * polya_gamma_variance(at)
    third = h * module._third_cumulant(at)
    x = mean + variance.sqrt() * torch.linspace(-9, 11, 4001, dtype=torch.float64)
    x = x[x > 0]
    shape, scale = float(4 * variance**3 / third**2), float(third / (2 * variance))
    gamma = stats.gamma(shape, float(mean - 2 * variance**2 / third), scale)
    exact = log_density(x, h, z).exp().numpy()
    distance = 0.5 * np.trapezoid(np.abs(exact - gamma.pdf(x.numpy())), x.numpy())
    assert distance < 0.02 / h
    normal = stats.norm(float(mean), float(variance.sqrt())).pdf(x.numpy())
    assert 0.5 * np.trapezoid(np.abs(exact - normal), x.numpy()) > 100 * distance


@pytest.mark.parametrize("z", [0.0, -2.5, 30.0])
def test_draws_of_large_h(z: float) -> None:
    h, count = 300, 50_000
    location = torch.full((count,), z, dtype=torch.float64)
    draws = sample_polya_gamma(h, location, generator(1))
    check_moments(draws, h, z, mean_within=0.005, variance_within=0.05)
    below, location = module._SUMMED_BELOW - 1, location[:10_000]
    sums = sample_polya_gamma(below, location, generator(2)) + sample_polya_gamma(h - below, location, generator(3))
    assert ks_2samp(draws.numpy(), sums.numpy()).pvalue > 1e-3


def test_small_and_large_h_in_one_tensor() -> None:
    h = torch.tensor([0, 3, 255, 256, 100_000])
    draws = sample_polya_gamma(h, torch.full((20_000, 5), 1.5), generator(0))
    for column in range(1, 5):
        check_moments(draws[:, column], float(h[column]), 1.5, mean_within=0.02, variance_within=0.08)
    alone = sample_polya_gamma(h[1:3], torch.full((20, 2), 1.5), generator(0))
    assert alone.shape == (20, 2)


def test_third_cumulant_is_a_derivative() -> None:
    squared = torch.tensor([*C_SQUARED, 0.5], dtype=torch.float64, requires_grad=True)
    first = torch.autograd.grad(half_tanh_ratio(squared).sum(), squared, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), squared)[0]
    torch.testing.assert_close(module._third_cumulant(squared.detach().sqrt()), 4 * second, rtol=1e-9, atol=0.0)


def test_whole_h_of_a_floating_dtype_and_h_zero() -> None:
    z = torch.randn(4, 3, generator=generator(0))
    whole = sample_polya_gamma(torch.full((3,), 2), z, generator(1))
    floating = sample_polya_gamma(torch.full((3,), 2.0), z, generator(1))
    assert torch.equal(whole, floating)
    assert torch.equal(sample_polya_gamma(0, z, generator(1)), torch.zeros(4, 3))
    assert sample_polya_gamma(torch.ones(5, 0), torch.zeros(0)).shape == (5, 0)


def test_the_generator_alone_decides() -> None:
    z = 2 * torch.randn(50_000, generator=generator(0), dtype=torch.float64, requires_grad=True)
    h = torch.randint(0, 4, (50_000,), generator=generator(1))
    before = torch.get_rng_state()
    first = sample_polya_gamma(h, z, generator(2))
    assert torch.equal(first, sample_polya_gamma(h, z, generator(2)))
    assert not torch.equal(first, sample_polya_gamma(h, z, generator(3)))
    assert torch.equal(torch.get_rng_state(), before)
    assert not first.requires_grad


@settings(max_examples=40)
@given(
    h=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    rows=st.integers(0, 5),
    scale=st.floats(0, 500),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]),
)
def test_any_shape_and_dtype(h: list[int], rows: int, scale: float, dtype: torch.dtype) -> None:
    z = torch.full((rows, 1), scale, dtype=dtype)
    draws = sample_polya_gamma(torch.tensor(h), z, generator(0))
    assert draws.shape == (rows, len(h))
    assert draws.dtype == dtype
    assert bool(torch.isfinite(draws).all())
    assert torch.equal(draws > 0, (torch.tensor(h) > 0).expand(rows, -1))


@pytest.mark.parametrize("h", [0.5, torch.tensor([1.0, 2.5]), -1, torch.tensor([1, -2]), math.nan, math.inf])
def test_h_that_cannot_be_drawn(h: Tensor | float) -> None:
    with pytest.raises(ValueError, match=r"h must be a whole number.*mean field"):
        sample_polya_gamma(h, torch.zeros(2))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_z_that_cannot_be_drawn(bad: float) -> None:
    with pytest.raises(ValueError, match="z must be finite, but 1 of its 3"):
        sample_polya_gamma(1, torch.tensor([0.0, bad, 1.0]))
    with pytest.raises(ValueError, match="z must be a floating-point tensor"):
        sample_polya_gamma(1, torch.tensor([0, 1]))


def exact_functions(c_squared: float) -> tuple[float, float, float]:
    """Mean, variance and log cosh at h = 1 with 60 digits."""
    with mpmath.workdps(60):
        if c_squared == 0:
            return 0.25, 1 / 24, 0.0
        c = mpmath.sqrt(mpmath.mpf(c_squared))
        ratio, log_cosh = mpmath.tanh(c / 2) / (2 * c), mpmath.log(mpmath.cosh(c / 2))
        variance = (2 * mpmath.tanh(c / 2) - c / mpmath.cosh(c / 2) ** 2) / (4 * c**3)
        return float(ratio), float(variance), float(log_cosh)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_functions_keep_their_digits(dtype: torch.dtype) -> None:
    tolerance = 64 * torch.finfo(dtype).eps
    c_squared = torch.tensor(C_SQUARED, dtype=torch.float64)
    exact = torch.tensor([exact_functions(value) for value in C_SQUARED], dtype=torch.float64).T
    c = c_squared.sqrt().to(dtype)
    computed = [
        half_tanh_ratio(c_squared.to(dtype)),
        polya_gamma_variance(-c),
        log_cosh_half(c_squared.to(dtype)),
    ]
    for ours, reference in zip(computed, exact, strict=True):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.double(), reference, rtol=tolerance, atol=0)


def test_functions_at_the_extremes() -> None:
    for dtype in (torch.float32, torch.float64):
        large = torch.tensor([1e4, 1e8], dtype=dtype)
        torch.testing.assert_close(log_cosh_half(large.square()), large / 2 - math.log(2))
        torch.testing.assert_close(half_tanh_ratio(large.square()), 1 / (2 * large))
        assert bool((polya_gamma_variance(large) > 0).all())


def test_derivatives_in_c_squared() -> None:
    x = torch.tensor(C_SQUARED, dtype=torch.float64, requires_grad=True)
    away = torch.tensor([0.01, 0.2, 0.9, 1.1, 9.0], dtype=torch.float64, requires_grad=True)
    for function in (half_tanh_ratio, log_cosh_half):
        # Finite differences with a step of 1e-6 leave about 10 digits; c^2 slightly below 0 is fine for the series.
        assert torch.autograd.gradcheck(function, x, atol=1e-8)
        assert torch.autograd.gradgradcheck(function, away, atol=1e-8)
    (slope,) = torch.autograd.grad(log_cosh_half(x).sum(), x)
    torch.testing.assert_close(slope, half_tanh_ratio(x) / 2, rtol=1e-12, atol=0)
    (slope,) = torch.autograd.grad(half_tanh_ratio(x).sum(), x, create_graph=True)
    torch.testing.assert_close(-2 * slope, polya_gamma_variance(x.sqrt()), rtol=1e-11, atol=0)
    (curvature,) = torch.autograd.grad(slope.sum(), x)
    assert float(slope.detach()[0]) == pytest.approx(-1 / 48, rel=1e-12)
    assert float(curvature[0]) == pytest.approx(1 / 240, rel=1e-12)
