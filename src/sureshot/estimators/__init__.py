"""Estimators with scikit-learn's contract: numpy, DataFrame or tensor in, numpy out."""

from sureshot.estimators.base import LatentPrediction, Uncertainty
from sureshot.estimators.few_shot import FewShotClassifier
from sureshot.estimators.gp import GPClassifier

__all__ = ["FewShotClassifier", "GPClassifier", "LatentPrediction", "Uncertainty"]
