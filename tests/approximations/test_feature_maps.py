"""Features of frequencies: transforms against dense matrices, kernels at the rate of Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.linalg import hadamard as dense_hadamard

from sureshot.approximations.by_name import BY_NAME, FEATURE_MAPS, Parts
from sureshot.approximations.fastfood import Fastfood, hadamard
from sureshot.approximations.random_features import FeatureMap, RandomFeatures, spectrum
from sureshot.kernels import RBF, Expression, Laplacian, Linear, Matern, preset_kernel

X = torch.from_numpy(np.random.default_rng(0).normal(size=(12, 5)))
SCALES = [1.3, 0.8, 2.0, 1.1, 3.0]
KERNELS: dict[str, Expression] = {
    "rbf": 1.7 * (RBF(SCALES) + 0.3),
    "matern12": Matern(0.5, SCALES) + 0.1,
    "matern32": 0.4 * Matern(1.5, SCALES),
    "matern52": Matern(2.5, 1.4),
}


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("size", [1, 2, 8, 32])
def test_the_transform_is_hadamards_matrix(size: int) -> None:
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 4, size)))
    np.testing.assert_allclose(hadamard(x), x.numpy() @ dense_hadamard(size).T, atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("kind", [RandomFeatures, Fastfood])
def test_kernels_are_met_at_the_rate_of_monte_carlo(kind: type[FeatureMap], name: str) -> None:
    """Of many independent draws: the mean within standard errors, the error four times smaller of 16 times the pairs.

    Fastfood's blocks of few columns are not independent within, so its rate is that of blocks.
    """
    kernel = KERNELS[name]
    exact, errors = kernel(X), []
    for count in (32, 512):
        draws = [kind.drawn(kernel, 5, 2 * count, generator(seed)).features(X) for seed in range(60)]
        found = torch.stack([phi @ phi.mT for phi in draws]) - exact
        mean, error = found.mean(0), found.std(0) / len(draws) ** 0.5
        off = ~torch.eye(len(X), dtype=torch.bool)
        standardised = (mean / error)[off]
        assert standardised.square().mean().sqrt() < 1.6
        assert standardised.abs().max() < 5
        torch.testing.assert_close(found.diagonal(dim1=1, dim2=2), torch.zeros(60, 12, dtype=torch.float64))
        errors.append(found[:, off].square().mean().sqrt())
    assert 3.2 < errors[0] / errors[1] < 5


def test_rows_of_fastfood_are_as_long_as_normal_ones() -> None:
    """A chi distribution of d degrees, by Kolmogorov and Smirnov, and blocks of independent signs and orders."""
    food = Fastfood.drawn(RBF(1.0), 13, 2 * 400, generator(2))
    rows = food.angles(torch.eye(16, 13, dtype=torch.float64)[:13]).mT  # (F, 13) of d = 16 columns
    assert rows.shape == (400, 13)
    whole = Fastfood.drawn(RBF(1.0), 16, 2 * 400, generator(2)).angles(torch.eye(16, dtype=torch.float64)).mT
    assert stats.kstest(whole.norm(dim=1), stats.chi(16).cdf).pvalue > 0.01
    np.testing.assert_allclose(whole.norm(dim=1), food.lengths * food.gains.norm(dim=1).repeat_interleave(16)[:400])
    assert bool((food.signs.abs() == 1).all())
    assert torch.equal(food.order.sort(-1).values, torch.arange(16).expand(25, 16))
    assert len(food.order.unique(dim=0)) > 20


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_a_draw_is_its_seed_and_its_parts(name: str) -> None:
    kind, kernel = BY_NAME[name], KERNELS["matern32"]
    assert issubclass(kind, FeatureMap)
    first, again, other = (kind.drawn(kernel, 5, 33, generator(seed)) for seed in (3, 3, 4))
    assert first.features(X).shape == (12, 32)
    assert torch.equal(first.features(X), again.features(X))
    assert not torch.equal(first.features(X), other.features(X))
    kept = Parts.of(name, first).under(kernel)
    assert type(kept) is kind
    assert torch.equal(kept.features(X), first.features(X))
    assert kind.drawn(Matern(1.5, 2.0), 1, 1, generator(0)).features(X[:, :1]).shape == (12, 2)


@pytest.mark.parametrize("kernel", [Linear(1.0), RBF(1.0) + Linear(1.0), Laplacian(1.0), RBF(1.0) * RBF(2.0)])
def test_other_kernels_are_refused(kernel: Expression) -> None:
    with pytest.raises(ValueError, match=r"need a stationary kernel: 'rbf', 'matern12', 'matern32' or 'matern52'.*got"):
        RandomFeatures.drawn(kernel, 5, 10, generator(0))


def test_a_spectrum_is_leaf_gain_and_constant() -> None:
    leaf, gain, constant = spectrum(preset_kernel("matern32", 4, outputscale=3.0, constant_weight=0.5))
    assert isinstance(leaf, Matern)
    assert (float(gain), float(constant)) == (3.0, 1.5)
