"""All numbers of a given kernel: by dense evidence and left-out rows, in any units, and through files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm
from sklearn.base import clone

import sureshot
from sureshot import GPRegressor
from sureshot.estimators.gp.tuning.given_kernel import density_of, learnt_kernel
from sureshot.estimators.numbers.support import NumberSupport
from sureshot.kernels import RBF, Expression, Periodic, SpectralMixture

RNG = np.random.default_rng(0)
PLAIN: dict[str, Any] = {"noise": "gaussian", "target_transform": "none", "learn_kernel": True, "random_state": 0}


def support(x: np.ndarray, numbers: np.ndarray, weight: np.ndarray | None = None) -> NumberSupport:
    """Of one target."""
    of_rows = torch.ones(len(x), dtype=torch.float64) if weight is None else torch.from_numpy(weight)
    ones, label = torch.ones(len(x), dtype=torch.float64), torch.zeros(len(x), dtype=torch.int64)
    return NumberSupport(torch.from_numpy(x), label, of_rows, 1, ones, ones, torch.from_numpy(numbers)[None])


def drifting_season(n: int, noise: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Of period 1, whose size and phase change over some ten periods."""
    rng, x = np.random.default_rng(seed), np.linspace(0, 12, n)
    size, phase = 1 + 0.5 * np.sin(2 * np.pi * x / 30), 0.06 * x
    return x, size * np.sin(2 * np.pi * (x + phase)) + noise * rng.normal(size=n)


def test_what_is_climbed_is_the_dense_evidence_and_the_density_of_left_out_rows() -> None:
    x, y, weight = RNG.normal(size=(9, 1)), RNG.normal(size=9), RNG.uniform(0.5, 2, size=9)
    kernel, noise, rows = RBF(0.7), 0.3, support(x, y, weight)
    gram, variances = kernel(rows.x), noise / weight
    arguments = (rows, gram, torch.tensor(noise, dtype=torch.float64))
    centre = float((weight * y).sum() / weight.sum())
    # A row of weight w is w rows, whose mean has variance noise / w, and whose scatter is none.
    normaliser = 0.5 * (np.log(2 * np.pi * variances) - weight * np.log(2 * np.pi * noise)).sum()
    total = multivariate_normal(np.full(9, centre), gram.numpy() + np.diag(variances)).logpdf(y) + normaliser
    np.testing.assert_allclose(float(density_of(*arguments, True)), total / weight.sum(), rtol=1e-10)
    logs = []
    for k in range(9):
        others = np.delete(np.arange(9), k)
        among = gram.numpy()[np.ix_(others, others)] + np.diag(variances[others])
        solved = np.linalg.solve(among, gram.numpy()[others, k])
        found = norm(centre + solved @ (y[others] - centre), np.sqrt(1 - solved @ gram.numpy()[others, k] + noise))
        logs.append(found.logpdf(y[k]))
    np.testing.assert_allclose(float(density_of(*arguments, False)), np.mean(logs), rtol=1e-10)


@pytest.mark.parametrize("by_evidence", [True, False])
def test_no_number_of_the_kernel_gains_by_a_step(by_evidence: bool) -> None:
    x, y = drifting_season(60, 0.2)
    rows = support(x[:, None], y)

    def height(kernel: Expression) -> float:
        """At the best noise."""
        noises = torch.logspace(-3, -0.5, 120, dtype=torch.float64)
        return max(float(density_of(rows, kernel(rows.x), noise, by_evidence)) for noise in noises)

    given = Periodic(1.0, 0.97) * RBF(5.0)
    found = learnt_kernel(given, rows, by_evidence)
    reached = height(found)
    assert reached > height(float(found.parameters["outputscale"]) * given)
    for name, value in found.parameters.items():
        for factor in (0.95, 1.05):
            assert height(found.replace(**{name: factor * value})) < reached + 1e-4, name
    if by_evidence:  # the phase gains .06 in each period of 1
        assert abs(float(found.parameters["base_kernel.kernels.0.period_length"]) - 1 / 1.06) < 0.01


