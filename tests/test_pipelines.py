"""Methods of a pipeline's last step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from sureshot import GPClassifier, pipeline_call

X = np.random.default_rng(0).normal(size=(24, 3))
Y = (X[:, 0] > 0).astype(int)


def model() -> GPClassifier:
    return GPClassifier(kernel="rbf", objective=None)


@pytest.fixture(scope="module")
def fitted() -> Pipeline:
    return make_pipeline(StandardScaler(), PCA(2), model()).fit(X, Y)


def inner(pipeline: Pipeline) -> np.ndarray:
    found: np.ndarray = pipeline[:-1].transform(X)
    return found


@pytest.mark.parametrize("method", ["outlier_score", "predict_proba", "decision_function", "predict"])
def test_the_last_step_sees_what_the_others_make_of_rows(fitted: Pipeline, method: str) -> None:
    expected = getattr(fitted[-1], method)(inner(fitted))
    np.testing.assert_array_equal(pipeline_call(fitted, method, X), expected)


def test_what_comes_after_the_rows_is_passed_on(fitted: Pipeline) -> None:
    assert pipeline_call(fitted, "predict_topk", X, k=1).labels.shape == (24, 1)
    assert pipeline_call(fitted, "score", X, Y) == fitted.score(X, Y)


@pytest.mark.parametrize(("method", "given"), [("set_class_prior", "uniform"), ("forget", [1]), ("save", "m")])
def test_methods_without_rows_are_not_given_any(fitted: Pipeline, method: str, given: Any) -> None:
    with pytest.raises(AttributeError, match=f"{method} takes no rows: call it on GPClassifier"):
        pipeline_call(fitted, method, given)


def test_rows_can_be_learnt_by_the_last_step() -> None:
    pipeline = make_pipeline(StandardScaler(), model()).fit(X, Y)
    mean = pipeline[0].mean_.copy()
    assert pipeline_call(pipeline, "partial_fit", X[:3] + 5, [2] * 3) is pipeline[-1]
    np.testing.assert_array_equal(pipeline[-1].classes_, [0, 1, 2])
    np.testing.assert_array_equal(pipeline[0].mean_, mean)


def test_pipelines_in_pipelines_and_searches(fitted: Pipeline) -> None:
    nested = make_pipeline(StandardScaler(), make_pipeline(PCA(2), model())).fit(X, Y)
    np.testing.assert_array_equal(pipeline_call(nested, "outlier_score", X), pipeline_call(fitted, "outlier_score", X))
    search = GridSearchCV(make_pipeline(StandardScaler(), model()), {"gpclassifier__kernel": ["rbf"]}, cv=2).fit(X, Y)
    expected = pipeline_call(search.best_estimator_, "outlier_score", X)
    np.testing.assert_array_equal(pipeline_call(search, "outlier_score", X), expected)
    ending = make_pipeline(StandardScaler(), GridSearchCV(model(), {"kernel": ["rbf"]}, cv=2)).fit(X, Y)
    np.testing.assert_array_equal(pipeline_call(ending, "outlier_score", X), expected)


def test_what_is_frozen_is_gone_into() -> None:
    plain = make_pipeline(StandardScaler(), model()).fit(X, Y)
    expected = pipeline_call(plain, "outlier_score", X)
    ending = make_pipeline(StandardScaler(), FrozenEstimator(plain[-1])).fit(X, Y)
    for pipeline in (FrozenEstimator(plain), ending):
        np.testing.assert_array_equal(pipeline_call(pipeline, "outlier_score", X), expected)


def test_one_step_and_none() -> None:
    alone = model().fit(X, Y)
    expected = alone.outlier_score(X)
    for pipeline in (alone, make_pipeline(model()).fit(X, Y)):
        np.testing.assert_array_equal(pipeline_call(pipeline, "outlier_score", X), expected)


def test_columns_keep_their_names() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), model()).fit(frame, Y)
    assert pipeline_call(pipeline, "outlier_score", frame).shape == (24,)


@pytest.mark.parametrize(
    ("pipeline", "method", "message"),
    [
        (
            make_pipeline(StandardScaler(), model()),
            "outlier_scores",
            "GPClassifier, .* has no method 'outlier_scores' ",
        ),
        (make_pipeline(StandardScaler(), model()), "classes_", "has no method 'classes_'"),
        (make_pipeline(StandardScaler(), LogisticRegression()), "outlier_score", "LogisticRegression, the last step,"),
    ],
)
def test_a_method_that_is_not_there_is_named(pipeline: Any, method: str, message: str) -> None:
    with pytest.raises(AttributeError, match=message):
        pipeline_call(pipeline.fit(X, Y), method, X)


def test_what_is_not_fitted_says_so() -> None:
    for pipeline in (make_pipeline(StandardScaler(), model()), model(), GridSearchCV(model(), {"kernel": ["rbf"]})):
        with pytest.raises(NotFittedError):
            pipeline_call(pipeline, "outlier_score", X)


@pytest.mark.parametrize("method", ["save", "forget", "set_params"])
def test_methods_without_rows_are_called_themselves(method: str) -> None:
    pipeline = make_pipeline(StandardScaler(), model()).fit(X, Y)
    with pytest.raises(AttributeError, match=f"{method} takes no rows: call it on GPClassifier"):
        pipeline_call(pipeline, method, X)
