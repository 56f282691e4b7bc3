"""Few-shot learners to compare with: episodic metric learners and transferred classifiers.

Metric learners are trained on episodes (`ProtoNet`, `MatchingNet`, `RelationNet`), transferred classifiers on single
images of the base classes (`FeatureTransfer`, `BaselinePlusPlus`). `BayesianMAML` adapts a last layer to each task,
`MAML` and `ABML` the whole network.
"""

from sureshot.meta.baselines.abml import ABML
from sureshot.meta.baselines.bayesian_maml import BayesianMAML
from sureshot.meta.baselines.head_training import HeadTraining
from sureshot.meta.baselines.maml import MAML
from sureshot.meta.baselines.matching import MatchingNet
from sureshot.meta.baselines.prototypical import ProtoNet
from sureshot.meta.baselines.relation import RelationNet
from sureshot.meta.baselines.transfer import BaselinePlusPlus, FeatureTransfer

__all__ = [
    "ABML",
    "MAML",
    "BaselinePlusPlus",
    "BayesianMAML",
    "FeatureTransfer",
    "HeadTraining",
    "MatchingNet",
    "ProtoNet",
    "RelationNet",
]