@pytest.mark.parametrize("objective", ["evidence", "auto"])
def test_a_season_that_drifts_is_learnt_in_any_units(objective: str) -> None:
    """Left-out rows lie between others, and say nothing of rows ahead."""
    x, y = drifting_season(84)
    asked = np.arange(84) >= 60 if objective == "evidence" else np.arange(84) % 5 == 2
    found = []
    for unit in (1.0, 365.25):
        kernel = Periodic(1.0, 0.97 * unit) * RBF(5.0 * unit)
        model = GPRegressor(kernel, objective=objective, **PLAIN).fit(unit * x[~asked, None], y[~asked])
        found.append(model.predict(unit * x[asked, None]))
        assert np.sqrt(np.mean((found[-1] - y[asked]) ** 2)) < 0.5
    np.testing.assert_allclose(found[1], found[0], atol=0.02)


def test_periodogram_starts_end_where_drawn_ones_do_not() -> None:
    rng, x = np.random.default_rng(1), np.sort(np.random.default_rng(0).uniform(0, 60, 80))
    y = np.sin(2 * np.pi * x / 3.1) + 0.5 * np.sin(2 * np.pi * x / 1.3) + 0.1 * rng.normal(size=80)
    starts: list[Expression] = [SpectralMixture.from_periodogram(x, y, 2)]
    starts += [SpectralMixture([0.5, 0.5], rng.uniform(0, 0.6, 2), [0.003, 0.003]) for _ in range(2)]
    evidence = [GPRegressor(start, objective="evidence", **PLAIN).fit(x[:, None], y).log_evidence_ for start in starts]
    assert evidence[0] > max(evidence[1:]) + 30


def test_files_and_copies_hold_what_was_learnt(tmp_path: Path) -> None:
    x, y = drifting_season(40)
    model = clone(GPRegressor(Periodic(1.0, 0.97) * RBF(5.0), **PLAIN)).fit(x[:, None], y)
    expected = model.predict(x[:, None] + 1)
    assert "x Periodic(1, 0.97) x RBF(5)" not in str(model.kernel_)
    model.save(tmp_path / "model")
    for again in (sureshot.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_allclose(again.predict(x[:, None] + 1), expected, rtol=1e-10)
        assert str(again.kernel_) == str(model.kernel_)
        again.partial_fit(x[:3, None] + 12.5, y[:3])
        assert str(again.kernel_) == str(model.kernel_)
    assert model.kernel == Periodic(1.0, 0.97) * RBF(5.0)


def test_without_asking_only_the_scale_is_learnt() -> None:
    x, y = drifting_season(40)
    model = GPRegressor(Periodic(1.0, 0.97) * RBF(5.0), noise="gaussian", random_state=0).fit(x[:, None], y)
    assert str(model.kernel_).endswith(" x Periodic(1, 0.97) x RBF(5)")


def test_columns_without_periods_are_still_scaled() -> None:
    x, y = drifting_season(40)
    one, other = (GPRegressor(RBF(0.1), noise="gaussian").fit(unit * x[:, None], y) for unit in (1.0, 100.0))
    np.testing.assert_allclose(one.predict(x[:5, None]), other.predict(100 * x[:5, None]), rtol=1e-8)


def test_numbers_that_do_not_vary_leave_the_kernel_as_it_is() -> None:
    given = Periodic(1.0, 0.97) * RBF(5.0)
    assert learnt_kernel(given, support(RNG.normal(size=(9, 1)), np.ones(9)), True) is given


@pytest.mark.parametrize("arguments", [{"kernel": "rbf"}, {"objective": None}, {"learn_kernel": "yes"}])
def test_what_cannot_be_learnt_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="learn_kernel"):
        GPRegressor(**{"kernel": RBF(), "learn_kernel": True, **arguments}).fit([[0.0], [1.0]], [0.0, 1.0])
