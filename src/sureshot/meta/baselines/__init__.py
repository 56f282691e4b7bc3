"""Few-shot learners to compare with: episodic metric learners and transferred classifiers.

Two of them are trained on episodes (`ProtoNet`, `MatchingNet`), two on single images of the base classes
(`FeatureTransfer`, `BaselinePlusPlus`).
"""

# The registry of all learners imports this package's modules, and these import the learners' contract: whoever comes
# here first loads the contract first.
import sureshot.meta.learners.embedding  # noqa: F401  # isort: split
from sureshot.meta.baselines.head_training import HeadTraining
from sureshot.meta.baselines.matching import MatchingNet
from sureshot.meta.baselines.prototypical import ProtoNet
from sureshot.meta.baselines.transfer import BaselinePlusPlus, FeatureTransfer

__all__ = ["BaselinePlusPlus", "FeatureTransfer", "HeadTraining", "MatchingNet", "ProtoNet"]
