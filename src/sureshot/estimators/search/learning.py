"""How a search over kernels takes rows in and lets rows go: from one `SearchFitted` to the next."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sureshot.approximations.inducing_inputs import kmeans_inducing
from sureshot.computing.threads import one_thread
from sureshot.data.checks import listed
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.rows.labelled_rows import LabelledRows, joined_rows, merged_rows, part_of
from sureshot.estimators.rows.preprocessing import (
    Scaling,
    columns_called,
    fit_scaling,
    mention_constant,
    mention_wild,
    with_rare_values,
)
from sureshot.estimators.search.fitted import SearchFitted, fitted_of
from sureshot.estimators.search.number_fitted import SearchNumbersFitted
from sureshot.estimators.search.results import Callback, SearchStep, inputs_of, posterior_of
from sureshot.estimators.search.settings import SearchSettings
from sureshot.networks.seeds import generator_for
from sureshot.progress import report
from sureshot.structure.grammar import KernelPrior
from sureshot.structure.removal import without
from sureshot.structure.smc import SmcState, settled, smc_step
from sureshot.warned import warn

DRAWN_ANEW = (
    "the kernels of all particles overflowed, and were drawn anew from the prior: is there an extreme number among the "
    "rows, or are the scales of the grammar too large?"
)


def first_fitted(training: TrainingSet, settings: SearchSettings, seed: int) -> SearchFitted:
    """Without rows yet; the training set says how columns are scaled."""
    x, weight, one_class = training.rows.x, training.rows.weight, len(np.unique(training.rows.y)) == 1
    # Rows of one class wait, and what varies is asked again with the others.
    prior, scaling = scaled_columns(training, settings, mention=not one_class)
    if len(scaling.kept) == x.shape[1] and settings.standardize and one_class:
        scaling = with_rare_values(scaling, x, weight)
    state = _started(prior, settings, len(training.classes), seed)
    none = part_of(training.rows, slice(0, 0))
    return fitted_of(replace(training, given=none), scaling, settings, state, (), seed)


def scaled_columns(
    training: TrainingSet, settings: SearchSettings, mention: bool = True
) -> tuple[KernelPrior, Scaling]:
    """How columns are scaled by a first batch, and the prior of kernels of those that vary.

    Columns that do not vary are mentioned if wanted; ValueError for a structure that looks at others.
    """
    x = training.rows.x
    scaling = fit_scaling(x, training.rows.weight, settings.standardize)
    if mention:
        mention_constant(scaling, x, training.column_names)
    mention_wild(scaling, x, training.column_names)
    prior = KernelPrior(settings.grammar, len(scaling.kept))
    if settings.structure is not None:
        try:
            prior.check(settings.structure)
        except ValueError as error:
            varying = f" that vary, of {x.shape[1]}" if len(scaling.kept) < x.shape[1] else ""
            raise ValueError(f"structure: {error}{varying}") from error
    return prior, scaling


def mention_more(training: TrainingSet, new: LabelledRows, known: SearchFitted | SearchNumbersFitted) -> None:
    """Log which columns of new rows have extreme cells, and which vary only now."""
    every = joined_rows(known.rows, new)
    scaling = fit_scaling(every.x, every.weight, known.settings.standardize)
    mention_wild(scaling, new.x, training.column_names)
    late = np.setdiff1d(scaling.kept, known.scaling.kept)
    if len(late):
        called = columns_called(late, training.column_names)
        warn(
            f"columns {called} had one value in the rows that said how columns are scaled, and now vary: they stay "
            "ignored; fit on all rows to learn from them",
        )


def _started(prior: KernelPrior, settings: SearchSettings, n_classes: int, seed: int) -> SmcState:
    """Particles of the prior."""
    return SmcState.start(
        prior,
        settings.n_particles,
        n_classes,
        generator_for(seed, "particles"),
        settings.structure,
        settings.representation,
        inducing=None if settings.n_inducing is None else torch.zeros(0, prior.width, dtype=torch.float64),
    )


def after(
    fitted: SearchFitted,
    rows: LabelledRows,
    classes: np.ndarray,
    callback: Callback | None,
    n_jobs: int | None,
    n_earlier: int = 0,  # of the rows, that came before the others, in their order
) -> SearchFitted:
    """With more rows, in the batches of the schedule, and as many classes."""
    generator = generator_for(fitted.seed, "batch", len(fitted.steps))
    window = fitted.settings.window
    if window is None:
        rows = shuffled(repeated(rows), generator)
    else:  # the latest are kept
        rows = replace(rows, weight=rows.weight.clip(max=window))
        earlier, later = part_of(rows, slice(n_earlier)), part_of(rows, slice(n_earlier, None))
        rows = joined_rows(repeated(earlier), shuffled(repeated(later), generator))
        rows = part_of(rows, slice(max(0, len(rows.y) - window), None))
    x, y = inputs_of(rows.x, fitted.scaling), torch.from_numpy(rows.y)
    if fitted.waits and len(np.unique(np.concatenate([fitted.rows.y, rows.y]))) == 1:
        return _waiting(fitted, rows, x, classes, callback)
    if window is not None and not fitted.waits:
        latest = joined_rows(fitted.rows, rows)
        latest = part_of(latest, slice(max(0, len(latest.y) - window), None))
        if len(np.unique(latest.y)) == 1:
            anew = _anew(fitted, len(classes))
            found = _waiting(anew, latest, inputs_of(latest.x, fitted.scaling), classes, callback)
            return found.with_state(found.state)
    with one_thread():
        state, inducing_for = _seen_through(fitted, fitted.state, x)
        batches = Batches(fitted.settings, generator, callback, n_jobs)
        state, kept, steps = batches.after(state, fitted.rows, fitted.steps, rows, x, y, len(classes))
        found = replace(fitted, classes=classes, rows=kept, steps=steps, inducing_for=inducing_for)
        return found.with_state(state)


@dataclass(frozen=True)
class Batches:
    """How rows are taken in, whatever their targets are."""

    settings: SearchSettings
    generator: torch.Generator
    callback: Callback | None
    n_jobs: int | None

    def after(
        self,
        state: SmcState,
        kept: LabelledRows,  # those of the state
        known: tuple[SearchStep, ...],
        rows: LabelledRows,  # in their order, each of weight 1
        x: Tensor,  # (B, D), what kernels see of them
        y: Tensor,  # (B,), their targets as the state has them
        n_classes: int = 2,
    ) -> tuple[SmcState, LabelledRows, tuple[SearchStep, ...]]:
        """The state with the rows, those that are kept, and all steps."""
        begin, drawn_anew, steps = 0, False, list(known)
        window, settings = self.settings.window, self.settings.smc(self.n_jobs, state.of_numbers)
        for size in self.settings.batches(len(rows.y)) or [0]:  # classes may come without rows
            if window is not None and len(kept.y) + size > window:
                stays = np.arange(len(kept.y)) >= len(kept.y) + size - window
                state, kept = without(state, torch.from_numpy(stays)), part_of(kept, stays)
            part = slice(begin, begin + size)
            state, info = smc_step(state, x[part], y[part], self.generator, settings, n_classes)
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
            report(f"{begin} of {len(rows.y)} rows, batch {len(steps)}", (begin / max(1, len(rows.y))) ** 2)
            if self.callback is not None:
                self.callback(step)
        if drawn_anew:
            warn(DRAWN_ANEW, RuntimeWarning)
        return state, kept, tuple(steps)


def _seen_through(fitted: SearchFitted, state: SmcState, x: Tensor) -> tuple[SmcState, int]:
    """With the inducing inputs that it has when rows x (B, D) come, and for how many more these are."""
    most, window = fitted.settings.n_inducing, fitted.settings.window
    if most is None or len(x) < fitted.inducing_for:
        return state, max(0, fitted.inducing_for - len(x))
    every = torch.cat([state.x, x])
    every = every if window is None else every[-window:]
    inducing = kmeans_inducing(every, torch.zeros(len(every), dtype=torch.int64), most)
    return state.seen_through(inducing), len(every) if len(every) > most else 0


def _waiting(
    fitted: SearchFitted, rows: LabelledRows, x: Tensor, classes: np.ndarray, callback: Callback | None
) -> SearchFitted:
    """With rows of one class, from which nothing can be learnt until there are two."""
    found = _with_rows_of_one_class(fitted, rows, x, classes)
    m = len(found.state.particles)
    step = SearchStep(
        *(len(rows.y), (float(m),), tuple(range(m)), False, {}, found.state.log_evidence),
        tuple(posterior_of(found.state)),
        waits=True,
    )
    if callback is not None:
        callback(step)
    return replace(found, steps=(*fitted.steps, step))


def _anew(fitted: SearchFitted, n_classes: int) -> SearchFitted:
    """Without rows, and as before there were any: what was learnt of a class alone was learnt by the others."""
    state = _started(fitted.state.prior, fitted.settings, n_classes, fitted.seed)
    return replace(fitted.on(state), inducing_for=0)


def _with_rows_of_one_class(fitted: SearchFitted, rows: LabelledRows, x: Tensor, classes: np.ndarray) -> SearchFitted:
    """A state of no comparisons, with rows that wait for a second class."""
    state = replace(fitted.state, x=x, y=torch.from_numpy(rows.y), n_classes=len(classes))
    state, _ = _seen_through(fitted, state, x[:0])
    return replace(fitted.on(state), classes=classes, rows=rows)


def numbered(fitted: SearchFitted, training: TrainingSet) -> LabelledRows:
    """Rows as a training set numbers classes."""
    if training.given is None and training.came is not None:
        return fitted.rows
    number = {label: k for k, label in enumerate(training.classes.tolist())}
    places = np.array([number.get(label, -1) for label in fitted.classes.tolist()])
    return replace(fitted.rows, y=places[fitted.rows.y])


def compared(known: LabelledRows, training: TrainingSet) -> tuple[np.ndarray, LabelledRows, LabelledRows]:
    """Which known rows (N,) bool are in a training set, these rows, and which of its rows are new.

    A row of weight w in the training set is w rows here. Where rows only came, nobody else is looked at.
    """
    if training.given is None and training.came is not None:
        return np.ones(len(known.y), dtype=bool), known, training.came
    merged, place = merged_rows(joined_rows(training.rows, known))
    theirs, mine = place[: len(training.rows.y)], place[len(training.rows.y) :]
    wanted = np.bincount(theirs, training.rows.weight, minlength=len(merged.y))
    surplus = np.bincount(mine, minlength=len(merged.y)) - wanted
    stays = rank_in_group(mine) >= surplus[mine]
    new = replace(merged, weight=-surplus)
    return stays, part_of(known, stays), part_of(new, new.weight > 0)


def less(fitted: SearchFitted, rows: np.ndarray, classes: np.ndarray, n_jobs: int | None) -> SearchFitted:
    """With some rows (N,) bool and classes (C,) bool only."""
    generator = generator_for(fitted.seed, "removal", len(fitted.steps), len(fitted.rows.y))
    number = np.cumsum(classes) - 1
    left = part_of(fitted.rows, rows)
    if len(np.unique(left.y)) == 1 and not fitted.waits:
        left, anew = replace(left, y=number[left.y]), _anew(fitted, int(classes.sum()))
        found = _with_rows_of_one_class(anew, left, inputs_of(left.x, fitted.scaling), fitted.classes[classes])
        return found.with_state(found.state)
    with one_thread():
        state = without(fitted.state, torch.from_numpy(rows), torch.from_numpy(classes))
        state, inducing_for = _seen_through(replace(fitted, inducing_for=0), state, state.x[:0])
        state = settled_after(state, generator, fitted.settings, n_jobs)
        left = replace(left, y=number[left.y])
        fewer = replace(fitted, classes=fitted.classes[classes], rows=left, inducing_for=inducing_for)
        return fewer.with_state(state)


def settled_after(
    state: SmcState, generator: torch.Generator, settings: SearchSettings, n_jobs: int | None
) -> SmcState:
    """The particles moved, once rows have left."""
    state, info = settled(state, generator, settings.smc(n_jobs, state.of_numbers))
    if info.drawn_anew:
        warn(DRAWN_ANEW, RuntimeWarning)
    return state


def settled_settings(given: SearchSettings, known: SearchSettings | None) -> SearchSettings:
    """Those of the first batch, with a warning of what has changed since; the given ones, if there was none."""
    if known is None:
        return given
    if changed := [name for name, value in vars(given).items() if value != getattr(known, name)]:
        warn(f"{listed(changed)} changed since the first batch, which settled it: that holds from the next fit on")
    return known


def check_whole(training: TrainingSet, name: str) -> None:
    """ValueError for a weight that is no whole number."""
    weight = (training.rows if training.came is None else training.came).weight
    wrong = weight[weight != np.round(weight)]
    if len(wrong):
        raise ValueError(
            f"sample_weight must hold whole numbers for {name}, of how many rows each stands for, but "
            f"a row (with all that are equal to it) has {wrong[0]:g}: leave it out, or round it."
        )


def repeated(rows: LabelledRows) -> LabelledRows:
    """A row of weight w as w rows."""
    times = rows.weight.astype(np.int64)
    return LabelledRows(rows.x.repeat(times, 0), rows.y.repeat(times, 0), np.ones(int(times.sum())))


def shuffled(rows: LabelledRows, generator: torch.Generator) -> LabelledRows:
    """In a random order."""
    return part_of(rows, torch.randperm(len(rows.y), generator=generator).numpy())


def rank_in_group(group: np.ndarray) -> np.ndarray:
    """The how-many-th of its group each place is, (N,), from 0."""
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], group[order])
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - starts
    return rank
