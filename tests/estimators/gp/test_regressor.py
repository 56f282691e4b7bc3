"""`GPRegressor` on functions whose noise is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from sureshot import GPRegressor

NOISE = 0.2


def function(x: np.ndarray) -> np.ndarray:
    """Of two columns of three."""
    found: np.ndarray = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]
    return found


def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(n, 3))
    return x, 1000 + 50 * (function(x) + NOISE * rng.normal(size=n))


X, Y = drawn(150, 0)
QUERIES, TRUE = drawn(1000, 1)


@pytest.fixture(scope="module")
def model() -> GPRegressor:
    return GPRegressor().fit(X, Y)


def test_it_finds_function_and_noise(model: GPRegressor) -> None:
    mean, deviation = model.predict(QUERIES, return_std=True)
    assert np.sqrt(np.mean((mean - TRUE) ** 2)) < 1.2 * 50 * NOISE
    assert 0.85 * 50 * NOISE < deviation.mean() < 1.3 * 50 * NOISE
    assert np.sqrt(np.mean((mean - 1000 - 50 * function(QUERIES)) ** 2)) < 0.6 * 50 * NOISE
    assert len(model._fitted.members) > 1


def test_its_members_are_told(model: GPRegressor) -> None:
    members = model.members_
    weights = [member.weight for member in members]
    assert sum(weights) == pytest.approx(1)
    assert weights == sorted(weights, reverse=True)
    assert str(members[0].kernel) == str(model.kernel_)
    assert members[0].noise * Y.std() == pytest.approx(50 * NOISE, rel=0.3)
    assert any(member.relevance for member in members)
    assert {member.n_neighbours for member in members} == {None}
    assert f"kernel={model.kernel_}" in repr(members[0])
    used, unused = model.feature_relevance_[:2], model.feature_relevance_[2]
    assert used.min() > 1.5 * unused > 0


def test_what_left_out_rows_promise_is_about_what_new_ones_get(model: GPRegressor) -> None:
    assert abs(model.log_density(QUERIES, TRUE).mean() - model.leave_one_out_score_) < 0.25
    for coverage in (0.5, 0.9):
        assert abs(model.predict_interval(QUERIES, coverage).contain(TRUE).mean() - coverage) < 0.08


def test_answers_belong_together(model: GPRegressor) -> None:
    below = model.predict_quantile(QUERIES, 0.1)
    drawn_numbers = model.sample_y(QUERIES[:20], 2000, random_state=3)
    assert drawn_numbers.shape == (20, 2000)
    np.testing.assert_allclose((drawn_numbers < below[:20, None]).mean(1), 0.1, atol=0.03)
    mean, deviation = model.predict(QUERIES[:20], return_std=True)
    np.testing.assert_allclose(drawn_numbers.mean(1), mean, atol=0.1 * deviation.max())
    np.testing.assert_array_equal(drawn_numbers, model.sample_y(QUERIES[:20], 2000, random_state=3))
    step = 1e-3 * deviation
    density = np.exp(model.log_density(QUERIES[:20], mean))
    assert (model.log_density(QUERIES[:20], mean + 3 * deviation) < np.log(density)).all()
    grid = mean[:, None] + np.linspace(-8, 8, 400) * deviation[:, None]
    logs = np.stack([model.log_density(QUERIES[:20], column) for column in grid.T], 1)
    np.testing.assert_allclose(np.trapezoid(np.exp(logs), grid, axis=1), 1, atol=1e-3)
    assert (step > 0).all()


def test_far_away_it_knows_little(model: GPRegressor) -> None:
    far = np.array([[30.0, -30.0, 30.0]])
    (_, deviation), (_, near) = model.predict(far, return_std=True), model.predict(X[:1], return_std=True)
    assert deviation[0] > 3 * near[0]
    assert model.outlier_score(far)[0] > model.outlier_score(QUERIES).max()


def test_ten_rows_have_intervals_that_cover() -> None:
    inside = []
    for seed in range(12):
        x, y = drawn(10, seed)
        inside.append(GPRegressor().fit(x, y).predict_interval(QUERIES[:200], 0.9).contain(TRUE[:200]).mean())
    assert np.mean(inside) > 0.85
    with pytest.warns(UserWarning, match="4 left-out rows cannot vouch for a coverage of 0.9"):
        few = GPRegressor().fit(X[:4], Y[:4]).predict_interval(QUERIES[:5], 0.9)
    assert (few.lower < few.upper).all()


def test_weights_are_copies_and_order_does_not_matter() -> None:
    weight = np.arange(40) % 3
    weighted = GPRegressor("rbf").fit(X[:40], Y[:40], sample_weight=weight)
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(40), weight))
    copied = GPRegressor("rbf").fit(X[order], Y[order])
    for one, other in zip(weighted.predict(X, True), copied.predict(X, True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8)


def test_several_targets_are_each_on_their_own_scale() -> None:
    both = GPRegressor().fit(X, np.column_stack([Y, -3 * Y]))
    mean, deviation = both.predict(QUERIES, return_std=True)
    assert mean.shape == deviation.shape == (1000, 2)
    np.testing.assert_allclose(mean[:, 1], -3 * mean[:, 0], rtol=1e-8)
    np.testing.assert_allclose(deviation[:, 1], 3 * deviation[:, 0], rtol=1e-8)
    assert both.sample_y(QUERIES[:4], 5).shape == (4, 2, 5)
    assert both.predict_interval(QUERIES).lower.shape == (1000, 2)
    assert both.log_density(QUERIES[:3], mean[:3]).shape == (3,)
    assert 0.3 < both.score(QUERIES, np.column_stack([TRUE, -3 * TRUE])) <= 1


def test_calibration_makes_it_as_sure_as_it_may_be(model: GPRegressor) -> None:
    expected = model.predict(QUERIES)
    wilder = expected + 3 * (TRUE - expected)
    calibrated = clone(model).fit(X, Y).calibrate(QUERIES, wilder)
    np.testing.assert_array_equal(calibrated.predict(QUERIES), expected)
    assert calibrated.log_density(QUERIES, wilder).mean() > model.log_density(QUERIES, wilder).mean()
    _, deviation = calibrated.predict(QUERIES, return_std=True)
    assert 2.2 < (deviation / model.predict(QUERIES, return_std=True)[1]).mean() < 3.8
    calibrated.partial_fit(QUERIES[:1], TRUE[:1])
    assert calibrated._fitted.calibrated


def test_a_table_of_text_and_gaps_and_a_constant_target() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=60), "colour": rng.choice(["red", "blue"], 60)})
    y = frame["size"] + 2 * (frame["colour"] == "red") + 0.1 * rng.normal(size=60)
    frame.loc[::7, "size"] = np.nan
    assert cross_val_score(GPRegressor(), frame, y, cv=3).mean() > 0.6
    with pytest.warns(UserWarning, match="y does not vary"):
        constant = GPRegressor().fit(frame, np.full(60, 7.0))
    np.testing.assert_allclose(constant.predict(frame), 7.0)


def test_many_rows_are_seen_by_their_neighbours() -> None:
    x, y = drawn(1700, 5)
    many = GPRegressor().fit(x, y)
    assert {64} <= {member.n_neighbours for member in many.members_} <= {None, 64}
    mean, deviation = many.predict(QUERIES, return_std=True)
    assert np.sqrt(np.mean((mean - TRUE) ** 2)) < 1.08 * 50 * NOISE
    assert 0.9 < deviation.mean() / (50 * NOISE) < 1.15
    assert abs(many.predict_interval(QUERIES).contain(TRUE).mean() - 0.9) < 0.04


def test_numbers_are_learnt_on_the_scale_that_left_out_ones_prefer(caplog: pytest.LogCaptureFixture) -> None:
    y, true = (np.exp((numbers - 1000) / 50) for numbers in (Y, TRUE))
    chosen, plain = GPRegressor().fit(X, y), GPRegressor(target_transform="none").fit(X, y)
    assert chosen.target_transform_ == "log"
    assert plain.target_transform_ == "none"
    assert chosen.log_density(QUERIES, true).mean() > plain.log_density(QUERIES, true).mean() + 0.1
    assert chosen.leave_one_out_score_ > plain.leave_one_out_score_
    assert abs(chosen.predict_interval(QUERIES).contain(true).mean() - 0.9) < 0.06
    quantiles = chosen.predict_quantile(QUERIES, [0.1, 0.5, 0.9])
    np.testing.assert_array_equal(quantiles[:, 2], chosen.predict_quantile(QUERIES, 0.9))
    assert (np.diff(quantiles) > 0).all()
    assert (quantiles > 0).all()
    assert np.isneginf(chosen.log_density(QUERIES[:2], [-1.0, 0.0])).all()
    chosen.partial_fit(QUERIES[:1], [-0.5])
    assert "a number is not positive, and logarithms were learnt" in caplog.text
    assert chosen.target_transform_ != "log"
    with pytest.raises(ValueError, match=r"'log' needs positive numbers; y has -0\.5"):
        GPRegressor(target_transform="log").fit(X[:5], [1, 2, 3, -0.5, 2])


def test_numbers_as_they_are_stay_where_nothing_is_better(model: GPRegressor) -> None:
    assert model.target_transform_ == "none"


def test_a_few_wild_numbers_drive_nothing(model: GPRegressor) -> None:
    wild = np.random.default_rng(2).random(len(Y)) < 0.05
    y = np.where(wild, Y + 10 * Y.std() * np.random.default_rng(3).choice([-1, 1], len(Y)), Y)
    robust, plain = GPRegressor().fit(X, y), GPRegressor(noise="gaussian").fit(X, y)
    assert 2 <= robust.noise_degrees_ <= 8
    assert np.isinf(plain.noise_degrees_)
    assert np.isinf(model.noise_degrees_)
    expected, found, lost = (one.log_density(QUERIES, TRUE).mean() for one in (model, robust, plain))
    assert found > 1.1 * expected > lost  # they are negative
    assert robust._fitted.trusted is not None
    assert robust._fitted.trusted[np.abs(robust._fitted.rows.y[:, 0] - 1000) > 200].max() < 0.02
    assert np.median(robust._fitted.trusted) > 0.8
    assert robust.log_density(QUERIES[:1], TRUE[:1] + 500)[0] > plain.log_density(QUERIES[:1], TRUE[:1] + 2000)[0]


def test_without_an_objective_nothing_is_chosen() -> None:
    rows, numbers = X[:30], Y[:30]
    model = GPRegressor("rbf", objective=None, noise="gaussian", target_transform="none", standardize=False)
    mean, deviation = model.fit(rows, numbers).predict(QUERIES[:5], return_std=True)
    plan, unit = model._fitted.members[0].plan, numbers.std()
    kernel = plan.kernel
    z = (numbers - numbers.mean()) / unit
    gram = kernel(torch.from_numpy(rows)).numpy() + plan.model.noise * np.eye(30)
    cross = kernel(torch.from_numpy(rows), torch.from_numpy(QUERIES[:5])).numpy()
    np.testing.assert_allclose(mean, numbers.mean() + unit * cross.T @ np.linalg.solve(gram, z), rtol=1e-8)
    prior = kernel.diagonal(torch.from_numpy(QUERIES[:5])).numpy()
    variance = prior - (cross * np.linalg.solve(gram, cross)).sum(0) + plan.model.noise
    np.testing.assert_allclose(deviation, unit * np.sqrt(variance), rtol=1e-8)


def test_a_length_scale_may_be_a_small_part_of_what_rows_extend_over() -> None:
    """A sixteenth of the deviation of the column, of a function that is drawn by random features."""
    rng = np.random.default_rng(0)
    x, frequencies, phases = np.arange(1000.0), rng.normal(size=500) / 18, rng.uniform(0, 2 * np.pi, 500)
    weights = rng.normal(size=500) / np.sqrt(250)
    y = np.cos(x[:, None] * frequencies + phases) @ weights + 0.1 * rng.normal(size=1000)
    queries = x[5:-5] + 0.5
    mean = GPRegressor("rbf", noise="gaussian").fit(x[:, None], y).predict(queries[:, None])
    error = mean - np.cos(queries[:, None] * frequencies + phases) @ weights
    assert np.sqrt(np.mean(error**2)) < 0.05
