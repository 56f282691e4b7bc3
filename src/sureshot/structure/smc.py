"""Sequential Monte Carlo over kernels: weigh by new data, resample, rejuvenate.

`smc_step` is pure: from a state and a batch to the next state. It follows Algorithm 1 of Huang & Wang (2025), with the
weights and the resampling set right: data come one after another within a batch, resampling and rejuvenation behind it.

A batch that leaves few particles is cut, and goes on behind a resampling. One that leaves none, because the numbers of
all kernels overflow, cannot be tempered: no power of zero is a weight. Then kernels are drawn from the prior until the
labels of all rows give some of them a weight.

The evidence estimate is unbiased while moves come behind rows that are known beforehand, whenever particles are
resampled. Where a batch is cut, moves come at a stopping time: particles *given* that their weights have become uneven
are no weighted draws of the posterior that moves keep, so the estimate has a bias of order ``1 / M`` (below 1 % of the
evidence from three particles on, where one run in twelve is cut). ``split_below=0`` cuts nothing.

Reference: Beskos, Jasra, Kantas & Thiery 2016, on the convergence of adaptive sequential Monte Carlo methods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, get_args

import torch
from joblib import delayed
from torch import Tensor

from sureshot.computing.blocks import blocks
from sureshot.computing.workers import at_once
from sureshot.kernels.shared_rows import SharedRows
from sureshot.likelihoods.sites import count_classes
from sureshot.structure.collapsed import Collapsed
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import KernelPrior
from sureshot.structure.inducing import InducingData, Inputs
from sureshot.structure.latents import Latents
from sureshot.structure.links import LINKS, LOGISTIC
from sureshot.structure.particles import Particles
from sureshot.structure.rejuvenation import Rejuvenation
from sureshot.structure.rejuvenation_data import Data
from sureshot.structure.sparse import Features, Sparse
from sureshot.structure.structure import Structure
from sureshot.structure.whitened import Whitened

Representation = Literal["collapsed", "whitened"]
"""What a particle holds beside its kernel (`sureshot.structure.latents`)."""

_TOGETHER = 8  # particles that are moved by one thread and one generator
FEW = 128
"""Up to so many contrasts a sweep costs little, and which structures stay is decided."""
_MOST_DRAWS = 20  # of all particles, when kernels are drawn anew

L = TypeVar("L", bound=Latents)


@dataclass(frozen=True)
class SmcState:
    """M weighted particles, and the data that they are conditioned on."""

    prior: KernelPrior
    x: Tensor  # (N, D)
    y: Tensor  # (N,) int64, or float64 where targets are numbers
    n_classes: int  # C; nothing is compared while there is one; of numbers 2, which have one latent as well
    contrasts: Contrasts  # P
    particles: Particles
    latent: Latents
    log_weights: Tensor  # (M,), normalised
    log_evidence: float  # of all labels, in nats
    settled_variance: float = 0.0  # of the log evidence, from the weights that were resampled away
    eves: tuple[int, ...] = ()  # (M,), the particle at the start that each descends from; empty: itself
    n_chains: int = 0  # particles i and i + n_chains are of one chain; 0: each is its own
    inducing: Tensor | None = None  # (m, D), inputs that all kernels are seen through; None: they are seen whole

    @classmethod
    def start(
        cls,
        prior: KernelPrior,
        n_particles: int,
        n_classes: int,
        generator: torch.Generator,
        structure: Structure | None = None,
        representation: Representation = "collapsed",
        link: str = "logistic",  # or "probit", of whitened latents and two classes
        inducing: Tensor | None = None,  # (m, D), for collapsed latents
    ) -> SmcState:
        """Without data: particles from the prior; ValueError for a structure that rows of its width cannot have."""
        if structure is not None:
            prior.check(structure)
        if n_particles < 1 or n_classes < 1:
            raise ValueError(f"n_particles and n_classes must be at least 1, got {n_particles} and {n_classes}")
        return cls(
            prior,
            torch.zeros(0, prior.width, dtype=torch.float64),
            torch.zeros(0, dtype=torch.int64),
            n_classes,
            Contrasts.none(),
            Particles.drawn(prior, n_particles, generator, structure),
            empty_latents(n_particles, representation, link, n_classes, inducing is not None),
            torch.full((n_particles,), -math.log(n_particles), dtype=torch.float64),
            0.0,
            inducing=inducing,
        )

    @property
    def of_numbers(self) -> bool:
        """Whether targets are numbers, and not labels."""
        return self.y.is_floating_point()

    @property
    def data(self) -> Data | InducingData:
        """What the particles are conditioned on."""
        if self.inducing is None:
            return Data.of(self.prior, self.x, self.contrasts)
        return InducingData(self.prior, Inputs.of(self.x, self.inducing), self.y, self.n_classes, self.contrasts)

    def recomputed(self) -> SmcState:
        """With everything that follows from kernels and variables computed anew."""
        data, m = self.data, len(self.particles)
        parts = [range(m)[part] for part in blocks(m, 1, _TOGETHER)]
        latents = [self.latent.given(part, data.covariance(self.particles.chosen(part))) for part in parts]
        return replace(self, latent=self.latent.joined(latents))

    def seen_through(self, inducing: Tensor) -> SmcState:
        """With other inducing inputs, and the weights that particles have then: variables are as they were."""
        other = replace(self, inducing=inducing).recomputed()
        if not len(self.contrasts):
            return other
        increments = other.latent.log_likelihood - self.latent.log_likelihood
        log_weights, total = normalised(self.log_weights + increments)
        return replace(other, log_weights=log_weights, log_evidence=self.log_evidence + total)

    @property
    def effective_sample_size(self) -> float:
        """``1 / sum w^2``, between 1 and M."""
        return float((-(2 * self.log_weights).logsumexp(0)).exp())

    @property
    def log_evidence_error(self) -> float:
        """Standard error of the log evidence, in nats: as if rejuvenation made particles independent of each other.

        Between two resamplings an estimate of the evidence has the relative variance ``sum w^2 - 1/M``; these sum.
        Particles of one chain count as one. Rejuvenation that moves little makes it too small, systematic resampling
        too large.
        """
        return max(0.0, self.settled_variance + self._stretch_variance) ** 0.5

    @property
    def _stretch_variance(self) -> float:
        """Of the weights since the last resampling."""
        n = self.n_chains or len(self.log_weights)
        return float(self.log_weights.exp().view(-1, n).sum(0).square().sum()) - 1 / n


@dataclass(frozen=True)
class SmcInfo:
    """What happened in a step."""

    effective_sample_sizes: tuple[float, ...]  # before resampling, of each part of the batch
    ancestors: tuple[int, ...]  # (M,), of each particle in the state before
    resampled: bool
    acceptance: dict[str, float] = field(default_factory=dict)  # by kind of move, over all sweeps
    drawn_anew: bool = False  # from the prior, as no particle was left; ancestors are then places among those drawn


@dataclass(frozen=True)
class SmcSettings:
    """How a step is done."""

    rejuvenation: Rejuvenation = field(default_factory=Rejuvenation)
    n_sweeps: int = 1
    n_sweeps_of_few: int | None = None  # while there are at most `FEW` contrasts; None: as many
    resample_below: float = 0.5  # of M
    split_below: float = 0.1  # of M: after the row of a batch with which fewer are left its rest is a batch of its own
    n_chains: int | None = None  # so many particles are resampled, and all states of their chains kept; divides M
    n_jobs: int | None = None  # threads, through joblib, among which particles are shared; changes no result

    def sweeps(self, n: int) -> int:
        """How many follow on a batch with which there are so many contrasts."""
        return self.n_sweeps if self.n_sweeps_of_few is None or n > FEW else self.n_sweeps_of_few


def smc_step(
    state: SmcState,
    x: Tensor,  # (B, D)
    y: Tensor,  # (B,) int64, or float64 as the state has them
    generator: torch.Generator,
    settings: SmcSettings,
    n_classes: int | None = None,  # as many or more than before
) -> tuple[SmcState, SmcInfo]:
    """The state after a batch, and what happened.

    ValueError for rows that are not finite or of another width, labels that are not one for each row and below the
    number of classes, or fewer classes than before.
    """
    m, c = len(state.particles), n_classes or state.n_classes
    _check_batch(state, x, y, c)
    grown, taken = extended(state, x, y, c, generator, settings.split_below * m)
    grown, told = settled(grown, generator, settings)
    if taken == len(x):
        return grown, told
    last, then = smc_step(grown, x[taken:], y[taken:], generator, settings, c)
    return last, _joined(told, then)


def _check_batch(state: SmcState, x: Tensor, y: Tensor, n_classes: int) -> None:
    width = state.prior.width
    if x.ndim != 2 or x.shape[-1] != width or y.shape != x.shape[:1]:
        raise ValueError(
            f"x must be rows of {width} columns (B, {width}) and y their labels (B,), got shapes {tuple(x.shape)} and "
            f"{tuple(y.shape)}"
        )
    if not bool(x.isfinite().all()):
        raise ValueError("x must be finite, but has NaN or infinite values")
    if n_classes < state.n_classes:
        raise ValueError(f"n_classes must be {state.n_classes}, as before, or more, got {n_classes}")
    if n_classes > 2 and state.latent.link.name != LOGISTIC.name:
        raise ValueError(f"the {state.latent.link.name} link is for two classes, got a batch with {n_classes}")
    if state.of_numbers:
        if not (y.is_floating_point() and bool(y.isfinite().all())):
            raise ValueError("y must be finite floating-point numbers, as the state has them")
    elif len(y):
        count_classes(y, n_classes)


def settled(state: SmcState, generator: torch.Generator, settings: SmcSettings) -> tuple[SmcState, SmcInfo]:
    """Resampled if need be, and rejuvenated; drawn anew first if no particle has a weight.

    ValueError if those that are drawn have none either.
    """
    m, n = len(state.particles), settings.n_chains
    if n is not None and (n < 1 or m % n):
        raise ValueError(f"n_chains must divide the {m} particles, got {n}")
    dead = state.log_evidence == -math.inf
    if dead:
        state = _drawn_anew(state, generator, None if settings.rejuvenation.moves else state.particles.structures[0])
    size = state.effective_sample_size
    # A particle of weight zero may be one whose numbers have overflown: none stays.
    none_stays = n is not None or not bool(state.log_weights.isfinite().all())
    resampled = size < settings.resample_below * m or none_stays
    ancestors = torch.arange(m)
    if resampled:
        ancestors = systematic(state.log_weights, generator, n)
        state = _resampled(state, ancestors, n or 0)
    state, rates = (
        rejuvenated(state, generator, settings) if n in (None, m) else _chained(state, m, generator, settings)
    )
    return state, SmcInfo((size,), tuple(ancestors.repeat(m // len(ancestors)).tolist()), resampled, rates, dead)


def _drawn_anew(state: SmcState, generator: torch.Generator, structure: Structure | None) -> SmcState:
    """Particles from the prior, weighed by all labels; of one structure if it is named."""
    m = len(state.particles)
    nothing = replace(
        state,
        x=state.x[:0],
        y=state.y[:0],
        contrasts=Contrasts.none(),
        latent=state.latent.first(0),
        log_weights=torch.full((m,), -math.log(m), dtype=torch.float64),
        log_evidence=0.0,
        settled_variance=0.0,
        eves=(),
        n_chains=0,
    )
    for _ in range(_MOST_DRAWS):
        drawn = replace(nothing, particles=Particles.drawn(state.prior, m, generator, structure))
        found, _ = extended(drawn, state.x, state.y, state.n_classes, generator)
        if found.log_evidence > -math.inf:
            return found
    raise ValueError(
        f"the kernels of all particles overflow on the rows up to row {len(state.x) - 1}, and so do "
        f"{_MOST_DRAWS * m} others of the prior; scale the columns as those of the first batch, or give the grammar "
        "smaller scales"
    )


def normalised(log_weights: Tensor) -> tuple[Tensor, float]:
    """With a sum of one, and the logarithm of their sum; all of them and this minus infinity where none is a number."""
    log_weights = torch.where(log_weights.isnan(), -math.inf, log_weights)
    total = float(log_weights.logsumexp(0))
    return (log_weights - total if math.isfinite(total) else torch.full_like(log_weights, -math.inf)), total


def _resampled(state: SmcState, ancestors: Tensor, n_chains: int) -> SmcState:
    places = ancestors.tolist()
    return replace(
        state,
        particles=state.particles.chosen(places),
        latent=state.latent.chosen(ancestors),
        log_weights=torch.full((len(places),), -math.log(len(places)), dtype=torch.float64),
        settled_variance=state.settled_variance + state._stretch_variance,
        eves=tuple(state.eves[i] if state.eves else i for i in places),
        n_chains=n_chains,
    )


def _chained(
    state: SmcState,
    m: int,  # states to be kept
    generator: torch.Generator,
    settings: SmcSettings,
) -> tuple[SmcState, dict[str, float]]:
    """All states of chains from the particles, the first included (Dau & Chopin 2022, waste-free)."""
    states, sums = [state], dict[str, float]()
    n_moves = m // len(state.particles) - 1
    for _ in range(n_moves):
        state, rates = rejuvenated(states[-1], generator, settings)
        states.append(state)
        for name, rate in rates.items():
            sums[name] = sums.get(name, 0.0) + rate / n_moves
    return replace(
        state,
        particles=Particles.joined([one.particles for one in states]),
        latent=state.latent.joined([one.latent for one in states]),
        log_weights=torch.full((m,), -math.log(m), dtype=torch.float64),
        eves=state.eves * len(states),
    ), sums


def extended(
    state: SmcState,
    x: Tensor,  # (B, D)
    y: Tensor,  # (B,) int64
    n_classes: int,
    generator: torch.Generator,
    enough: float = 0.0,
) -> tuple[SmcState, int]:
    """With a batch in the data and the weights, nothing resampled, nothing moved; and how many of its rows.

    These end with the first after which the effective sample size is not `enough`: a stopping time, at which the
    evidence estimate is unbiased as it stands. Where no particle has a weight that is a number the evidence is zero.
    """
    n = len(state.x)
    every = torch.cat([state.x, x])
    if state.of_numbers:
        later, new = Contrasts.none(), Contrasts.of_rows(len(y), n)
    else:
        later = Contrasts.of_labels(state.y, n_classes, known=state.n_classes)  # of the rows before, with new classes
        new = later.followed_by(Contrasts.of_labels(y, n_classes, n))
    first = 0 if len(later) else n
    shifted = replace(new, row=new.row - first)
    cross, corner = _covariances(state, every, torch.cat([state.y, y]), n_classes, shifted, first)
    latent, increments = state.latent.told(y).extended(cross, corner, generator)
    behind = (new.row < n + torch.arange(1, len(x) + 1).unsqueeze(-1)).sum(-1)  # contrasts up to each row
    summed = torch.cat([state.log_weights.unsqueeze(-1), increments], -1).cumsum(-1)  # (M, P + 1)
    taken = len(x)
    if len(x):
        after = summed[:, behind]
        sizes = (2 * after.logsumexp(0) - (2 * after).logsumexp(0)).exp()
        few = (~(sizes >= enough)).nonzero().flatten()
        taken = int(few[0]) + 1 if len(few) else taken
    n_new = int(behind[taken - 1]) if taken else len(new)
    log_weights, total = normalised(summed[:, n_new])
    found = replace(
        state,
        x=every[: n + taken],
        y=torch.cat([state.y, y[:taken]]),
        n_classes=n_classes,
        contrasts=state.contrasts.followed_by(new.chosen(torch.arange(n_new))),
        latent=latent.first(len(state.contrasts) + n_new),
        log_weights=log_weights,
        log_evidence=state.log_evidence + total,
    )
    return (found.recomputed() if taken < len(x) and state.inducing is not None else found), taken


def _covariances(
    state: SmcState,
    x: Tensor,  # (N + B, D), all rows
    y: Tensor,  # (N + B,)
    n_classes: int,
    new: Contrasts,  # rows counted from the first
    first: int,  # row: that of the batch, or of all, where classes are new
) -> tuple[Any, Any]:
    """Of the data so far with new ones, and of the new ones, as `Latents.extended` takes them."""
    if state.inducing is not None:
        phi, own = Inputs.of(x[first:], state.inducing).features(state.prior, state.particles)
        before = Contrasts.none() if first else state.contrasts
        corner = Features.of(phi, own, y[first:], n_classes, new)
        return Features.of(phi, own, y[first:], n_classes, before), corner
    gram = state.particles.grams(state.prior, SharedRows(x, x[first:]))
    nuggets = state.particles.nuggets(state.prior)
    cross = state.contrasts.covariance(new, gram, nuggets * 0 if first else nuggets)
    return cross, new.covariance(new, gram[:, first:], nuggets)


def rejuvenated(
    state: SmcState, generator: torch.Generator, settings: SmcSettings
) -> tuple[SmcState, dict[str, float]]:
    """After so many sweeps, and the shares of accepted proposals."""
    data, m = state.data, len(state.particles)
    parts = blocks(m, 1, _TOGETHER)
    seeds = torch.randint(2**62, (len(parts),), generator=generator).tolist()
    calls = (
        delayed(_swept)(
            data.separate(), state.particles.chosen(range(m)[part]), state.latent.chosen(part), seed, settings
        )
        for part, seed in zip(parts, seeds, strict=True)
    )
    swept = list(at_once(calls, settings.n_jobs))
    rates = {name: sum(len(own) * rate[name] for own, _, rate in swept) / m for name in swept[0][2]}
    particles = Particles.joined([own for own, _, _ in swept])
    return replace(state, particles=particles, latent=state.latent.joined([own for _, own, _ in swept])), rates


def _swept(
    data: Data | InducingData, particles: Particles, latent: L, seed: int, settings: SmcSettings
) -> tuple[Particles, L, dict[str, float]]:
    """Some of the particles after all sweeps."""
    generator = torch.Generator().manual_seed(seed)
    sums: dict[str, float] = {}
    n_sweeps = settings.sweeps(len(data.contrasts))
    for _ in range(n_sweeps):
        particles, latent, rates = settings.rejuvenation.sweep(data, particles, latent, generator)
        for name, rate in rates.items():
            sums[name] = sums.get(name, 0.0) + rate / n_sweeps
    return particles, latent, sums


def empty_latents(n_particles: int, representation: str, link: str, n_classes: int, inducing: bool = False) -> Latents:
    """Without data; ValueError for what is not offered."""
    if representation not in get_args(Representation):
        raise ValueError(f"representation must be one of {', '.join(get_args(Representation))}, got {representation!r}")
    if link not in LINKS:
        raise ValueError(f"link must be one of {', '.join(LINKS)}, got {link!r}")
    if inducing and representation != "collapsed":
        raise ValueError(f"inducing inputs need collapsed latents, got {representation!r}")
    if representation == "whitened" and (link == "logistic" or n_classes == 2):
        return Whitened.empty(n_particles, LINKS[link])
    if link != "logistic":
        raise ValueError("the probit link needs whitened latents and two classes")
    return Sparse.empty(n_particles) if inducing else Collapsed.empty(n_particles)


def systematic(
    log_weights: Tensor,  # (M,), normalised
    generator: torch.Generator,
    n: int | None = None,  # M
) -> Tensor:
    """Places (n,) drawn in proportion to weights, by one uniform number."""
    n = len(log_weights) if n is None else n
    points = (torch.arange(n, dtype=torch.float64) + torch.rand((), generator=generator, dtype=torch.float64)) / n
    return torch.searchsorted(log_weights.exp().cumsum(0), points).clamp_max(len(log_weights) - 1)


def _joined(first: SmcInfo, second: SmcInfo) -> SmcInfo:
    return SmcInfo(
        first.effective_sample_sizes + second.effective_sample_sizes,
        tuple(first.ancestors[i] for i in second.ancestors),
        first.resampled or second.resampled,
        {name: (rate + second.acceptance.get(name, rate)) / 2 for name, rate in first.acceptance.items()},
        first.drawn_anew or second.drawn_anew,
    )
