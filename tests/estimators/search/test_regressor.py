"""`KernelSearchRegressor`: what it finds in series, its parts, streams, files, and what is refused."""

from __future__ import annotations

import copy
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import DataConversionWarning

import sureshot
from sureshot import KernelSearchRegressor
from sureshot.estimators import SearchStep
from sureshot.estimators.rows.labelled_rows import merged_rows
from sureshot.structure.grammar import Grammar

RNG = np.random.default_rng(0)
X = np.linspace(1980, 1990, 40)[:, None]
Y = 5 + 2 * (X[:, 0] - 1985) + 3 * np.sin(2 * np.pi * X[:, 0] / 1.7) + 0.3 * RNG.normal(size=40)
QUERIES = np.linspace(1978, 1993, 9)[:, None]


def made(**settings: Any) -> KernelSearchRegressor:
    return KernelSearchRegressor(**{"n_particles": 6, "n_rejuvenation": 1, **settings})


@cache
def fitted(**settings: Any) -> KernelSearchRegressor:
    """On all rows; tests that change a model take a copy."""
    return made(**settings).fit(X, Y)


@pytest.mark.slow
def test_it_finds_a_line_and_a_period() -> None:
    x = np.arange(64.0)[:, None]
    y = 0.1 * x[:, 0] + 2 * np.sin(2 * np.pi * x[:, 0] / 9) + 0.3 * np.random.default_rng(1).normal(size=64)
    model = KernelSearchRegressor(random_state=1).fit(x, y)
    assert model.kernel_posterior_[0][1] == "LINEAR + PERIODIC"
    ahead = np.arange(64.0, 80.0)
    true = 0.1 * ahead + 2 * np.sin(2 * np.pi * ahead / 9)
    assert np.abs(model.predict(ahead[:, None]) - true).max() < 0.5
    names = [part.formula for part in model.decompose(x)[0].parts]
    assert names == ["LINEAR", "PERIODIC", "CONSTANT"]


def test_predictions_are_dense_arithmetic_over_particles() -> None:
    model = fitted()
    centre, unit = Y.mean(), Y.std()
    x, queries = ((one - X.mean()) / X.std() for one in (X, QUERIES))
    every, t = torch.from_numpy(np.concatenate([x, queries])), (Y - centre) / unit
    means, variances, weights = [], [], []
    for particle in model.particles_:
        gram = particle.kernel(every).numpy() + 1.0  # the variance of the mean
        noisy = gram[:40, :40] + particle.nugget * np.eye(40)
        gain = np.linalg.solve(noisy, gram[:40, 40:])
        means.append(gain.T @ t)
        variances.append(gram[40:, 40:] - gram[:40, 40:].T @ gain + particle.nugget * np.eye(9))
        weights.append(particle.weight)
    mean = np.average(means, axis=0, weights=weights)
    apart = np.array(means) - mean
    covariance = np.average(variances, axis=0, weights=weights) + np.einsum("m,mi,mj->ij", weights, apart, apart)
    without_noise = covariance - np.average([p.nugget for p in model.particles_], weights=weights) * np.eye(9)
    found, found_covariance = model.predict(QUERIES, return_cov=True)
    np.testing.assert_allclose(found, centre + unit * mean, atol=1e-8)
    np.testing.assert_allclose(
        model.predict(QUERIES, return_std=True)[1] ** 2, unit**2 * covariance.diagonal(), atol=1e-8
    )
    off = ~np.eye(9, dtype=bool)
    np.testing.assert_allclose(found_covariance[off], unit**2 * without_noise[off], atol=1e-8)
    deviations = np.sqrt([one.diagonal() for one in variances])
    z = (2.5 - centre - unit * np.array(means)) / (unit * deviations)
    density = np.exp(-0.5 * z**2) / (unit * deviations * math.sqrt(2 * math.pi))
    np.testing.assert_allclose(np.exp(model.log_density(QUERIES, np.full(9, 2.5))), weights @ density, rtol=1e-8)


def test_parts_add_up_to_the_answer() -> None:
    model = fitted()
    forms = model.decompose(QUERIES)
    np.testing.assert_allclose(sum(form.weight * form.mean for form in forms), model.predict(QUERIES), atol=1e-8)
    for form in model.decompose(X):  # around zero over the rows that were learnt from
        assert form.parts[-1].formula == "CONSTANT"
        np.testing.assert_allclose([part.mean.mean() for part in form.parts[:-1]], 0, atol=1e-8)


