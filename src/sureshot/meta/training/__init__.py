"""Meta-training: settings, the loop, checkpoints; see `sureshot.meta.training.loop`."""

from sureshot.meta.training.checkpoint import Checkpoint, load_checkpoint, load_learner
from sureshot.meta.training.config import TrainingConfig
from sureshot.meta.training.divergence import DivergedError
from sureshot.meta.training.log import read_log
from sureshot.meta.training.loop import TrainingResult, train
from sureshot.meta.training.validation import ValidationScores

__all__ = [
    "Checkpoint",
    "DivergedError",
    "TrainingConfig",
    "TrainingResult",
    "ValidationScores",
    "load_checkpoint",
    "load_learner",
    "read_log",
    "train",
]
