"""Classes that arrive over time: what is kept of them, and how it predicts.

Pure tensors; `sureshot.TreeGPClassifier` is the estimator. A `Strategy` makes a `SessionModel` of each session:
`GaussianClasses`, which is recommended, and `TreeSessions`, the published trees.
"""

from sureshot.incremental.gaussian_classes import GaussianClasses
from sureshot.incremental.strategy import ClassRows, Leading, SessionModel, Strategy
from sureshot.incremental.tree_sessions import TreeSessions

__all__ = ["ClassRows", "GaussianClasses", "Leading", "SessionModel", "Strategy", "TreeSessions"]