def test_left_out_numbers_are_those_of_a_fit_without_the_row() -> None:
    """By one particle that never moves, whose weight no row changes."""
    model = made(n_particles=1, n_rejuvenation=0, structure="SQUARED-EXPONENTIAL").fit(X, Y, row_id=np.arange(40))
    y, told = model.left_out_
    for row in (0, 17, 39):
        place = int(np.flatnonzero(y[:, 0] == Y[row])[0])
        fewer = copy.deepcopy(model).forget([row])
        mean, deviation = fewer.predict(X[[row]], return_std=True)
        assert told.mean[place, 0] == pytest.approx(mean[0], abs=1e-8)
        assert told.deviation[place, 0] == pytest.approx(deviation[0], abs=1e-8)
    assert model.leave_one_out_score_ == pytest.approx(told.log_density(y).mean())


def test_left_out_rows_weigh_particles_without_them() -> None:
    model = fitted()
    y, told = model.left_out_
    state = model._fitted.state
    assert told.scaled.weight.shape == (6, 40)
    np.testing.assert_allclose(told.scaled.weight.sum(0), 1)
    assert np.isfinite(told.log_density(y)).all()
    assert not np.allclose(told.scaled.weight, state.log_weights.exp().numpy()[:, None])
    inside = model.predict_interval(X, 0.8).contain(Y).mean()
    assert 0.6 < inside <= 1
    usual = np.sort(np.abs(y[:, 0] - told.mean[:, 0]) / told.deviation[:, 0])  # no row chose a setting
    found, asked = model.predict_interval(X[:3], 0.8), model.forecast(X[:3])
    np.testing.assert_allclose(found.upper - found.lower, 2 * usual[32] * asked.deviation, rtol=1e-9)


def test_a_stream_is_its_rows_and_a_window_keeps_the_latest() -> None:
    steps: list[SearchStep] = []
    model = made(callback=steps.append).partial_fit(X[:24], Y[:24]).partial_fit(X[24:], Y[24:])
    assert [step.n_rows for step in steps] == [16, 24, 40]
    assert model.steps_ == tuple(steps)
    assert model.n_rows_ == 40
    window = made(window=20).partial_fit(X[:24], Y[:24]).partial_fit(X[24:], Y[24:])
    assert sorted(window._fitted.rows.x[:, 0]) == sorted(X[20:, 0])
    assert all(step.n_rows <= 20 for step in window.steps_)


def test_a_row_of_weight_two_is_two_rows() -> None:
    weight = np.ones(40)
    weight[[3, 9]] = 2
    once = made().fit(X, Y, sample_weight=weight)
    twice = made().fit(np.concatenate([X, X[[3, 9]]]), np.concatenate([Y, Y[[3, 9]]]))
    np.testing.assert_array_equal(once.predict(QUERIES), twice.predict(QUERIES))
    assert len(once.left_out_[0]) == 40


def test_influence_is_the_fall_without_the_row() -> None:
    model = made(n_particles=1, n_rejuvenation=0, structure="LINEAR").fit(X, Y, row_id=np.arange(40))
    found = model.influence(QUERIES[:1], 2)
    for pull, row in zip(found.drivers.pulls[0], found.drivers.row_ids[0], strict=True):
        left = copy.deepcopy(model).forget([row]).predict(QUERIES[:1])[0]
        assert pull == pytest.approx(model.predict(QUERIES[:1])[0] - left, abs=1e-6)


def test_a_file_holds_everything(tmp_path: Path) -> None:
    model = fitted()
    model.save(tmp_path / "model")
    other = sureshot.load(tmp_path / "model")
    assert isinstance(other, KernelSearchRegressor)
    np.testing.assert_array_equal(other.predict(QUERIES), model.predict(QUERIES))
    assert other.kernel_posterior_ == model.kernel_posterior_
    assert other.log_evidence_ == model.log_evidence_
    assert other.log_evidence_error_ == model.log_evidence_error_
    assert [form.formula for form in other.decompose(X)] == [form.formula for form in model.decompose(X)]
    more = (np.array([[1991.0]]), [20.0])
    np.testing.assert_array_equal(
        copy.deepcopy(model).partial_fit(*more).predict(QUERIES), other.partial_fit(*more).predict(QUERIES)
    )


