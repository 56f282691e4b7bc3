"""A Gaussian process in weight space without each of its labelled rows, as queries see it.

Its kernel, its temperature and the sites of all other rows stay as they are; see `gaussian.without_rows` for the closed
form. Posteriors of estimators keep weights and no shifts (`gaussian.recomputed`), so how strongly a row's site pulls is
computed again (`Scheme.row_sites`). What is then missing of the weights ``Phi' p`` is what the search
for the posterior left over, or what chains drew: it is made up for by the smallest change. Measured on iris, that is
2e-4 of the largest pull for softmax, 3 % at most (natural gradients, mean field of logistic-softmax).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from sureshot.computing.blocks import AT_ONCE
from sureshot.estimators.gp.model import Model
from sureshot.gaussian.posterior import LatentMoments, Posterior, WithPriorClasses
from sureshot.gaussian.prior import Queries
from sureshot.gaussian.recomputed import (
    FactorWeightPosterior,
    SiteWeightPosterior,
    SoftmaxWeightPosterior,
    WeightPosterior,
)
from sureshot.gaussian.without_rows import RowSites, beside_prior_classes, moments_without
from sureshot.inference.one_vs_each.posterior import OneVsEachWeightPosterior
from sureshot.inference.one_vs_each.without_rows import moments_without as pair_moments_without
from sureshot.inference.softmax_without_rows import SoftmaxStep, entries_of_step
from sureshot.likelihoods.gaussian import label_targets

_NEGLIGIBLE = 1e-10  # of the largest singular value of the features


def features_of(posterior: Posterior) -> Tensor:
    """Features of the labelled rows (N, R)."""
    inner = posterior.inner if isinstance(posterior, WithPriorClasses) else posterior
    assert isinstance(inner, WeightPosterior | OneVsEachWeightPosterior)
    return inner.features


class Leaving(ABC):
    """Predictions of queries without each of E rows: places (E,) and the share (E,) of a row's weight that leaves."""

    entries: int
    """Numbers for each query and row."""

    @abstractmethod
    def moments(self, given: LatentMoments, queries: Queries, place: Tensor, share: Tensor) -> LatentMoments:
        """Means (S, C, Q, E), and variances of that shape or covariances (S, Q, E, C, C), from those given all rows.

        Queries are features (1, Q, R) and prior variances (1, Q).
        """


@torch.no_grad()
def leaving(
    posterior: Posterior,
    model: Model,
    y: Tensor,  # (N,)
    weight: Tensor,  # (N,), how often each row counts
    n_classes: int,
) -> Leaving:
    """Of a posterior given labelled rows."""
    if isinstance(posterior, WithPriorClasses):
        place = torch.zeros(n_classes, dtype=torch.int64, device=y.device)
        place[posterior.present] = torch.arange(len(posterior.present), device=y.device)
        inner = leaving(posterior.inner, model, place[y], weight, len(posterior.present))
        return BesidePriorClasses(inner, posterior.present, n_classes)
    if isinstance(posterior, OneVsEachWeightPosterior):
        return Pairs(posterior)
    assert isinstance(posterior, WeightPosterior)
    precision, pull = model.scheme.row_sites(posterior, model.problem(posterior.features, y, n_classes, weight))
    if bool(posterior.weights.any()):  # else there was one class
        pull = pull + _least(posterior.features, posterior.weights - pull @ posterior.features)
    sites = SiteWeightPosterior(posterior.features, posterior.weights, posterior.prior_mean, precision)
    centre = Centre(*label_targets(y, n_classes, weight), weight) if model.scheme.is_exact else None
    step, (n_rows, rank) = None, posterior.features.shape
    if isinstance(posterior, SoftmaxWeightPosterior) and entries_of_step(n_rows, rank, n_classes) <= AT_ONCE:
        step = SoftmaxStep.of(posterior, y)
    return Independent(sites, pull, centre, step)


@dataclass(frozen=True)
class Centre:
    """What the prior means of least squares are made of, the weighted means of the targets."""

    targets: Tensor  # (C, N)
    mean: Tensor  # (C,)
    weight: Tensor  # (N,)

    def moved(self, place: Tensor, share: Tensor) -> Tensor:
        """By how much the means (C, E) move when a row leaves; where no other is left they stay."""
        gone, total = share * self.weight[place], self.weight.sum()
        left = total - gone
        return torch.where(left > 0, gone * (self.mean[:, None] - self.targets[:, place]) / left, 0.0)


