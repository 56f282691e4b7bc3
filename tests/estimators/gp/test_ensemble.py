"""Averages of settings: what is averaged, by which weights, and that every answer goes through the average."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from sklearn.datasets import load_breast_cancer, load_digits, load_iris

from sureshot import GPClassifier
from sureshot.estimators.gp.member import Member
from sureshot.estimators.gp.options import BY_COLUMNS, ONE_SHOT_TEMPERATURE, USUAL_COLUMNS, independent_columns
from sureshot.estimators.gp.tuning.stacking import (
    MOST_MEMBERS,
    MOST_OF_SOME,
    stacking_weights,
)
from sureshot.estimators.rows.support import Support, is_compared_whole


@pytest.fixture(scope="module")
def breast() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:, :8]
    return np.exp(2 * (X - X.mean(0)) / X.std(0)), y  # heavy tails


@pytest.fixture(scope="module")
def model(breast: tuple[np.ndarray, np.ndarray]) -> GPClassifier:
    X, y = breast
    return GPClassifier().fit(X[:150], y[:150])


def test_few_weighted_members(model: GPClassifier) -> None:
    weights = [member.weight for member in model.members_]
    assert 2 <= len(weights) <= MOST_MEMBERS
    assert weights == sorted(weights, reverse=True)
    assert sum(weights) == pytest.approx(1)
    assert str(model.kernel_) == str(model.members_[0].kernel)
    assert any(member.ranks for member in model.members_)  # the columns have heavy tails


def test_all_rows_weigh_what_a_part_of_them_has_chosen(breast: tuple[np.ndarray, np.ndarray]) -> None:
    """By what every member says of each of them left out; rows that come later change no weight."""
    X, y = breast
    found = GPClassifier().fit(X, y)
    fitted = found._fitted
    rows, members = fitted.distinct_rows, fitted.members
    support = Support.of(rows, 2, None, torch.device("cpu"))
    assert not is_compared_whole(support)
    every = torch.arange(len(rows.y))
    scores = [
        member.left_out(rows, every, 2, member.plan.temperature)[0].gather(1, support.y[:, None])[:, 0].log()
        for member in members
    ]
    weights = [member.weight for member in found.members_]
    np.testing.assert_allclose(weights, stacking_weights(torch.stack(scores), support.usable, MOST_MEMBERS), atol=1e-4)
    assert [member.weight for member in found.partial_fit(X[:1] + 0.1, y[:1]).members_] == weights


def test_probabilities_are_the_weighted_members(model: GPClassifier, breast: tuple[np.ndarray, np.ndarray]) -> None:
    rows = torch.from_numpy(breast[0][150:200])
    members: tuple[Member, ...] = model._fitted.members
    with torch.no_grad():
        parts = [m.plan.weight * m.probabilities(*m.moments(rows), m.plan.temperature, 2) for m in members]
    average = sum(part.numpy() for part in parts)
    tempered = average ** (1 / model.temperature_)
    expected = (1 - model.label_noise_) * tempered / tempered.sum(1, keepdims=True) + model.label_noise_ / 2
    np.testing.assert_allclose(model.predict_proba(breast[0][150:200]), expected, atol=1e-12)


def test_disagreement_of_members_is_epistemic(model: GPClassifier, breast: tuple[np.ndarray, np.ndarray]) -> None:
    rows = torch.from_numpy(breast[0][150:200])
    found = model.uncertainty(breast[0][150:200])
    with torch.no_grad():
        parts = [
            (
                m.plan.weight,
                *m.average_and_entropy(rows, model.temperature_ * m.plan.temperature, 2, model.label_noise_),
            )
            for m in model._fitted.members
        ]
    average = sum(weight * p.numpy() for weight, p, _ in parts)
    aleatoric = sum(weight * entropy.numpy() for weight, _, entropy in parts)
    np.testing.assert_allclose(found.total, -(average * np.log(average)).sum(0), atol=1e-10)
    np.testing.assert_allclose(found.epistemic, found.total - aleatoric, atol=1e-10)


def test_latents_are_those_of_the_mixture(model: GPClassifier, breast: tuple[np.ndarray, np.ndarray]) -> None:
    rows = torch.from_numpy(breast[0][150:160])
    generator = np.random.default_rng(0)
    drawn = []
    with torch.no_grad():
        for member in model._fitted.members:
            mean, variance = (part.numpy() for part in member.latents(rows, 2))
            n = round(100_000 * member.plan.weight)
            sample = mean + np.sqrt(variance) * generator.normal(size=(n, 1, 2))
            drawn.append(sample / member.plan.temperature)
    sample = np.concatenate(drawn)
    found = model.predict_latent(breast[0][150:160])
    np.testing.assert_allclose(found.mean, sample.mean(0), atol=0.05 * sample.std())
    np.testing.assert_allclose(found.variance, sample.var(0), rtol=0.05)


def test_the_score_is_of_the_average(model: GPClassifier, breast: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = breast
    p = model.predict_proba(X[150:])
    test = np.log(p[np.arange(len(p)), y[150:]]).mean()
    assert model.leave_one_out_score_ == pytest.approx(test, abs=0.06)
    assert -model.leave_one_out_nll_ == pytest.approx(test, abs=0.06)


def test_an_update_keeps_members_and_weights(
    model: GPClassifier, breast: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    X, y = breast
    model.save(tmp_path / "model")
    updated = GPClassifier.load(tmp_path / "model").partial_fit(X[150:170], y[150:170])
    kernels = [[(member.weight, str(member.kernel), member.ranks) for member in m.members_] for m in (model, updated)]
    assert kernels[0] == kernels[1]
    assert len(updated._fitted.rows.y) == 170
    before = updated.predict_proba(X[300:])
    updated.calibrate(X[170:300], y[170:300])
    assert updated.predict(X[300:]).tolist() == updated.classes_[before.argmax(1)].tolist()


def test_more_rows_go_on_with_the_heaviest_of_few(breast: tuple[np.ndarray, np.ndarray]) -> None:
    """With their weights brought to 1; what they say is what the rows would have made of them in one call."""
    X, y = breast
    model = GPClassifier().fit(X[:40], y[:40])
    before = model.members_
    assert len(model.partial_fit(X[40:45], y[40:45]).members_) == len(before) > MOST_OF_SOME
    after = model.partial_fit(X[45:60], y[45:60]).members_
    assert len(after) == MOST_OF_SOME
    heaviest = before[:MOST_MEMBERS]
    assert [str(member.kernel) for member in after[:MOST_MEMBERS]] == [str(member.kernel) for member in heaviest]
    share = before[0].weight / after[0].weight
    assert 0 < share < 1
    assert [share * member.weight for member in after[:MOST_MEMBERS]] == pytest.approx([one.weight for one in heaviest])
    assert sum(member.weight for member in after) == pytest.approx(1)
    at_once = GPClassifier().fit(X[:40], y[:40]).partial_fit(X[40:60], y[40:60])
    np.testing.assert_allclose(model.predict_proba(X[60:]), at_once.predict_proba(X[60:]), atol=1e-6)


def test_columns_that_are_not_to_be_scaled_have_no_ranks(breast: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = breast
    plain = GPClassifier(standardize=False).fit(X[:80], y[:80])
    assert len(plain.members_) > 1
    assert not any(member.ranks for member in plain.members_)


def test_one_member_where_nothing_is_left_to_average() -> None:
    X, y = load_iris(return_X_y=True)
    for model in (GPClassifier("rbf"), GPClassifier("precomputed")):
        assert len(model.fit(X[::2] @ X[::2].T, y[::2]).members_) == 1
    directions = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert len(GPClassifier().fit(directions[::50], y[::50]).members_) == 1  # a row of each class


def test_one_row_of_each_class_is_learnt_by_all_kernels_at_usual_scales() -> None:
    """At the temperature that suits one row by a kernel and the number of columns; nothing is left out."""
    X, y = load_iris(return_X_y=True)
    model = GPClassifier().fit(X[::50], y[::50])
    plans = [member.plan for member in model._fitted.members]
    assert len(plans) >= 5
    assert {str(member.kernel).split(" ")[0] for member in model.members_} == {"31.6"}
    assert {plan.weight for plan in plans} == {1 / len(plans)}
    first = model.members_.index(next(member for member in model.members_ if "RBF" in str(member.kernel)))
    x = X[::50]
    squared = 1.0 * pdist((x - x.mean(0)) / x.std(0)) ** 2
    independent = min(4.0, 2 * squared.mean() ** 2 / squared.var(ddof=1))
    expected = ONE_SHOT_TEMPERATURE["rbf"] * (independent / USUAL_COLUMNS) ** BY_COLUMNS
    assert plans[first].temperature == pytest.approx(expected, rel=1e-6)
    assert model.temperature_ == pytest.approx(1, rel=1e-6)
    assert math.isnan(model.leave_one_out_score_)


@pytest.mark.parametrize("seed", [0, 1])
def test_columns_that_say_the_same_make_no_one_sure(seed: int) -> None:
    """Ten rows of a thousand columns by twelve factors, which classes have nothing to do with: not far from log 10."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(110, 12)) @ generator.normal(size=(12, 1000))
    p = GPClassifier().fit(x[:10], np.arange(10)).predict_proba(x[10:])
    assert -np.log(p[np.arange(100), generator.integers(0, 10, 100)]).mean() < 1.3 * math.log(10)


