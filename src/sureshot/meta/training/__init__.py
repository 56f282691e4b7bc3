"""Meta-training: settings, learners on episodes, their validation and checkpoints; see `episodic`."""

from typing import TYPE_CHECKING

from sureshot.lazy import imported_when_asked_for

if TYPE_CHECKING:
    from sureshot.meta.training.checkpoint import Checkpoint, load_checkpoint, load_learner
    from sureshot.meta.training.config import FunctionTrainingConfig, TrainingConfig
    from sureshot.meta.training.episodic import EpisodicTraining, TrainingResult, read_log, train
    from sureshot.meta.training.validation import ValidationScores
    from sureshot.networks import DivergedError

__all__ = [
    "Checkpoint",
    "DivergedError",
    "EpisodicTraining",
    "FunctionTrainingConfig",
    "TrainingConfig",
    "TrainingResult",
    "ValidationScores",
    "load_checkpoint",
    "load_learner",
    "read_log",
    "train",
]

__getattr__ = imported_when_asked_for(__name__)
