"""`KernelSearchClassifier`: what arrives, what is taken away, what is kept, what is said of it, and what is refused."""

from __future__ import annotations

import copy
import math
import pickle
import re
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_moons

from sureshot import KernelSearchClassifier
from sureshot.estimators import SearchStep
from sureshot.estimators.search.settings import SearchSettings
from sureshot.estimators.search.size import check_size
from sureshot.persistence import ArtifactError, load_artifact, save_artifact
from sureshot.structure.canonical import canonical
from sureshot.structure.grammar import Grammar
from sureshot.structure.prediction import moments
from sureshot.structure.structure import Structure

X, Y = make_moons(40, noise=0.2, random_state=0)
QUERIES = np.random.default_rng(1).normal(size=(20, 2))
FAST: dict[str, Any] = {"n_particles": 4, "n_rejuvenation": 1}


def made(**settings: Any) -> KernelSearchClassifier:
    return KernelSearchClassifier(**{**FAST, **settings})


@cache
def fitted(**settings: Any) -> KernelSearchClassifier:
    """On all rows; tests that change a model take a copy."""
    return made(**settings).fit(X, Y)


@pytest.fixture
def model() -> KernelSearchClassifier:
    return fitted()


def copy_of(model: KernelSearchClassifier) -> KernelSearchClassifier:
    copied: KernelSearchClassifier = pickle.loads(pickle.dumps(model))
    return copied


def test_it_learns_what_a_line_cannot_tell() -> None:
    x = np.random.default_rng(0).normal(size=(160, 2))
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    found = KernelSearchClassifier(n_particles=6).fit(x[:80], y[:80])
    line = made(structure="LINEAR").fit(x[:80], y[:80])
    assert found.score(x[80:], y[80:]) > 0.8 > 0.7 > line.score(x[80:], y[80:])
    assert found.log_evidence_ > line.log_evidence_ + 5


def test_what_it_says_of_kernels_agrees(model: KernelSearchClassifier) -> None:
    masses = [mass for mass, _ in model.kernel_posterior_]
    assert masses == sorted(masses, reverse=True)
    assert sum(masses) == pytest.approx(1)
    by_form: dict[str, float] = {}
    for particle in model.particles_:
        form = str(canonical(Structure.parse(particle.structure)))
        by_form[form] = by_form.get(form, 0.0) + particle.weight
        assert particle.nugget > 0
    assert by_form == pytest.approx({structure: mass for mass, structure in model.kernel_posterior_})
    weights = np.array([particle.weight for particle in model.particles_])
    assert (np.diff(weights) <= 0).all()
    averaged = fitted(predictive="integral")
    alone = averaged.particle_proba(QUERIES)
    assert alone.shape == (4, len(QUERIES), 2)
    np.testing.assert_allclose(np.einsum("m,mnc->nc", weights, alone), averaged.predict_proba(QUERIES), rtol=1e-12)
    at_means = fitted(predictive="plug_in")
    latent = at_means.predict_latent(QUERIES).mean
    odds = np.exp((latent[:, 1] - latent[:, 0]) / at_means.temperature_)
    np.testing.assert_allclose(at_means.predict_proba(QUERIES)[:, 1], odds / (1 + odds), rtol=1e-9)


def test_particles_alone_with_many_classes_and_with_one() -> None:
    labels = np.arange(len(Y)) % 3
    three = made(n_particles=2, predictive="integral").fit(X, labels)
    alone = three.particle_proba(QUERIES)
    np.testing.assert_allclose(alone.sum(-1), 1, atol=0.01)  # one-vs-each by quadrature
    weights = [particle.weight for particle in three.particles_]
    np.testing.assert_allclose(np.einsum("m,mnc->nc", weights, alone), three.predict_proba(QUERIES), atol=0.01)
    one = made().partial_fit(X[Y == 0], Y[Y == 0])
    assert (one.particle_proba(QUERIES) == 1).all()


@pytest.mark.parametrize(
    ("schedule", "sizes"),
    [
        ("logarithmic", [16, 16, 32, 36]),
        ("linear", [16, 16, 16, 16, 16, 16, 4]),
        ("once", [100]),
        ([30, 50], [30, 50, 20]),
        ([], [100]),
        ([300], [100]),
    ],
)
def test_rows_come_in_batches(schedule: Any, sizes: list[int]) -> None:
    arguments = KernelSearchClassifier(schedule=schedule).get_params()
    assert SearchSettings.checked(arguments).batches(100) == sizes


def test_each_batch_is_a_step_and_the_callback_hears_of_it() -> None:
    heard: list[SearchStep] = []
    model = made(schedule=[10, 20], callback=heard.append).fit(X, Y)
    assert [step.n_rows for step in heard] == [10, 30, 40]
    assert model.steps_ == tuple(heard)
    assert model.ess_history_ == [size for step in heard for size in step.effective_sample_sizes]
    assert all(1 <= size <= 4 for size in model.ess_history_)
    last = heard[-1]
    assert last.log_evidence == model.log_evidence_ < heard[0].log_evidence < 0
    assert list(last.structures) == model.kernel_posterior_
    assert all(0 <= place < 4 for place in last.ancestors)
    assert all(0 <= rate <= 1 for rate in last.acceptance.values())
    model.partial_fit(X[:3], Y[:3])
    assert len(heard) == len(model.steps_) == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_in_the_middle_changes_nothing(error: type[BaseException]) -> None:
    def stop(step: SearchStep) -> None:
        if step.n_rows > 50:
            raise error("injected")

    model = made(schedule="linear", callback=stop).fit(X, Y)
    before, p = model._fitted, model.predict_proba(QUERIES)
    with pytest.raises(error, match="injected"):
        model.partial_fit(X, Y)
    assert model._fitted is before
    np.testing.assert_array_equal(model.predict_proba(QUERIES), p)
    unfitted = made(callback=stop)
    with pytest.raises(error):
        unfitted.fit(np.tile(X, (2, 1)) + 1e-3 * np.arange(80)[:, None], np.tile(Y, 2))
    assert not hasattr(unfitted, "kernel_posterior_")


