"""Scikit-learn's own battery, with no expected failures."""

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from sureshot import GPClassifier


@parametrize_with_checks([GPClassifier(), GPClassifier(likelihood="softmax", kernel="rbf")])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
