"""Deep kernels for numbers: a network is trained together with a kernel on its features.

The kernel is ``s exp(-|g(x) - g(x')|^2 / (2 l^2))`` with a network g, and noise is normal. What is maximised says how
much is made of few rows. The exact evidence is the density of all numbers together: a network that has the freedom to
place rows where they explain each other does so, until noise is next to nothing, and new rows are predicted far too
surely (Ober, Rasmussen & van der Wilk 2021). The log density of left-out rows, in closed form by one Cholesky factor,
asks of each row what the others say of it, and is fooled no less, as the network has seen them all. So a fifth of the
rows is kept aside, which choose the step whose network stays, whatever is maximised. Many rows come in batches, each a
problem of its own; or each a part of one, by inducing inputs (`inducing_bound`).

References: Wilson, Hu, Salakhutdinov & Xing 2016; Rasmussen & Williams 2006, section 5.4.2.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from sureshot.deep.inducing_bound import bound_step
from sureshot.gaussian.gram import GramPrior
from sureshot.inference.least_squares import mean_log_density, regression_sites
from sureshot.inference.natural_gradient import NaturalGradientState
from sureshot.kernels import RBF, evaluate
from sureshot.networks.divergence import LARGEST_LOSS, DivergedError
from sureshot.networks.seeds import generator_for
from sureshot.progress import tracked

ExactObjective = Literal["leave_one_out", "evidence"]
KernelObjective = Literal[ExactObjective, "svgp"]

LEAST_NOISE = 1e-4  # variance, of numbers of variance one
BATCH_ROWS = 1000  # of which a step sees the kernel matrix
EXACT_ROWS = 1500  # up to which a step sees them all
INDUCING = 200  # inputs at most
SEEN_AT_ONCE = 200  # rows whose distances say what is near, and rows that the network embeds at once
KERNEL_RATE = 10.0  # times the network's: three logarithms are far from flat
WAIT = 5  # steps between two looks at the rows kept aside
PSEUDO_ROWS = 2.0  # that say that deviations are right, however few say that they are not
PATIENCE = 20  # looks without a better one, after which training ends


@dataclass(frozen=True)
class KernelTraining:
    """How to train."""

    objective: KernelObjective = "leave_one_out"
    steps: int = 500  # at most
    learning_rate: float = 3e-3  # of Adam
    kept_aside: float = 0.2  # of the rows; 0 for none: then the last step stays
    seed: int = 0

    def __post_init__(self) -> None:
        if self.objective not in get_args(KernelObjective):
            raise ValueError(f"objective must be one of {get_args(KernelObjective)}, got {self.objective!r}")
        if self.steps < 1 or not self.learning_rate > 0 or not 0 <= self.kept_aside < 1:
            raise ValueError("steps and learning_rate must be positive, and kept_aside a share below one")


class DeepKernel(nn.Module):
    """A network, the scales of a kernel on its features, and noise; positive numbers are kept as logarithms."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.log_lengthscale, self.log_outputscale, self.log_noise = (
            nn.Parameter(torch.tensor(math.log(value), dtype=torch.float64)) for value in (1.0, 1.0, 0.1)
        )

    @property
    def lengthscale(self) -> Tensor:
        """Of the features."""
        return self.log_lengthscale.exp()

    @property
    def noise(self) -> Tensor:
        """Variance."""
        return self.log_noise.exp() + LEAST_NOISE

    def forward(self, x: Tensor) -> Tensor:
        """Features (N, D) in units of the length-scale, double, of rows (N, *shape)."""
        features: Tensor = self.network(x)
        if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != len(x):
            came = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
            raise ValueError(
                f"the network must give one line of features for each row, shape ({len(x)}, features), but it gives "
                f"{came}: flatten its output, or leave its last layer out."
            )
        return features.double() / self.lengthscale

    def loss(
        self,
        x: Tensor,  # (N, *shape)
        y: Tensor,  # (P, N), of mean zero and variance about one
        weight: Tensor,  # (N,)
        objective: ExactObjective,
    ) -> Tensor:
        """Negative log density, in nats for each row and target."""
        gram = self.log_outputscale.exp() * evaluate(RBF(), self(x))
        share = None if objective == "evidence" else torch.ones_like(weight)
        counts = weight / weight.clamp_min(1)  # a row is left out with all its copies
        return -mean_log_density(gram, self.noise, y, y.new_zeros(len(y)), weight, share, counts)

    @torch.no_grad()
    def predict(
        self,
        x: Tensor,  # (N, *shape)
        y: Tensor,  # (P, N)
        weight: Tensor,  # (N,)
        queries: Tensor,  # (Q, *shape)
    ) -> tuple[Tensor, Tensor]:
        """Means (P, Q) and variances (Q,) of new numbers, noise included."""
        known, asked = (torch.cat([self(part) for part in rows.split(SEEN_AT_ONCE)]) for rows in (x, queries))
        scale = self.log_outputscale.exp()
        posterior = GramPrior(scale * evaluate(RBF(), known)[None], y.new_zeros(())).condition(
            regression_sites(y, weight, self.noise)
        )
        moments = posterior.query(scale * evaluate(RBF(), known, asked)[None], scale.expand(1, len(queries)))
        return moments.mean, moments[1][0] + self.noise


