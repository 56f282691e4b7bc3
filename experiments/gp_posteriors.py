"""What each approximation says of one small regression, under one kernel and one noise.

All are asked for the same: moments of the function anywhere, the evidence or the bound in its place, and log densities
of left-out rows. Names are those of `GPRegressor(approximation=...)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Normal

from sureshot.approximations.base import Finite
from sureshot.approximations.by_name import BY_NAME, FEATURE_MAPS
from sureshot.approximations.exact import Exact
from sureshot.approximations.inducing import Inducing
from sureshot.approximations.nearest_neighbours import NearestNeighbours, NearestRows
from sureshot.approximations.products import conditioned
from sureshot.approximations.random_features import FeatureMap
from sureshot.estimators.gp.solved_fitting import N_NEIGHBOURS
from sureshot.estimators.gp.solved_member import PRODUCTS
from sureshot.gaussian.local_regression import local_regression
from sureshot.gaussian.posterior import SitePosterior, leave_one_out
from sureshot.gaussian.prior import Prior, Queries
from sureshot.inference.by_evidence import Regression, feature_prior, learnt_by_evidence, log_evidence_of
from sureshot.inference.least_squares import regression_log_evidence, regression_sites
from sureshot.kernels import RBF, Scale


class Moments(NamedTuple):
    """Of a function at Q inputs."""

    mean: np.ndarray  # (Q,)
    deviation: np.ndarray  # (Q,)


@dataclass(frozen=True)
class Task:
    """One regression in one column, with prior mean 0."""

    kernel: Scale  # of an `RBF`
    noise: float  # variance
    x: Tensor  # (N, 1), of a grid of even steps
    y: Tensor  # (N,)

    @property
    def rows(self) -> Regression:
        """As evidence takes them."""
        return Regression(self.x, self.y[None], torch.zeros(1, dtype=self.x.dtype), torch.ones_like(self.y))


@dataclass(frozen=True)
class Budget:
    """How much approximations may use."""

    inputs: Tensor  # (M, 1), inducing inputs
    n_features: int
    n_neighbours: int
    seed: int


@dataclass(frozen=True)
class Answer:
    """Of one approximation."""

    at: Callable[[Tensor], Moments]  # of inputs (Q, 1)
    noise: float  # variance
    evidence: float  # in nats, or the bound in its place; NaN for neither
    left_out: float  # mean log density of left-out rows, in nats
    basis: Finite | None = None  # of the approximations that have features

    def log_density(self, x: Tensor, y: Tensor) -> float:
        """Mean log density of other rows (Q, 1), in nats."""
        mean, deviation = self.at(x)
        return _log_density(torch.from_numpy(mean), torch.from_numpy(deviation**2) + self.noise, y)


def exact_answer(task: Task) -> Answer:
    """The kernel's own."""
    prior = Exact(task.kernel, task.x).prior(task.x, task.x.new_zeros(()))
    evidence = float(regression_log_evidence(prior, task.y[None], None, task.noise).sum())
    return _conditioned(task, prior, Exact(task.kernel, task.x).queries, task.noise, evidence)


def answer_of(task: Task, basis: Finite, noise: float) -> Answer:
    """By features."""
    prior, evidence = feature_prior(basis, task.x, task.rows.mean), log_evidence_of(basis, task.rows, noise)

    def queries(x: Tensor) -> Queries:
        return Queries(*(part[None] for part in basis.queries(x)))

    return _conditioned(task, prior, queries, noise, float(evidence), basis)


def learnt_answer(task: Task, basis: Finite, steps: int, seed: int) -> Answer:
    """By features that evidence has moved, with the noise, under a kernel that stays."""
    generator = torch.Generator().manual_seed(seed)
    return answer_of(task, *learnt_by_evidence(basis, task.noise, task.rows, (), steps, generator))


def _conditioned(
    task: Task,
    prior: Prior,
    queries: Callable[[Tensor], Queries],
    noise: float,
    evidence: float,
    basis: Finite | None = None,
) -> Answer:
    sites = regression_sites(task.y[None], None, noise)
    posterior = prior.condition(sites)
    without = leave_one_out(posterior.mean[0], posterior.variance[0], sites.precision[0], sites.shift[0])
    left_out = _log_density(without[0], without[1] + noise, task.y)
    return Answer(partial(_moments, posterior, queries), noise, evidence, left_out, basis)


