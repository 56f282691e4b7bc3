"""Gibbs sampling of the one-vs-each model: the joint posterior of all classes, many tasks and chains at once.

The sampler alternates between the differences ``psi`` (own latent minus that of another class, for every datum) given
the Polya-Gamma variables ``omega``, a Gaussian, and ``omega`` given ``psi``, independent draws from
PG(weight, psi). The state is ``omega`` alone: predictions are Gaussian given it (Rao-Blackwellised), so no
latent is drawn that is not needed for the next ``omega``. See `sureshot.inference.one_vs_each.structure`
for the linear algebra.

References: Snell & Zemel 2021, Bayesian few-shot classification with one-vs-each Polya-Gamma augmented
Gaussian processes, section 3 and appendix B.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.blocks import OF_DRAWS
from sureshot.inference.one_vs_each.structure import Factorisation, PairFactor, PairPrior, Pairs
from sureshot.likelihoods.auxiliary import require_counts
from sureshot.likelihoods.polya_gamma import sample_polya_gamma
from sureshot.likelihoods.sites import check_labels, check_weight

logger = logging.getLogger(__name__)

_CERTAIN = 1e3  # a difference of prior means, in nats, that no kernel in use overcomes


class OneVsEachState(NamedTuple):
    """What the next sweep needs: the Polya-Gamma variables, (T, S, C, R), laid out as `Pairs` says."""

    omega: Tensor


class OneVsEachInfo(NamedTuple):
    """What a sweep did: the differences that it drew, (T, S, C, R)."""

    differences: Tensor


def one_vs_each_gibbs_step(
    state: OneVsEachState, prior: PairPrior, generator: torch.Generator | None
) -> tuple[OneVsEachState, OneVsEachInfo]:
    """One sweep for T tasks and S chains: ``psi | omega`` exactly, then ``omega | psi``.

    One binary logistic model with all labels 1 (Snell & Zemel 2021, equations 9-11); data enter through
    ``prior.pairs``.
    """
    differences = prior.draw(state.omega, generator)
    return _sample_omega(differences, prior.pairs, generator), OneVsEachInfo(differences)


@dataclass(frozen=True)
class OneVsEachGibbsResult:
    """The last state of every chain; its posterior over the latents is a Gaussian per chain.

    With ``keep="all"`` also what every sweep drew, for split R-hat and ESS.
    """

    omega: Tensor  # (chains, ..., C, N), of the last sweep, zero at each datum's own class
    differences: Tensor | None  # (sweeps, chains, ..., C, N), ``f_y - f_c``, zero at the own class
    prior: PairPrior
    last: Tensor  # (T, S, C, R)
    batch: torch.Size

    def predict_latents(
        self,
        Kxq: Tensor,  # (..., N, Q), between data and queries
        Kqq_diag: Tensor,  # (..., Q), at the queries
    ) -> tuple[Tensor, Tensor]:
        """Each chain's Gaussian at queries: means (chains, ..., C, Q), covariances of classes (chains, ..., Q, C, C).

        Snell & Zemel 2021, section 3.3: ``V* = k** I - (A k*)' W^1/2 B^-1 W^1/2 (A k*)``.
        """
        tasks = self.last.shape[0]
        cross = Kxq.to(self.last.dtype).expand(*self.batch, *Kxq.shape[-2:]).reshape(tasks, *Kxq.shape[-2:])
        diagonal = Kqq_diag.to(self.last.dtype).expand(*self.batch, cross.shape[-1]).reshape(tasks, -1)
        with torch.no_grad():
            parts = [query_moments(self.prior, omega, cross, diagonal) for omega in self._by_chains()]
        mean = torch.cat([part[0] for part in parts], dim=1)
        covariance = torch.cat([part[1] for part in parts], dim=1)
        return _chains_first(mean, self.batch), _chains_first(covariance, self.batch)

    @torch.no_grad()
    def dual(self) -> Tensor:
        """``K^-1 (m_c - a_c)`` of each chain, (chains, ..., C, N): the mean at a query is ``a_c + k*' dual_c``."""
        n = self.prior.gram.shape[-1]
        parts = [dual_means(self.prior, omega, self.prior.condition(omega), n) for omega in self._by_chains()]
        return _chains_first(torch.cat(parts, dim=1), self.batch)

    def _by_chains(self) -> tuple[Tensor, ...]:
        """The last states of as many chains at a time as fit into a bounded amount of memory."""
        tasks, chains, n_classes, rows = self.last.shape
        held = tasks * n_classes * rows * (rows + self.prior.gram.shape[-1])
        return self.last.split(max(1, min(chains, OF_DRAWS // max(held, 1))), dim=1)


@torch.no_grad()
def run_one_vs_each_gibbs(
    Kxx: Tensor,  # (..., N, N), one kernel matrix for each task, shared by its classes
    prior_mean: Tensor | float,  # (..., C)
    y: Tensor,  # (..., N) int64; a class without data keeps its prior up to what the others' labels say
    n_classes: int,
    n_chains: int = 20,  # of 50 sweeps, the published setting at few-shot sizes
    n_sweeps: int = 50,
    weight: Tensor | None = None,  # (..., N), integers: a datum of weight 2 counts as two equal ones, 0 as absent
    generator: torch.Generator | None = None,
    keep: Literal["last", "all"] = "last",
    # Mean and variance of latents, each (..., C, N): start the chains from independent Gaussians (a mean-field
    # solution, say) instead of the prior.
    start: tuple[Tensor, Tensor] | None = None,
    factorisation: Factorisation = "auto",  # takes the faster: dense for the smallest tasks
) -> OneVsEachGibbsResult:
    """Sample the one-vs-each posterior of a batch of tasks (Snell & Zemel 2021, algorithm 1).

    The dtype of ``Kxx`` is that of the whole run: float32 takes about half the time; its predictive moments agree with
    float64's to 2e-6 at kernel variance 1 and 2e-3 at 100. A class whose prior mean lies 1000 or more below that of a
    datum's own class is not compared with it: how to leave a class out.

    Raises
    ------
    ValueError
        For labels out of range, fewer than two classes, fractional or negative weights, or a matrix that is
        not a kernel matrix.
    """
    _check(Kxx, y, n_classes, n_chains, n_sweeps, factorisation)
    check_weight(y, weight)
    batch = torch.Size(np.broadcast_shapes(Kxx.shape[:-2], y.shape[:-1]))
    n = y.shape[-1]
    tasks = batch.numel()
    labels = y.expand(*batch, n).reshape(tasks, n)
    counts = None
    if weight is not None:
        require_counts(weight)
        counts = weight.expand(*batch, n).reshape(tasks, n)
    mean = torch.as_tensor(prior_mean, dtype=Kxx.dtype, device=Kxx.device)
    class_mean = mean.expand(*batch, n_classes).reshape(tasks, n_classes)
    gram = Kxx.expand(*batch, n, n).reshape(tasks, n, n)
    pairs = _uncertain(Pairs.of_labels(labels, n_classes, counts, Kxx.dtype), class_mean)
    prior = PairPrior.of_kernel(gram, class_mean, pairs, factorisation)

    if start is None:
        differences = prior.sample(n_chains, generator)
    else:
        centre, spread = (part.to(Kxx.dtype).expand(*batch, n_classes, n) for part in start)
        noise = torch.randn(tasks, n_chains, n_classes, n, generator=generator, dtype=Kxx.dtype, device=Kxx.device)
        centre, spread = (part.reshape(tasks, 1, n_classes, n) for part in (centre, spread))
        differences = pairs.differences(centre + spread.sqrt() * noise)
    state = _sample_omega(differences, pairs, generator)
    kept = [differences] if keep == "all" else []
    for _ in range(n_sweeps - 1):
        state, info = one_vs_each_gibbs_step(state, prior, generator)
        if keep == "all":
            kept.append(info.differences)
    logger.debug("one-vs-each Gibbs: %d tasks, %d chains, %d sweeps", tasks, n_chains, n_sweeps)

    def public(values: Tensor) -> Tensor:
        return _chains_first(pairs.to_classes(values * (pairs.count.unsqueeze(1) > 0), n), batch)

    return OneVsEachGibbsResult(
        omega=public(state.omega),
        differences=torch.stack([public(drawn) for drawn in kept]) if kept else None,
        prior=prior,
        last=state.omega,
        batch=batch,
    )


def _uncertain(pairs: Pairs, class_mean: Tensor) -> Pairs:
    """The pairs without classes whose prior mean is so low that ``sigma(psi)`` is one to the last digit.

    Such as classes that a task of a padded batch does not have.
    """
    own = class_mean.gather(-1, pairs.own.flatten(1)).view_as(pairs.count)
    return replace(pairs, count=pairs.count * (own - class_mean.unsqueeze(-1) < _CERTAIN))


def _sample_omega(differences: Tensor, pairs: Pairs, generator: torch.Generator | None) -> OneVsEachState:
    count = pairs.count.unsqueeze(1).expand_as(differences)
    return OneVsEachState(sample_polya_gamma(count, differences, generator))


def query_moments(prior: PairPrior, omega: Tensor, cross: Tensor, diagonal: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (T, S, C, Q) and covariance (T, S, Q, C, C) at queries with cross kernel (T, N, Q), diagonal (T, Q)."""
    pairs, n = prior.pairs, prior.gram.shape[-1]
    n_classes, rows = pairs.point.shape[1:]
    factor = prior.condition(omega)
    latents = dual_means(prior, omega, factor, n)
    centred = (latents.flatten(1, 2) @ cross).unflatten(1, latents.shape[1:3])
    mean = prior.class_mean[:, None, :, None] + centred
    identity = torch.eye(n_classes, dtype=omega.dtype, device=omega.device)
    other = torch.arange(n_classes, device=omega.device).view(-1, 1).expand(n_classes, rows)
    sign = identity[pairs.own] - identity[other]  # (T, C, R, C)
    task = torch.arange(cross.shape[0], device=omega.device).view(-1, 1, 1)
    near = cross[task, pairs.point]  # (T, C, R, Q)
    size = max(1, OF_DRAWS // max(omega.numel() * n_classes, 1))
    parts = [
        factor.quadratic(near[..., begin : begin + size].unsqueeze(-1) * sign.unsqueeze(-2))
        for begin in range(0, max(1, cross.shape[-1]), size)  # no query is a block as well
    ]
    prior_part = diagonal[:, None, :, None, None] * identity
    return mean, prior_part - torch.cat(parts, dim=2)


def dual_means(prior: PairPrior, omega: Tensor, factor: PairFactor, n: int) -> Tensor:
    """``K^-1 (m - a)`` of the latents given Polya-Gamma variables, (T, S, C, N)."""
    return prior.pairs.to_latents(prior.weights(omega, factor), n)


def _chains_first(values: Tensor, batch: torch.Size) -> Tensor:
    """From (T, S, ...) to (S, *batch, ...)."""
    return values.transpose(0, 1).reshape(values.shape[1], *batch, *values.shape[2:])


def _check(Kxx: Tensor, y: Tensor, n_classes: int, n_chains: int, n_sweeps: int, factorisation: str) -> None:
    if factorisation not in get_args(Factorisation):
        raise ValueError(f"factorisation must be one of {', '.join(get_args(Factorisation))}, got {factorisation!r}")
    if not bool(Kxx.isfinite().all()):
        raise ValueError("Kxx must be a kernel matrix, but holds NaN or infinite numbers")
    if n_classes < 2:
        raise ValueError(f"n_classes must be at least 2, got {n_classes}: one-vs-each compares classes")
    if Kxx.shape[-1] != y.shape[-1] or Kxx.shape[-2] != y.shape[-1]:
        raise ValueError(f"Kxx must be (..., N, N) with N = {y.shape[-1]} labels, got {tuple(Kxx.shape)}")
    check_labels(y, n_classes)
    if n_chains < 1 or n_sweeps < 1:
        raise ValueError(f"n_chains and n_sweeps must be at least 1, got {n_chains} and {n_sweeps}")