def test_independent_columns_are_counted_by_distances() -> None:
    """A chi-squared distance over D normal columns has the mean 2 D and the variance 8 D."""
    x, y = torch.from_numpy(np.random.default_rng(0).normal(size=(250, 40))), torch.arange(250)
    assert independent_columns(x[:, :10].repeat(1, 30), y) == pytest.approx(10, rel=0.15)
    assert independent_columns(x, y) == pytest.approx(40, rel=0.15)
    assert independent_columns(x[:2], y[:2]) == 40
    assert independent_columns(x[:1].repeat(5, 1), y[:5]) == 40  # a mean of zero by a variance of zero


def test_rows_of_one_class_are_not_compared_for_independent_columns() -> None:
    """However near they are to each other."""
    x, y = torch.from_numpy(np.random.default_rng(0).normal(size=(125, 40))), torch.arange(125)
    assert independent_columns(x.repeat(2, 1), y.repeat(2)) == pytest.approx(independent_columns(x, y), rel=0.01)


def test_pixels_of_which_one_of_each_class_is_known_keep_their_relative_sizes() -> None:
    """Unless a few columns would make up all distances."""
    pixels, digits = load_digits(return_X_y=True)
    rows = [int(np.flatnonzero(digits == digit)[0]) for digit in range(10)]
    for plan in (member.plan for member in GPClassifier().fit(pixels[rows], digits[rows])._fitted.members):
        assert np.ptp(plan.scaling.scale) < 1e-9
        assert plan.scaling.ranks is None
    flags = np.random.default_rng(0).integers(0, 2, (10, 12)).astype(float)
    flags[0], flags[1] = 0, 1
    loud = flags * np.where(np.arange(12) < 2, 20, 1)
    found = {np.ptp(m.plan.scaling.scale) < 1e-9 for m in GPClassifier().fit(loud, digits[rows])._fitted.members}
    assert found == {True, False}