@dataclass(frozen=True)
class Independent(Leaving):
    """Classes whose sites are independent of each other's."""

    posterior: SiteWeightPosterior
    pull: Tensor  # (S, L, N), of the sites
    centre: Centre | None
    step: SoftmaxStep | None  # of a softmax, where classes are not so many that their coupling is little

    @property
    def entries(self) -> int:  # type: ignore[override]
        return self.pull.shape[0] * self.pull.shape[1]

    def moments(self, given: LatentMoments, queries: Queries, place: Tensor, share: Tensor) -> LatentMoments:
        features = queries.cross.reshape(queries.cross.shape[-2:])
        solved, sites = self._solved(features), self._sites
        covariance = solved @ self.posterior.features.mT
        mean, variance = moments_without(*given, covariance, sites, place, share)
        if self.step is not None:
            return LatentMoments(given.mean.unsqueeze(-1) + self.step.moves(features, place, share), variance)
        if self.centre is None:
            return LatentMoments(mean, variance)
        # Of the prior means a query keeps what the same sites leave of a mean of 1 if all they have seen is 0.
        towards = (sites.precision[0, 0] @ self.posterior.features).unsqueeze(-1)
        kept, of_rows = (1 - solved @ towards).squeeze(-1), (1 - self._of_rows @ towards).squeeze(-1)
        nothing = RowSites(sites.precision, -sites.precision * of_rows, sites.variance)
        kept, _ = moments_without(kept, torch.zeros_like(kept), covariance, nothing, place, share)
        return LatentMoments(mean + kept * self.centre.moved(place, share).unsqueeze(-2), variance)

    @cached_property
    def _held(self) -> WeightPosterior:
        """With the factors of all blocks, where memory allows."""
        posterior = self.posterior
        (n_chains, n_blocks, _), rank = posterior.precision.shape, posterior.features.shape[1]
        if n_chains * n_blocks * rank**2 > AT_ONCE:
            return posterior
        factors = [torch.stack([posterior.factor(s, c) for c in range(n_blocks)]) for s in range(n_chains)]
        return FactorWeightPosterior(posterior.features, posterior.weights, posterior.prior_mean, torch.stack(factors))

    @cached_property
    def _sites(self) -> RowSites:
        def of_block(s: int, c: int) -> Tensor:
            return self._held.block_variance(s, c, self.posterior.features)

        return RowSites(self.posterior.precision, self.pull, self._of_blocks(of_block))

    @cached_property
    def _of_rows(self) -> Tensor:
        return self._solved(self.posterior.features)

    def _solved(self, features: Tensor) -> Tensor:
        """Of features (Q, R) what the posterior covariance makes of them, (S, L or 1, Q, R)."""
        return self._of_blocks(lambda s, c: torch.cholesky_solve(features.mT, self._held.factor(s, c)).mT)

    def _of_blocks(self, found: Callable[[int, int], Tensor]) -> Tensor:
        n_chains, n_blocks = self.posterior.precision.shape[:2]
        return torch.stack([torch.stack([found(s, c) for c in range(n_blocks)]) for s in range(n_chains)])


@dataclass(frozen=True)
class Pairs(Leaving):
    """Classes that labels compare in pairs, as chains have drawn them."""

    posterior: OneVsEachWeightPosterior

    @property
    def entries(self) -> int:  # type: ignore[override]
        n_chains, n_classes = self.posterior.weights.shape[:2]
        return n_chains * n_classes**2

    def moments(self, given: LatentMoments, queries: Queries, place: Tensor, share: Tensor) -> LatentMoments:
        cross = self.posterior.features @ queries.cross.reshape(queries.cross.shape[-2:]).mT
        diagonal = queries.variance.reshape(-1)
        return LatentMoments(*pair_moments_without(self.posterior.result, cross, diagonal, place, share))


@dataclass(frozen=True)
class OfSample(Leaving):
    """Of more rows than the posterior is given: nothing leaves with the others."""

    inner: Leaving
    seen: Tensor  # (N,) bool

    @property
    def entries(self) -> int:  # type: ignore[override]
        return self.inner.entries

    def moments(self, given: LatentMoments, queries: Queries, place: Tensor, share: Tensor) -> LatentMoments:
        among = (self.seen.cumsum(0) - 1).clamp_min(0)
        return self.inner.moments(given, queries, among[place], share * self.seen[place])


@dataclass(frozen=True)
class BesidePriorClasses(Leaving):
    """Classes that have rows, beside classes that keep their prior; see `WithPriorClasses`."""

    inner: Leaving
    present: Tensor  # (P,) int64
    n_classes: int

    @property
    def entries(self) -> int:  # type: ignore[override]
        return self.inner.entries * self.n_classes**2

    def moments(self, given: LatentMoments, queries: Queries, place: Tensor, share: Tensor) -> LatentMoments:
        mean, spread = (part[..., self.present, :] for part in given)
        found = self.inner.moments(LatentMoments(mean, spread), queries, place, share)
        return beside_prior_classes(given, found, self.present, queries.variance)


def _least(features: Tensor, missing: Tensor) -> Tensor:
    """The smallest pulls (S, L, N) that make weights (S, L, R), as far as rows that may repeat each other can."""
    basis, triangle = torch.linalg.qr(features)
    left, sizes, right = torch.linalg.svd(triangle, full_matrices=False)
    inverse = torch.where(sizes > _NEGLIGIBLE * sizes.max(), 1 / sizes.clamp_min(1e-300), 0.0)
    return ((missing @ right.mT) * inverse) @ left.mT @ basis.mT
