"""Labels of every type stay what they are, and classes that are announced are checked as labels are."""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 2)) + 3 * (np.arange(24) % 2)[:, None]
CODES = np.arange(24) % 2
MODELS = [
    GPClassifier("rbf", "softmax", objective=None),
    FewShotClassifier(),
    TreeGPClassifier(),
    KernelSearchClassifier(2, n_rejuvenation=0),
]


@cache
def learnt(model: Any) -> Any:
    """With two classes. What is fitted is never changed."""
    return copy(model).fit(X, CODES)


@pytest.mark.parametrize("model", [MODELS[0], *MODELS[2:]], ids=lambda model: type(model).__name__)
@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (pd.Series(CODES == 1, dtype="boolean"), [False, True]),
        (pd.Series(2**53 + CODES, dtype="Int64"), [2**53, 2**53 + 1]),
        (pd.Series(CODES, dtype=object), [0, 1]),
        (pd.Series(np.where(CODES, "b", "a"), dtype="string"), ["a", "b"]),
        (pd.Series(np.where(CODES, "b", "a"), dtype="category"), ["a", "b"]),
    ],
    ids=["boolean", "Int64", "object", "string", "category"],
)
def test_labels_of_pandas_stay_what_they_are(model: Any, y: Any, classes: list[Any]) -> None:
    model.fit(X, y)
    assert model.classes_.tolist() == classes
    assert [type(label) for label in model.classes_.tolist()] == [type(label) for label in classes]
    assert model.score(X, y) > 0.9
    assert model.partial_fit(X[:2], y[:2]).classes_.tolist() == classes


@pytest.mark.parametrize(
    "y", [pd.Series(["a", pd.NA] * 12, dtype="string"), pd.Series(["a", pd.NA] * 12), [pd.NaT, "b"] * 12]
)
def test_missing_labels_are_named(y: Any) -> None:
    with pytest.raises(ValueError, match="missing labels"):
        GPClassifier().fit(X, y)


@pytest.mark.parametrize(
    ("classes", "error", "message"),
    [
        ([np.nan], ValueError, "classes must be labels"),
        ([None], ValueError, "classes must be labels"),
        (["a"], TypeError, "labels such as 0, and 'a' came"),
        ([True], TypeError, "from number to truth value"),
        ([0.5], ValueError, "classes must be labels"),
        ([2**64], ValueError, "classes must be labels"),
    ],
)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_announced_classes_are_labels(model: Any, classes: Any, error: type[Exception], message: str) -> None:
    model = learnt(model)
    with pytest.raises(error, match=message):
        model.partial_fit(X[:2], CODES[:2], classes=classes)
    assert model.classes_.tolist() == [0, 1]


def test_announced_classes_keep_the_type() -> None:
    model = GPClassifier("rbf", "softmax", objective=None).partial_fit(X, CODES, classes=[])
    assert model.classes_.dtype == CODES.dtype
    assert model.partial_fit(X[:1], [0], classes={2.0}).classes_.tolist() == [0, 1, 2]
    assert model.classes_.dtype == CODES.dtype
    model = GPClassifier("rbf", "softmax", objective=None).fit(X, 2**53 + CODES)
    model.partial_fit(X[:1], np.array([7], dtype=np.uint64))
    assert model.classes_.tolist() == [7, 2**53, 2**53 + 1]
    assert model.forget(classes={7}).classes_.tolist() == [2**53, 2**53 + 1]
    model = GPClassifier("rbf", "softmax", objective=None).fit(X, CODES - 1)
    with pytest.raises(TypeError, match="do not fit into one type"):
        model.partial_fit(X[:1], [0], classes=[2**63])
