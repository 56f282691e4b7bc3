"""Deep kernel transfer for numbers: an exact Gaussian process for each task, on features that all tasks share.

The features (a network that starts as the identity), the kernel's parameters and the noise are learnt over tasks, by
the evidence of all rows of a task or by the predictive density of its queries given the context. Nothing is learnt in a
task. With `normalise` each task's targets are centred and scaled by its context alone, as if it had one more row of
value 0 and variance 1, so that short contexts give no wild scale. Patacchiola et al. 2020, "Bayesian meta-learning for
the few-shot setting via deep kernels".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from sureshot.gaussian.gram import GramPosterior, GramPrior
from sureshot.gaussian.prior import Queries
from sureshot.inference.least_squares import regression_log_evidence
from sureshot.meta.learners.functions import Context, Moments, RegressionLearner
from sureshot.meta.learners.task_kernel import TaskKernel
from sureshot.meta.processes.exact import conditioned, observed
from sureshot.meta.processes.layers import check_sizes
from sureshot.meta.tasks import Tasks
from sureshot.networks.backbones import Backbone, Identity, MLPProjection


class SpectralMixture(nn.Module):
    """``sum_q w_q prod_d cos(2 pi mu_qd t_d) exp(-2 pi^2 t_d^2 v_qd)``; frequencies start evenly spread from 0.

    Wilson & Adams 2013, "Gaussian process kernels for pattern discovery and extrapolation".
    """

    def __init__(self, n_features: int, components: int, highest: float) -> None:
        super().__init__()
        spread = torch.arange(components, dtype=torch.float32) * (highest / max(components - 1, 1))
        self.frequency = nn.Parameter(spread[:, None].repeat(1, n_features))  # (components, D)
        width = highest / (2 * components)
        self.log_variance = nn.Parameter(torch.full_like(self.frequency, 2 * math.log(width)))
        self.log_weight = nn.Parameter(torch.full((components,), -math.log(components), dtype=torch.float32))

    def gram(self, z: Tensor) -> Tensor:
        """(T, 1, N, N)."""
        return self.cross(z, z)

    def cross(self, z: Tensor, query: Tensor) -> Tensor:
        """(T, 1, N, Q)."""
        apart = z.unsqueeze(2) - query.unsqueeze(1)  # (T, N, Q, D)
        found = []
        for frequency, log_variance in zip(self.frequency, self.log_variance, strict=True):
            decay = (-2 * math.pi**2 * (apart.square() @ log_variance.exp())).exp()
            found.append(decay * (2 * math.pi * apart * frequency).cos().prod(-1))
        return torch.einsum("ptnq,p->tnq", torch.stack(found), self.log_weight.exp()).unsqueeze(1)

    def variance(self, query: Tensor) -> Tensor:
        """(T, 1, Q)."""
        return self.log_weight.exp().sum().expand(len(query), 1, query.shape[1])


class _Known(NamedTuple):
    z: Tensor  # (T, S, F)
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
        if not noise > 0 or not highest_frequency > 0:
            raise ValueError(f"noise and highest_frequency must be positive, got {noise} and {highest_frequency}")
        if hidden:
            self.features: Backbone = MLPProjection((input_width,), n_features=n_features, hidden=hidden, seed=seed)
        elif n_features not in (None, input_width):
            raise ValueError(f"without hidden layers there are {input_width} features, got n_features = {n_features}")
        else:
            self.features = Identity((input_width,))
        width = self.features.n_features
        self.kernel: TaskKernel | SpectralMixture
        if kernel == "spectral_mixture":
            self.kernel = SpectralMixture(width, components, highest_frequency)
        else:
            self.kernel = TaskKernel(kernel, width, lengthscale=lengthscale)
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
        return _Known(z, conditioned(self._prior(z), scaled, self.noise), centre, scale)

    def answer(self, encoded: _Known, query: Tensor) -> Moments:
        z = self._embed(query)
        queries = Queries(self.kernel.cross(encoded.z, z), self.kernel.variance(z))
        mean, deviation = observed(encoded.posterior, queries, self.noise)
        return Moments(encoded.centre + encoded.scale * mean, encoded.scale * deviation)

    def input_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        if self.objective == "predictive":
            return self.predictive_losses(tasks, generator)
        merged = tasks.merged()
        every = Context.of(merged.x, merged.y, merged.mask)
        rows = every.mask.sum(1)
        return -self.log_evidence(tasks) / rows.clamp_min(1)

    def log_evidence(self, tasks: Tasks) -> Tensor:
        """Of all rows of each task, (T,), in nats, in the units of the targets."""
        merged = tasks.merged()
        every = Context.of(merged.x, merged.y, merged.mask)
        centre, scale = self._scale(Context.of(tasks.support_x, tasks.support_y, tasks.support_mask))
        targets = ((every.y - centre) / scale).mT
        weight = every.mask.to(targets.dtype)
        evidence = regression_log_evidence(self._prior(self._embed(every.x)), targets, weight, self.noise)
        return (evidence - weight.sum(1, keepdim=True) * scale.squeeze(1).log()).sum(-1)

    def _scale(self, context: Context) -> tuple[Tensor, Tensor]:
        """Centre and scale of targets by a context, (T, 1, K)."""
        if not self.normalise:
            return context.y.new_zeros(()), torch.ones_like(context.y[:, :1])
        rows = context.mask.sum(1)[:, None, None] + 1
        centre = context.y.sum(1, keepdim=True) / rows
        squares = (context.y - centre).masked_fill(~context.mask.unsqueeze(-1), 0.0).square().sum(1, keepdim=True)
        return centre, ((squares + centre.square() + 1) / rows).sqrt()

    def _prior(self, z: Tensor) -> GramPrior:
        return GramPrior(self.kernel.gram(z), z.new_zeros(()))

    def _embed(self, x: Tensor) -> Tensor:
        found: Tensor = self.features(x.flatten(0, 1))
        return found.unflatten(0, x.shape[:2])
