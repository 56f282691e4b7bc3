"""`GPRegressor` with noise that is known, against dense matrices."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sureshot
from sureshot import GPRegressor
from sureshot.kernels import RBF

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=(120, 2))
Y = 30 + 5 * np.sin(2 * X[:, 0]) + X[:, 1] + 0.8 * RNG.normal(size=120)
QUERIES = RNG.uniform(-2, 2, size=(50, 2))
FIXED: dict[str, Any] = {"objective": None, "standardize": False}


def gram(x: np.ndarray, z: np.ndarray, scale: float = 1.3, lengthscale: float = 0.7) -> np.ndarray:
    found: np.ndarray = scale * np.exp(-0.5 * ((x[:, None] - z[None]) ** 2).sum(-1) / lengthscale**2)
    return found


@pytest.mark.parametrize("approximation", ["exact", "inducing", "fitc", "vfe", "svgp", "iterative"])
def test_the_posterior_is_that_of_the_stated_noise(approximation: str) -> None:
    """With an inducing input at every row, and every row among the nearest; iterative variances are near to 1e-6."""
    model = GPRegressor(1.3 * RBF(0.7), noise=0.8, approximation=approximation, **FIXED)
    mean, deviation = model.fit(X, Y).predict(QUERIES, return_std=True)
    noise = (0.8 / Y.std()) ** 2
    noisy, cross = gram(X, X) + noise * np.eye(120), gram(X, QUERIES)
    solved = np.linalg.solve(noisy, cross)
    expected = Y.std() * np.sqrt(1.3 - (cross * solved).sum(0) + noise)
    np.testing.assert_allclose(mean, Y.mean() + solved.T @ (Y - Y.mean()), rtol=1e-8)
    np.testing.assert_allclose(deviation, expected, rtol=1e-6 if approximation == "iterative" else 1e-8)


def left_out_density(scale: float, lengthscale: float) -> float:
    """Of rows given all others, in nats per deviation of y."""
    z, noise = (Y - Y.mean()) / Y.std(), (0.8 / Y.std()) ** 2
    inverse = np.linalg.inv(gram(X, X, scale, lengthscale) + noise * np.eye(120))
    variance = 1 / inverse.diagonal()
    return float(-0.5 * np.mean((inverse @ z) ** 2 * variance + np.log(2 * math.pi * variance)))


def test_the_output_scale_is_the_best_beside_it() -> None:
    model = GPRegressor("rbf", noise=0.8, standardize=False).fit(X, Y)
    (member,) = model.members_
    found = member.kernel.parameters
    lengthscale, scale = (
        next(value.item() for name, value in found.items() if name.endswith(end))
        for end in ("lengthscale", "outputscale")
    )
    density = left_out_density(scale, lengthscale)
    assert all(density > left_out_density(scale * factor, lengthscale) - 0.02 for factor in (0.3, 3.0))
    assert member.noise * Y.std() == pytest.approx(0.8)


@pytest.mark.parametrize("noise", [1e-3, 0.8, np.float32(20.0), 3])
@pytest.mark.parametrize("approximation", ["auto", "inducing"])
def test_it_stays(noise: float, approximation: str, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"approximation": approximation, "n_inducing": 30, "random_state": 0}
    model = GPRegressor(noise=noise, **arguments).fit(X, Y)
    model.save(tmp_path / "model")
    for one in (model, sureshot.load(tmp_path / "model"), model.partial_fit(QUERIES[:3], [30.0, 31.0, 200.0])):
        unit = float(one._fitted.target.unit[0])
        assert [member.noise * unit for member in one.members_] == pytest.approx([float(noise)] * len(one.members_))
        assert one.predict(QUERIES, return_std=True)[1].min() >= 0.999999 * noise
        assert math.isinf(one.noise_degrees_)
        assert one.target_transform_ == "none"


def test_the_right_number_is_as_good_as_what_is_learnt() -> None:
    x = np.random.default_rng(1).uniform(-2, 2, size=(500, 2))
    y = 30 + 5 * np.sin(2 * x[:, 0]) + x[:, 1] + 0.8 * np.random.default_rng(2).normal(size=500)
    right, learnt, wrong = (
        GPRegressor(noise=noise).fit(X, Y).log_density(x, y).mean() for noise in (0.8, "gaussian", 8.0)
    )
    assert right > learnt - 0.02
    assert wrong < right - 0.5


@pytest.mark.filterwarnings("ignore:one row does not say")
@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_few_rows(n_rows: int) -> None:
    mean, deviation = GPRegressor(noise=0.5).fit(X[:n_rows], Y[:n_rows]).predict(QUERIES, return_std=True)
    assert np.isfinite(mean).all()
    assert deviation.min() >= 0.5


def test_numbers_that_do_not_vary() -> None:
    with pytest.warns(UserWarning, match="y does not vary"):
        model = GPRegressor(noise=0.5).fit(X, np.full(120, 7.0))
    mean, deviation = model.predict(QUERIES, return_std=True)
    np.testing.assert_allclose(mean, 7.0)
    assert deviation.min() >= 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise": 0}, r"noise must be one of \('auto', .*\), or a positive number, .* units of y; got 0"),
        ({"noise": -1.0}, "noise must be one of .*got -1.0"),
        ({"noise": math.nan}, "noise must be one of .*got nan"),
        ({"noise": math.inf}, "noise must be one of .*got inf"),
        ({"noise": True}, "noise must be one of .*got True"),
        ({"noise": None}, "noise must be one of .*got None"),
        ({"noise": [0.1]}, r"noise must be one of .*got \[0.1\]"),
        ({"noise": "known"}, "noise must be one of"),
        (
            {"noise": 1.0, "approximation": "vfe", "objective": "auto"},
            "goes with time=None, .*'inducing', or any .*objective=None; got None, False, 'auto', 'vfe'",
        ),
        ({"noise": 1.0, "approximation": "iterative", "objective": "auto"}, "got None, False, 'auto', 'iterative'"),
        ({"noise": 1.0, "approximation": "nearest_neighbours"}, "got None, False, 'auto', 'nearest_neighbours'"),
        (
            {"noise": 1.0, "target_transform": "log"},
            "goes with .*'auto' or 'none'.*got None, False, 'log'",
        ),
        ({"noise": 1.0, "time": "arrival"}, "goes with time=None, .*got 'arrival'"),
    ],
)
def test_what_it_does_not_go_with(arguments: dict[str, Any], message: str) -> None:
    model = GPRegressor(1.3 * RBF(0.7), **FIXED).fit(X, Y)
    expected = model.predict(QUERIES)
    with pytest.raises(ValueError, match=message):
        model.set_params(**arguments).fit(X, Y)
    np.testing.assert_array_equal(model.predict(QUERIES), expected)


def test_several_targets_have_several_units() -> None:
    with pytest.raises(ValueError, match="noise must be a name where y has several numbers a row"):
        GPRegressor(noise=0.5).fit(X, np.stack([Y, Y], 1))