def test_few_rows_have_untuned_members_beside_tuned_ones(breast: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = breast
    members = GPClassifier().fit(X[:40], y[:40]).members_
    untuned = [member for member in members if str(member.kernel).startswith("31.6 x ")]
    assert len(members) - len(untuned) <= MOST_MEMBERS
    assert len(untuned) >= 10  # five kernels on columns and on ranks
    assert len({member.weight for member in untuned[-10:]}) <= 2  # the same for all, but for a tuned one of that scale
    assert sum(member.weight for member in members) == pytest.approx(1)


def test_some_rows_have_untuned_families_on_columns_as_they_are(
    model: GPClassifier, breast: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = breast
    assert len(model.members_) <= MOST_MEMBERS  # of 150 rows
    some = GPClassifier().fit(X[:100], y[:100]).members_
    untuned = some[MOST_MEMBERS:]
    assert len(untuned) == 9  # four kernels on columns as they are, too, which share a unit here
    assert len({member.weight for member in untuned}) == 1
    assert all(str(member.kernel).startswith("31.6 x ") and not member.ranks for member in untuned)
    assert sum(member.weight for member in some) == pytest.approx(1)


def test_an_average_of_few_rows_that_grows_keeps_members_of_every_kind(breast: tuple[np.ndarray, np.ndarray]) -> None:
    """Its members are equally heavy, those on columns before those on ranks: the first ones are no better."""
    X, y = breast
    mixed = np.argsort(np.arange(len(y)) * 7919 % len(y))
    X, y = X[mixed], y[mixed]
    few, some = (GPClassifier().fit(X[:n_rows], y[:n_rows]) for n_rows in (12, 40))
    assert len(some.members_) > MOST_OF_SOME
    n_few = len(few.members_)
    for model, n_rows, most in ((some, 52, MOST_OF_SOME), (few, 52, n_few), (few, 152, MOST_MEMBERS)):
        model.partial_fit(X[len(model._fitted.rows.y) : n_rows], y[len(model._fitted.rows.y) : n_rows])
        assert len(model.members_) == most
        assert {member.ranks for member in model.members_} == {False, True}
        assert sum(member.weight for member in model.members_) == pytest.approx(1)


def test_one_setting_if_asked_for(breast: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = breast
    (member,) = GPClassifier(ensemble=False).fit(X[:80], y[:80]).members_
    assert member.weight == 1
    assert not member.ranks


def test_what_is_no_switch_is_refused() -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="ensemble must be one of True, False; got 'yes'"):
        GPClassifier(ensemble="yes").fit(X, y)  # type: ignore[arg-type]


def test_interactions_learn_what_two_columns_say_together() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 6))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    scores = {
        name: GPClassifier(kernel=name).fit(X[:300], y[:300]).score(X[300:], y[300:])
        for name in ("additive_matern32", "interactions_matern32")
    }
    assert scores["additive_matern32"] < 0.6
    assert scores["interactions_matern32"] > 0.85


@pytest.mark.parametrize("likelihood", ["auto", "least_squares", "logistic_softmax"])
def test_fewer_rows_choose_nothing_but_temperatures(likelihood: str) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(14, 4)), np.arange(14) % 2
    members = GPClassifier(likelihood=likelihood).fit(X, y).members_
    assert {str(member.kernel).split(" ")[0] for member in members} == {"31.6"}
    assert {member.weight for member in members} == {1 / len(members)}


def test_a_few_rows_of_a_clear_table_are_told_with_confidence() -> None:
    """Two classes of five rows, three deviations apart in each of nine columns; one setting that averages its latents
    is right of all and says .78."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(210, 9)), np.arange(210) % 2
    X[y == 1] += 3
    model = GPClassifier().fit(X[:10], y[:10])
    p = model.predict_proba(X[10:])
    assert (p.argmax(1) == y[10:]).all()
    assert p.max(1).mean() > 0.9