def test_tables_with_kinds_of_columns() -> None:
    frame = pd.DataFrame({"size": RNG.normal(size=50), "kind": RNG.choice(["a", "b"], 50), "same": 1.0})
    y = frame["size"] + 3 * (frame["kind"] == "a")
    with pytest.warns(UserWarning, match="ignored 1 constant column"):
        model = made(n_particles=8).fit(frame, y)
    assert model.score(frame, y) > 0.9
    assert model.columns_["kind"] == "category"
    assert all("same" not in name for name in model.kernel_columns_)


def test_a_number_that_does_not_vary_and_few_rows() -> None:
    constant = made().fit(X, np.full(40, 7.0))
    mean, deviation = constant.predict(QUERIES[3:6], return_std=True)
    np.testing.assert_allclose(mean, 7, atol=0.1)
    assert (deviation < 0.5).all()
    for n in (1, 2):
        few = made().fit(X[:n], Y[:n])
        assert np.isfinite(few.predict(QUERIES)).all()
        assert np.isfinite(few.log_density(QUERIES, np.zeros(9))).all()
        with pytest.warns(UserWarning, match="cannot vouch"):
            few.predict_interval(QUERIES)


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({}, np.array(["a"] * 40), "y must hold numbers; got 'a'"),
        ({}, np.where(np.arange(40) == 3, np.nan, Y), "contains NaN"),
        ({}, np.column_stack([Y, Y]), "y has 2 numbers a row, and a search takes one"),
        ({"grammar": "serise"}, Y, "no grammar 'serise'.*series"),
        ({"grammar": 3}, Y, "grammar must be a Grammar or one of"),
        ({"structure": "LINEAR + PERIODC"}, Y, "structure: there is no leaf 'PERIODC'.*PERIODIC"),
        ({"structure": "LINEAR[3]"}, Y, "looks at column 3"),
        ({"n_particles": 0}, Y, "n_particles"),
        ({"schedule": "daily"}, Y, "schedule must be one of"),
        ({"window": 0}, Y, "window"),
    ],
)
def test_what_cannot_be_learnt_is_refused(settings: dict[str, Any], y: Any, message: str) -> None:
    model = copy.deepcopy(fitted())
    before = model.predict(QUERIES)
    with pytest.raises(ValueError, match=message):
        model.set_params(**settings).fit(X, y)
    np.testing.assert_array_equal(model.predict(QUERIES), before)


def test_weights_that_are_not_whole_and_too_many_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="whole numbers for KernelSearchRegressor"):
        made().fit(X, Y, sample_weight=np.full(40, 0.5))
    with pytest.raises(MemoryError, match=r"2100 rows.*at most 2000 rows.*window=1000.*fewer rows.*GPRegressor"):
        made().fit(np.arange(2100.0)[:, None], np.zeros(2100))
    with pytest.raises(ValueError, match="row_id and window exclude each other"):
        made(window=10).fit(X, Y, row_id=np.arange(40))


def test_a_column_of_numbers_is_one_number_a_row() -> None:
    with pytest.warns(DataConversionWarning, match="column-vector y was passed"):
        column = made().fit(X, Y[:, None])
    np.testing.assert_array_equal(column.predict(QUERIES), fitted().predict(QUERIES))


def test_settings_that_change_later_are_mentioned() -> None:
    model = copy.deepcopy(fitted()).set_params(grammar=Grammar(max_depth=2))
    with pytest.warns(UserWarning, match="grammar changed since the first batch"):
        model.partial_fit(X[:1], Y[:1])


def test_rows_of_one_column_come_in_its_order() -> None:
    order = np.random.default_rng(0).permutation(40)
    model = made().fit(X[order], Y[order])
    assert (np.diff(model._fitted.rows.x[:, 0]) > 0).all()
    np.testing.assert_array_equal(model.predict(QUERIES), fitted().predict(QUERIES))
    assert len(merged_rows(model._fitted.rows)[0].y) == 40