def _moments(posterior: SitePosterior, queries: Callable[[Tensor], Queries], x: Tensor) -> Moments:
    mean, variance = posterior.query(*queries(x))
    return Moments(mean[0].numpy(), variance[0].clamp_min(0).sqrt().numpy())


def _log_density(mean: Tensor, variance: Tensor, y: Tensor) -> float:
    return float(Normal(mean, variance.sqrt()).log_prob(y).mean())


def _nearby(task: Task, count: int) -> Callable[..., tuple[Tensor, Tensor]]:
    """Mean and variance (Q,) of queries (Q, 1) given their nearest rows, those that are rows without themselves."""
    leaf, gain = task.kernel.base_kernel, float(task.kernel.outputscale)
    assert isinstance(leaf, RBF)
    noise = torch.full_like(task.y, task.noise / gain)
    rows = NearestRows.of(task.x / leaf.lengthscale, torch.linspace(0, 1, len(task.y)))
    near = NearestNeighbours(leaf.replace(lengthscale=torch.ones_like(leaf.lengthscale)), rows, noise, count)

    def moments(x: Tensor, own: Tensor | None = None) -> tuple[Tensor, Tensor]:
        share = None if own is None else torch.ones_like(task.y)
        around = near.around(x / leaf.lengthscale, own, share)
        found = [local_regression(problem, task.y[place].unsqueeze(-1)) for _, place, problem in around]
        mean, explained = (torch.cat(parts) for parts in list(zip(*found, strict=True))[:2])
        return mean.squeeze(-1), gain * (1 - explained).clamp_min(0)

    return moments


def nearest_answer(task: Task, count: int) -> Answer:
    """Of each query by its nearest rows."""
    moments = _nearby(task, count)

    def at(x: Tensor) -> Moments:
        mean, variance = moments(x)
        return Moments(mean.numpy(), variance.sqrt().numpy())

    mean, variance = moments(task.x, torch.arange(len(task.y)))
    return Answer(at, task.noise, math.nan, _log_density(mean, variance + task.noise, task.y))


def product_answer(task: Task, name: str, seed: int) -> Answer:
    """By products of the kernel's matrix; deviations are those given the nearest rows."""
    products, moments = PRODUCTS[name](task.kernel, task.x), _nearby(task, N_NEIGHBOURS)
    noise = torch.full_like(task.y, task.noise)
    dual, log_det = conditioned(products, task.y[:, None], noise, torch.Generator().manual_seed(seed))
    evidence = -0.5 * float(task.y @ dual[:, 0] + log_det + len(task.y) * math.log(2 * math.pi))

    def at(x: Tensor) -> Moments:
        return Moments(products.of_queries(x, dual)[:, 0].numpy(), moments(x)[1].sqrt().numpy())

    unknown = moments(task.x, torch.arange(len(task.y)))[1] + task.noise
    return Answer(at, task.noise, evidence, _log_density(task.y - dual[:, 0] * unknown, unknown, task.y))


def basis_of(name: str, task: Task, budget: Budget) -> Finite:
    """An approximation that has features, as it is drawn or placed."""
    kind = Inducing if name == "inducing" else BY_NAME[name]
    if issubclass(kind, FeatureMap):
        generator = torch.Generator().manual_seed(budget.seed)
        return kind.drawn(task.kernel, task.x.shape[1], budget.n_features, generator)
    assert issubclass(kind, Inducing)
    return kind(task.kernel, budget.inputs)


MAPS = FEATURE_MAPS
"""By frequencies."""
PLACED = ("inducing", *(name for name, kind in BY_NAME.items() if issubclass(kind, Inducing)))
"""By inducing inputs."""


def answers(task: Task, budget: Budget, names: Iterable[str] = (*MAPS, *PLACED)) -> dict[str, Answer]:
    """By approximations as they are drawn or placed, by products, and by nearest neighbours."""
    found = {name: answer_of(task, basis_of(name, task, budget), task.noise) for name in names}
    found |= {name: product_answer(task, name, budget.seed) for name in PRODUCTS}
    return {**found, "nearest_neighbours": nearest_answer(task, budget.n_neighbours)}