def test_a_stream_that_begins_with_one_class() -> None:
    model = made().partial_fit(X[Y == 1], ["yes"] * 20)
    assert (model.predict_proba(QUERIES) == 1).all()
    assert model.log_evidence_ == 0
    model.partial_fit(X[Y == 0], ["no"] * 20)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.score(X, np.where(Y, "yes", "no")) >= 0.8
    model.partial_fit(X[:5] + 6, ["new"] * 5)
    assert model.classes_.tolist() == ["new", "no", "yes"]
    assert (model.predict(X[:5] + 6) == "new").all()


def test_rows_of_one_class_wait_for_the_second(tmp_path: Path) -> None:
    model = made(predictive="plug_in").partial_fit(X[Y == 1][:10], Y[Y == 1][:10], classes=[0, 1])
    (middle, far) = model.predict_proba([X[Y == 1][:10].mean(0), [9.0, 9.0]])
    assert 0.5 < middle[1] < 0.8
    assert 0.5 < far[0] < 0.8
    np.testing.assert_allclose(model.particle_proba(QUERIES)[0], model.predict_proba(QUERIES))
    assert (model.uncertainty(QUERIES).epistemic >= 0).all()
    assert [(step.n_rows, step.acceptance) for step in model.steps_] == [(10, {})]
    assert model.log_evidence_ == 0
    path = tmp_path / "model"
    model.save(path)
    loaded = KernelSearchClassifier.load(path).partial_fit(X[Y == 0], Y[Y == 0])
    model.remove(X[Y == 1][:1]).partial_fit(X[Y == 1][:1], [1]).partial_fit(X[Y == 0], Y[Y == 0])
    assert model.score(X, Y) > 0.7
    assert loaded.steps_[-1].n_rows == model.steps_[-1].n_rows == 30
    scaling = model._fitted.scaling  # of all rows, not of those that came first
    np.testing.assert_allclose(scaling.mean, np.concatenate([X[Y == 1][:10], X[Y == 0]]).mean(0), atol=1e-12)


def test_the_rule_is_that_which_says_labels_of_rows_left_out_best(tmp_path: Path) -> None:
    rules = ("integral", "plug_in", "stacked", "auto")
    models = {rule: fitted(predictive=rule) for rule in rules}
    assert [model.predictive_ for model in models.values()][:3] == ["integral", "plug_in", "stacked"]
    assert models["integral"].temperature_ == models["stacked"].temperature_ == 1.0
    assert models["plug_in"].temperature_ != 1.0
    auto = models["auto"]
    assert auto.predictive_ != "plug_in"
    same = models[auto.predictive_]
    np.testing.assert_array_equal(auto.predict_proba(QUERIES), same.predict_proba(QUERIES))
    found = {rule: models[rule].predict_proba(QUERIES) for rule in rules}
    for one, other in (("integral", "plug_in"), ("integral", "stacked"), ("plug_in", "stacked")):
        assert np.abs(found[one] - found[other]).max() > 0.01
    for rule in ("plug_in", "stacked"):
        models[rule].save(tmp_path / rule)
        loaded = KernelSearchClassifier.load(tmp_path / rule)
        np.testing.assert_array_equal(loaded.predict_proba(QUERIES), found[rule])
        assert loaded.predictive_ == rule


def test_a_calibrated_rule_stays(tmp_path: Path) -> None:
    for rule in ("plug_in", "stacked"):
        model = made(predictive=rule).fit(X[:30], Y[:30])
        calibrated = model.calibrate(X[:10], Y[:10]).temperature_
        stack = model._fitted.predictor.chosen.stack
        model.partial_fit(X[30:], Y[30:])
        assert model.temperature_ == calibrated
        if stack is not None:  # its weights stay, too, on the labels of all rows
            now = model._current().predictor.chosen.stack
            assert (now.posterior, now.regression, now.of_labels.scale) == (
                stack.posterior,
                stack.regression,
                stack.of_labels.scale,
            )
            assert now.of_labels.dual.shape == (4, 40, 1)
        model.save(tmp_path / "model")
        loaded = KernelSearchClassifier.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict_proba(QUERIES), model.predict_proba(QUERIES))


@pytest.mark.parametrize("calibrated", [False, True])
def test_an_update_leaves_the_rule_to_who_asks(tmp_path: Path, calibrated: bool) -> None:
    model = made().fit(X[:30], Y[:30])
    if calibrated:
        model.calibrate(X[:10], Y[:10])
    asked = copy.deepcopy(model)
    for row in range(30, 33):
        for one in (model, asked):
            one.partial_fit(X[[row]], Y[[row]])
        with torch.inference_mode():
            asked.predict_proba(QUERIES)
    assert model.log_evidence_ == asked.log_evidence_
    assert not model._fitted.has_rule
    model.save(tmp_path / "model")
    loaded = KernelSearchClassifier.load(tmp_path / "model")
    for other in (asked, loaded, copy.deepcopy(model)):
        np.testing.assert_array_equal(other.predict_proba(QUERIES), model.predict_proba(QUERIES))
        assert (other.predictive_, other.temperature_) == (model.predictive_, model.temperature_)
    for one in (model, loaded):
        one.partial_fit(X[33:], Y[33:])
    np.testing.assert_array_equal(loaded.predict_proba(QUERIES), model.predict_proba(QUERIES))


