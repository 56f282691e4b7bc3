"""How good are probabilities? Proper scores, calibration, unknown detection, selective answering.

Every metric takes class probabilities (n, C) and true column numbers (n,), or labels together with ``classes``. Scores
in the place of probabilities, labels that have no column and the like are a ValueError (`sureshot.metrics.validation`).

>>> import numpy as np
>>> from sureshot.metrics import summarise
>>> probabilities = np.array([[0.9, 0.1], [0.2, 0.8]])
>>> summarise(probabilities, ["cat", "dog"], classes=["cat", "dog"]).accuracy
1.0
"""

from sureshot.metrics.calibration import (
    DEFAULT_BINS,
    ReliabilityCurve,
    apply_temperature,
    expected_calibration_error,
    fit_temperature,
    likeliest_temperature,
    reliability_curve,
)
from sureshot.metrics.detection import RiskCoverage, auroc_unknown, selective_risk
from sureshot.metrics.numbers import ranked_probability_score
from sureshot.metrics.per_class import ClassScores, balanced_accuracy, class_scores, confusion_matrix
from sureshot.metrics.scores import Scores, accuracy, brier, negative_log_likelihood, summarise
from sureshot.metrics.sessions import accuracy_by_session, forgetting, harmonic_mean, performance_drop

__all__ = [
    "DEFAULT_BINS",
    "ClassScores",
    "ReliabilityCurve",
    "RiskCoverage",
    "Scores",
    "accuracy",
    "accuracy_by_session",
    "apply_temperature",
    "auroc_unknown",
    "balanced_accuracy",
    "brier",
    "class_scores",
    "confusion_matrix",
    "expected_calibration_error",
    "fit_temperature",
    "forgetting",
    "harmonic_mean",
    "likeliest_temperature",
    "negative_log_likelihood",
    "performance_drop",
    "ranked_probability_score",
    "reliability_curve",
    "selective_risk",
    "summarise",
]
