"""What `KernelSearchClassifier` has learnt: weighted particles, and the rows that they are conditioned on.

Rows are kept in the order in which they were taken in, a row of weight w as w rows. With the structures, parameters and
Polya-Gamma variables of the particles they make everything else.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sureshot.estimators.fitted import Fitted, NoInfluence, TrainingSet
from sureshot.estimators.layout import aligned
from sureshot.estimators.left_out import by_folds
from sureshot.estimators.memory import in_bytes, memory_budget
from sureshot.estimators.preprocessing import (
    Scaling,
    fit_scaling,
    kernel_inputs,
    mention_constant,
    with_rare_values,
    within_range,
)
from sureshot.estimators.row_ids import part_of
from sureshot.estimators.search_rule import INTEGRAL, Chosen, SearchRule, chosen_rule
from sureshot.estimators.search_settings import SearchSettings
from sureshot.estimators.threads import one_thread
from sureshot.estimators.uncertainty import entropy
from sureshot.estimators.validation import LabelledRows, joined_rows, merged_rows
from sureshot.gaussian.memory import AT_ONCE, entries_by_inducing, entries_by_particles
from sureshot.inference.inducing import kmeans_inducing
from sureshot.kernels import Expression
from sureshot.likelihoods.quadrature import displacement, standard_normal_points
from sureshot.networks.seeds import generator_for
from sureshot.progress import report
from sureshot.structure.canonical import canonical
from sureshot.structure.grammar import KernelPrior
from sureshot.structure.leave_one_out import left_out, of_classes
from sureshot.structure.one_class import one_class_probabilities
from sureshot.structure.prediction import averaged_probabilities, moments, shares_of_rows, unexplained_variance
from sureshot.structure.removal import without
from sureshot.structure.smc import SmcState, settled, smc_step
from sureshot.structure.structure import Structure
from sureshot.structure.whitened import Whitened

MOST_CONTRASTS = 2000
_FARTHEST = 1e6  # of a kernel input: products of sixteen leaves are numbers still
_N_POINTS = 64
_DRAWN_ANEW = (
    "the kernels of all particles overflowed, and were drawn anew from the prior: is there a wild number among the "
    "rows, or are the scales of the grammar too large?"
)


@dataclass(frozen=True)
class SearchStep:
    """What a batch did, in JSON values."""

    n_rows: int  # behind it
    effective_sample_sizes: tuple[float, ...]  # before resampling, of each part of the batch
    ancestors: tuple[int, ...]  # of each particle, its place before the batch
    resampled: bool
    acceptance: dict[str, float]  # by kind of move
    log_evidence: float
    structures: tuple[tuple[float, str], ...]  # mass and structure, heaviest first


@dataclass(frozen=True)
class WeightedKernel:
    """A particle as a user sees it."""

    weight: float
    structure: str
    kernel: Expression  # of standardised columns
    nugget: float  # variance that belongs to a row alone


Callback = Callable[[SearchStep], Any]


@dataclass(frozen=True)
class SearchFitted(Fitted):
    """See `Fitted`."""

    scaling: Scaling
    settings: SearchSettings
    state: SmcState
    steps: tuple[SearchStep, ...]
    seed: int
    chosen: Chosen = INTEGRAL
    inducing_for: int = 0  # rows that may come before inducing inputs are chosen anew
    weights: Tensor = field(init=False)  # (M,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", self.state.log_weights.exp())

    @property
    def distinct_rows(self) -> LabelledRows:
        """See `Fitted.distinct_rows`."""
        return merged_rows(self.rows)[0]

    @property
    def rule(self) -> SearchRule:
        """How latents become probabilities."""
        return self.chosen.rule

    @property
    def waits(self) -> bool:
        """Whether there is nothing to tell apart: no rows, or rows of one class."""
        return not len(self.state.contrasts)

    @property
    def kernel_posterior(self) -> list[tuple[float, str]]:
        """Mass and canonical structure, heaviest first."""
        return posterior_of(self.state)

    @property
    def order(self) -> Tensor:
        """Places of the particles (M,), heaviest first."""
        return self.weights.argsort(descending=True, stable=True)

    @property
    def particles(self) -> list[WeightedKernel]:
        """All particles, heaviest first."""
        state, found = self.state, []
        for i in self.order.tolist():
            structure, z = state.particles.structures[i], state.particles.z[i]
            kernel = state.prior.kernel(structure, z[1:])
            found.append(
                WeightedKernel(float(self.weights[i]), str(structure), kernel, float(state.prior.nugget(z[0])))
            )
        return found

    @property
    def ess_history(self) -> list[float]:
        """Effective sample sizes after each batch, before resampling."""
        return [size for step in self.steps for size in step.effective_sample_sizes]

    @property
    def queries_at_once(self) -> int:
        """See `Fitted.queries_at_once`."""
        state, n_latents = self.state, 1 if self.state.n_classes == 2 else self.state.n_classes
        data = len(state.contrasts) if state.inducing is None else len(state.inducing) * n_latents
        per_query = len(state.particles) * (3 * data + n_latents) * n_latents
        return max(1, AT_ONCE // max(1, per_query))

    def inputs(self, kept: np.ndarray) -> Tensor:
        """See `Fitted.inputs`."""
        return inputs_of(kept, self.scaling)

    def moments(self, queries: Tensor) -> tuple[Tensor, ...]:
        """See `Predictor.moments`: means (M, L, Q), covariances (M, Q, L, L); while it waits probabilities (Q, C)."""
        if self.waits:
            return (one_class_probabilities(self.state, queries, len(self.classes)),)
        return self.chosen.moments(self.state, queries)

    def probabilities(self, moments: tuple[Tensor, ...], temperature: float) -> Tensor:
        """See `Predictor.probabilities`."""
        if self.waits:
            return moments[0]
        mean, covariance = moments
        return self._averaged(mean, covariance, self.weights, temperature)

    def _averaged(self, mean: Tensor, covariance: Tensor, weights: Tensor, temperature: float) -> Tensor:
        found = averaged_probabilities(mean, covariance, weights, temperature, self.chosen.of_latents)
        return found / found.sum(-1, keepdim=True)

    def outlier_scores_left_out(self) -> Tensor:
        """See `Fitted.outlier_scores_left_out`."""
        return self._left_out[1]

    def probabilities_left_out(self) -> Tensor:
        """See `Fitted.probabilities_left_out`."""
        return self._left_out[0]

    @cached_property
    def _left_out(self) -> tuple[Tensor, Tensor]:
        """Probabilities and outlier scores of the rows.

        Latents that are whitened, and rows of a single class, by folds that are taken away.
        """
        state = self.state
        with one_thread():
            if self.waits or isinstance(state.latent, Whitened):
                ones = torch.ones(len(state.y), dtype=torch.float64)
                both = by_folds(state.y, ones, ones, self._said_without)
                return both[:, :-1], both[:, -1]
            out = left_out(state)
            p = self._averaged(self.chosen.means_left_out(state, out), out.covariance, out.weights, self.temperature)
            return p, unexplained_variance(state, state.x, of_classes(state, out.covariance), out.weights)

    def _said_without(self, stays: Tensor, weight: Tensor, fold: Tensor) -> Tensor:
        """Probabilities and outlier scores of a fold's rows, given the others."""
        state = without(self.state, torch.zeros(len(self.state.y), dtype=torch.bool).index_fill(0, stays, True))
        fewer, queries = replace(self, state=state, chosen=self.chosen.on(state)), self.state.x[fold]
        p = fewer.probabilities(fewer.moments(queries), self.temperature)
        return torch.cat([p, fewer.outlier_scores(queries).unsqueeze(-1)], -1)

    def particle_probabilities(self, queries: Tensor) -> Tensor:
        """Class probabilities under each particle (Q, M, C), in the order of `particles`."""
        if self.waits:
            return self.moments(queries)[0].unsqueeze(1).expand(-1, len(self.weights), -1)
        alone, rule = queries.new_ones(1), self.chosen.of_latents
        return torch.stack(
            [
                averaged_probabilities(mean.unsqueeze(0), covariance.unsqueeze(0), alone, self.temperature, rule)
                for mean, covariance in zip(*(part[self.order] for part in self.moments(queries)), strict=True)
            ],
            1,
        )

    def latents(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """See `Predictor.latents`; those of the mixture of particles."""
        means, covariance = moments(self.state, queries)
        variances = covariance.diagonal(dim1=-2, dim2=-1).mT
        mean = torch.einsum("m,mlq->ql", self.weights, means)
        spread = torch.einsum("m,mlq->ql", self.weights, variances + (means - mean.mT).square())
        if len(self.classes) == 2:
            return torch.cat([-mean / 2, mean / 2], -1), (spread / 4).expand(-1, 2)
        return mean, spread

    def row_shares(self, queries: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """See `Fitted.row_shares`: averaged over the particles, where latents are integrated out."""
        if self.settings.representation != "collapsed" or self.settings.n_inducing is not None:
            raise NoInfluence("influence is known of searches with representation='collapsed' and without n_inducing.")
        if self.waits:
            return queries.new_zeros(len(queries), len(self.distinct_rows.y))
        by_copy = shares_of_rows(self.state, queries, first, second)
        merged, place = merged_rows(self.rows)
        return by_copy.new_zeros(len(queries), len(merged.y)).index_add(1, torch.from_numpy(place), by_copy)

    def outlier_scores(self, queries: Tensor) -> Tensor:
        """See `Predictor.outlier_scores`: which share of the latents' prior variance the data leave unknown."""
        return unexplained_variance(self.state, queries, moments(self.state, queries)[1])

    def entropies(self, queries: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """See `Predictor.entropies`."""
        total = entropy(self.probabilities(self.moments(queries), temperature), -1)
        if len(self.classes) == 1:
            return total, total
        means, covariances = moments(self.state, queries)
        points = standard_normal_points(means.shape[1], _N_POINTS, means.dtype, means.device)
        aleatoric = torch.zeros_like(total)
        for weight, mean, covariance in zip(self.weights, means, covariances, strict=True):
            drawn = (mean + displacement(mean, covariance)(points)) / temperature  # (P, L, Q)
            if mean.shape[0] == 1:
                p = torch.sigmoid(drawn)
                values = torch.special.entr(p) + torch.special.entr(1 - p)
            else:
                logits = torch.nn.functional.logsigmoid(drawn.unsqueeze(2) - drawn.unsqueeze(1)).sum(2)
                values = torch.special.entr(torch.softmax(logits, 1))
            aleatoric = aleatoric + weight * values.sum(1).mean(0)
        return total, aleatoric.minimum(total)

    def after(
        self, rows: LabelledRows, classes: np.ndarray, callback: Callback | None, n_jobs: int | None
    ) -> SearchFitted:
        """With more rows, in the batches of the schedule, and as many classes."""
        steps, kept = list(self.steps), self.rows
        generator = generator_for(self.seed, "batch", len(steps))
        window = self.settings.window
        most = rows.weight.sum() if window is None else min(rows.weight.sum(), window)
        self.check_size(most, len(classes))
        rows = _shuffled(_repeated(rows), generator)
        if window is not None:
            rows = part_of(rows, slice(max(0, len(rows.y) - window), None))
        x, y = inputs_of(rows.x, self.scaling), torch.from_numpy(rows.y)
        if self.waits and len(np.unique(np.concatenate([self.rows.y, rows.y]))) == 1:
            return self._waiting(rows, x, classes, callback)
        begin, drawn_anew = 0, False
        with one_thread():
            state, inducing_for = self._seen_through(self.state, x)
            for size in self.settings.batches(len(rows.y)):
                if window is not None and len(kept.y) + size > window:
                    stays = np.arange(len(kept.y)) >= len(kept.y) + size - window
                    state, kept = without(state, torch.from_numpy(stays)), part_of(kept, stays)
                part = slice(begin, begin + size)
                state, info = smc_step(state, x[part], y[part], generator, self.settings.smc(n_jobs), len(classes))
                kept, begin = joined_rows(kept, part_of(rows, part)), begin + size
                drawn_anew = drawn_anew or info.drawn_anew
                step = SearchStep(
                    len(kept.y),
                    info.effective_sample_sizes,
                    info.ancestors,
                    info.resampled,
                    info.acceptance,
                    state.log_evidence,
                    tuple(posterior_of(state)),
                )
                steps.append(step)
                report(f"{begin} of {len(rows.y)} rows, batch {len(steps)}", (begin / len(rows.y)) ** 2)
                if callback is not None:
                    callback(step)
            if drawn_anew:
                warnings.warn(_DRAWN_ANEW, RuntimeWarning, stacklevel=6)  # of `partial_fit`
            found = replace(self, classes=classes, rows=kept, steps=tuple(steps), inducing_for=inducing_for)
            return found.with_state(state).ruled()

    def _seen_through(self, state: SmcState, x: Tensor) -> tuple[SmcState, int]:
        """With the inducing inputs that it has when rows x (B, D) come, and for how many more these are."""
        most, window = self.settings.n_inducing, self.settings.window
        if most is None or len(x) < self.inducing_for:
            return state, max(0, self.inducing_for - len(x))
        every = torch.cat([state.x, x])
        every = every if window is None else every[-window:]
        inducing = kmeans_inducing(every, torch.zeros(len(every), dtype=torch.int64), most)
        return state.seen_through(inducing), len(every) if len(every) > most else 0

    def _waiting(self, rows: LabelledRows, x: Tensor, classes: np.ndarray, callback: Callback | None) -> SearchFitted:
        """With rows of one class, from which nothing can be learnt until there are two."""
        kept = part_of(rows, slice(0, None))
        state = replace(self.state, x=x, y=torch.from_numpy(kept.y), n_classes=len(classes))
        state, _ = self._seen_through(state, x[:0])
        m = len(state.particles)
        step = SearchStep(
            len(kept.y), (float(m),), tuple(range(m)), False, {}, state.log_evidence, tuple(posterior_of(state))
        )
        if callback is not None:
            callback(step)
        return replace(self, classes=classes, rows=kept, state=state, steps=(*self.steps, step))

    def compared(self, training: TrainingSet) -> tuple[np.ndarray, LabelledRows, LabelledRows]:
        """Which rows (N,) bool are in a training set, these rows as it numbers classes, and which of its rows are new.

        A row of weight w in the training set is w rows here.
        """
        number = {label: k for k, label in enumerate(training.classes.tolist())}
        places = np.array([number.get(label, -1) for label in self.classes.tolist()])
        known = replace(self.rows, y=places[self.rows.y])
        merged, place = merged_rows(joined_rows(training.rows, known))
        theirs, mine = place[: len(training.rows.y)], place[len(training.rows.y) :]
        wanted = np.bincount(theirs, training.rows.weight, minlength=len(merged.y))
        surplus = np.bincount(mine, minlength=len(merged.y)) - wanted
        stays = rank_in_group(mine) >= surplus[mine]
        new = replace(merged, weight=-surplus)
        return stays, part_of(known, stays), part_of(new, new.weight > 0)

    def less(self, rows: np.ndarray, classes: np.ndarray | None, n_jobs: int | None) -> SearchFitted:
        """With some rows (N,) bool and classes (C,) bool only."""
        generator = generator_for(self.seed, "removal", len(self.rows.y))
        stays = np.ones(len(self.classes), dtype=bool) if classes is None else classes
        number = np.cumsum(stays) - 1
        left = part_of(self.rows, rows)
        with one_thread():
            state = without(self.state, torch.from_numpy(rows), torch.from_numpy(stays))
            state, inducing_for = replace(self, inducing_for=0)._seen_through(state, state.x[:0])
            state, info = settled(state, generator, self.settings.smc(n_jobs))
            if info.drawn_anew:
                warnings.warn(_DRAWN_ANEW, RuntimeWarning, stacklevel=3)
            left = replace(left, y=number[left.y])
            fewer = replace(self, classes=self.classes[stays], rows=left, inducing_for=inducing_for)
            return fewer.with_state(state).ruled()

    def ruled(self) -> SearchFitted:
        """With the predictive rule that suits; with the one it has if `calibrate` has set the temperature."""
        if self.calibrated:
            return replace(self, chosen=self.chosen.on(self.state))
        chosen = chosen_rule(self.state, self.settings.predictive)
        return replace(self, chosen=chosen, temperature=chosen.temperature)

    def check_size(self, n_more: float, n_classes: int) -> None:
        """Refuse more rows than can be worked with, with an estimate and what to try."""
        settings = self.settings
        n_rows = len(self.rows.y) + n_more
        if settings.window is not None:
            n_rows = min(n_rows, settings.window)
        pairs, latents = max(1, n_classes - 1), 1 if n_classes == 2 else n_classes
        n, sweeps = n_rows * pairs, settings.smc(None).n_sweeps
        what = f"{n_rows:.0f} rows" + (f" of {n_classes} classes, {n:.0f} comparisons" if n_classes > 2 else "")
        if settings.n_inducing is None:
            size, unit = n, "comparisons"
            needed = 8.0 * entries_by_particles(settings.n_particles, n)
            seconds = seconds_of_a_batch(settings.n_particles, sweeps, n)
            way_out = (
                f"keep the latest rows only (window={MOST_CONTRASTS // (2 * pairs)}), see kernels through inducing "
                f"inputs (n_inducing={min(100, MOST_CONTRASTS // latents)}), take fewer rows or particles,"
            )
        else:
            most = min(settings.n_inducing, n_rows)
            size, unit = most * latents, "weights (inducing inputs times classes)"
            what += f", {most:.0f} inducing inputs"
            needed = 8.0 * entries_by_inducing(settings.n_particles, n_rows, most, latents)
            seconds = seconds_through_inducing(settings.n_particles, sweeps, n_rows, most, latents)
            way_out = "take a smaller n_inducing, keep the latest rows only (window=), take fewer particles,"
        available = memory_budget("auto")
        if size <= MOST_CONTRASTS and needed <= available:
            return
        raise MemoryError(
            f"a search over kernels with {what} and {settings.n_particles} particles would take about "
            f"{in_bytes(needed)} and {_in_time(seconds)} for the last batch alone; at most {MOST_CONTRASTS} {unit} "
            f"and {in_bytes(available)} may be used: {way_out} or use GPClassifier."
        )

    def with_state(self, state: SmcState) -> SearchFitted:
        """With another state, everything that follows from its particles computed anew: as it is after loading."""
        if len(state.contrasts) or state.inducing is not None:
            state = state.recomputed()
        return replace(self, state=state, log_evidence=state.log_evidence)


def seconds_of_a_batch(n_particles: int, n_sweeps: int, n: float) -> float:
    """About how long the particles are moved after a batch with which there are n comparisons, on one core.

    A sweep of a particle makes some twenty kernel matrices, n^2 transcendental functions each, and their Cholesky
    factors, n^3 / 3 multiplications each. The constants are those of one core of a Xeon with AMX, which
    ``benchmarks/test_structure.py`` compares with any other; other work on the machine comes on top.
    """
    return n_particles * max(1, n_sweeps) * (4.5e-7 * n**2 + 1.5e-10 * n**3)


def seconds_through_inducing(
    n_particles: int, n_sweeps: int, n_rows: float, n_inducing: float, n_latents: int
) -> float:
    """The same where kernels are seen through inducing inputs, each latent by as many weights."""
    of_row = 3e-7 * n_inducing + 5e-10 * (n_inducing * n_latents) ** 2
    return n_particles * max(1, n_sweeps) * n_rows * of_row


def first_fitted(training: TrainingSet, settings: SearchSettings, seed: int) -> SearchFitted:
    """Without rows yet; the training set says how columns are scaled."""
    x, weight = training.rows.x, training.rows.weight
    scaling = fit_scaling(x, weight, settings.standardize)
    mention_constant(len(scaling.kept), x, scaling.scale, stacklevel=5)
    if len(scaling.kept) == x.shape[1] and settings.standardize and len(np.unique(training.rows.y)) == 1:
        scaling = with_rare_values(scaling, x, weight)
    prior = KernelPrior(settings.grammar, len(scaling.kept))
    if settings.structure is not None:
        try:
            prior.check(settings.structure)
        except ValueError as error:
            raise ValueError(f"structure: {error}") from error
    state = SmcState.start(
        prior,
        settings.n_particles,
        len(training.classes),
        generator_for(seed, "particles"),
        settings.structure,
        settings.representation,
        inducing=None if settings.n_inducing is None else torch.zeros(0, prior.width, dtype=torch.float64),
    )
    none = part_of(training.rows, slice(0, 0))
    return fitted_of(replace(training, rows=none), scaling, settings, state, (), seed)


def fitted_of(
    training: TrainingSet,
    scaling: Scaling,
    settings: SearchSettings,
    state: SmcState,
    steps: tuple[SearchStep, ...],
    seed: int,
) -> SearchFitted:
    """A state, and what it belongs to."""
    return SearchFitted(
        classes=training.classes,
        columns=training.columns,
        reader=training.reader,
        rows=training.rows,
        temperature=1.0,
        calibrated=False,
        log_evidence=state.log_evidence,
        scaling=scaling,
        settings=settings,
        state=state,
        steps=steps,
        seed=seed,
    )


def posterior_of(state: SmcState) -> list[tuple[float, str]]:
    """Mass and canonical structure, heaviest first."""
    mass: dict[Structure, float] = {}
    for structure, weight in zip(state.particles.structures, state.log_weights.exp().tolist(), strict=True):
        form = canonical(structure)
        mass[form] = mass.get(form, 0.0) + weight
    total = sum(mass.values())
    return sorted(((value / total, str(form)) for form, value in mass.items()), key=lambda pair: (-pair[0], pair[1]))


def inputs_of(kept: np.ndarray, scaling: Scaling) -> Tensor:
    """What kernels see of rows."""
    x = kernel_inputs(kept, scaling, torch.device("cpu"))
    return aligned(within_range(x.numpy(), _FARTHEST))


def _repeated(rows: LabelledRows) -> LabelledRows:
    """A row of weight w as w rows."""
    wrong = rows.weight[rows.weight != np.round(rows.weight)]
    if len(wrong):
        raise ValueError(
            "sample_weight must hold whole numbers for KernelSearchClassifier, of how many rows each stands for, but "
            f"it holds {wrong[0]:g}: leave it out, or round it."
        )
    times = rows.weight.astype(np.int64)
    return LabelledRows(rows.x.repeat(times, 0), rows.y.repeat(times), np.ones(int(times.sum())))


def rank_in_group(group: np.ndarray) -> np.ndarray:
    """The how-many-th of its group each place is, (N,), from 0."""
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], group[order])
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - starts
    return rank


def _in_time(seconds: float) -> str:
    """For people, such as "3 minutes"."""
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(1, seconds):.0f} seconds"


def _shuffled(rows: LabelledRows, generator: torch.Generator) -> LabelledRows:
    return part_of(rows, torch.randperm(len(rows.y), generator=generator).numpy())
