"""Classes that arrive over time: inside an estimator they keep their numbers, and new ones have the next.

What leaves it has them in sorted order (`ClassFitted.places`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from sureshot.data.checks import label_kind
from sureshot.estimators.classes.targets import check_targets, plain_labels
from sureshot.estimators.rows.validation import MAX_NAMES


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
    return _joined(known, fresh) if fresh else known


def announced(classes: Any, labels: np.ndarray) -> np.ndarray:
    """Labels (n,) with those of classes that are to come, which must be of their kind, as one array."""
    if isinstance(classes, set | frozenset):
        classes = list(classes)
    if isinstance(classes, str | bytes):
        raise ValueError(f"classes must be a list of labels, got {classes!r}: give [{classes!r}].")
    try:
        further = np.ravel(plain_labels(classes if hasattr(classes, "dtype") else np.array(classes, dtype=object)))
        if not further.size:
            return labels
        further = check_targets(further, len(further))
    except ValueError as error:
        raise ValueError(f"classes must be labels: {error}") from error
    check_kind(labels, further, ", and so those of classes=")
    return _joined(labels, further.tolist())


def _joined(known: np.ndarray, further: list[Any]) -> np.ndarray:
    """Labels in one array, of the known type if it holds them all; TypeError if none does."""
    values = known.tolist() + further
    for dtype in (known.dtype, None):
        try:
            found = np.array(values, dtype=dtype)
        except OverflowError:
            continue
        if found.tolist() == values and (found.dtype.kind not in "fO" or found.dtype.kind == known.dtype.kind):
            return found
    raise TypeError(
        f"labels {further[0]!r} and {known.tolist()[0]!r} do not fit into one type without being rounded: use text, or "
        "smaller numbers."
    )


def check_kind(known: np.ndarray, labels: np.ndarray, otherwise: str = "") -> None:
    """TypeError if labels are text, truth values or numbers, and the known ones are not."""
    if labels.size and label_kind(known) != label_kind(labels):
        raise TypeError(
            f"labels changed type, from {label_kind(known)} to {label_kind(labels)}: the model knows labels such as "
            f"{known.tolist()[0]!r}, and {labels.ravel().tolist()[0]!r} came. Name the classes of y as the model does"
            f"{otherwise}."
        )


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
    leaving = list(leaving) if isinstance(leaving, set | frozenset) else leaving
    names = set(np.ravel(np.asarray(leaving)).tolist())
    if any(isinstance(name, bool) for name in names) and classes.dtype.kind != "b":
        raise TypeError(
            f"cannot forget {leaving!r}: the model's classes are no truth values, but {_some(classes.tolist())}."
        )
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
