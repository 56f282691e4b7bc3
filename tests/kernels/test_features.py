"""When explicit features exist, and what they cost."""

import gpytorch.kernels as gk
import pytest
import torch

from sureshot.kernels import UnitSphereKernel, feature_map, make_kernel


@pytest.mark.parametrize(
    ("name", "rank"),
    [("cosine", 8), ("linear", 8), ("polynomial1", 8), ("polynomial2", 36)],
)
def test_presets_of_finite_rank(name: str, rank: int) -> None:
    explicit = feature_map(make_kernel(name, 7), 7)
    assert explicit is not None
    assert explicit.rank == rank
    assert explicit(torch.ones(3, 7, dtype=torch.float64)).shape == (3, rank)


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52", "unit_rbf", "unit_matern32"])
def test_presets_of_infinite_rank(name: str) -> None:
    assert feature_map(make_kernel(name, 7), 7) is None
    assert feature_map(make_kernel(name, 7)) is None


def test_too_many_features_are_none() -> None:
    assert feature_map(make_kernel("polynomial2", 88), 88).rank == 89 * 90 // 2
    assert feature_map(make_kernel("polynomial2", 90), 90) is None
    assert feature_map(make_kernel("polynomial2", 90)) is None, "the preset knows its width"
    assert feature_map(make_kernel("linear", 4096), 4096).rank == 4097
    assert feature_map(make_kernel("linear", 10), 10, max_rank=10) is None


def test_the_width_may_be_left_out_where_it_does_not_matter() -> None:
    explicit = feature_map(make_kernel("linear", 5))
    assert explicit.rank is None
    assert explicit(torch.ones(3, 5, dtype=torch.float64)).shape == (3, 6)
    assert feature_map(make_kernel("linear", 5, ard=True)).rank == 6
    assert feature_map(make_kernel("cosine", 5, center=torch.ones(5))).rank == 6
    assert feature_map(gk.PolynomialKernel(2)) is None
    assert feature_map(gk.PolynomialKernel(2), 5).rank == 21


def test_compositions() -> None:
    linear, cubic = gk.LinearKernel(active_dims=(0, 2)), gk.PolynomialKernel(3)
    assert feature_map(linear + gk.ConstantKernel(), 9).rank == 3
    assert feature_map(UnitSphereKernel(gk.LinearKernel()), 9).rank == 9
    assert feature_map(linear + gk.RBFKernel(), 9) is None
    assert feature_map(linear * gk.LinearKernel(), 9) is None
    assert feature_map(cubic, 2) is None


def test_features_follow_the_parameters() -> None:
    kernel = make_kernel("linear", 3)
    explicit, x = feature_map(kernel), torch.ones(2, 3, dtype=torch.float64)
    before = explicit(x).detach()
    kernel.outputscale = 4.0
    torch.testing.assert_close(explicit(x), 2 * before)
    explicit(x).sum().backward()
    assert kernel.raw_outputscale.grad is not None