@dataclass(frozen=True)
class TrainedKernel:
    """The kernel of the best step, in evaluation mode, and how that was found."""

    kernel: DeepKernel
    aside: Tensor  # (N,) bool, rows that it was not trained on
    scores: tuple[tuple[int, float], ...]  # steps, and mean log densities of these rows then
    step: int  # the best; the last, if no row was kept aside


def train_kernel(
    network: nn.Module,  # rows (B, *shape) to features (B, D); copied
    x: Tensor,  # (N, *shape), of the type that the network takes
    y: Tensor,  # (P, N) double, of mean zero and variance about one
    weight: Tensor,  # (N,) double
    settings: KernelTraining,
) -> TrainedKernel:
    """Train network and kernel together; `DivergedError` where numbers stop being finite."""
    kernel = DeepKernel(copy.deepcopy(network).requires_grad_(True)).to(x.device)
    order = torch.randperm(len(x), generator=generator_for(settings.seed, "rows kept aside")).to(x.device)
    aside, seen = order.tensor_split([round(settings.kept_aside * len(x))])
    with torch.random.fork_rng(devices=[x.device] if x.device.type == "cuda" else []), torch.enable_grad():
        torch.manual_seed(settings.seed)  # of dropout and its like
        return _trained(kernel, (x, y, weight), aside.sort().values, seen.sort().values, settings)


Rows = tuple[Tensor, Tensor, Tensor]
Loss = Callable[[Rows, float], Tensor]  # of a batch, which is a share of all rows


def _trained(kernel: DeepKernel, rows: Rows, aside: Tensor, seen: Tensor, settings: KernelTraining) -> TrainedKernel:
    many = len(seen) > EXACT_ROWS
    kernel.train()
    _start(kernel, _part(rows, seen[:SEEN_AT_ONCE])[0])
    own = [kernel.log_lengthscale, kernel.log_outputscale, kernel.log_noise]
    loss_of: Loss
    if settings.objective == "svgp":
        loss_of = _Bound(kernel, _part(rows, _some(seen, INDUCING, settings.seed, "inducing inputs"))[0])
        own.append(loss_of.inputs)
    else:
        loss_of = partial(_exact_loss, kernel, settings.objective)
    groups = [{"params": own, "lr": KERNEL_RATE * settings.learning_rate}]
    if weights := list(kernel.network.parameters()):
        groups.append({"params": weights, "lr": settings.learning_rate})
    optimiser = torch.optim.Adam(groups)
    scores, best, found = [], -math.inf, (0, copy.deepcopy(kernel.state_dict()))
    known = _part(rows, _some(seen, EXACT_ROWS, settings.seed, "rows that say") if many else seen)
    for step in tracked(range(settings.steps + 1), "training the network", settings.steps + 1):
        if len(aside) and step % WAIT == 0:
            scores.append((step, _score(kernel.eval(), known, _part(rows, aside))))
            if scores[-1][1] > best:
                best, found = scores[-1][1], (step, copy.deepcopy(kernel.state_dict()))
            elif step - found[0] >= WAIT * PATIENCE:
                break
        if step == settings.steps:
            break
        places = _some(seen, BATCH_ROWS, settings.seed, "batch", step) if many else seen
        kernel.train()
        _step(loss_of, optimiser, _part(rows, places), len(places) / len(seen), step, settings)
    if len(aside):
        kernel.load_state_dict(found[1])
    is_aside = torch.zeros(len(rows[0]), dtype=torch.bool, device=aside.device)
    is_aside[aside] = True
    kernel.eval().requires_grad_(False)
    return TrainedKernel(kernel, is_aside, tuple(scores), found[0] if len(aside) else settings.steps)


