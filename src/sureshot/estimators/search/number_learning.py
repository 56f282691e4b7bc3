"""How a search over kernels takes rows with numbers in and lets rows go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from sureshot.computing.threads import one_thread
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.labelled_rows import LabelledRows, part_of
from sureshot.estimators.search.learning import Batches, repeated, scaled_columns, settled_after, shuffled
from sureshot.estimators.search.number_fitted import NumberParticles, SearchNumbersFitted, numbers_fitted_of
from sureshot.estimators.search.results import Callback, inputs_of
from sureshot.estimators.search.settings import SearchSettings
from sureshot.networks.seeds import generator_for
from sureshot.structure.numbers import started
from sureshot.structure.removal import without


def first_numbers(training: TrainingSet, settings: SearchSettings, seed: int) -> SearchNumbersFitted:
    """Without rows yet; the training set says how columns and numbers are scaled."""
    prior, scaling = scaled_columns(training, settings)
    rows = training.rows
    state = started(prior, settings.n_particles, generator_for(seed, "particles"), settings.structure)
    nothing = replace(training, given=part_of(rows, slice(0, 0)))
    target = TargetScale.of(rows.y, rows.weight)
    return numbers_fitted_of(nothing, NumberParticles(scaling, state), target, settings, seed)


def after_numbers(
    fitted: SearchNumbersFitted, rows: LabelledRows, callback: Callback | None, n_jobs: int | None
) -> SearchNumbersFitted:
    """With more rows, in the batches of the schedule.

    Rows of one column come in its order: a period is known roughly by the first few of a series, and closer by each
    that follows, while some rows of all of it fit many periods, each within a hair's breadth.
    """
    generator = generator_for(fitted.seed, "batch", len(fitted.steps))
    rows = shuffled(repeated(rows), generator)
    if fitted.state.prior.width == 1:
        rows = part_of(rows, np.argsort(inputs_of(rows.x, fitted.scaling)[:, 0].numpy(), kind="stable"))
    window = fitted.settings.window
    rows = rows if window is None else part_of(rows, slice(max(0, len(rows.y) - window), None))
    x, y = inputs_of(rows.x, fitted.scaling), torch.from_numpy(fitted.target(rows.y)[:, 0])
    with one_thread():
        batches = Batches(fitted.settings, generator, callback, n_jobs)
        state, kept, steps = batches.after(fitted.state, fitted.rows, fitted.steps, rows, x, y)
        return replace(fitted, rows=kept, steps=steps).with_state(state)


def fewer_numbers(fitted: SearchNumbersFitted, stays: np.ndarray, n_jobs: int | None) -> SearchNumbersFitted:
    """With some rows (N,) bool only."""
    generator = generator_for(fitted.seed, "removal", len(fitted.steps), len(fitted.rows.y))
    with one_thread():
        state = settled_after(without(fitted.state, torch.from_numpy(stays)), generator, fitted.settings, n_jobs)
        return replace(fitted, rows=part_of(fitted.rows, stays)).with_state(state)
