"""What every regressor promises; a new one is a line of `CASES`."""

from __future__ import annotations

import copy
import pickle
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.estimator_checks import check_estimator

import sureshot
from sureshot import FewShotRegressor, GPRegressor, KernelSearchRegressor
from sureshot.approximations.by_name import BY_NAME
from sureshot.estimators import saved
from sureshot.estimators.numbers.regressor_base import IncrementalRegressor
from sureshot.meta.processes import make_process
from sureshot.meta.training.checkpoint import save_checkpoint
from tests.contracts.states import content, interrupted

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * RNG.normal(size=120)
TRAIN, QUERY = slice(0, 60), slice(60, 90)


@cache
def checkpoint() -> Path:
    """Of a learner of functions of three columns."""
    path = Path(tempfile.mkdtemp()) / "learner.safetensors"
    save_checkpoint(path, make_process("dkt_regression", 3, 1, hidden=(8,), seed=0), {}, {"episodes": 0}, {})
    return path


CASES: dict[str, Callable[[], IncrementalRegressor]] = {
    "defaults": GPRegressor,
    "one kernel": lambda: GPRegressor("rbf"),
    "explicit features": lambda: GPRegressor("polynomial2"),
    "inducing inputs": lambda: GPRegressor("matern32", approximation="inducing", n_inducing=12),
    **{
        name: lambda name=name: GPRegressor(approximation=name, n_inducing=12, target_transform="none")
        for name in BY_NAME
    },
    "tails": lambda: GPRegressor("rbf", noise="student_t"),
    "backbone": lambda: GPRegressor("rbf", backbone={"name": "mlp", "hidden": [8]}, backbone_steps=20),
    "nearest neighbours": lambda: GPRegressor(approximation="nearest_neighbours", n_neighbours=20),
    "kernel search": lambda: KernelSearchRegressor(1, structure="SQUARED-EXPONENTIAL", n_rejuvenation=0),
    "few-shot learner": lambda: FewShotRegressor(checkpoint()),
}
FITTED: dict[str, IncrementalRegressor] = {}


def fitted(case: str) -> Any:
    """One that has learnt the rows in `TRAIN`, with ids."""
    if case not in FITTED:
        FITTED[case] = CASES[case]().fit(np.asfortranarray(X[TRAIN]), Y[TRAIN], row_id=np.arange(60))
    return copy.deepcopy(FITTED[case])


