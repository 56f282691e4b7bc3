"""Scikit-learn's own battery, with no expected failures."""

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from sureshot import GPClassifier, KernelSearchClassifier, TreeGPClassifier

ESTIMATORS = [
    GPClassifier(kernel="rbf"),
    TreeGPClassifier(),
    TreeGPClassifier(strategy="session", n_chains=5, n_sweeps=5),
]
EXPENSIVE = [
    GPClassifier(),  # FewShotClassifier() is this
    KernelSearchClassifier(n_particles=2, n_rejuvenation=1, schedule="once"),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(EXPENSIVE)
def test_scikit_learn_checks_of_expensive_fits(estimator: Any, check: Any) -> None:
    check(estimator)