def _exact_loss(kernel: DeepKernel, objective: ExactObjective, batch: Rows, _: float) -> Tensor:
    return kernel.loss(*batch, objective)


class _Bound:
    """The bound as a loss; inducing inputs start where the network puts some rows."""

    state: NaturalGradientState | None = None

    def __init__(self, kernel: DeepKernel, x: Tensor) -> None:
        with torch.no_grad():
            self.inputs = nn.Parameter(kernel(x) * kernel.lengthscale)
        self.kernel = kernel

    def __call__(self, batch: Rows, share: float) -> Tensor:
        x, y, weight = batch
        scale, inputs = self.kernel.log_outputscale.exp(), self.inputs / self.kernel.lengthscale
        problem = inputs, self.kernel(x), scale, self.kernel.noise, y, weight, share
        self.state, bound = bound_step(self.state, *problem)
        return -bound * share / (len(y) * weight.sum())


def _start(kernel: DeepKernel, x: Tensor) -> None:
    """A length-scale that is half of them the distance of two rows."""
    with torch.no_grad():
        distance = torch.pdist(kernel(x)).median() if len(x) > 1 else x.new_ones(())
        if not bool(distance.isfinite()):
            raise DivergedError(
                "the network gives features that are not finite before any step: look at its initial weights."
            )
        kernel.log_lengthscale.fill_(math.log(max(float(distance), 1e-6)))


def _step(
    loss_of: Loss,
    optimiser: torch.optim.Optimizer,
    batch: Rows,
    share: float,
    step: int,
    settings: KernelTraining,
) -> None:
    optimiser.zero_grad()
    try:
        loss = loss_of(batch, share)
        value = float(loss.detach())
    except torch.linalg.LinAlgError:
        value = math.nan
    if not abs(value) < LARGEST_LOSS:
        raise DivergedError(
            f"training of the network diverged at step {step}: the loss is {value:g}. Try a lower learning rate than "
            f"{settings.learning_rate:g}, or a network without layers that overflow."
        )
    loss.backward()
    optimiser.step()


def _score(kernel: DeepKernel, known: Rows, asked: Rows) -> float:
    """Mean log density of rows given others, their deviations as wide as suits them; minus infinity where none is.

    How sure to be can be mended later: a kernel becomes too sure long before its means get worse.
    """
    x, y, weight = asked
    try:
        mean, variance = kernel.predict(*known, x)
    except torch.linalg.LinAlgError:
        return -math.inf
    squared = (y - mean).square() / variance
    variance = variance * (squared.sum() + PSEUDO_ROWS) / (squared.numel() + PSEUDO_ROWS)
    logs = -0.5 * ((y - mean).square() / variance + (2 * math.pi * variance).log())
    found = float((logs @ weight).mean() / weight.sum())
    return found if math.isfinite(found) else -math.inf


def _some(places: Tensor, count: int, seed: int, purpose: str, *place: int) -> Tensor:
    """That many, drawn."""
    return places[torch.randperm(len(places), generator=generator_for(seed, purpose, *place))[:count].to(places.device)]


def _part(rows: Rows, places: Tensor) -> Rows:
    x, y, weight = rows
    return x[places], y[:, places], weight[places]
