"""The classifiers that sureshot is measured beside, and one way to measure them all.

Peers are well-kept implementations with the settings that their users would take: scikit-learn's with standardised
inputs where the data is a table, GPyTorch's Dirichlet GP with its kernel learned by the marginal likelihood. A peer's
score for "none of these" is one minus its largest probability, unless it has a better one of its own.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gpytorch
import numpy as np
import pandas as pd
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from sureshot.metrics import apply_temperature, auroc_unknown, fit_temperature, summarise

METRICS = ("accuracy", "nll", "ece", "brier", "unknown AUROC", "fit seconds")
HIGHER_IS_BETTER = {"accuracy", "unknown AUROC"}


class TemperatureScaledLogisticRegression(ClassifierMixin, BaseEstimator):
    """Logistic regression whose temperature is fitted on cross-validated logits.

    Parameters
    ----------
    C : float
        Inverse regularisation.
    n_folds : int
        At most; a class with fewer rows lowers it.
    """

    def __init__(self, C: float = 100.0, n_folds: int = 5) -> None:
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


class DirichletGP(ClassifierMixin, BaseEstimator):
    """GPyTorch's Dirichlet-based Gaussian-process classifier (Milios et al. 2018), as in its documentation.

    Parameters
    ----------
    n_steps : int
        Adam steps (rate 0.1) on the marginal likelihood of noise, mean, output scale and length-scale.
    n_samples : int
        Posterior draws that the class probabilities average over.
    """

    def __init__(self, n_steps: int = 100, n_samples: int = 256) -> None:
        self.n_steps = n_steps
        self.n_samples = n_samples

    def fit(self, X: np.ndarray, y: np.ndarray) -> DirichletGP:
        """Fit by exact GP regression on the transformed labels."""
        self.classes_, codes = np.unique(y, return_inverse=True)
        x = torch.from_numpy(np.asarray(X, dtype=np.float64))
        self.likelihood_ = DirichletClassificationLikelihood(
            torch.from_numpy(codes), learn_additional_noise=True, dtype=torch.float64
        ).double()
        self.model_ = _DirichletModel(x, self.likelihood_.transformed_targets, self.likelihood_, len(self.classes_))
        self.model_.double().train()
        self.likelihood_.train()
        optimiser = torch.optim.Adam(self.model_.parameters(), lr=0.1)
        objective = ExactMarginalLogLikelihood(self.likelihood_, self.model_)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(self.n_steps):
                optimiser.zero_grad()
                loss = -objective(self.model_(x), self.likelihood_.transformed_targets).sum()
                loss.backward()
                optimiser.step()
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Mean over posterior draws of the softmax of the latents."""
        self.model_.eval()
        self.likelihood_.eval()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            latent = self.model_(torch.from_numpy(np.asarray(X, dtype=np.float64)))
            generator = torch.Generator().manual_seed(0)
            noise = torch.randn(self.n_samples, *latent.mean.shape, generator=generator, dtype=torch.float64)
            draws = latent.mean + latent.variance.clamp_min(0).sqrt() * noise
            return torch.softmax(draws, dim=1).mean(0).mT.numpy()

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The most probable class."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class _DirichletModel(gpytorch.models.ExactGP):
    def __init__(self, x: torch.Tensor, targets: torch.Tensor, likelihood: Any, n_classes: int) -> None:
        super().__init__(x, targets, likelihood)
        batch = torch.Size((n_classes,))
        self.mean_module = ConstantMean(batch_shape=batch)
        self.covar_module = ScaleKernel(RBFKernel(batch_shape=batch), batch_shape=batch)
        self.covar_module.base_kernel.initialize(lengthscale=float(np.sqrt(x.shape[1])))

    def forward(self, x: torch.Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def logistic_regression(C: float = 1.0) -> LogisticRegression:
    """Multinomial logistic regression."""
    return LogisticRegression(C=C, max_iter=2000)


def svm_with_probabilities() -> CalibratedClassifierCV:
    """RBF SVM with probabilities by Platt's sigmoid on five folds, as its ``probability=True`` did."""
    return CalibratedClassifierCV(SVC(random_state=0), method="sigmoid", cv=5, ensemble=False)


def random_forest() -> RandomForestClassifier:
    """500 trees."""
    return RandomForestClassifier(500, random_state=0)


def sklearn_gp(n_features: int) -> GaussianProcessClassifier:
    """Scikit-learn's GP classifier with a scaled RBF kernel learned by its Laplace evidence."""
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * RBF(float(np.sqrt(n_features)), (1e-2, 1e3))
    return GaussianProcessClassifier(kernel, random_state=0)


def outlier_score_of(model: Any, X: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """The model's own outlier score if it is one of ours, else one minus the largest probability."""
    from sureshot.estimators.classifier import GPClassifier

    return model.outlier_score(X) if isinstance(model, GPClassifier) else 1 - probabilities.max(axis=1)


@dataclass(frozen=True)
class Split:
    """Training and test rows, and test rows of classes nobody has seen."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    x_unknown: np.ndarray | None = None


def measure(make: Callable[[], Any], split: Split) -> tuple[dict[str, float], Any]:
    """Fit a fresh model on a split and score it; probabilities are clipped at 1e-6 for the log score."""
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = make().fit(split.x_train, split.y_train)
    seconds = time.perf_counter() - started
    p = model.predict_proba(split.x_test)
    clipped = np.clip(p, 1e-6, None)
    scores = summarise(clipped / clipped.sum(1, keepdims=True), split.y_test, classes=model.classes_)
    found = {"accuracy": scores.accuracy, "nll": scores.nll, "ece": scores.ece, "brier": scores.brier}
    if split.x_unknown is not None:
        known = outlier_score_of(model, split.x_test, p)
        unknown = outlier_score_of(model, split.x_unknown, model.predict_proba(split.x_unknown))
        found["unknown AUROC"] = auroc_unknown(known, unknown)
    found["fit seconds"] = seconds
    return found, model


def means_and_errors(records: Sequence[dict[str, Any]], keys: Sequence[str]) -> pd.DataFrame:
    """Mean and standard error over repetitions of every metric, one row for each combination of `keys`."""
    frame = pd.DataFrame(records)
    metrics = [name for name in METRICS if name in frame]
    rows = []
    for values, group in frame.groupby(list(keys), sort=False):
        row: dict[str, Any] = dict(zip(keys, values if isinstance(values, tuple) else (values,), strict=True))
        for name in metrics:
            row[name] = group[name].mean()
            row[f"{name} s.e."] = group[name].std(ddof=1) / np.sqrt(len(group)) if len(group) > 1 else float("nan")
        rows.append(row)
    return pd.DataFrame(rows)