def test_stacked_latents_are_a_sum_of_two() -> None:
    state, predictor = (found := fitted(predictive="stacked")._fitted).state, found.predictor
    stack, queries = predictor.chosen.stack, torch.from_numpy(QUERIES)
    assert predictor.chosen.rule == "stacked"
    assert stack is not None
    posterior, regression = moments(state, queries)[0], stack.of_labels.means(state, queries)
    latent = np.einsum(
        "m,mq->q", predictor.weights, stack.posterior * posterior[:, 0] + stack.regression * regression[:, 0]
    )
    p = predictor.probabilities(predictor.moments(queries), 1.0)
    np.testing.assert_allclose(p[:, 1], 1 / (1 + np.exp(-latent)), rtol=1e-9)
    three = made(n_particles=2, predictive="stacked").fit(X, np.arange(len(Y)) % 3)
    np.testing.assert_allclose(three.predict_proba(QUERIES).sum(1), 1)


@cache
def announced(predictive: str) -> KernelSearchClassifier:
    """With a class that has no rows."""
    return made(predictive=predictive).partial_fit(X, Y, classes=[0, 1, 2])


@pytest.mark.parametrize("predictive", ["integral", "plug_in", "stacked"])
def test_a_class_without_rows_has_what_the_posteriors_doubt_leaves_it(predictive: str, tmp_path: Path) -> None:
    """Regression on labels, whose label is -1 everywhere, takes it for ruled out: 12 nats where it comes after all."""
    model = announced(predictive)
    p, far = model.predict_proba(X), model.predict_proba(X + 50)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)
    doubt = announced("integral").predict_proba(X)[:, 2]
    np.testing.assert_allclose(p[:, 2], doubt, rtol=1e-10)
    assert far[:, 2].mean() > 2 * p[:, 2].mean()
    np.testing.assert_allclose(model._fitted.probabilities_left_out().sum(1), 1, atol=1e-12)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(KernelSearchClassifier.load(tmp_path / "m").predict_proba(X), p)
    known = copy_of(model).forget(classes=[2]).predict_proba(X)
    assert known.shape == (len(X), 2)


def test_only_the_latest_rows_are_kept() -> None:
    model = made(window=30)
    for k in range(4):
        model.partial_fit(X[10 * k : 10 * k + 10], Y[10 * k : 10 * k + 10])
    assert model.steps_[-1].n_rows == 30
    kept = {(*row, label) for row, label in zip(model.X_train_.tolist(), model.y_train_.tolist(), strict=True)}
    assert kept == {(*row, label) for row, label in zip(X[10:40].tolist(), Y[10:40].tolist(), strict=True)}
    small = made(window=3).fit(X, Y)  # of a call that is larger than the window
    assert len(small.y_train_) == 3
    assert max(step.n_rows for step in small.steps_) == 3
    assert np.isfinite(small.predict_proba(QUERIES)).all()


def test_ancestors_are_places_before_the_batch() -> None:
    model = made(n_particles=16, n_rejuvenation=0, window=10, schedule="once")
    model.partial_fit(X[:10], Y[:10])
    resampled = 0
    for k in range(12):  # the pattern changes each time, so weights do
        before = model._fitted.state.particles.z
        part = np.arange(10 * k, 10 * k + 6) % 40
        model.partial_fit(X[part], (Y[part] + k) % 2)
        step = model.steps_[-1]
        resampled += step.resampled
        for number, place in enumerate(step.ancestors):  # nothing was moved
            np.testing.assert_array_equal(model._fitted.state.particles.z[number], before[place])
    assert resampled


def deviation(first: list[np.ndarray], second: list[np.ndarray]) -> float:
    """How many standard errors two means of runs differ by, at most."""
    means = np.mean(first, 0) - np.mean(second, 0)
    errors = np.sqrt((np.var(first, 0, ddof=1) + np.var(second, 0, ddof=1)) / len(first))
    return float(np.abs(means / errors).max())


@pytest.mark.slow
def test_taken_away_is_as_never_seen_but_for_sampling_error() -> None:
    third = np.concatenate([Y[:30], np.full(10, -1)])
    runs: dict[str, list[np.ndarray]] = {}
    for seed in range(6):
        settings: dict[str, Any] = {"structure": "SQUARED-EXPONENTIAL", "predictive": "integral", "standardize": False}
        fresh = KernelSearchClassifier(8, **settings, random_state=seed)
        never, removed, forgot = (clone(fresh).fit(X[: len(y)], y) for y in (Y[:30], Y, third))
        runs.setdefault("not yet", []).append(removed.predict_proba(QUERIES)[:, 1])
        removed.remove(X[30:], Y[30:])
        forgot.forget([-1])
        assert len(removed._fitted.rows.y) == len(forgot._fitted.rows.y) == 30
        assert forgot.classes_.tolist() == [0, 1]
        for name, model in (("never", never), ("removed", removed), ("forgot", forgot)):
            runs.setdefault(name, []).append(model.predict_proba(QUERIES)[:, 1])
            runs.setdefault(f"evidence, {name}", []).append(np.array([model.log_evidence_]))
    for name in ("removed", "forgot"):
        assert deviation(runs[name], runs["never"]) < 5 < deviation(runs["not yet"], runs["never"])
        assert deviation(runs[f"evidence, {name}"], runs["evidence, never"]) < 5
    assert len(forgot.remove(X[:2], Y[:2])._fitted.rows.y) == 28  # rows go by the numbers of the classes that are left


@pytest.mark.parametrize("settings", [{}, {"n_inducing": 8}, {"representation": "whitened"}])
def test_labels_of_one_class_that_is_left_have_evidence_of_nothing(settings: dict[str, Any], tmp_path: Path) -> None:
    """As before a second class had come: nothing is told apart, so nothing could have been said otherwise."""
    third = np.concatenate([Y[:30], np.full(10, 2)])
    model = made(n_particles=2, **settings).fit(X, third)
    assert model.log_evidence_ < -1
    assert model.forget([2]).log_evidence_ < -1
    assert model.forget([1]).log_evidence_ == 0
    assert model.log_evidence_ == made(**settings).partial_fit(X[Y == 0], Y[Y == 0]).log_evidence_
    model.save(tmp_path / "m.safetensors")
    loaded = KernelSearchClassifier.load(tmp_path / "m.safetensors")
    assert loaded.log_evidence_ == 0
    assert loaded.partial_fit(X[Y == 1][:5], Y[Y == 1][:5]).log_evidence_ < 0


