"""Estimators with scikit-learn's contract: numpy, DataFrame or tensor in, numpy out."""

from typing import TYPE_CHECKING

from sureshot.lazy import imported_when_asked_for

if TYPE_CHECKING:
    from sureshot.estimators.answers import LatentPrediction, TopClasses, Uncertainty
    from sureshot.estimators.classifier import GPClassifier
    from sureshot.estimators.decisions import LabelSets
    from sureshot.estimators.few_shot import FewShotClassifier
    from sureshot.estimators.search import KernelSearchClassifier
    from sureshot.estimators.search_fitted import SearchStep, WeightedKernel
    from sureshot.estimators.suggestions import Suggestions
    from sureshot.estimators.tree import TreeGPClassifier
    from sureshot.estimators.tree_fitted import Memory
    from sureshot.estimators.tree_settings import TREE_PRESETS

__all__ = [
    "TREE_PRESETS",
    "FewShotClassifier",
    "GPClassifier",
    "KernelSearchClassifier",
    "LabelSets",
    "LatentPrediction",
    "Memory",
    "SearchStep",
    "Suggestions",
    "TopClasses",
    "TreeGPClassifier",
    "Uncertainty",
    "WeightedKernel",
]

__getattr__ = imported_when_asked_for(__name__)
