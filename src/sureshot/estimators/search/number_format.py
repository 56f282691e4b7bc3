"""What a model file of `KernelSearchRegressor` holds: rows, and of each particle its structure, numbers and weight."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sureshot.estimators.numbers.stored_regression import StoredRegression
from sureshot.estimators.search.format import StoredParticles, particles_of
from sureshot.estimators.search.number_fitted import NumberParticles, SearchNumbersFitted, numbers_fitted_of
from sureshot.estimators.search.results import inputs_of
from sureshot.estimators.stored import Format
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.numbers import Numbers
from sureshot.structure.smc import SmcState


@dataclass(frozen=True, kw_only=True)
class StoredNumberSearch(StoredParticles, StoredRegression):
    """What a file keeps of a `SearchNumbersFitted` and its `SmcState`."""

    as_learnt = (*StoredRegression.as_learnt, *StoredParticles.of_particles)

    def check_parts(self) -> None:
        super().check_parts()
        self.scaling.check_columns(self.rows.x.shape[1])
        if len(self.target.mean) != 1:
            raise ValueError("malformed numbers")
        self.check_particles()


def _fitted(stored: StoredNumberSearch) -> SearchNumbersFitted:
    rows, particles, training = stored.rows, stored.particles, stored.training
    y = torch.from_numpy(stored.target(rows.y)[:, 0])
    state = SmcState(
        stored.prior,
        inputs_of(rows.x, stored.scaling),
        y,
        2,
        Contrasts.of_rows(len(y)),
        particles,
        Numbers.empty(len(particles)).told(y),
        stored.log_weights,
        stored.log_evidence,
        settled_variance=stored.settled_variance,
        eves=stored.eves,
    )
    predictor = NumberParticles(stored.scaling, state)
    found = numbers_fitted_of(training, predictor, stored.target, stored.settings, stored.seed)
    return found.with_state(state)


SEARCH_NUMBERS_FORMAT = Format(
    "kernel_search_regressor", SearchNumbersFitted, StoredNumberSearch, particles_of, _fitted
)