def test_a_copy_is_removed_at_a_time_and_mistakes_remove_nothing() -> None:
    model = made().fit(np.concatenate([X, X[:2]]), np.concatenate([Y, Y[:2]]))
    model.remove(X[:2])
    assert len(model._fitted.rows.y) == 40
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: model.remove(X[:1] + 1), "row 0 is not among those that were learnt"),
        (lambda: model.remove(X[[3, 3]]), "row 1 is not among those that were learnt"),
        (lambda: model.remove(X[:2], 1 - Y[:2]), "row 0 is not among those that were learnt"),
        (lambda: model.remove(X[:2], [0, 7]), "labels the model does not know: 7"),
        (lambda: model.remove(X[:2], Y[:3]), "X has 2, y has 3"),
        (lambda: model.remove(X), "cannot remove every row"),
        (lambda: model.forget([0, 1]), "cannot forget every class"),
        (lambda: model.forget(["x"]), "does not know: 'x'"),
    ]
    before = model._fitted
    for call, message in refused:
        with pytest.raises(ValueError, match=message):
            call()
        assert model._fitted is before


@pytest.mark.parametrize("structure", [None, "LINEAR", "LINEAR x PERIODIC"])
def test_rows_a_hundred_deviations_away_are_outlying(structure: str | None) -> None:
    model = fitted(structure=structure)
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 40)
    far = X.mean(0) + 100 * X.std(0) * np.stack([np.cos(angle), np.sin(angle)], -1)
    assert model.outlier_score(far).min() > model.outlier_score(X).max()
    wild = np.array([[1e30, 0], [1e300, -1e300], [0, -1e9]])
    assert model.outlier_score(wild).min() > model.outlier_score(X).max()
    one_class = made(structure=structure).partial_fit(X[Y == 0], Y[Y == 0])
    scores = one_class.outlier_score(np.concatenate([X[Y == 0], far]))
    assert scores[20:].min() > scores[:20].max()


def test_outliers_between_the_rows_are_found_under_a_line_too() -> None:
    rng = np.random.default_rng(0)
    x, y = make_moons(200, noise=0.1, random_state=1)
    background = rng.uniform(x.min(0) - 0.5, x.max(0) + 0.5, (200, 2))
    model = made(structure="LINEAR").fit(x[:60], y[:60])
    known, unknown = model.outlier_score(x[60:]), model.outlier_score(background)
    assert np.mean(unknown[:, None] > known) > 0.7


@pytest.mark.parametrize("n_inducing", [None, 7, 38])
def test_files_pickles_and_copies_go_on_as_the_model_does(n_inducing: int | None, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"n_particles": 2, "window": 35, "schedule": [9, 9], "n_inducing": n_inducing}
    model = made(callback=print_nothing, **settings).fit(X, Y)
    model.save(tmp_path / "model")
    joblib.dump(model, tmp_path / "joblib")
    others = [KernelSearchClassifier.load(tmp_path / "model"), copy_of(model), joblib.load(tmp_path / "joblib")]
    assert others[0].callback is None
    assert others[0].get_params() == {**model.get_params(), "callback": None}
    model.partial_fit(X[:4], Y[:4]).forget([])
    for other in others:
        other.partial_fit(X[:4], Y[:4]).forget([])
        np.testing.assert_array_equal(other.predict_proba(QUERIES), model.predict_proba(QUERIES))
        np.testing.assert_array_equal(other.outlier_score(QUERIES), model.outlier_score(QUERIES))
        assert other.steps_ == model.steps_
        assert other.kernel_posterior_ == model.kernel_posterior_
        assert other.log_evidence_ == model.log_evidence_
    assert clone(model).callback is print_nothing


def print_nothing(step: SearchStep) -> None:
    """A callback that can be pickled."""


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("structures", [["LINER"]] * 4),
        ("structures", [["+", "LINEAR"]] * 4),
        ("structures", [["LINEAR"]] * 3),
        ("settings", {"n_particles": 4}),
        ("rule", "best"),
        ("steps", [{"n_rows": 3}]),
        ("seed", "one"),
    ],
)
def test_malformed_files_are_refused(place: str, value: Any, model: KernelSearchClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    artifact = load_artifact(tmp_path / "model")
    header = {**artifact.header, place: value}
    for name in ("format", "kind", "version"):
        header.pop(name, None)
    save_artifact(tmp_path / "changed", artifact.kind, header, dict(artifact.arrays))
    with pytest.raises(ArtifactError):
        KernelSearchClassifier.load(tmp_path / "changed")


def test_threads_may_predict_at_once(model: KernelSearchClassifier) -> None:
    expected = model.predict_proba(QUERIES)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: model.predict_proba(QUERIES), range(8)):
            np.testing.assert_array_equal(found, expected)


