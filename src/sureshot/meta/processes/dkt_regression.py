"""Deep kernel transfer for numbers: an exact Gaussian process for each task, on features that all tasks share.

The features (a network that starts as the identity), the kernel's parameters and the noise are learnt over tasks, by
the evidence of all rows of a task or by the predictive density of its queries given the context. Nothing is learnt in a
task. With `normalise` each task's targets are centred and scaled by its context alone, as if it had one more row of
value 0 and variance 1, so that short contexts give no wild scale.

Patacchiola et al. 2020, "Bayesian meta-learning for the few-shot setting via deep kernels"; Wilson & Adams 2013 (the
spectral mixture), "Gaussian process kernels for pattern discovery and extrapolation".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from sureshot.gaussian.gram import GramPosterior, GramPrior
from sureshot.gaussian.prior import Queries
from sureshot.inference.least_squares import regression_log_evidence
from sureshot.kernels import KERNEL_NAMES, evaluate
from sureshot.kernels.gpytorch_kernels import SpectralMixtureKernel, set_values
from sureshot.meta.learners.functions import Context, Moments, RegressionLearner
from sureshot.meta.learners.task_kernel import TaskKernel
from sureshot.meta.processes.exact import conditioned, observed
from sureshot.meta.processes.layers import check_sizes
from sureshot.meta.tasks import Tasks
from sureshot.networks.backbones import Backbone, Identity, MLPProjection


class _Known(NamedTuple):
    z: Tensor  # (T, 1, S, F)
    posterior: GramPosterior
    centre: Tensor  # (T, 1, K)
    scale: Tensor  # (T, 1, K)


class DKTRegression(RegressionLearner):
    """See the module."""

    name = "dkt_regression"

    def __init__(
        self,
        input_width: int,
        target_width: int,
        *,
        kernel: str = "rbf",  # one of `sureshot.kernels.KERNEL_NAMES`, or "spectral_mixture"
        hidden: Sequence[int] = (64, 64),  # widths of the network's layers; none for a process on the inputs themselves
        n_features: int | None = None,  # of the network; as many as inputs by default
        objective: Literal["marginal", "predictive"] = "marginal",
        lengthscale: float = 1.0,  # initial, of other kernels than the spectral mixture
        components: int = 4,  # of the spectral mixture
        highest_frequency: float = 2.0,  # initial, of the spectral mixture
        noise: float = 0.1,  # initial standard deviation
        normalise: bool = False,
        floor: float = 0.01,  # of the deviation, where targets are normalised in units of their scale
        seed: int = 0,
    ) -> None:
        super().__init__(input_width, target_width)
        check_sizes(floor, components=components)
        if min(noise, highest_frequency) <= 0 or (not hidden and n_features not in (None, input_width)):
            raise ValueError(
                f"noise and highest_frequency must be positive, got {noise} and {highest_frequency}; and without "
                f"hidden layers there are {input_width} features, got n_features = {n_features}"
            )
        self.features: Backbone = Identity((input_width,))
        if hidden:
            self.features = MLPProjection((input_width,), n_features=n_features, hidden=hidden, seed=seed)
        width = self.features.n_features
        self.kernel: Kernel
        if kernel not in (*KERNEL_NAMES, "spectral_mixture"):
            raise ValueError(f"unknown kernel {kernel!r}: expected one of {', '.join(KERNEL_NAMES)}, spectral_mixture")
        if kernel == "spectral_mixture":
            self.kernel = _spectral_mixture(width, components, highest_frequency)
        else:
            self.kernel = TaskKernel(kernel, width, lengthscale=lengthscale).kernel
        self.log_noise = nn.Parameter(torch.tensor(2 * math.log(noise), dtype=torch.float32))
        self.objective, self.normalise, self.floor = objective, normalise, floor

    @property
    def network(self) -> Backbone:
        return self.features

    @property
    def noise(self) -> Tensor:
        """Variance, ()."""
        return self.floor**2 + self.log_noise.exp()

    def encode(self, context: Context, generator: torch.Generator) -> _Known:
        centre, scale = self._scale(context)
        z = self._embed(context.x)
        scaled = context._replace(y=(context.y - centre) / scale)
        return _Known(z, conditioned(evaluate(self.kernel, z), scaled, self.noise), centre, scale)

    def answer(self, encoded: _Known, query: Tensor) -> Moments:
        z = self._embed(query)
        queries = Queries(evaluate(self.kernel, encoded.z, z), evaluate(self.kernel, z, diag=True))
        mean, deviation = observed(encoded.posterior, queries, self.noise)
        return Moments(encoded.centre + encoded.scale * mean, encoded.scale * deviation)

    def input_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        if self.objective == "predictive":
            return super().input_losses(tasks, generator)
        return -self.log_evidence(tasks) / Context.of(tasks.merged()).mask.sum(1).clamp_min(1)

    def log_evidence(self, tasks: Tasks) -> Tensor:
        """Of all rows of each task, (T,), in nats, in the units of the targets."""
        every = Context.of(tasks.merged())
        centre, scale = self._scale(Context.of(tasks.support))
        targets, weight = ((every.y - centre) / scale).mT, every.mask.to(every.y.dtype)
        gram = evaluate(self.kernel, self._embed(every.x))
        evidence = regression_log_evidence(GramPrior(gram, gram.new_zeros(())), targets, weight, self.noise)
        return (evidence - weight.sum(1, keepdim=True) * scale.squeeze(1).log()).sum(-1)

    def _scale(self, context: Context) -> tuple[Tensor, Tensor]:
        """Centre and scale of targets by a context, (T, 1, K)."""
        if not self.normalise:
            return torch.zeros_like(context.y[:, :1]), torch.ones_like(context.y[:, :1])
        rows = context.mask.sum(1)[:, None, None] + 1
        centre = context.y.sum(1, keepdim=True) / rows
        squares = (context.y - centre).masked_fill(~context.mask.unsqueeze(-1), 0.0).square().sum(1, keepdim=True)
        return centre, ((squares + centre.square() + 1) / rows).sqrt()

    def _embed(self, x: Tensor) -> Tensor:
        """Features (T, 1, N, F), with a dimension for the targets, which share a kernel."""
        found: Tensor = self.features(x.flatten(0, 1))
        return found.unflatten(0, x.shape[:2]).unsqueeze(1)


def _spectral_mixture(width: int, components: int, highest: float) -> Kernel:
    """Of as many components with frequencies evenly spread."""
    means = torch.linspace(0.0, highest, components, dtype=torch.float32).clamp_min(1e-3)
    kernel = SpectralMixtureKernel(components, width).float()
    return set_values(
        kernel,
        mixture_weights=torch.full((components,), 1 / components, dtype=torch.float32),
        mixture_means=means[:, None, None].expand(-1, 1, width),
        mixture_scales=torch.full((components, 1, width), highest / (2 * components), dtype=torch.float32),
    )
