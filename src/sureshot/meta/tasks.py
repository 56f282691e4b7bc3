"""A batch of tasks, of classes or of numbers: the one thing that flows from the sampler to the learners.

Tasks are the leading dimension of every tensor. Tasks of different sizes share a batch by padding: a mask says
which rows and classes are real. Padding never changes latents, but learners that draw numbers for each class draw
others where the batch has more; probabilities that are averaged over points of as many dimensions as the batch has
classes (the rule "integral" of many classes) have their error, 1e-3, by other points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor


class TaskRows(NamedTuple):
    """Labelled rows of T tasks, such as their support; see `Tasks`."""

    x: Tensor  # (T, N, ...)
    y: Tensor  # (T, N)
    n_classes: int
    mask: Tensor | None = None  # (T, N)
    class_mask: Tensor | None = None  # (T, C)

    @property
    def real(self) -> Tensor:
        """False for padding, (T, N)."""
        return torch.ones(self.y.shape[:2], dtype=torch.bool, device=self.y.device) if self.mask is None else self.mask

    def one_hot(self) -> Tensor:
        """Labels (T, N, C) in the type of the rows, zero for padding, so that sums over rows pass it by."""
        labels = self.y[..., None] == torch.arange(self.n_classes, device=self.y.device)
        if self.mask is not None:
            labels = labels & self.mask[..., None]
        return labels.to(self.x.dtype)

    def without_padding(self) -> Tensor:
        """The rows (T, N, ...) with zeros for padding, whatever it held."""
        if self.mask is None:
            return self.x
        return self.x.masked_fill(~self.mask.view(*self.mask.shape, *[1] * (self.x.dim() - 2)), 0)

    def select(self, index: slice) -> TaskRows:
        """Those of some of the tasks."""
        chosen: dict[str, Any] = {k: v[index] for k, v in self._asdict().items() if isinstance(v, Tensor)}
        return self._replace(**chosen)


@dataclass(frozen=True)
class Tasks:
    """T tasks of at most C classes, S support rows and Q query rows each.

    In turn these hold row numbers of a labelled set (T, S), inputs (T, S, ...) and embeddings (T, S, D) of the rows.
    Tasks of numbers have real targets (T, S, K) and (T, Q, K), and 0 for ``n_classes``.
    """

    support_x: Tensor  # (T, S, ...)
    support_y: Tensor  # (T, S) int64, labels 0..C-1, meaningful inside their task only; padding has any valid label
    query_x: Tensor  # (T, Q, ...)
    query_y: Tensor  # (T, Q) int64; -1 for a query of no class of its task
    n_classes: int  # C
    support_mask: Tensor | None = None  # (T, S), False for padding; None when every row is real
    query_mask: Tensor | None = None  # (T, Q)
    class_mask: Tensor | None = None  # (T, C), False for a class that the task does not have; None when all have C
    class_ids: Tensor | None = None  # (T, C) int64, the class of the labelled set that each label stands for
    origin: Tensor | None = None  # (T, P), what a source of functions made each of with, such as the true kernel

    def __post_init__(self) -> None:
        dimensions, shape = (2, "(T, rows)") if self.n_classes else (3, "(T, rows, K)")
        for x, y, name in ((self.support_x, self.support_y, "support"), (self.query_x, self.query_y, "query")):
            if y.dim() != dimensions or x.shape[:2] != y.shape[:2]:
                raise ValueError(
                    f"{name}_x must be (T, rows, ...) and {name}_y {shape}, got {tuple(x.shape)} and {tuple(y.shape)}"
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
        return replace(self, **{name: value.to(device) for name, value in self._tensors().items()})

    def select(self, index: slice | Tensor) -> Tasks:
        """Some of the tasks."""
        return replace(self, **{name: value[index] for name, value in self._tensors().items()})

    def with_inputs(self, support_x: Tensor, query_x: Tensor) -> Tasks:
        """The same tasks with something else for the same rows, such as their embeddings."""
        return replace(self, support_x=support_x, query_x=query_x)

    @property
    def support(self) -> TaskRows:
        """What the tasks are adapted to."""
        return TaskRows(self.support_x, self.support_y, self.n_classes, self.support_mask, self.class_mask)

    @property
    def query(self) -> TaskRows:
        """What they are asked."""
        return TaskRows(self.query_x, self.query_y, self.n_classes, self.query_mask, self.class_mask)

    def merged(self) -> TaskRows:
        """Support and query of each task side by side, S + Q rows."""
        mask = None
        if self.support_mask is not None or self.query_mask is not None:
            mask = torch.cat([self.support.real, self.query.real], 1)
        x, y = torch.cat([self.support_x, self.query_x], 1), torch.cat([self.support_y, self.query_y], 1)
        return TaskRows(x, y, self.n_classes, mask, self.class_mask)

    @staticmethod
    def joined(parts: Sequence[Tasks]) -> Tasks:
        """The tasks of several batches of one protocol, in order."""
        found: dict[str, Any] = {
            name: torch.cat([getattr(part, name) for part in parts]) for name in parts[0]._tensors()
        }
        return replace(parts[0], **found)

    def _tensors(self) -> dict[str, Any]:
        return {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}
