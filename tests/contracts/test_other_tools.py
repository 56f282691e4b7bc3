"""What tools around scikit-learn do with an estimator: rename columns, derive from it, hash it, pickle it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier

FRAME, LABELS = load_iris(return_X_y=True, as_frame=True)
FRAME, LABELS = FRAME.iloc[::5].rename(columns=lambda name: name[:-5]), LABELS.iloc[::5]

MAKERS: dict[str, Callable[[], Any]] = {
    "one kernel": lambda: GPClassifier("rbf"),
    "average": FewShotClassifier,
    "sessions": TreeGPClassifier,
    "search": lambda: KernelSearchClassifier(3, n_rejuvenation=0),
}


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {name: make().fit(FRAME, LABELS) for name, make in MAKERS.items()}


@pytest.mark.parametrize("name", MAKERS)
def test_names_of_columns_are_taken_away_for_arrays(name: str, models: dict[str, Any]) -> None:
    """As shap does on a copy of a bound method, and scikit-learn on an estimator."""
    model = models[name]
    expected = model.predict_proba(FRAME)
    answer = copy.deepcopy(model.predict_proba)
    answer.__self__.feature_names_in_ = None
    np.testing.assert_array_equal(answer(FRAME.to_numpy()), expected)  # a warning would be an error
    assert not hasattr(answer.__self__, "feature_names_in_")
    assert model.feature_names_in_.tolist() == FRAME.columns.tolist()

    other = copy.copy(model)
    other.feature_names_in_ = list("abcd")
    np.testing.assert_array_equal(other.predict_proba(FRAME.set_axis(list("abcd"), axis=1)), expected)
    del other.feature_names_in_
    np.testing.assert_array_equal(other.predict_proba(FRAME.to_numpy()), expected)
    with pytest.raises(AttributeError, match="feature_names_in_"):
        del other.feature_names_in_
    with pytest.raises(ValueError, match="must name 4 columns"):
        other.feature_names_in_ = ["a"]
    np.testing.assert_array_equal(model.predict_proba(FRAME), expected)


def test_other_learnt_attributes_are_refused(models: dict[str, Any]) -> None:
    for name in ("classes_", "n_features_in_"):
        with pytest.raises(AttributeError, match=f"{name} is learnt and cannot be set"):
            setattr(models["one kernel"], name, [0])
        with pytest.raises(AttributeError, match=f"{name} is learnt and cannot be deleted"):
            delattr(models["one kernel"], name)
    with pytest.raises(AttributeError, match="feature_names_in_ is learnt"):
        GPClassifier().feature_names_in_ = list("abcd")


class Rbf(GPClassifier):
    def __init__(self, random_state: int | None = None) -> None:
        super().__init__("rbf", objective=None, random_state=random_state)


class Fast(KernelSearchClassifier):
    def __init__(self, n_particles: int = 2) -> None:
        super().__init__(n_particles, n_rejuvenation=0)


class Ten(TreeGPClassifier):
    def __init__(self) -> None:
        super().__init__(n_representatives=10)


class Shifted(GPClassifier):
    """With an argument of its own beside one of ours."""

    def __init__(self, shift: float = 0.5, kernel: str = "matern32") -> None:
        super().__init__(kernel, objective=None)
        self.shift = shift


@pytest.mark.parametrize(
    ("kind", "same"),
    [
        (Rbf, lambda: GPClassifier("rbf", objective=None)),
        (Fast, lambda: KernelSearchClassifier(2, n_rejuvenation=0)),
        (Ten, lambda: TreeGPClassifier(n_representatives=10)),
        (Shifted, lambda: GPClassifier("matern32", objective=None)),
    ],
)
def test_a_subclass_may_have_other_arguments(kind: type, same: Callable[[], Any], tmp_path: Path) -> None:
    model = clone(kind()).fit(FRAME[:20], LABELS[:20])
    model.partial_fit(FRAME[20:], LABELS[20:])
    expected = same().fit(FRAME[:20], LABELS[:20]).partial_fit(FRAME[20:], LABELS[20:]).predict_proba(FRAME)
    np.testing.assert_array_equal(model.predict_proba(FRAME), expected)
    model.save(tmp_path / "model")
    loaded = kind.load(tmp_path / "model")  # type: ignore[attr-defined]
    assert type(loaded) is kind
    assert loaded.get_params() == model.get_params()
    for other in (loaded, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert type(other) is kind
        np.testing.assert_array_equal(other.predict_proba(FRAME), expected)


@pytest.mark.parametrize("name", MAKERS)
def test_equal_fits_have_equal_hashes(name: str, models: dict[str, Any]) -> None:
    model, again = models[name], MAKERS[name]().fit(FRAME, LABELS)
    expected = joblib.hash(again)
    assert joblib.hash(model) == expected
    for ask in ("predict_proba", "predict_latent", "outlier_score", "uncertainty", "suggest"):
        getattr(model, ask)(FRAME)
    assert joblib.hash(model) == expected
    assert joblib.hash(pickle.loads(pickle.dumps(model))) == expected
    assert joblib.hash(copy.deepcopy(model).partial_fit(FRAME[:1] + 1, LABELS[:1])) != expected
    assert joblib.hash(copy.deepcopy(model).set_class_prior([0.5, 0.3, 0.2])) != expected


def test_memory_of_joblib_hits(models: dict[str, Any], tmp_path: Path) -> None:
    calls = []

    def score(model: Any, frame: pd.DataFrame) -> float:
        calls.append(1)
        return float(model.predict_proba(frame)[0, 0])

    cached = joblib.Memory(tmp_path, verbose=0).cache(score)
    first = cached(models["one kernel"], FRAME)
    assert cached(MAKERS["one kernel"]().fit(FRAME, LABELS), FRAME) == first
    assert len(calls) == 1


def test_what_no_file_can_hold_is_pickled_all_the_same() -> None:
    x = FRAME.to_numpy()
    model = GPClassifier("precomputed").fit(x @ x.T, LABELS)
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.predict_proba(x @ x.T), model.predict_proba(x @ x.T))


def test_a_copy_does_not_follow_the_original() -> None:
    model = GPClassifier("rbf", objective=None, class_weight={0: 1.0, 1: 2.0, 2: 1.0}).fit(FRAME, LABELS)
    expected = model.predict_proba(FRAME)
    deep, shallow = copy.deepcopy(model), copy.copy(model)
    deep.class_weight[0] = 3.0
    assert model.class_weight[0] == 1.0
    model.partial_fit(FRAME + 1, LABELS)
    for other in (deep, shallow):
        np.testing.assert_array_equal(other.predict_proba(FRAME), expected)
