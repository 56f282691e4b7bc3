"""Estimators with scikit-learn's contract: numpy, DataFrame or tensor in, numpy out."""

from typing import TYPE_CHECKING

from sureshot.lazy import imported_when_asked_for

if TYPE_CHECKING:
    from sureshot.estimators.classes.answers import LatentPrediction, TopClasses, Uncertainty
    from sureshot.estimators.classes.decisions import LabelSets
    from sureshot.estimators.few_shot.classifier import FewShotClassifier
    from sureshot.estimators.few_shot.regressor import FewShotRegressor
    from sureshot.estimators.gp.classifier import GPClassifier
    from sureshot.estimators.gp.regressor import GPRegressor
    from sureshot.estimators.numbers.answers import Intervals
    from sureshot.estimators.search.classifier import KernelSearchClassifier
    from sureshot.estimators.search.regressor import KernelSearchRegressor
    from sureshot.estimators.search.results import SearchStep, WeightedKernel
    from sureshot.estimators.suggestions import Suggestions
    from sureshot.estimators.tree.classifier import TreeGPClassifier
    from sureshot.estimators.tree.fitted import Memory
    from sureshot.estimators.tree.settings import TREE_PRESETS
    from sureshot.structure.parts import AdditiveForm, AdditivePart

__all__ = [
    "TREE_PRESETS",
    "AdditiveForm",
    "AdditivePart",
    "FewShotClassifier",
    "FewShotRegressor",
    "GPClassifier",
    "GPRegressor",
    "Intervals",
    "KernelSearchClassifier",
    "KernelSearchRegressor",
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
