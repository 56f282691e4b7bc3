"""The classifiers that sureshot is shown beside: scikit-learn's, with the settings that their users would take."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from sureshot.metrics import apply_temperature, fit_temperature


class TemperatureScaledLogisticRegression(ClassifierMixin, BaseEstimator):
    """Logistic regression whose temperature is fitted on cross-validated logits."""

    def __init__(
        self,
        C: float = 100.0,  # inverse regularisation
        n_folds: int = 5,  # at most; a class with fewer rows lowers it
    ) -> None:
        self.C = C
        self.n_folds = n_folds

    def fit(self, X: np.ndarray, y: np.ndarray) -> TemperatureScaledLogisticRegression:
        """Fit on all rows, and the temperature on the left-out folds."""
        folds = min(self.n_folds, int(np.unique(y, return_counts=True)[1].min()))
        self.model_ = LogisticRegression(C=self.C, max_iter=2000).fit(X, y)
        self.classes_ = self.model_.classes_
        self.temperature_ = 1.0
        if folds >= 2:
            logits = np.empty((len(y), len(self.classes_)))
            for train, test in StratifiedKFold(folds, shuffle=True, random_state=0).split(X, y):
                fold = LogisticRegression(C=self.C, max_iter=2000).fit(X[train], y[train])
                logits[test] = fold.predict_log_proba(X[test])
            self.temperature_ = fit_temperature(logits, y, classes=self.classes_)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Softmax of the logits over the temperature."""
        return np.exp(apply_temperature(self.model_.predict_log_proba(X), self.temperature_))

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The most probable class."""
        return self.model_.predict(X)


def logistic_regression(C: float = 1.0) -> LogisticRegression:
    """Multinomial logistic regression."""
    return LogisticRegression(C=C, max_iter=2000)


def sklearn_gp(n_features: int) -> GaussianProcessClassifier:
    """Scikit-learn's GP classifier with a scaled RBF kernel learned by its Laplace evidence."""
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * RBF(float(np.sqrt(n_features)), (1e-2, 1e3))
    return GaussianProcessClassifier(kernel, random_state=0)
