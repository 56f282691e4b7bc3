"""How good is a few-shot learner? One protocol, one seed, every score with its standard error.

``evaluate(learner, data, protocol)`` gives an `Evaluation`; ``compare({name: learner}, data, protocol)`` evaluates
several on the same tasks and pairs their differences. Learners of numbers: `evaluate_functions`, `compare_functions`.
"""

from sureshot.meta.evaluation.accuracy import Accuracy
from sureshot.meta.evaluation.calibration import Calibration
from sureshot.meta.evaluation.compare import Comparison, Difference, compare
from sureshot.meta.evaluation.estimate import Estimate
from sureshot.meta.evaluation.evaluate import (
    VALIDATION_TASKS,
    Evaluation,
    FittedTemperature,
    evaluate,
)
from sureshot.meta.evaluation.functions import (
    FunctionComparison,
    FunctionEvaluation,
    compare_functions,
    evaluate_functions,
)
from sureshot.meta.evaluation.out_of_episode import Detection, OutOfEpisode
from sureshot.meta.evaluation.robustness import CorruptedScores, Robustness
from sureshot.meta.evaluation.scores import TaskScores
from sureshot.meta.evaluation.timing import AdaptationTime

__all__ = [
    "VALIDATION_TASKS",
    "Accuracy",
    "AdaptationTime",
    "Calibration",
    "Comparison",
    "CorruptedScores",
    "Detection",
    "Difference",
    "Estimate",
    "Evaluation",
    "FittedTemperature",
    "FunctionComparison",
    "FunctionEvaluation",
    "OutOfEpisode",
    "Robustness",
    "TaskScores",
    "compare",
    "compare_functions",
    "evaluate",
    "evaluate_functions",
]
