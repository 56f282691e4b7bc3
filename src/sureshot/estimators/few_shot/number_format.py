"""What model files of `FewShotRegressor` hold: the learner as in its checkpoint, and the rows; a posterior follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from sureshot.data.remembered import Remembered
from sureshot.estimators.devices import device_for
from sureshot.estimators.few_shot.format import checkpoint_of, learnt_state
from sureshot.estimators.few_shot.number_fitted import FewShotNumbersFitted, FunctionInputs, condition_numbers
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.numbers.stored_regression import StoredRegression
from sureshot.estimators.stored import Format


@dataclass(frozen=True, kw_only=True)
class StoredFewShotNumbers(StoredRegression):
    """What a file keeps of a `FewShotNumbersFitted`."""

    learner: dict[str, Any]
    state: dict[str, Tensor]
    inputs: np.ndarray  # (2, D), means and deviations; those of the numbers are the scale of the target
    names: tuple[str, ...] | None
    reading: Remembered | None


def _own(fitted: FewShotNumbersFitted) -> dict[str, Any]:
    return {
        "learner": dict(fitted.learner.config),
        "state": learnt_state(fitted.learner),
        "inputs": fitted.reader.inputs,
        "names": fitted.reader.names,
        "reading": fitted.reader.reading,
    }


def _fitted(stored: StoredFewShotNumbers) -> FewShotNumbersFitted:
    learner = checkpoint_of(stored.learner, {}, stored.state).build_process().double().requires_grad_(False)
    units = {"inputs": stored.inputs, "targets": [stored.target.centre, stored.target.unit], "columns": stored.names}
    reader = FunctionInputs.of(learner.to(device_for("auto")), units, stored.reading)
    return condition_numbers(TrainingSet(reader, stored.columns, np.empty(0), stored.rows, None), reader)


FEW_SHOT_NUMBERS_FORMAT = Format("few_shot_regressor", FewShotNumbersFitted, StoredFewShotNumbers, _own, _fitted)
