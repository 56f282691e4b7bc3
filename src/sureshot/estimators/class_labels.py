"""Classes that arrive over time: they keep their places, new ones go to the end."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from sureshot.estimators.validation import MAX_NAMES


def extend_classes(known: np.ndarray | None, arriving: np.ndarray) -> np.ndarray:
    """The known classes with those that are new at the end, sorted among themselves.

    Text, truth values and numbers are three kinds of labels: another kind than the known one is a TypeError.
    """
    arriving = np.unique(arriving)
    if known is None:
        return arriving
    check_kind(known, arriving, ", or call fit to learn from these alone")
    seen = set(known.tolist())
    fresh = [label for label in arriving.tolist() if label not in seen]
    return np.concatenate([known, np.asarray(fresh, dtype=arriving.dtype)]) if fresh else known


def check_kind(known: np.ndarray, labels: np.ndarray, otherwise: str = "") -> None:
    """TypeError if labels are text, truth values or numbers, and the known ones are not."""
    if labels.size and _kind(known) != _kind(labels):
        raise TypeError(
            f"labels changed type, from {_kind(known)} to {_kind(labels)}: the model knows labels such as "
            f"{known.tolist()[0]!r}, and {labels.ravel().tolist()[0]!r} came. Name the classes of y as the model does"
            f"{otherwise}."
        )


def _kind(labels: np.ndarray) -> str:
    return {"b": "truth value"}.get(labels.dtype.kind, "text" if labels.dtype.kind in "USO" else "number")


def class_numbers(classes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The place of every label among the classes, (n,) int64."""
    check_kind(classes, labels)
    position = {label: k for k, label in enumerate(classes.tolist())}
    unseen = sorted({str(label) for label in labels.tolist() if label not in position})
    if unseen:
        raise ValueError(
            f"y has labels the model does not know: {', '.join(unseen[:5])}. "
            "Drop those rows, or add the classes with partial_fit first."
        )
    return np.array([position[label] for label in labels.tolist()], dtype=np.int64)


def kept_classes(classes: np.ndarray, leaving: Any) -> np.ndarray:
    """Which classes stay when some are forgotten, (C,) bool; at least one must."""
    names = set(np.atleast_1d(np.asarray(leaving)).tolist())
    unknown = names - set(classes.tolist())
    if unknown:
        raise ValueError(
            f"cannot forget classes the model does not know: {_some(unknown)}. It knows {_some(classes.tolist())}."
        )
    stays = np.array([label not in names for label in classes.tolist()])
    if not stays.any():
        raise ValueError("cannot forget every class: at least one must stay. To start anew, call fit.")
    return stays


def _some(labels: Collection[Any]) -> str:
    """The first of some labels, as Python writes them."""
    shown = ", ".join(sorted(map(repr, labels))[:MAX_NAMES])
    return shown if len(labels) <= MAX_NAMES else f"{shown} and {len(labels) - MAX_NAMES} more"
