"""Scikit-learn's own battery, with no expected failures."""

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from sureshot import GPClassifier, KernelSearchClassifier, TreeGPClassifier

ESTIMATORS = [
    GPClassifier(),
    GPClassifier(likelihood="softmax", kernel="rbf"),
    TreeGPClassifier(),
    TreeGPClassifier(strategy="session", n_chains=5, n_sweeps=5),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([KernelSearchClassifier(n_particles=2, n_rejuvenation=1, schedule="once")])
def test_scikit_learn_checks_of_a_search(estimator: Any, check: Any) -> None:
    check(estimator)