def answers(model: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
    """All that a model says of rows, each with rows first."""
    mean, deviation = model.predict(rows, return_std=True)
    interval = model.predict_interval(rows, 0.8)
    return {
        "mean": mean,
        "deviation": deviation,
        "lower": interval.lower,
        "upper": interval.upper,
        "quantile": model.predict_quantile(rows, 0.2),
        "density": model.log_density(rows, np.zeros(len(rows))),
        "outlier": model.outlier_score(rows),
    }


def test_every_regressor_has_a_case() -> None:
    every = {kind for kind in saved.estimators_with_files().values() if issubclass(kind, IncrementalRegressor)}
    assert {type(make()) for make in CASES.values()} == every


@pytest.mark.parametrize("model", [GPRegressor(), KernelSearchRegressor(n_particles=2, n_rejuvenation=1)])
def test_scikit_learn_finds_nothing_amiss(model: IncrementalRegressor) -> None:
    failed = [found for found in check_estimator(model, on_fail=None, on_skip=None) if found["status"] == "failed"]
    assert not failed


@pytest.mark.parametrize("case", CASES)
def test_a_rows_answers_depend_on_that_row_alone(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(case)
    wild = np.array([[1e200, 0, 0], [0, -1e15, 0], [1e6, 1e6, 1e6]])
    together = np.concatenate([wild, X[QUERY]])
    order = np.random.default_rng(1).permutation(len(together))
    whole = answers(model, together)
    alone = [answers(model, together[[row]]) for row in (0, 5)]
    monkeypatch.setattr("sureshot.estimators.base.LARGEST_BLOCK", 10)
    mixed = answers(model, together[order])
    for name, expected in whole.items():
        assert np.isfinite(expected[3:]).all(), name
        np.testing.assert_allclose(mixed[name][order.argsort()], expected, rtol=1e-9, atol=1e-9, err_msg=name)
        for one, row in zip(alone, (0, 5), strict=True):
            np.testing.assert_allclose(one[name], expected[[row]], rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_covariances_are_some_and_belong_to_deviations(case: str) -> None:
    model, rows = fitted(case), np.concatenate([X[QUERY][:8], X[QUERY][:2] + 1e-4, [[9.0, 9.0, 9.0]]])
    refused = {"nearest neighbours": "needs members that see all rows", "few-shot learner": "nothing of two rows"}
    if case in refused:
        with pytest.raises(ValueError, match=refused[case]):
            model.predict(rows, return_cov=True)
        return
    _, covariance = model.predict(rows, return_cov=True)
    np.testing.assert_allclose(np.sqrt(covariance.diagonal()), model.predict(rows, return_std=True)[1], rtol=1e-6)
    assert np.linalg.eigvalsh(covariance).min() > 0


@pytest.mark.parametrize("case", CASES)
def test_a_file_holds_all_that_is_answered(case: str, tmp_path: Path) -> None:
    model = fitted(case).calibrate(X[90:], Y[90:])
    model.save(tmp_path / "model")
    expected = answers(model, X[QUERY])
    for other in (sureshot.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert type(other) is type(model)
        for name, found in answers(other, X[QUERY]).items():
            np.testing.assert_allclose(found, expected[name], rtol=1e-10, err_msg=name)
        other.partial_fit(X[QUERY], Y[QUERY])
    model.partial_fit(X[QUERY], Y[QUERY])
    np.testing.assert_allclose(other.predict(X[90:]), model.predict(X[90:]), rtol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_rows_one_by_one_are_rows_at_once_and_leave_no_trace(case: str) -> None:
    model, once = fitted(case), fitted(case).partial_fit(X[QUERY], Y[QUERY])
    for row in reversed(range(60, 90)):
        model.partial_fit(X[[row]], Y[[row]], row_id=[row])
    expected = answers(once, X[90:])
    # How far a row is trusted is what was known when it came.
    close = {"rtol": 0.05, "atol": 0.05} if case == "tails" else {"rtol": 1e-6, "atol": 1e-8}
    for name, found in answers(model, X[90:]).items():
        np.testing.assert_allclose(found, expected[name], **close, err_msg=name)
    model.forget(rows=np.arange(60, 90))
    np.testing.assert_allclose(model.predict(X[90:]), fitted(case).predict(X[90:]), rtol=1e-6, atol=1e-8)
    model.partial_fit(X[:5], Y[:5] + 9, row_id=np.arange(5)).partial_fit(X[:5], Y[:5], row_id=np.arange(5))
    np.testing.assert_allclose(model.predict(X[90:]), fitted(case).predict(X[90:]), **close)


CHANGES: dict[str, Callable[[Any], object]] = {
    "fit": lambda model: model.fit(X[QUERY], Y[QUERY]),
    "partial_fit": lambda model: model.partial_fit(X[QUERY], Y[QUERY]),
    "replace": lambda model: model.partial_fit(X[QUERY], Y[QUERY], row_id=np.arange(30)),
    "forget": lambda model: model.forget([3, 4]),
    "calibrate": lambda model: model.calibrate(X[QUERY], Y[QUERY]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_failed_call_changes_nothing(change: str) -> None:
    call, model = CHANGES[change], fitted("defaults")
    model.set_params(random_state=np.random.RandomState(0))
    before, expected, threads = content(vars(model)), model.predict(X[QUERY]), torch.get_num_threads()
    twin, other = copy.deepcopy(model), copy.deepcopy(model)
    call(twin)  # what is made once in a process is no call the next time
    with interrupted(0, RuntimeError) as calls:
        call(other)
    errors = (KeyboardInterrupt, MemoryError, RuntimeError)
    for k, at in enumerate(np.unique(np.geomspace(1, calls[0], 6).astype(int))):
        with interrupted(int(at), errors[k % 3]), pytest.raises(BaseException, match="injected"):
            call(model)
        assert content(vars(model)) == before, f"after a failure at call {at} of {calls[0]}"
    np.testing.assert_array_equal(model.predict(X[QUERY]), expected)
    assert torch.get_num_threads() == threads


def test_a_refused_call_changes_nothing() -> None:
    model = fitted("defaults")
    before = content(vars(model))
    refused: dict[str, Callable[[], object]] = {
        "inconsistent numbers of rows": lambda: model.fit(X, Y[:5]),
        "y must hold numbers; got 'a'": lambda: model.partial_fit(X[:2], ["a", "b"]),
        "must have 1 numbers a row": lambda: model.partial_fit(X[:2], np.zeros((2, 2))),
        "contains NaN": lambda: model.partial_fit(X[:2], [1.0, np.nan]),
        "truth values": lambda: model.fit(X[:2], [True, False]),
        "dates": lambda: model.fit(X[:2], np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[D]")),
        "no number": lambda: model.fit(X[:2], [1e300, 2.0]),
        "does not know": lambda: model.forget([99]),
        "cannot forget every row": lambda: model.forget(np.arange(60)),
        "between 0 and 1": lambda: model.predict_interval(X, 1.0),
        "approximation must be one of": lambda: GPRegressor(approximation="ridge").fit(X, Y),
        "precomputed": lambda: GPRegressor("precomputed").fit(X, Y),
        "n_samples must be": lambda: model.sample_y(X, 0),
        "random_state must be": lambda: model.sample_y(X, 1, "a"),
        "or some of them; got none": lambda: model.predict_quantile(X, []),
    }
    for message, call in refused.items():
        with pytest.raises(ValueError, match=message):
            call()
        assert content(vars(model)) == before
