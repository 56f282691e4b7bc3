"""What a model file of `KernelSearchRegressor` holds: rows, and of each particle its structure, numbers and weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.search.format import StoredParticles, particles_of
from sureshot.estimators.search.number_fitted import NumberParticles, SearchNumbersFitted
from sureshot.estimators.search.results import inputs_of
from sureshot.estimators.stored import Format, Stored
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.numbers import Numbers
from sureshot.structure.smc import SmcState


@dataclass(frozen=True, kw_only=True)
class StoredNumberSearch(StoredParticles, Stored):
    """What a file keeps of a `SearchNumbersFitted` and its `SmcState`."""

    target: TargetScale
    one_target: bool
    wider: float
    calibrated: bool

    def check_parts(self) -> None:
        super().check_parts()
        self.scaling.check_columns(self.rows.x.shape[1])
        if self.rows.y.shape[1:] != (1,) or len(self.target.mean) != 1 or not self.wider > 0:
            raise ValueError("malformed numbers")
        self.check_particles()

    def answers(self, fitted: SearchNumbersFitted, moments: tuple[Tensor, ...]) -> Tensor:
        """The means."""
        return moments[0].flatten(1)


def _own(fitted: SearchNumbersFitted) -> dict[str, Any]:
    names = ("target", "one_target", "wider", "calibrated")
    return {**particles_of(fitted), **{name: getattr(fitted, name) for name in names}}


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
    found = SearchNumbersFitted(
        columns=training.columns,
        reader=training.reader,
        rows=rows,
        log_evidence=stored.log_evidence,
        predictor=NumberParticles(stored.scaling, state),
        target=stored.target,
        one_target=stored.one_target,
        wider=stored.wider,
        calibrated=stored.calibrated,
        settings=stored.settings,
        steps=stored.steps,
        seed=stored.seed,
    )
    return found.with_state(state)


SEARCH_NUMBERS_FORMAT = Format("kernel_search_regressor", SearchNumbersFitted, StoredNumberSearch, _own, _fitted)