def test_weights_are_copies() -> None:
    weight = np.arange(40) % 3
    weighted = made().fit(X, Y, sample_weight=weight)
    repeated = made().fit(X.repeat(weight, 0), Y.repeat(weight))
    np.testing.assert_array_equal(weighted.predict_proba(QUERIES), repeated.predict_proba(QUERIES))
    with pytest.raises(ValueError, match=r"whole numbers .* but a row .* has 0\.5: leave it out, or round it"):
        made().fit(X, Y, sample_weight=np.full(40, 0.5))
    with pytest.warns(UserWarning, match=r"400 rows of 5 classes, 1600 comparisons .* takes about 2 minutes"):
        check_size(replace(weighted._fitted.settings, n_particles=64), 400, 5)
    with pytest.raises(MemoryError, match=r"40000000000000 rows .* would take about"):
        made().fit(X, Y, sample_weight=np.full(40, 1e12))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"structure": "LINER"}, r"structure: there is no leaf 'LINER' \(did you mean 'LINEAR'\?\); leaves: LINEAR, "),
        ({"structure": "linear"}, r"\(did you mean 'LINEAR'\?\)"),
        ({"structure": "LINEAR + PERODIC"}, r"'PERODIC' \(did you mean 'PERIODIC'\?\)"),
        ({"structure": "LINEAR +"}, "structure must be .*ends where a kernel is expected"),
        ({"structure": ""}, "structure must be .*ends where a kernel is expected"),
        ({"structure": "LINEAR PERIODIC"}, "nothing is expected at 'PERIODIC'"),
        ({"structure": "(LINEAR"}, "opening bracket that is not closed"),
        ({"structure": "LINEAR - CONSTANT"}, "'-' is not understood"),
        ({"structure": "LINEAR[2]"}, r"structure: LINEAR\[2\] looks at column 2, but rows have 2 columns"),
        ({"structure": 3}, "structure must be None or text .*got 3"),
        ({"schedule": [0]}, "each number of schedule must be a positive integer; got 0"),
        ({"schedule": "log"}, "schedule must be one of 'logarithmic', 'linear', 'once', or a list of sizes; got 'log'"),
        ({"n_particles": 0}, "n_particles must be a positive integer; got 0"),
        ({"n_rejuvenation": -1}, "n_rejuvenation must be an integer of at least 0"),
        ({"window": 0}, "window must be a positive integer"),
        ({"n_inducing": 0}, "n_inducing must be a positive integer; got 0"),
        ({"n_inducing": 2.5}, r"n_inducing must be a positive integer; got 2\.5"),
        ({"n_inducing": 9, "representation": "whitened"}, "n_inducing needs representation='collapsed'"),
        ({"grammar": "papre"}, r"no grammar 'papre' \(did you mean 'paper'\?\)"),
        ({"grammar": {}}, "grammar must be a Grammar or one of 'default', 'paper'"),
        ({"representation": "white"}, "representation must be one of 'collapsed', 'whitened'"),
        ({"standardize": "auto"}, "standardize must be one of True, False"),
        ({"predictive": "mean"}, "predictive must be one of 'auto', 'integral', 'plug_in', 'stacked'; got 'mean'"),
        ({"predictive": "stacked", "representation": "whitened"}, "predictive='stacked' needs representation='coll"),
        ({"callback": 3}, "callback must be None or a function of a SearchStep; got 3"),
        ({"random_state": -1}, "random_state must be .*got -1"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**settings).fit(X, Y)


def test_too_many_rows_are_refused_with_what_to_try() -> None:
    x = np.random.default_rng(0).normal(size=(3000, 2))
    with pytest.raises(MemoryError, match=r"3000 rows and 4 particles .* GB and \d+ (seconds|minutes).*window=1000\)"):
        made().fit(x, np.arange(3000) % 2)
    with pytest.raises(
        MemoryError, match=r"3000 rows of 5 classes, 12000 comparisons and .*hours.*window=250\)"
    ) as info:
        KernelSearchClassifier().fit(x, np.arange(3000) % 5)
    assert "\n" not in str(info.value)
    within = made(n_particles=1, n_rejuvenation=0, window=250).fit(x, np.arange(3000) % 2)
    assert within.steps_[-1].n_rows == 250


def test_with_as_many_inducing_inputs_as_rows_kernels_are_seen_whole() -> None:
    """Where nothing is moved: moves draw other numbers."""
    exact, model = (made(n_particles=3, n_rejuvenation=0, n_inducing=most) for most in (None, 100))
    for one in (exact, model):
        for part in (slice(0, 15), slice(15, 16), slice(16, 40)):
            one.partial_fit(X[part], Y[part])
    same_answers(exact, model)
    for one in (exact, model):
        one.remove(X[5:6])
    same_answers(exact, model)
    assert torch.equal(model._fitted.state.inducing.sort(0).values, model._fitted.state.x.sort(0).values)
    alone = [made(n_inducing=most).partial_fit(X[Y == 0], Y[Y == 0], classes=[0, 1]) for most in (None, 100)]
    for of_rows in ("predict_proba", "outlier_score"):
        first, second = (getattr(one, of_rows)(QUERIES) for one in alone)
        np.testing.assert_allclose(first, second, atol=1e-8)


def same_answers(first: KernelSearchClassifier, second: KernelSearchClassifier) -> None:
    assert second.log_evidence_ == pytest.approx(first.log_evidence_, abs=1e-8)
    assert second.predictive_ == first.predictive_
    np.testing.assert_allclose(second.predict_proba(QUERIES), first.predict_proba(QUERIES), atol=1e-6)
    np.testing.assert_allclose(second.outlier_score(QUERIES), first.outlier_score(QUERIES), atol=1e-8)


def test_inducing_inputs_are_chosen_anew_when_as_many_rows_have_come() -> None:
    model, found = made(n_inducing=6, n_rejuvenation=0), []
    for k in range(8):
        model.partial_fit(X[5 * k : 5 * k + 5], Y[5 * k : 5 * k + 5])
        found.append(model._fitted.state.inducing)
    assert [len(one) for one in found] == [5] + [6] * 7
    chosen = [k for k in range(1, 8) if not torch.equal(found[k], found[k - 1])]
    assert chosen == [1, 3, 7], "at 10, 20 and 40 rows"
    assert model.score(X, Y) > 0.7


