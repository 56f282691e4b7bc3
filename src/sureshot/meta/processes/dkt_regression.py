"""Deep kernel transfer for numbers: an exact Gaussian process for each task, on features that all tasks share.

The features (a network that starts as the identity), the kernel's parameters and the noise are learnt over tasks, by
the evidence of all rows of a task. Nothing is learnt in a task, unless there are several `kernels`, each with its own
parameters: then what is learnt is which of them made it. Answers are the mixture of theirs, weighed by the evidence of
the context and by how common each is. With `mean` each kernel has a curve as well, which is learnt, and the process is
what functions differ from it by; and noise that differs with the inputs. Without, processes are around zero and have
the same noise everywhere, as published. With `normalise` each task's targets are centred and scaled by its context
alone, as if it had one more row of value 0 and variance 1, so that short contexts give no wild scale.

Patacchiola et al. 2020, "Bayesian meta-learning for the few-shot setting via deep kernels"; Fortuin et al. 2019,
"Meta-learning mean functions for Gaussian processes"; Wilson & Adams 2013 (the spectral mixture), "Gaussian process
kernels for pattern discovery and extrapolation".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn
from torch.distributions import Normal

from sureshot.gaussian.gram import GramPosterior, GramPrior
from sureshot.gaussian.posterior import leave_one_out
from sureshot.gaussian.prior import Queries
from sureshot.inference.least_squares import regression_log_evidence
from sureshot.kernels import KERNEL_NAMES, evaluate
from sureshot.kernels.gpytorch_kernels import SpectralMixtureKernel, set_values
from sureshot.meta.learners.functions import Context, Moments, RegressionLearner
from sureshot.meta.learners.task_kernel import TaskKernel
from sureshot.meta.processes.exact import conditioned, observed
from sureshot.meta.processes.layers import Waves, answering, check_sizes
from sureshot.meta.tasks import Tasks
from sureshot.networks.backbones import Backbone, Identity, MLPProjection

_MOST = 6.0  # deviations of noise are up to 20 times as large as usual, or as small


class _Known(NamedTuple):
    z: Tensor  # (T, 1, S, F)
    posterior: GramPosterior
    centre: Tensor  # (T, 1, K)
    scale: Tensor  # (T, 1, K)
    log_weight: Tensor  # (M, T)


class DKTRegression(RegressionLearner):
    """See the module."""

    name = "dkt_regression"
    in_double = True  # variances of functions are thousands of times those of noise

    def __init__(
        self,
        input_width: int,
        target_width: int,
        *,
        kernel: str = "rbf",  # one of `sureshot.kernels.KERNEL_NAMES`, or "spectral_mixture"
        kernels: int = 1,  # M, of that kind, each with its own parameters
        # Widths of the network's layers; none for a process on the inputs themselves, each input by its own measure.
        hidden: Sequence[int] = (64, 64),
        n_features: int | None = None,  # of the network; as many as inputs by default
        mean: Sequence[int] | None = None,  # widths of a network of means and noise at each input; by default none
        lengthscale: float | None = None,  # initial, of kernels that have one; `natural_lengthscale` by default
        components: int = 4,  # of the spectral mixture
        highest_frequency: float = 2.0,  # initial, of the spectral mixture
        noise: float = 0.1,  # initial standard deviation
        normalise: bool = False,
        floor: float = 0.01,  # of the deviation, where targets are normalised in units of their scale
        seed: int = 0,
    ) -> None:
        super().__init__(input_width, target_width)
        widths = {"each width of mean": min(mean or (), default=1)}
        check_sizes(floor, components=components, kernels=kernels, **widths)
        if min(noise, highest_frequency) <= 0 or (not hidden and n_features not in (None, input_width)):
            raise ValueError(
                f"noise and highest_frequency must be positive, got {noise} and {highest_frequency}; and without "
                f"hidden layers there are {input_width} features, got n_features = {n_features}"
            )
        self.features: Backbone = Identity((input_width,))
        if hidden:
            self.features = MLPProjection((input_width,), n_features=n_features, hidden=hidden, seed=seed)
        # Of what is near in each input; a spectral mixture has scales of its own.
        measured = not hidden and input_width > 1 and kernel != "spectral_mixture"
        self.log_relevance = nn.Parameter(torch.zeros(input_width, dtype=torch.float32)) if measured else None
        width = self.features.n_features
        several = kernels > 1
        # Of the first scales, to both sides of what is given; a kernel alone has no dimension for them.
        powers = torch.linspace(-1, 1, kernels, dtype=torch.float32)
        factors = 4.0**powers if several else torch.ones((), dtype=torch.float32)
        self.kernel: Kernel
        if kernel not in (*KERNEL_NAMES, "spectral_mixture"):
            raise ValueError(f"unknown kernel {kernel!r}: expected one of {', '.join(KERNEL_NAMES)}, spectral_mixture")
        if kernel == "spectral_mixture":
            self.kernel = _spectral_mixture(width, components, highest_frequency, factors)
        else:
            count = kernels if several else None
            self.kernel = TaskKernel(kernel, width, lengthscale=lengthscale, n_classes=count).kernel
        if several and kernel != "spectral_mixture":
            raw = dict(self.kernel.named_parameters()).get("base_kernel.raw_lengthscale")
            if raw is None:
                raise ValueError(f"several kernels start at different length-scales, and {kernel!r} has none: pass 1")
            raw.data += factors.log()[:, None, None]
        if several:
            self.log_share = nn.Parameter(torch.zeros(kernels, dtype=torch.float32))
        self.mean: nn.Module | None = None
        if mean is not None:
            waves, generator = Waves(input_width, 5, fading=True), torch.Generator().manual_seed(seed)
            self.mean = nn.Sequential(waves, answering([waves.width, *mean, kernels * (target_width + 1)], generator))
        self.log_noise = nn.Parameter(torch.tensor(2 * math.log(noise), dtype=torch.float32))
        self.normalise, self.floor = normalise, floor
        self.numbers_of_pairs = 6 * kernels  # matrices and their factors

    @property
    def network(self) -> nn.Module:
        return nn.ModuleList([self.features, *([] if self.mean is None else [self.mean])])

    def encode(self, context: Context, generator: torch.Generator) -> _Known:
        centre, scale = self._scale(context)
        z, (rows, noise) = self._embed(context.x), self._apart(context, centre, scale)
        gram = self._covariance(z)
        posterior = conditioned(gram, rows, noise)
        return _Known(z, posterior, centre, scale, self._evidence(gram, rows, noise, posterior).log_softmax(0))

    def answer(self, encoded: _Known, query: Tensor) -> Moments:
        z, (common, noise) = self._embed(query), self._common(query)
        queries = Queries(self._covariance(encoded.z, z), self._covariance(z, diag=True))
        mean, deviation, _ = observed(encoded.posterior, queries, noise.unsqueeze(-2))
        return Moments(encoded.centre + encoded.scale * (mean + common), encoded.scale * deviation, encoded.log_weight)

    def left_out(self, encoded: _Known, context: Context) -> Moments | None:
        if self.normalise:  # by rows that would be left out
            return None
        posterior, (common, noise) = encoded.posterior, self._common(context.x)
        latent, variance = leave_one_out(posterior.mean, posterior.variance, *posterior.sites)
        mean = latent.mT + common  # (M, T, S, K)
        deviation = (variance.mT + noise.unsqueeze(-1)).sqrt().expand(mean.shape)
        # The evidence of the others is that of all rows less what is said of this one.
        said = Normal(mean, deviation, validate_args=False).log_prob(context.y).sum(-1)
        log_weight = (encoded.log_weight.unsqueeze(-1) - said).log_softmax(0)
        mean, deviation = (part.flatten(1, 2).unsqueeze(2) for part in (mean, deviation))
        return Moments(mean, deviation, log_weight.flatten(1))

    def input_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        return -self.log_evidence(tasks) / Context.of(tasks.merged()).mask.sum(1).clamp_min(1)

    def log_evidence(self, tasks: Tasks) -> Tensor:
        """Of all rows of each task, (T,), in nats, in the units of the targets."""
        every = Context.of(tasks.merged())
        centre, scale = self._scale(Context.of(tasks.support))
        evidence = self._evidence(self._covariance(self._embed(every.x)), *self._apart(every, centre, scale))
        return evidence.logsumexp(0) - every.mask.sum(1) * scale.log().sum((1, 2))

    def _evidence(self, gram: Tensor, rows: Context, noise: Tensor, posterior: GramPosterior | None = None) -> Tensor:
        """Log evidence of each kernel and how common it is, (M, T)."""
        prior = GramPrior(gram, gram.new_zeros(()))
        found = regression_log_evidence(prior, rows.y.mT, rows.mask, noise, posterior).sum(-1)
        return found if len(found) == 1 else found + self.log_share.log_softmax(0).unsqueeze(1)

    def _apart(self, rows: Context, centre: Tensor, scale: Tensor) -> tuple[Context, Tensor]:
        """Targets scaled and less the mean of each kernel, (M, T, N, K), and variances of their noise."""
        common, noise = self._common(rows.x)
        return rows._replace(y=(rows.y - centre) / scale - common), noise

    def _common(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of each kernel's functions at inputs (T, N, D), in units of their scale: means and variances of noise.

        They broadcast to (M, T, N, K) and (M, T, N).
        """
        if self.mean is None:
            return x.new_zeros(1, 1, 1, 1), self._noise(x.new_zeros(1, *x.shape[:2]))
        found: Tensor = self.mean(x)
        found = found.unflatten(-1, (-1, self.target_width + 1)).movedim(-2, 0)
        return found[..., :-1], self._noise(found[..., -1])

    def _noise(self, shift: Tensor) -> Tensor:
        """Variances, by what their logarithms differ by from what is usual, within bounds that no input exceeds."""
        return self.floor**2 + (self.log_noise + _MOST * (shift / _MOST).tanh()).exp()

    def _covariance(self, z: Tensor, other: Tensor | None = None, diag: bool = False) -> Tensor:
        """Of features by each kernel, (M, T, 1, N, Q) or with `diag` (M, T, 1, N)."""
        return evaluate(self.kernel, z, other, diag).movedim(1, 0).unsqueeze(2)

    def _scale(self, context: Context) -> tuple[Tensor, Tensor]:
        """Centre and scale of targets by a context, (T, 1, K)."""
        if not self.normalise:
            return torch.zeros_like(context.y[:, :1]), torch.ones_like(context.y[:, :1])
        rows = context.mask.sum(1)[:, None, None] + 1
        centre = context.y.sum(1, keepdim=True) / rows
        squares = (context.y - centre).masked_fill(~context.mask.unsqueeze(-1), 0.0).square().sum(1, keepdim=True)
        return centre, ((squares + centre.square() + 1) / rows).sqrt()

    def _embed(self, x: Tensor) -> Tensor:
        """Features (T, 1, N, F), with a dimension for the kernels."""
        found: Tensor = self.features(x.flatten(0, 1))
        found = found if self.log_relevance is None else found * self.log_relevance.exp()
        return found.unflatten(0, x.shape[:2]).unsqueeze(1)


def _spectral_mixture(
    width: int,
    components: int,
    highest: float,
    factors: Tensor,  # (M,) or (), of the frequencies of each kernel
) -> Kernel:
    """Of as many components with frequencies evenly spread."""
    means = torch.linspace(0.0, highest, components, dtype=factors.dtype)
    means = (factors.unsqueeze(-1) * means).clamp_min(1e-3)
    scales = (factors * highest / (2 * components)).unsqueeze(-1)
    return set_values(
        SpectralMixtureKernel(components, width, batch_shape=factors.shape).float(),
        mixture_weights=torch.full((components,), 1 / components, dtype=torch.float32),
        mixture_means=means[..., None, None],
        mixture_scales=scales[..., None, None],
    )
