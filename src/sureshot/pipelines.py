"""Classifiers at the end of scikit-learn pipelines.

A `Pipeline` forwards what scikit-learn knows (`predict`, `predict_proba`, `decision_function`, `score`), and a search
over settings less. `pipeline_call` reaches everything else that a classifier of sureshot can do.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from sureshot.data.checks import listed, near
from sureshot.estimators.arguments import Rows


def pipeline_call(pipeline: BaseEstimator, method: str, X: Rows, *args: Any, **kwargs: Any) -> Any:
    """Call a method of a fitted pipeline's last step on what its other steps make of rows.

    Pipelines inside pipelines are gone through, and so is the best pipeline of a search over settings. The steps before
    the last stay as they were fitted, also for ``"partial_fit"``.

    Parameters
    ----------
    pipeline : estimator
        A fitted pipeline, or an estimator by itself.
    method : str
        A method of the last step that takes rows, such as ``"outlier_score"``.
    X : array or DataFrame (n, D)
        Rows as the first step takes them.
    *args, **kwargs
        Passed on to the method, such as the labels for ``"calibrate"``.

    Returns
    -------
    object
        What the method returns.

    Raises
    ------
    AttributeError
        If the last step has no such method.
    sklearn.exceptions.NotFittedError
        If a step is not fitted.
    """
    check_is_fitted(pipeline)
    while (inside := _inside(pipeline)) is not None:
        pipeline = inside
    last = _last_step(pipeline)
    kind = type(last)
    every = [name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))]
    known = [name for name in every if "X" in signature(getattr(kind, name)).parameters]
    if method in every and method not in known:
        raise AttributeError(f"{method} takes no rows: call it on {kind.__name__}, the last step, itself")
    if method not in known:
        raise AttributeError(
            f"{kind.__name__}, the last step, has no method {method!r}{near(method, known)}; it has {listed(known)}"
        )
    if pipeline is last:
        return getattr(last, method)(X, *args, **kwargs)
    if len(pipeline.steps) > 1:
        X = pipeline[:-1].transform(X)
    return pipeline_call(pipeline.steps[-1][1], method, X, *args, **kwargs)


def _last_step(estimator: BaseEstimator) -> BaseEstimator:
    """That of pipelines inside pipelines, and of whatever passes calls on."""
    while True:
        if isinstance(estimator, Pipeline):
            estimator = estimator.steps[-1][1]
        elif (inside := _inside(estimator)) is not None:
            estimator = inside
        else:
            return estimator


def _inside(estimator: BaseEstimator) -> BaseEstimator | None:
    """What stands for an estimator that only passes calls on; None for others."""
    if isinstance(estimator, FrozenEstimator):
        return estimator.estimator
    return None if isinstance(estimator, Pipeline) else getattr(estimator, "best_estimator_", None)
