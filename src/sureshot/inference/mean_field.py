"""Mean field: the deterministic posterior of every conjugate likelihood.

The posterior over latents f and auxiliary variables is approximated by a product ``q(f) q(aux)``. Each step
takes the optimal auxiliary variables for the present q(f), which are Gaussian sites
(`MeanFieldLikelihood.expected_sites`), and then the optimal Gaussian q(f) for these sites
(`Prior.condition`). Both are closed-form coordinate ascents, so the evidence bound never falls; there
is no learning rate and no randomness. The start is the prior, ``m = a`` and ``Sigma = K``.

`fit_mean_field` mixes these steps (`anderson`), and takes back those that would lower the bound: two to ten times
fewer, most where output scales are large.

Any `Prior` serves: a `FeaturePrior` makes everything ``O(N R^2)``. All leading dimensions (tasks) run in one tensor
operation, and a task's result does not depend on the tasks beside it: a converged one stands still.

Use mean field to *predict*. Do not learn the output scale of a kernel from its bound: see `objectives`.

For one-vs-each it factorises over the classes.

References: Galy-Fajou et al. 2020 (logistic-softmax); Snell & Zemel 2021, appendix B (one-vs-each).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sureshot.gaussian.posterior import SitePosterior
from sureshot.gaussian.prior import Prior
from sureshot.gaussian.sites import Sites
from sureshot.inference.anderson import Mixing
from sureshot.inference.objectives import check_rows, evidence_bound
from sureshot.likelihoods.sites import Carried, MeanFieldLikelihood

_ROUNDING = 64  # units in the last place by which a bound may fall


class MeanFieldInfo(NamedTuple):
    """Diagnostics of one step."""

    bound: Tensor  # (...), after the step
    change: Tensor  # (...), largest change of a mean relative to 1 + its size


@dataclass(frozen=True)
class MeanFieldResult:
    """A converged mean-field posterior.

    The posterior is differentiable in the prior at fixed sites: by stationarity, autograd through
    ``evidence_bound(posterior, ...)`` is the total gradient of the converged bound.
    """

    posterior: SitePosterior
    sites: Sites  # the likelihood's expected sites, (..., C, N)
    bound: Tensor  # (...), evidence bound of `posterior`, in nats
    bound_trace: Tensor  # (steps, ...), the bound after each step; never falls
    converged: Tensor  # (...) bool


def initial_posterior(prior: Prior, likelihood: MeanFieldLikelihood, y: Tensor, n_classes: int) -> SitePosterior:
    """The prior as a posterior without observations: the deterministic start ``m = a``, ``Sigma = K``."""
    variance = prior.variance
    batch = np.broadcast_shapes(variance.shape[:-2], prior.mean.shape[:-2], y.shape[:-1])
    zeros = variance.new_zeros(*batch, likelihood.n_latents(n_classes), y.shape[-1])
    return prior.condition(Sites(zeros, zeros))


def mean_field_step(
    posterior: SitePosterior,
    prior: Prior,
    likelihood: MeanFieldLikelihood,
    y: Tensor,
    weight: Tensor | None = None,
) -> tuple[SitePosterior, MeanFieldInfo]:
    """One sweep of coordinate ascent: expected sites, then the Gaussian posterior; the bound never falls.

    Differentiable, so a caller who wants gradients through a few unrolled steps calls it in a loop.
    """
    sites = likelihood.expected_sites(posterior.mean, posterior.variance, y, weight)
    updated = prior.condition(sites)
    return updated, MeanFieldInfo(
        evidence_bound(updated, likelihood, y, weight), _relative_change(updated.mean, posterior.mean)
    )


class VariationalState(NamedTuple):
    """What a step of mean field starts from: marginals of q(f), and what the auxiliary variables ended with."""

    mean: Tensor  # (..., C, N)
    variance: Tensor  # (..., C, N)
    precision: Tensor | None = None  # (..., C, N), of the sites of the step before
    carried: Carried = None

    @classmethod
    def of_prior(cls, prior: Prior, size: tuple[int, ...]) -> VariationalState:
        """The prior itself, ``m = a`` and ``V = diag K``, for latents of this size (..., C, N)."""
        return cls(prior.mean.expand(size), prior.variance.expand(size))


class Unrolled(NamedTuple):
    """What some steps of mean field end with."""

    sites: Sites  # of the Gaussian that the last step gives
    precision: Tensor  # (..., C, N), newer than that of the sites where the covariance comes first
    carried: Carried


def unrolled_sites(
    condition: Callable[[Sites], SitePosterior],  # the posterior under given sites; called between the steps
    likelihood: MeanFieldLikelihood,
    start: VariationalState,  # of the first step; the prior as a rule
    y: Tensor,  # (..., N) int64
    weight: Tensor | None,  # (..., N)
    n_steps: int,  # at least 1; with a tolerance, at most so many
    tolerance: float | None = None,  # stop once no mean moves by more, relative to one plus its size, in a step
    # Take each step's precisions from the step before, and only then the new ones: Sigma before omega, the order in
    # which algorithm 1 of Ke et al. prints the updates. The first step of all has none before it.
    covariance_first: bool = False,
) -> Unrolled:
    """Sites after some steps, and what the likelihood's auxiliary variables ended with."""

    def in_order(sites: Sites, before: Tensor | None) -> Sites:
        return Sites(before, sites.shift) if covariance_first and before is not None else sites

    sites, carried = likelihood.step(start.mean, start.variance, y, weight, start.carried)
    used = in_order(sites, start.precision)
    mean = start.mean
    for _ in range(n_steps - 1):
        posterior = condition(used)
        if tolerance is not None and float(_relative_change(posterior.mean, mean).max()) <= tolerance:
            break
        mean, before = posterior.mean, sites.precision
        sites, carried = likelihood.step(posterior.mean, posterior.variance, y, weight, carried)
        used = in_order(sites, before)
    return Unrolled(used, sites.precision, carried)