@pytest.mark.parametrize("settings", [{}, {"window": 30}, {"structure": "SQUARED-EXPONENTIAL"}])
def test_through_inducing_inputs_classes_come_and_go(settings: dict[str, Any]) -> None:
    model = made(n_particles=2, n_inducing=8, **settings)
    model.partial_fit(X[Y == 0][:5], Y[Y == 0][:5]).partial_fit(X[:20], Y[:20])
    model.partial_fit(X[20:30], Y[20:30] + 1).partial_fit(X[30:], Y[30:])
    assert model.classes_.tolist() == [0, 1, 2]
    model.forget([1])
    p = model.predict_proba(QUERIES)
    assert p.shape == (20, 2)
    np.testing.assert_allclose(p.sum(1), 1)
    np.testing.assert_allclose(model.predict_proba(QUERIES[:1]), p[:1], atol=1e-10)
    assert np.isfinite(model.outlier_score(QUERIES)).all()
    assert (model.uncertainty(QUERIES).total >= 0).all()
    model.forget([2])
    np.testing.assert_array_equal(model.predict_proba(QUERIES), 1)


@pytest.mark.parametrize("predictive", ["integral", "stacked", "plug_in"])
def test_every_rule_predicts_through_inducing_inputs(predictive: str) -> None:
    x, y = make_moons(300, noise=0.15, random_state=3)
    model = made(n_inducing=25, predictive=predictive).fit(x[:200], y[:200])
    assert model.predictive_ == predictive
    assert model.score(x[200:], y[200:]) > 0.9


def test_more_rows_are_seen_through_inducing_inputs() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2100, 2))
    y = (x[:, 0] > 0).astype(int)
    structure = "SQUARED-EXPONENTIAL"
    model = made(n_rejuvenation=0, n_inducing=10, predictive="integral", structure=structure).fit(x, y)
    assert model.steps_[-1].n_rows == 2100
    assert model.score(x, y) > 0.9
    with pytest.raises(MemoryError, match=r"window=1000\), see kernels through inducing inputs \(n_inducing=100\)"):
        made().fit(x, y)
    with pytest.raises(
        MemoryError,
        match=r"600 inducing inputs .* at most 2000 weights \(inducing inputs times .*: take a smaller n_in",
    ):
        made(n_inducing=600).fit(x, np.arange(2100) % 4)


def test_constant_columns_are_ignored_with_one_warning() -> None:
    wide = np.c_[X, np.ones(40), np.zeros(40)]
    with pytest.warns(UserWarning, match="ignored 2 constant columns of 4") as caught:
        model = made().fit(wide, Y)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(model.predict_proba(wide), fitted().predict_proba(X))


def test_a_column_that_varies_only_now_stays_ignored_with_a_warning() -> None:
    late = np.c_[X, np.arange(40) >= 20]
    with pytest.warns(UserWarning, match="ignored 1 constant columns of 3"):
        model = made().fit(late[:20], Y[:20])
    assert model.kernel_columns_ == ["column 0", "column 1"]
    with pytest.warns(UserWarning, match=r"columns 2 \(counted from 0\) had one value .* stay ignored") as caught:
        model.partial_fit(late[20:], Y[20:])
    assert caught[0].filename == __file__


def test_columns_that_kernels_number_have_names() -> None:
    frame = pd.DataFrame({"a": X[:, 0], "b": 1.0, "c": np.where(X[:, 1] > 0.3, "high", "low"), "d": X[:, 1]})
    with pytest.warns(UserWarning, match="ignored 1 constant columns"):
        model = made(structure="SQUARED-EXPONENTIAL[0]").fit(frame, Y)
    assert (model.kernel_columns_[0], model.kernel_columns_[-1]) == ("a", "d")
    assert "b" not in model.kernel_columns_


@pytest.mark.parametrize("name", ["window", "n_inducing"])
def test_settings_of_the_first_batch_hold_until_the_next_fit(name: str, model: KernelSearchClassifier) -> None:
    later = copy_of(model).set_params(**{name: 10})
    with pytest.warns(
        UserWarning, match=f"{name} changed since the first batch, .* holds from the next fit on"
    ) as told:
        later.partial_fit(X[:1], Y[:1])
    assert told[0].filename == __file__
    assert later.steps_[-1].n_rows == 41
    with pytest.raises(MemoryError, match=r"fit anew and keep the latest rows only \(window=1000\)"):
        copy_of(model).partial_fit(np.random.default_rng(0).normal(size=(3000, 2)), np.arange(3000) % 2)
    assert len(made(**{name: 10}).fit(X, Y).classes_) == 2


def test_a_number_of_inducing_inputs_that_is_advised_is_not_refused() -> None:
    settings = SearchSettings.checked(vars(made(n_particles=32)))
    with pytest.raises(MemoryError) as refused:
        check_size(settings, 16_000, 26)
    found = re.search(r"n_inducing=(\d+)", str(refused.value))
    if found:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_size(replace(settings, n_inducing=int(found[1])), 16_000, 26)


def test_the_evidence_has_an_error_that_files_keep(tmp_path: Path) -> None:
    one = fitted()
    assert 0 < one.log_evidence_error_ < 10
    one.save(tmp_path / "model")
    assert KernelSearchClassifier.load(tmp_path / "model").log_evidence_error_ == pytest.approx(one.log_evidence_error_)
    assert made().partial_fit(X[Y == 0], Y[Y == 0]).log_evidence_error_ == 0
    artifact = load_artifact(tmp_path / "model")
    header = {name: value for name, value in artifact.header.items() if name not in ("format", "kind", "version")}
    for wrong in ([], {"eves": [9] * 4}, {"eves": [0]}, {"eves": 3}, {"settled_variance": -1.0}):
        save_artifact(tmp_path / "bad", artifact.kind, header | {"evidence_error": wrong}, dict(artifact.arrays))
        with pytest.raises(ArtifactError):
            KernelSearchClassifier.load(tmp_path / "bad")


@pytest.mark.parametrize(
    ("value", "standardize"), [(1e30, True), (1e30, False), (1e300, True), (-1e300, False), (1e-300, False)]
)
def test_wild_cells_give_proper_probabilities(value: float, standardize: bool) -> None:
    wild = X.copy()
    wild[3, 1] = value
    for model in (
        made(standardize=standardize).fit(wild, Y),
        copy_of(fitted(standardize=standardize)).partial_fit(wild[3:4], Y[3:4]),
    ):
        p = model.predict_proba(np.concatenate([wild, [[1e300, -1e300], [0, 1e30]]]))
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(1), 1)


