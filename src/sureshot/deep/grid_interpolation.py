"""Gaussian processes of single features on grids, mixed into logits: stochastic variational deep kernel learning.

"SV-DKL" (Wilson, Hu, Salakhutdinov & Xing 2016): every feature of the backbone has a Gaussian process of its own, whose
inducing points are a regular grid that cubic interpolation reads; a linear map of these latents gives the logits of a
softmax, which makes the logits additive over features. The processes are GPyTorch's
(`GridInterpolationVariationalStrategy`); the expectation of the log softmax is an average over draws, from the
generator of the step.

A grid needs bounds: features are the embedding at unit length, times the square root of its width, pressed smoothly
into the bounds by a hyperbolic tangent, so that those of a row depend on this row alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.means import ZeroMean
from gpytorch.models import ApproximateGP
from gpytorch.variational import CholeskyVariationalDistribution, GridInterpolationVariationalStrategy
from torch import Tensor, nn
from torch.nn import functional

from sureshot.deep.base import DeepClassifier, Predictor
from sureshot.likelihoods.softmax import Softmax
from sureshot.networks.backbones import Backbone, backbone_from_config

BOUND = 4.0
"""Of features, on either side of zero."""


class FeatureProcesses(ApproximateGP):
    """Latents of all features, each a function of its own one."""

    def __init__(self, n_features: int, grid_size: int) -> None:
        q = CholeskyVariationalDistribution(grid_size, batch_shape=torch.Size([n_features]))
        super().__init__(GridInterpolationVariationalStrategy(self, grid_size, [(-BOUND, BOUND)], q))
        self.mean_module = ZeroMean()
        self.covar_module = ScaleKernel(RBFKernel())
        # At the prior; GPyTorch would add noise of the global generator at the first call.
        with torch.no_grad():
            covariance = self.variational_strategy.prior_distribution.covariance_matrix
            q.chol_variational_covar.copy_(torch.linalg.cholesky(covariance.double()).float())
        self.variational_strategy.variational_params_initialized.fill_(1)
        self.variational_strategy._clear_cache()

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at values (..., N, 1) of a feature."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class GridNetwork(DeepClassifier):
    """Softmax of a linear map of Gaussian processes of single features."""

    name = "grid_interpolation"

    def __init__(
        self,
        backbone: Backbone,
        n_classes: int,
        *,
        grid_size: int = 64,  # points; the papers have 64, 128 and 256
        n_samples: int = 8,  # draws of the latents of a row in training
        seed: int = 0,  # of the initial map from latents to logits, normal with variance 1 / D
    ) -> None:
        if grid_size < 4 or n_samples < 1:
            raise ValueError(f"grid_size must be at least 4 and n_samples 1, got {grid_size} and {n_samples}")
        super().__init__(backbone, n_classes, {"grid_size": grid_size, "n_samples": n_samples, "seed": seed})
        self.n_samples = n_samples
        width = backbone.n_features
        self.processes = FeatureProcesses(width, grid_size)
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(n_classes, width, generator=generator, dtype=torch.float32) / width**0.5
        self.mixing = nn.Parameter(weight)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> GridNetwork:
        names = ("grid_size", "n_samples", "seed")
        options = {name: config[name] for name in names}
        return cls(backbone_from_config(config["backbone"]), config["n_classes"], **options)

    def own_parameters(self) -> list[nn.Parameter]:
        """All but the backbone's."""
        return [self.mixing, *self.processes.parameters()]

    def embedded_losses(self, embeddings: Tensor, y: Tensor, generator: torch.Generator, n_rows: int) -> Tensor:
        """Minus the evidence bound, for each row, its expectation by draws."""
        mean, variance = self._latents(embeddings)
        shape = (self.n_samples, *mean.shape)
        noise = torch.randn(shape, generator=generator, dtype=mean.dtype, device=mean.device)
        logits = (mean + variance.sqrt() * noise).mT @ self.mixing.mT  # (S, B, C)
        own = torch.log_softmax(logits, dim=-1)[..., torch.arange(len(y), device=y.device), y].mean(0)
        return self.processes.variational_strategy.kl_divergence().sum() / n_rows - own

    def predictor(self) -> Predictor:
        """By the fixed point set of `sureshot.likelihoods.Softmax`, no draws."""

        def predict(embeddings: Tensor) -> Tensor:
            mean, variance = self._latents(embeddings)
            # The logits' covariance (B, C, C) is W diag(v) W'.
            covariance = (self.mixing * variance.mT.unsqueeze(1)) @ self.mixing.mT
            p = Softmax().integral(self.mixing @ mean, covariance).mT
            return p.clamp_min(torch.finfo(p.dtype).tiny).log()

        return predict

    def _latents(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of the features' latents, each (D, B)."""
        features = functional.normalize(embeddings, dim=-1) * embeddings.shape[-1] ** 0.5
        bounded = BOUND * torch.tanh(features / BOUND)
        q = self.processes(bounded.mT.unsqueeze(-1))
        return q.mean, q.variance.clamp_min(1e-8)
