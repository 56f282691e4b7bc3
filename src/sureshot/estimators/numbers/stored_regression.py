"""The part of a model file that all regressors have."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sureshot.estimators.numbers.number_fitted import NumberFitted
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.stored import Stored


@dataclass(frozen=True, kw_only=True)
class StoredRegression(Stored):
    """What a file keeps of any `NumberFitted`."""

    target: TargetScale
    one_target: bool
    wider: float
    calibrated: bool

    as_learnt = (*Stored.as_learnt, "target", "one_target", "wider", "calibrated")

    def check_parts(self) -> None:
        super().check_parts()
        n_targets = len(self.target.mean)
        if self.rows.y.ndim != 2 or self.rows.y.shape[1] != n_targets or (self.one_target and n_targets > 1):
            raise ValueError("the numbers do not fit their scale")
        if not self.wider > 0:
            raise ValueError("malformed calibration")

    def answers(self, fitted: NumberFitted, moments: tuple[Tensor, ...]) -> Tensor:
        """The means."""
        return moments[0].flatten(1)
