"""What a model file of `TreeGPClassifier` holds: kept rows and what the first session taught, which make the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from sureshot.estimators.classes.stored_classes import StoredClasses
from sureshot.estimators.devices import device_for
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.estimators.stored import Format
from sureshot.estimators.tree.fitted import TreeFitted, restored
from sureshot.incremental.gaussian_classes import GaussianClasses
from sureshot.incremental.tree_sessions import TreeSessions


@dataclass(frozen=True, kw_only=True)
class StoredTree(StoredClasses):
    """What a file keeps of a `TreeFitted`."""

    scaling: Scaling
    strategy: GaussianClasses | TreeSessions
    sessions: np.ndarray  # (C,) int64
    shared: dict[str, Tensor]
    seed: int

    as_learnt = (*StoredClasses.as_learnt, "scaling", "strategy", "sessions", "seed")

    def check_parts(self) -> None:
        super().check_parts()
        self.scaling.check_columns(self.rows.x.shape[1])
        shared, n_columns = self.shared, len(self.scaling.kept)
        shapes = {"centre": (n_columns,), "basis": (n_columns, len(shared.get("within", ())))}
        if any(name in shared and shared[name].shape != shape for name, shape in shapes.items()):
            raise ValueError("malformed covariances")
        positive = [shared[name] for name in ("temperature", "within") if name in shared]
        if "temperature" not in shared or not all(bool((part > 0).all()) for part in positive):
            raise ValueError("malformed temperature or covariances")
        if bool((shared.get("tail", shared["temperature"]) < 0).any()):
            raise ValueError("malformed tails")
        if self.sessions.shape != self.classes.shape or self.sessions.min() < 0 or self.seed < 0:
            raise ValueError("malformed sessions or seed")


def _own(fitted: TreeFitted) -> dict[str, Any]:
    return {"shared": dict(fitted.model.shared)}


def _fitted(stored: StoredTree) -> TreeFitted:
    device = device_for("auto", len(stored.rows.y))
    return restored(
        stored.training, stored.scaling, stored.strategy, stored.sessions, stored.shared, stored.seed, device
    )


TREE_FORMAT = Format("tree_gp_classifier", TreeFitted, StoredTree, _own, _fitted)
