"""When explicit features exist, and what they cost."""

import pytest

from sureshot.approximations.explicit import finite_rank
from sureshot.kernels import RBF, Columns, Constant, Linear, Polynomial, UnitSphere, preset_kernel


@pytest.mark.parametrize(
    ("name", "rank"),
    [("cosine", 8), ("linear", 8), ("polynomial1", 8), ("polynomial2", 36)],
)
def test_presets_of_finite_rank(name: str, rank: int) -> None:
    assert finite_rank(preset_kernel(name, 7), 7) == rank


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52", "laplacian", "unit_rbf", "unit_matern32"])
def test_presets_of_infinite_rank(name: str) -> None:
    assert finite_rank(preset_kernel(name, 7), 7) is None


def test_too_many_features_are_none() -> None:
    assert finite_rank(preset_kernel("polynomial2", 88), 88) == 89 * 90 // 2
    assert finite_rank(preset_kernel("polynomial2", 90), 90) is None
    assert finite_rank(preset_kernel("linear", 4096), 4096) == 4097
    assert finite_rank(preset_kernel("linear", 4097), 4097) is None


def test_compositions() -> None:
    linear = Columns((0, 2), Linear())
    assert finite_rank(linear + Constant(1.0), 9) == 3
    assert finite_rank(UnitSphere(Linear()), 9) == 9
    assert finite_rank(linear + RBF(), 9) is None
    assert finite_rank(linear * Linear(), 9) is None
    assert finite_rank(Polynomial(3), 2) is None
