"""One Gaussian process for each class on a backbone, with the robust-max likelihood: "GPDNN".

A stochastic variational Gaussian process (Hensman et al. 2015) on deep features: the classes share a kernel and the
inducing points, k-means centres of all classes, and each has a whitened Gaussian over the inducing values. Network,
kernel, inducing points and Gaussians all move along the gradient of the evidence bound. The algebra is GPyTorch's; the
likelihood, which it has not, is `sureshot.likelihoods.robust_max`.

Every class has a matrix of R x R, R the inducing points of all classes together: with many of them take the diagonal.

References: Bradshaw, Matthews & Ghahramani 2017, "Adversarial examples, uncertainty, and transfer testing robustness
in Gaussian process hybrid deep networks"; Achituve et al. 2021, section 5.2, as a comparator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.means import ZeroMean
from gpytorch.models import ApproximateGP
from gpytorch.variational import CholeskyVariationalDistribution, MeanFieldVariationalDistribution, VariationalStrategy
from torch import Tensor, nn
from torch.nn import functional

from sureshot.approximations.inducing_inputs import kmeans_inducing
from sureshot.deep.base import DeepClassifier, Predictor, check_every_class
from sureshot.likelihoods.robust_max import expected_log_robust_max, robust_max_probabilities
from sureshot.networks.backbones import Backbone, backbone_from_config
from sureshot.ranges import check_positive


class ClassProcesses(ApproximateGP):
    """Latents of all classes at features of unit length."""

    def __init__(self, inducing: Tensor, n_classes: int, full_covariance: bool, learn_inducing: bool) -> None:
        kind = CholeskyVariationalDistribution if full_covariance else MeanFieldVariationalDistribution
        q = kind(len(inducing), batch_shape=torch.Size([n_classes]))
        super().__init__(VariationalStrategy(self, inducing, q, learn_inducing_locations=learn_inducing))
        self.mean_module = ZeroMean()
        self.covar_module = ScaleKernel(RBFKernel())
        # They are at the whitened prior; GPyTorch would add noise of the global generator at the first call.
        self.variational_strategy.variational_params_initialized.fill_(1)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at rows (N, D)."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class RobustMaxNetwork(DeepClassifier):
    """Gaussian processes of classes, of which the largest names the label; `of_embeddings` builds one from rows."""

    name = "robust_max"

    def __init__(
        self,
        backbone: Backbone,
        n_classes: int,
        inducing: Tensor,  # (R, D), in the space of embeddings
        *,
        epsilon: float = 1e-3,  # probability of a label that is not that of the largest latent
        lengthscale: float = 1.0,  # where it starts; so the next
        output_scale: float = 4.0,
        learn_inducing: bool = True,
        full_covariance: bool = True,  # of the inducing values of a class; else independent ones
    ) -> None:
        if not 0 < epsilon < 1:
            raise ValueError(f"epsilon must lie between 0 and 1, got {epsilon}")
        check_positive(lengthscale=lengthscale, output_scale=output_scale)
        self.epsilon = epsilon
        options = {
            "n_inducing": len(inducing),
            "epsilon": epsilon,
            "lengthscale": lengthscale,
            "output_scale": output_scale,
            "learn_inducing": learn_inducing,
            "full_covariance": full_covariance,
        }
        super().__init__(backbone, n_classes, options)
        self.processes = ClassProcesses(_unit(inducing.detach().float()), n_classes, full_covariance, learn_inducing)
        self.processes.covar_module.base_kernel.lengthscale = lengthscale
        self.processes.covar_module.outputscale = output_scale

    @classmethod
    def of_embeddings(
        cls,
        backbone: Backbone,
        embeddings: Tensor,  # (N, D), of the rows that will be trained on, by this backbone
        y: Tensor,  # (N,) int64, every class at least once
        n_classes: int,
        *,
        per_class: int = 40,  # inducing points
        seed: int = 0,  # of the k-means
        **options: Any,  # of the class, such as ``epsilon``
    ) -> RobustMaxNetwork:
        """Inducing points by k-means in each class, of embeddings of unit length."""
        check_every_class(y, range(n_classes))
        points = kmeans_inducing(_unit(embeddings.detach().cpu()), y.cpu(), per_class, seed)
        return cls(backbone, n_classes, points, **options)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> RobustMaxNetwork:
        backbone = backbone_from_config(config["backbone"])
        names = ("epsilon", "lengthscale", "output_scale", "learn_inducing", "full_covariance")
        inducing = torch.ones(config["n_inducing"], backbone.n_features, dtype=torch.float32)
        return cls(backbone, config["n_classes"], inducing, **{name: config[name] for name in names})

    def own_parameters(self) -> list[nn.Parameter]:
        """All but the backbone's."""
        return list(self.processes.parameters())

    def embedded_losses(self, embeddings: Tensor, y: Tensor, generator: torch.Generator, n_rows: int) -> Tensor:
        """Minus the evidence bound, for each row."""
        mean, variance = self._latents(embeddings)
        divergence = self.processes.variational_strategy.kl_divergence().sum()
        return divergence / n_rows - expected_log_robust_max(mean, variance, y, self.epsilon)

    def predictor(self) -> Predictor:

        def predict(embeddings: Tensor) -> Tensor:
            return robust_max_probabilities(*self._latents(embeddings), self.epsilon).mT.log()

        return predict

    def _latents(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of the classes' latents, each (C, B)."""
        q = self.processes(_unit(embeddings))
        return q.mean, q.variance


def _unit(rows: Tensor) -> Tensor:
    return functional.normalize(rows, dim=-1)
