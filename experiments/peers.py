"""Further classifiers that sureshot is measured beside; the first ones are in `sureshot.demo.peers`."""

from __future__ import annotations

import warnings
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.svm import SVC


class DirichletGP(ClassifierMixin, BaseEstimator):
    """GPyTorch's Dirichlet-based Gaussian-process classifier (Milios et al. 2018), as in its documentation.

    Adam (rate 0.1) on the marginal likelihood of noise, mean, output scale and length-scale; probabilities average over
    posterior draws.
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


def svm_with_probabilities() -> CalibratedClassifierCV:
    """RBF SVM with probabilities by Platt's sigmoid on five folds, as its ``probability=True`` did."""
    return CalibratedClassifierCV(SVC(random_state=0), method="sigmoid", cv=5, ensemble=False)


def random_forest() -> RandomForestClassifier:
    """500 trees."""
    return RandomForestClassifier(500, random_state=0)
