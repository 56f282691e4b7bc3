"""A batch of classification tasks: the one thing that flows from the sampler to the learners.

Tasks are the leading dimension of every tensor. Tasks of different sizes share a batch by padding: a mask says
which rows and classes are real, and padding never changes a result.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Tasks:
    """T tasks of at most C classes, S support rows and Q query rows each.

    Attributes
    ----------
    support_x : Tensor (T, S, ...)
        Inputs or, after the backbone, embeddings (T, S, D).
    support_y : Tensor (T, S) int64
        Labels 0..C-1, meaningful inside their task only. Padded rows hold any valid label.
    query_x : Tensor (T, Q, ...)
    query_y : Tensor (T, Q) int64
    n_classes : int
        C.
    support_mask, query_mask : Tensor (T, S), (T, Q) bool, optional
        False for padding; None when every row is real.
    class_mask : Tensor (T, C) bool, optional
        False for a class that the task does not have; None when all tasks have C classes.
    class_ids : Tensor (T, C) int64, optional
        Which class of the labelled set each label stands for.
    """

    support_x: Tensor
    support_y: Tensor
    query_x: Tensor
    query_y: Tensor
    n_classes: int
    support_mask: Tensor | None = None
    query_mask: Tensor | None = None
    class_mask: Tensor | None = None
    class_ids: Tensor | None = None

    def __post_init__(self) -> None:
        for x, y, name in ((self.support_x, self.support_y, "support"), (self.query_x, self.query_y, "query")):
            if y.dim() != 2 or x.shape[:2] != y.shape:
                raise ValueError(
                    f"{name}_x must be (T, rows, ...) and {name}_y (T, rows), got {tuple(x.shape)} and {tuple(y.shape)}"
                )
        if self.support_x.shape[2:] != self.query_x.shape[2:]:
            raise ValueError(
                f"support rows are of shape {tuple(self.support_x.shape[2:])} but query rows of shape "
                f"{tuple(self.query_x.shape[2:])}: both must have the same width and channels"
            )

    def __len__(self) -> int:
        return int(self.support_y.shape[0])

    def to(self, device: torch.device | str) -> Tasks:
        """The same tasks on another device."""
        moved = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), Tensor)}
        return replace(self, **{name: value.to(device) for name, value in moved.items()})

    def select(self, index: slice | Tensor) -> Tasks:
        """Some of the tasks."""
        chosen = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), Tensor)}
        return replace(self, **{name: value[index] for name, value in chosen.items()})

    def with_inputs(self, support_x: Tensor, query_x: Tensor) -> Tasks:
        """The same tasks with other inputs for the same rows, such as their embeddings."""
        return replace(self, support_x=support_x, query_x=query_x)