DEEP = " x ".join(8 * ["LINEAR"])


@pytest.mark.parametrize(
    "latents", [{"representation": "collapsed"}, {"representation": "whitened"}, {"n_inducing": 6}]
)
@pytest.mark.parametrize(("structure", "window"), [(None, 9), (DEEP, None)])
def test_streams_that_kill_all_particles_go_on(
    latents: dict[str, Any], structure: str | None, window: int | None
) -> None:
    """Columns of 1e150 behind a first batch as usual, a cell of 1e30, equal rows far away with other labels."""
    x, y = X.copy(), Y.copy()
    x[8:11] *= 1e150
    x[14, 1] = 1e30
    x[18:24], y[18:24] = 1e30 * x[18], [0, 1, 0, 1, 0, 1]
    x[26:32], y[26:32] = 50 * x[26], [0, 1, 0, 1, 0, 1]
    model = made(**latents, structure=structure, window=window, n_rejuvenation=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for begin in range(0, 40, 8):
            seen = len(caught)
            model.partial_fit(x[begin : begin + 8], y[begin : begin + 8], classes=[0, 1])
            assert len(caught) <= seen + 1
        model.remove(x[32:33])
    assert [str(one) for one in caught if "drawn anew" not in str(one.message) or one.filename != __file__] == []
    assert structure is not None or not caught
    assert math.isfinite(model.log_evidence_)
    far = np.concatenate([x, [[1e300, -1e300]]])
    for found in (model.predict_proba(far), model.outlier_score(far), model.uncertainty(far).total):
        assert np.isfinite(found).all()


def test_rows_on_which_every_kernel_overflows_are_refused() -> None:
    model = made(n_particles=2, grammar=Grammar(scale=1e280), structure="LINEAR x LINEAR x LINEAR").fit(X[:6], Y[:6])
    before = model._fitted
    with pytest.raises(ValueError, match=r"overflow .* so do 40 others of the prior; scale the columns"):
        model.partial_fit([[1e9, 0.0], [-1e9, 0.0]], [0, 1])
    assert model._fitted is before


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.ones((20, 3)), np.arange(20) % 2),
        (X[:6], np.array(list("abcdef"))),
        (X[:2], np.array([0, 1])),
        (X > 0.5, Y > 0),
        ((10 * X).astype(int), Y.astype(np.int8)),
        (X * 1e300, Y),
        (X * 1e-300, Y),
    ],
    ids=["rows that are equal", "one row a class", "two rows", "bools", "whole numbers", "huge", "tiny"],
)
def test_odd_tables_give_proper_probabilities(x: np.ndarray, y: np.ndarray) -> None:
    for settings in ({}, {"n_particles": 1}, {"n_rejuvenation": 0}):
        p = made(**settings).fit(x, y).predict_proba(x)
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(1), 1)


def test_frames_and_arrays_of_any_kind_are_the_same() -> None:
    def one() -> KernelSearchClassifier:
        return made(n_particles=2, n_rejuvenation=0, predictive="integral")

    expected = one().fit(X, Y).predict_proba(X)
    locked = X.copy()
    locked.flags.writeable = False
    frame = pd.DataFrame(X, columns=["a", "b"], index=np.arange(40) + 7)
    series = pd.Series(Y, index=frame.index)
    for x, y in ((locked, Y), (np.asfortranarray(X), Y), (frame, series), (X.tolist(), Y.tolist())):
        np.testing.assert_array_equal(one().fit(x, y).predict_proba(x), expected)
    single = X.astype(np.float32)
    np.testing.assert_array_equal(
        one().fit(single, Y).predict_proba(single), one().fit(single.astype(float), Y).predict_proba(single)
    )
    with pytest.raises(ValueError, match="feature names should match"):
        one().fit(frame, series).predict(frame[["b", "a"]])


def test_batches_that_do_not_fit_are_refused(model: KernelSearchClassifier) -> None:
    before = model._fitted
    with pytest.raises(ValueError, match="X has 4 features, but KernelSearchClassifier is expecting 2"):
        model.partial_fit(np.c_[X, X], Y)
    with pytest.raises(ValueError, match=r"NaN in 1 rows, columns \[1\].*SimpleImputer"):
        model.partial_fit([[0.0, np.nan]], [0])
    with pytest.raises(TypeError, match="labels changed type"):
        model.partial_fit(X[:2], ["a", "b"])
    assert model._fitted is before


ZEROS, ONES = np.flatnonzero(Y == 0), np.flatnonzero(Y == 1)


def kept_of(model: KernelSearchClassifier, rows: np.ndarray) -> list[int]:
    kept = {tuple(row) for row in model._fitted.rows.x}
    return [place for place, row in enumerate(rows) if tuple(row) in kept]


def test_the_latest_rows_are_kept_while_a_second_class_is_waited_for() -> None:
    model = made(window=6)
    for row in ZEROS[:14]:
        model.partial_fit(X[[row]], [0])
    assert kept_of(model, X[ZEROS]) == list(range(8, 14))
    for seed in range(5):
        model = made(window=8, random_state=seed, n_rejuvenation=0).partial_fit(X[ZEROS[:8]], [0] * 8)
        model.partial_fit(X[ONES[:1]], [1])
        assert kept_of(model, X[ONES]) == [0]
        assert len(kept_of(model, X[ZEROS])) == 7


def test_a_window_holds_what_it_can_of_rows_of_any_weight() -> None:
    model = made(window=10, n_rejuvenation=0).fit(X, Y, sample_weight=np.full(len(X), 1e9))
    assert len(model._fitted.rows.y) == 10


