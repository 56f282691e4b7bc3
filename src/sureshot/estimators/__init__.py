"""Estimators with scikit-learn's contract: numpy, DataFrame or tensor in, numpy out."""

from sureshot.estimators.base import LatentPrediction, Uncertainty
from sureshot.estimators.classifier import GPClassifier
from sureshot.estimators.few_shot import FewShotClassifier

__all__ = ["FewShotClassifier", "GPClassifier", "LatentPrediction", "Uncertainty"]
