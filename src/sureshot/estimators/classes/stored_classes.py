"""The part of a model file that all classifiers have."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.stored import Stored


@dataclass(frozen=True, kw_only=True)
class StoredClasses(Stored):
    """What a file keeps of any `ClassFitted`."""

    classes: np.ndarray  # (C,)
    temperature: float
    calibrated: bool
    class_prior: np.ndarray | None  # (C,)

    as_learnt = (*Stored.as_learnt, "classes", "temperature", "calibrated", "class_prior")

    def check_parts(self) -> None:
        super().check_parts()
        n_classes, y = len(self.classes), self.rows.y
        if y.ndim != 1 or y.min() < 0 or y.max() >= n_classes:
            raise ValueError("the rows do not fit the classes")
        if not 0 < self.temperature < np.inf:
            raise ValueError("the temperature must be positive")
        prior = self.class_prior
        if prior is not None and (prior.shape != (n_classes,) or (prior < 0).any() or abs(prior.sum() - 1) > 1e-6):
            raise ValueError("malformed class prior")

    @property
    def training(self) -> TrainingSet:
        return replace(super().training, classes=self.classes)

    def answers(self, fitted: ClassFitted, moments: tuple[Tensor, ...]) -> Tensor:
        """Class probabilities (1, C)."""
        p = fitted.predictor.probabilities(moments, fitted.temperature)
        if p.shape != (1, len(self.classes)):
            raise ValueError(f"probabilities of shape {tuple(p.shape)} for {len(self.classes)} classes")
        return p