def fit_mean_field(
    prior: Prior,  # over latents at the N inputs; sizes 1 at the class dimension are shared by the classes
    likelihood: MeanFieldLikelihood,
    y: Tensor,  # (..., N) int64
    weight: Tensor | None = None,  # (..., N), one by default; zero means "not observed"
    n_classes: int | None = None,  # ``max(y) + 1`` and at least 2 by default; give it when a class may have no data
    max_steps: int = 200,  # 5 to 50 is usual; factorised one-vs-each at an output scale of 1000 needs 70
    # A task stands still when no mean moves by more, relative to one plus its size, in a step: far below what changes a
    # probability.
    tolerance: float = 1e-5,
) -> MeanFieldResult:
    """The fixed point of `mean_field_step`, by Anderson mixing of its steps.

    A mixed step after which the bound is lower is taken back.

    A ValueError says when `y` is not an integer tensor of labels below `n_classes`, one for each row, or `weight` is
    negative or not finite.
    """
    classes = likelihood.check_targets(y, weight, n_classes)
    check_rows(prior, y)
    with torch.no_grad():
        posterior = initial_posterior(prior, likelihood, y, classes)
        sites, marginals = posterior.sites, _Marginals.under(prior, posterior.mean)
        active = torch.ones(sites.precision.shape[:-2], dtype=torch.bool, device=y.device)
        best = sites.precision.new_full(active.shape, -torch.inf)
        point = marginals.flat(posterior.mean, posterior.variance)
        mixing, trace = Mixing.start(point), []
        for _ in range(max_steps):
            mean, variance = marginals.moments(point)
            proposed = likelihood.expected_sites(mean, variance, y, weight)
            stepped = prior.condition(proposed)
            bound = evidence_bound(stepped, likelihood, y, weight)
            worse = ~(bound >= best - _ROUNDING * torch.finfo(bound.dtype).eps * (1 + best.abs()))
            taken = (active & ~worse)[..., None, None]
            sites = Sites(*(torch.where(taken, new, old) for new, old in zip(proposed, sites, strict=True)))
            best = torch.where(taken[..., 0, 0], bound, best)
            trace.append(best)
            mixing = mixing.moved(point, marginals.flat(stepped.mean, stepped.variance), worse)
            active = active & (worse | (_relative_change(stepped.mean, mean) > tolerance))
            if not bool(active.any()):
                break
            point = mixing.next()
    # With the graph of the prior, if it has one: at stationary sites this alone carries the whole gradient.
    posterior = prior.condition(sites)
    bound = evidence_bound(posterior, likelihood, y, weight)
    bounds = torch.stack(trace) if trace else bound.detach().unsqueeze(0)
    return MeanFieldResult(posterior, sites, bound, bounds, ~active)


class _Marginals(NamedTuple):
    """Means and variances of latents as one point for each task, in the units of the prior."""

    prior_mean: Tensor  # (..., C, N)
    prior_variance: Tensor  # (..., C, N), positive

    @classmethod
    def under(cls, prior: Prior, like: Tensor) -> _Marginals:
        """For latents of this size (..., C, N)."""
        smallest = torch.finfo(like.dtype).tiny
        return cls(prior.mean.expand_as(like), prior.variance.clamp_min(smallest).expand_as(like))

    def flat(self, mean: Tensor, variance: Tensor) -> Tensor:
        """The point (..., 2 C N): any other is one of means and positive variances, too."""
        smallest = torch.finfo(variance.dtype).tiny
        away = (mean - self.prior_mean) / self.prior_variance.sqrt()
        return torch.cat([away, (variance.clamp_min(smallest) / self.prior_variance).log()], -1).flatten(-2)

    def moments(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances (..., C, N) of a point."""
        away, log_ratio = point.unflatten(-1, (self.prior_mean.shape[-2], -1)).chunk(2, -1)
        return self.prior_mean + away * self.prior_variance.sqrt(), log_ratio.exp() * self.prior_variance


def _relative_change(new: Tensor, old: Tensor) -> Tensor:
    """Largest move of a mean, relative to one plus its size, (...)."""
    return ((new - old).abs() / (1 + old.abs())).amax((-2, -1))
