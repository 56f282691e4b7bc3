"""Approximations by name in estimators: what they are asked for, what they learn, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import sureshot
from sureshot import GPClassifier, GPRegressor
from sureshot.approximations.by_name import BY_NAME
from sureshot.approximations.inducing import Inducing
from sureshot.kernels import RBF, Scale

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=(160, 3))


def function(x: np.ndarray) -> np.ndarray:
    """Of two columns of three."""
    found: np.ndarray = np.sin(3 * x[:, 0]) + 0.5 * x[:, 1]
    return found


Y = function(X) + 0.1 * RNG.normal(size=160)
QUERIES = RNG.uniform(-2, 2, size=(400, 3))
TRUE = function(QUERIES)
LABELS = np.where(Y > 0.4, 2, np.where(Y < -0.4, 0, 1))
QUICK: dict[str, Any] = {"target_transform": "none", "noise": "gaussian", "n_inducing": 40}

FEW = {**QUICK, "n_inducing": 12}


def error(model: GPRegressor) -> float:
    return float(np.sqrt(np.mean((model.predict(QUERIES) - TRUE) ** 2)))


@pytest.mark.parametrize("name", [name for name, kind in BY_NAME.items() if kind.learnt])
def test_evidence_moves_a_few_numbers_to_where_they_serve(name: str) -> None:
    model, start = (GPRegressor(approximation=name, objective=how, **FEW).fit(X, Y) for how in ("auto", None))
    plan, before = (one._fitted.members[0].plan for one in (model, start))
    assert plan.parts is not None
    assert plan.parts.learnt
    assert before.parts is not None
    assert not before.parts.learnt
    lengthscale = next(part for key, part in plan.kernel.parameters.items() if key.endswith("lengthscale"))
    assert lengthscale.shape == (3,)
    assert error(model) < min(0.1, 0.3 * error(start))
    covered = model.predict_interval(QUERIES, 0.9).contain(TRUE + 0.1 * np.random.default_rng(1).normal(size=400))
    assert abs(covered.mean() - 0.9) < 0.08


def test_columns_may_have_one_lengthscale() -> None:
    plan = GPRegressor(approximation="vfe", relevance=False, **FEW).fit(X, Y)._fitted.members[0].plan
    assert plan.parts is not None
    assert plan.parts.learnt
    lengthscale = next(part for key, part in plan.kernel.parameters.items() if key.endswith("lengthscale"))
    assert lengthscale.shape == (1,)


def test_many_frequencies_of_pure_noise_do_no_harm() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(60, 4)), rng.normal(size=60)
    found = GPRegressor("rbf", approximation="ssgp", **{**QUICK, "n_inducing": 200}).fit(x, y)
    density = found.log_density(rng.normal(size=(300, 4)), rng.normal(size=300)).mean()
    assert density > stats.norm.logpdf(rng.normal(size=3000)).mean() - 0.1


def test_what_left_out_rows_do_not_like_is_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(2)
    caplog.set_level("INFO", logger="sureshot.estimators.gp.by_name")
    taken = []
    for _ in range(4):
        x, y = rng.normal(size=(50, 6)), rng.normal(size=50)
        plan = (
            GPRegressor("rbf", approximation="ssgp", **{**QUICK, "n_inducing": 120}).fit(x, y)._fitted.members[0].plan
        )
        assert plan.parts is not None
        taken.append(plan.parts.learnt)
    gains = [float(record.args[0]) for record in caplog.records if record.name.endswith("by_name")]  # type: ignore[index, arg-type]
    assert len(gains) == 4
    assert all(learnt for learnt, gain in zip(taken, gains, strict=True) if gain > 0)
    assert not all(taken)


@pytest.mark.parametrize("name", BY_NAME)
def test_files_and_updates_keep_its_parts_to_the_bit(name: str, tmp_path: Path) -> None:
    y = np.column_stack([Y, -2 * Y + 1])
    weight = 1.0 + (np.arange(160) % 3)
    model = GPRegressor(approximation=name, **QUICK).fit(X[:100], y[:100], sample_weight=weight[:100])
    model.save(tmp_path / "model")
    loaded = sureshot.load(tmp_path / "model")
    for one, other in zip(model.predict(QUERIES, True), loaded.predict(QUERIES, True), strict=True):
        np.testing.assert_array_equal(one, other)
    parts = model._fitted.members[0].plan.parts
    loaded.partial_fit(X[100:], y[100:])
    model.partial_fit(X[100:], y[100:])
    np.testing.assert_array_equal(loaded.predict(QUERIES), model.predict(QUERIES))
    now = model._fitted.members[0].plan.parts
    assert parts is not None
    assert now is not None
    assert all(torch.equal(now.arrays[key], part) for key, part in parts.arrays.items())
    if name == "svgp":  # takes longest
        return
    again = GPRegressor(approximation=name, **QUICK).fit(X[:100], y[:100], sample_weight=weight[:100])
    np.testing.assert_array_equal(again.partial_fit(X[100:], y[100:]).predict(QUERIES), model.predict(QUERIES))


def test_the_seed_draws() -> None:
    first, second = (GPRegressor(approximation="fastfood", random_state=k, **QUICK).fit(X, Y) for k in (1, 2))
    assert not np.array_equal(first.predict(QUERIES), second.predict(QUERIES))


@pytest.mark.parametrize("likelihood", ["softmax", "one_vs_each", "logistic_softmax", "least_squares", "auto"])
@pytest.mark.parametrize("name", ["random_features", "fastfood"])
def test_features_are_features_for_every_likelihood(name: str, likelihood: str, tmp_path: Path) -> None:
    model = GPClassifier(likelihood=likelihood, approximation=name, n_inducing=60).fit(X[:80], LABELS[:80])
    expected = np.where(TRUE > 0.4, 2, np.where(TRUE < -0.4, 0, 1))
    assert (model.predict(QUERIES) == expected).mean() > 0.65
    assert len(model.members_) == 1
    model.save(tmp_path / "model")
    loaded = sureshot.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(QUERIES), model.predict_proba(QUERIES))
    np.testing.assert_allclose(loaded.outlier_score(QUERIES), model.outlier_score(QUERIES), rtol=1e-9, atol=1e-9)
    for one in (model, loaded):
        one.partial_fit(QUERIES[:50], expected[:50])
    np.testing.assert_array_equal(loaded.predict_proba(QUERIES), model.predict_proba(QUERIES))


@pytest.mark.parametrize(
    "options",
    [
        {"likelihood": "logistic"},
        {"inference": "gibbs", "n_chains": 2, "n_sweeps": 5},
        {"inference": "natural_gradient", "likelihood": "one_vs_each"},
    ],
)
def test_other_inferences_take_features(options: dict[str, object], tmp_path: Path) -> None:
    model = GPClassifier(approximation="random_features", n_inducing=60, **options).fit(X, LABELS > 0)
    model.save(tmp_path / "model")
    np.testing.assert_allclose(
        sureshot.load(tmp_path / "model").predict_proba(QUERIES), model.predict_proba(QUERIES), rtol=1e-9
    )


@pytest.mark.parametrize("name", ["ssgp", "a_la_carte"])
@pytest.mark.parametrize("likelihood", ["softmax", "least_squares"])
def test_labels_teach_frequencies_by_least_squares(name: str, likelihood: str) -> None:
    drawn = "random_features" if name == "ssgp" else "fastfood"
    model, plain = (
        GPClassifier(likelihood=likelihood, approximation=one, n_inducing=60).fit(X, LABELS) for one in (name, drawn)
    )
    plan = model._fitted.heaviest.plan
    assert plan.parts is not None
    assert plan.parts.learnt
    expected = np.where(TRUE > 0.4, 2, np.where(TRUE < -0.4, 0, 1))
    assert model.score(QUERIES, expected) > plain.score(QUERIES, expected) - 0.03
    assert model.score(QUERIES, expected) > 0.85


def test_refusals_say_what_to_do() -> None:
    stationary = r"need a stationary kernel: 'rbf', 'matern12', 'matern32' or 'matern52'"
    with pytest.raises(ValueError, match=stationary):
        GPRegressor("linear", approximation="random_features").fit(X, Y)
    with pytest.raises(ValueError, match=stationary):
        GPClassifier("cosine", approximation="fastfood").fit(X, LABELS)
    with pytest.raises(ValueError, match=r"approximation must be one of .*'ssgp'"):
        GPClassifier(approximation="vfe").fit(X, LABELS)
    with pytest.raises(MemoryError, match=r"160 rows, 1 classes and 150 features .* smaller n_inducing"):
        GPRegressor(approximation="vfe", n_inducing=150, memory_limit="100kB").fit(X, Y)
    with pytest.raises(ValueError, match="goes with approximation"):
        GPRegressor(approximation="sor", time="arrival").fit(X, Y)


def test_kernels_that_were_given_keep_their_scales() -> None:
    """All of them but the overall one, and any kernel has inducing inputs."""
    given = GPRegressor(2.0 * RBF([0.4, 3.0, 3.0]) + 0.1, approximation="vfe", **QUICK).fit(X, Y)
    found = next(part for key, part in given.kernel_.parameters.items() if key.endswith("lengthscale"))
    assert found.tolist() == [0.4, 3.0, 3.0]
    linear = GPRegressor("polynomial2", approximation="fitc", **QUICK).fit(X, X[:, 0] ** 2 - X[:, 1])
    np.testing.assert_allclose(linear.predict(QUERIES), QUERIES[:, 0] ** 2 - QUERIES[:, 1], atol=0.05)
    named = GPRegressor("matern52", approximation="ssgp", **QUICK).fit(X, Y)
    assert isinstance(named.kernel_, Scale)
    assert "Matern(2.5" in str(named.kernel_)


def test_inducing_as_it_was_is_no_approximation_by_name() -> None:
    member = GPRegressor("matern32", approximation="inducing", n_inducing=20).fit(X, Y)._fitted.members[0]
    assert member.plan.parts is None
    assert type(member.process.approximation) is Inducing  # type: ignore[union-attr]
