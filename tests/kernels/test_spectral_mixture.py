"""Spectral mixtures against dense numpy and GPyTorch's own class, and starts by periodograms."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch

from sureshot.kernels import RBF, Expression, Periodic, SpectralMixture, SpectralMixtureKernel, evaluate

RNG = np.random.default_rng(0)
WEIGHTS, MEANS, SCALES = (0.7, 0.2), [[0.3, 1.1], [0.9, 0.4]], [[0.2, 0.1], [0.05, 0.3]]


def dense(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The formula, pair by pair."""
    total = np.zeros((len(x), len(z)))
    for weight, mean, scale in zip(WEIGHTS, np.array(MEANS), np.array(SCALES), strict=True):
        t = x[:, None] - z[None]
        total += weight * np.prod(np.cos(2 * np.pi * mean * t) * np.exp(-2 * np.pi**2 * t**2 * scale**2), axis=-1)
    return total


def test_it_is_the_formula() -> None:
    x, z = RNG.normal(size=(7, 2)), RNG.normal(size=(5, 2))
    kernel = SpectralMixture(WEIGHTS, MEANS, SCALES)
    np.testing.assert_allclose(kernel(torch.tensor(x), torch.tensor(z)), dense(x, z), atol=1e-13)
    np.testing.assert_allclose(kernel(torch.tensor(x)), dense(x, x), atol=1e-13)


def test_one_column_is_gpytorchs_own() -> None:
    x = torch.tensor(RNG.normal(size=(8, 1)))
    twin = SpectralMixture([0.7, 0.2], [0.3, 0.9], [0.2, 0.1]).to_gpytorch()
    assert type(twin) is gpytorch.kernels.SpectralMixtureKernel
    with torch.no_grad():
        expected = twin(x).to_dense()
        torch.testing.assert_close(Expression.from_gpytorch(twin)(x), expected, rtol=0, atol=1e-12)


def test_of_several_columns_gpytorchs_is_kept_as_it_is_and_ours_is_the_formula() -> None:
    """Theirs is a product of mixtures of columns."""
    x = torch.tensor(RNG.normal(size=(6, 2)))
    ours = SpectralMixture(WEIGHTS, MEANS, SCALES)
    twin = ours.to_gpytorch()
    theirs = gpytorch.kernels.SpectralMixtureKernel(2, 2).double()
    theirs.load_state_dict(twin.state_dict())
    assert type(twin) is SpectralMixtureKernel
    with torch.no_grad():
        np.testing.assert_allclose(twin(x).to_dense(), dense(x.numpy(), x.numpy()), atol=1e-12)
        torch.testing.assert_close(evaluate(theirs, x), theirs(x).to_dense())
        assert (evaluate(theirs, x) - ours(x)).abs().max() > 0.1


@pytest.mark.parametrize("even", [True, False])
def test_the_periodogram_finds_frequencies_whatever_the_units(even: bool) -> None:
    x = np.linspace(1950, 1990, 300) if even else np.sort(RNG.uniform(1950, 1990, 300))
    y = 3 + 2 * np.sin(2 * np.pi * x / 1.7) + 0.5 * np.cos(2 * np.pi * x / 0.6) + 0.1 * RNG.normal(size=300)
    for unit in (1.0, 365.25):
        found = SpectralMixture.from_periodogram(unit * x[:, None], y, 2)
        np.testing.assert_allclose(found.mixture_means[:, 0] * unit, [1 / 1.7, 1 / 0.6], atol=0.2 / 40)
        np.testing.assert_allclose(found.mixture_weights, [2.0, 0.125], rtol=0.1)
        np.testing.assert_allclose(found.mixture_scales, 1 / (2 * np.pi * unit * np.ptp(x)))


def test_frequencies_are_looked_for_as_high_as_neighbouring_rows_can_tell() -> None:
    """Whatever gaps there are between the others."""
    x = np.delete(np.arange(0, 60, 0.25), np.s_[20:170])
    found = SpectralMixture.from_periodogram(x, np.sin(2 * np.pi * 1.9 * x), 1)
    np.testing.assert_allclose(found.mixture_means, 1.9, atol=0.2 / 60)


def test_numbers_that_do_not_vary_have_a_start() -> None:
    found = SpectralMixture.from_periodogram(np.arange(20.0), np.ones(20), 3)
    assert found.mixture_weights.shape == (3,)
    assert bool((found.mixture_weights > 0).all())


@pytest.mark.parametrize(
    ("x", "y", "n", "message"),
    [
        (np.zeros((9, 2)), np.zeros(9), 1, "takes one column x"),
        (np.arange(9.0), np.zeros(8), 1, "takes one column x"),
        (np.arange(9.0), np.full(9, np.nan), 1, "all finite"),
        (np.arange(9.0), np.zeros(9), 3, "n_mixtures must be from 1 to a quarter"),
        (np.ones(9), np.zeros(9), 1, "of different x"),
        (np.repeat(np.arange(5.0), 9), np.zeros(45), 2, "got 2 for 5 such rows"),
    ],
)
def test_what_has_no_periodogram_is_refused(x: np.ndarray, y: np.ndarray, n: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpectralMixture.from_periodogram(x, y, n)


@pytest.mark.parametrize(("means", "scales"), [([1.0], [1.0, 2.0]), ([[1.0, 2.0], [1.0, 2.0]], [1.0, 2.0])])
def test_shapes_have_to_agree(means: list[float], scales: list[float]) -> None:
    with pytest.raises(ValueError, match="weights \\(Q,\\)"):
        SpectralMixture([0.5, 0.5], means, scales)


def test_periods_are_known_wherever_they_are() -> None:
    assert (2 * (RBF() * Periodic()) + 1).has_periods
    assert not (RBF() + 1).has_periods