@pytest.mark.parametrize("settings", [{}, {"n_inducing": 5}, {"representation": "whitened"}])
def test_rows_of_one_class_that_are_left_wait_as_if_the_others_had_never_been_seen(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    rows = np.r_[ZEROS[:10], ONES[:10]]
    left = made(**settings).fit(X[rows], Y[rows]).remove(X[ONES[:10]])
    never = made(**settings, standardize=False).partial_fit(X[ZEROS[:10]], [0] * 10, classes=[0, 1])
    assert left.log_evidence_ == never.log_evidence_ == 0
    assert left._fitted.waits
    unscaled = made(**settings, standardize=False).fit(X[rows], Y[rows]).remove(X[ONES[:10]])
    np.testing.assert_array_equal(unscaled.predict_proba(QUERIES), never.predict_proba(QUERIES))
    left.save(tmp_path / "m")
    loaded = KernelSearchClassifier.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(QUERIES), left.predict_proba(QUERIES))
    assert left.partial_fit(X[ONES], Y[ONES]).score(X, Y) > 0.7


def test_classes_are_announced_by_calls_without_new_rows_too() -> None:
    model = made().fit(X[:20], Y[:20], row_id=range(20))
    again = copy_of(model).partial_fit(X[:2], Y[:2], classes=[0, 1, 2], row_id=[0, 1])
    assert again.classes_.tolist() == [0, 1, 2]
    assert again.predict_proba(QUERIES).shape == (len(QUERIES), 3)
    fewer = model.partial_fit(X[:2], Y[:2], sample_weight=[0, 1], classes=[0, 1, 2], row_id=[0, 1])
    assert fewer.classes_.tolist() == [0, 1, 2]
    assert len(fewer._fitted.rows.y) == 19


@pytest.mark.parametrize("weight", [0.5, 1.5])
def test_a_correction_by_a_part_of_a_row_is_refused_and_changes_nothing(weight: float) -> None:
    """Also where fewer rows than before are left by it."""
    model = made().fit(X[:20], Y[:20], row_id=range(20), sample_weight=[2] * 20)
    with pytest.raises(ValueError, match=f"must hold whole numbers for KernelSearchClassifier.* has {weight}"):
        model.partial_fit(X[:1], Y[:1], row_id=[0], sample_weight=[weight])
    assert len(model.forget(rows=[3])._fitted.rows.y) == 38
    with pytest.raises(ValueError, match=r"has 7\.5: leave it out"):
        made(window=5).fit(X[:20], Y[:20], sample_weight=[7.5] * 20)


def test_a_model_of_as_many_rows_as_may_be_can_be_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made().fit(X[:20], Y[:20], row_id=range(20))
    monkeypatch.setattr("sureshot.estimators.search.size.MOST_CONTRASTS", 20)
    assert len(model.partial_fit(X[20:21], 1 - Y[:1], row_id=[0])._fitted.rows.y) == 20
    with pytest.raises(MemoryError, match="21 rows"):
        model.partial_fit(X[21:22], Y[21:22], row_id=[20])


def test_ids_are_refused_where_the_model_has_a_window_whatever_the_argument_says_now() -> None:
    model = made(window=10).fit(X, Y).set_params(window=None)
    with pytest.raises(ValueError, match="row_id and window exclude each other"):
        model.partial_fit(X[:2], Y[:2], row_id=[0, 1])


@pytest.mark.parametrize("predictive", ["integral", "stacked", "plug_in"])
def test_what_is_far_from_all_rows_is_not_known_whatever_the_rule(predictive: str) -> None:
    far = fitted(predictive=predictive).uncertainty([[8.0, 8.0], [-50.0, 50.0]])
    assert (far.epistemic > 0.1).all()
    assert (far.total <= np.log(2) + 1e-9).all()


def test_rows_of_a_window_are_not_forgotten_by_id() -> None:
    model = made(window=20).fit(X, Y)
    with pytest.raises(ValueError, match="with a window rows have no ids"):
        model.forget(rows=[0])


def test_one_class_that_is_left_in_a_window_is_one_that_is_left() -> None:
    later, one = np.random.default_rng(3).normal(size=(6, 2)), [1] * 6
    window = made(window=6).fit(X, Y).partial_fit(later, one)
    left = copy_of(fitted()).partial_fit(later, one).remove(X)
    first = made().partial_fit(later, one, classes=[0])
    for other in (left, first):
        np.testing.assert_allclose(window.predict_proba(QUERIES), other.predict_proba(QUERIES), atol=0.05)
    assert window.log_evidence_ == left.log_evidence_ == 0
    assert len(window.steps_) > 1
    assert window.partial_fit(X[:6], Y[:6]).score(X, Y) > 0.5


def test_a_file_keeps_the_order_of_leaves(tmp_path: Path) -> None:
    """Kernels are drawn in it."""
    grammar = Grammar(leaves={"SQUARED-EXPONENTIAL": 1.0, "LINEAR": 2.0})
    model = made(grammar=grammar).fit(X[:12], Y[:12])
    model.save(tmp_path / "model")
    loaded = KernelSearchClassifier.load(tmp_path / "model")
    assert loaded.grammar == grammar
    assert list(loaded.grammar.leaves) == list(grammar.leaves)
    for one in (model, loaded):
        one.partial_fit(X[12:], Y[12:])
    np.testing.assert_array_equal(loaded.predict_proba(QUERIES), model.predict_proba(QUERIES))


def test_more_particles_than_memory_are_refused_before_any_is_drawn() -> None:
    with pytest.raises(MemoryError, match="1000000000 particles would take about"):
        made(n_particles=10**9).fit(X, Y)


def test_a_class_is_announced_in_a_list() -> None:
    with pytest.raises(ValueError, match=r"classes must be a list of labels, got 'abc': give \['abc'\]"):
        made().partial_fit(X, ["a"] * len(X), classes="abc")


def test_constant_columns_are_not_spoken_of_while_one_class_waits() -> None:
    x = np.c_[X[:, 0], np.zeros(len(X))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made().partial_fit(x[Y == 0], Y[Y == 0], classes=[1])
