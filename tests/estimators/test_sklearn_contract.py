"""Scikit-learn's own battery, with no expected failures."""

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from sureshot import GPClassifier, KernelSearchClassifier, TreeGPClassifier

CHAINS: dict[str, Any] = {"n_chains": 5, "n_sweeps": 5}
ESTIMATORS = [
    GPClassifier(),
    GPClassifier(likelihood="softmax", kernel="rbf"),
    GPClassifier(ensemble=True, relevance=True),
    TreeGPClassifier(),
    TreeGPClassifier(strategy="shared_root", **CHAINS),
    TreeGPClassifier(strategy="session", **CHAINS),
    TreeGPClassifier(strategy="rebuild", **CHAINS),
    KernelSearchClassifier(n_particles=4, n_rejuvenation=1),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
