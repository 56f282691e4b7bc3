"""What a session brings, checked: rows, and labels that are numbered in the order of their arrival."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sureshot.data.checks import label_kind, listed


def checked_labels(y: Any, n_rows: int) -> np.ndarray:
    """Labels (n,), whole numbers, booleans or text."""
    labels = np.asarray(y)
    if labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels.ravel().tolist()):
        labels = labels.astype(str)
    if labels.shape != (n_rows,):
        raise ValueError(f"y: expected {n_rows} labels, one for each row of X, got shape {labels.shape}.")
    if labels.dtype.kind not in "iubU":
        some = listed([repr(label) for label in labels[:3].tolist()])
        raise ValueError(f"y: expected whole numbers or text, got type {labels.dtype} ({some}).")
    return labels


def numbered(
    labels: np.ndarray,  # (n,), as `checked_labels` gives them
    known: np.ndarray,  # (C,), classes so far
) -> tuple[np.ndarray, Tensor]:
    """All classes, new ones last and in order, and each row's class number (n,) among them."""
    if label_kind(labels) != label_kind(known):
        raise ValueError(
            f"y has labels such as {labels.tolist()[0]!r}, but the classes known so far are such as "
            f"{known.tolist()[0]!r}: give labels of one type."
        )
    seen = set(known.tolist())
    new = [label for label in np.unique(labels).tolist() if label not in seen]
    classes = np.array(known.tolist() + new)
    if classes.dtype.kind not in "iubUS":  # NumPy makes fractions, or objects, of whole numbers that no type holds
        raise ValueError(
            f"labels {new[0]!r} and {known.tolist()[0]!r} do not fit into one type: use text, or smaller numbers."
        )
    number = {label: place for place, label in enumerate(classes.tolist())}
    return classes, torch.tensor([number[label] for label in labels.tolist()])


def by_label(
    probabilities: Tensor,  # (n, C), classes in the order of their arrival
    classes: np.ndarray,  # (C,)
) -> np.ndarray:
    """The probabilities with their columns in the sorted order of the labels."""
    found: np.ndarray = probabilities.cpu().numpy()[:, np.argsort(classes)]
    return found


def check_finite(
    values: np.ndarray,  # (n, ...)
) -> None:
    """Refuse rows with NaN or infinite numbers."""
    bad = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
    if len(bad):
        raise ValueError(
            f"X: NaN or infinite numbers in {len(bad)} of {len(values)} rows (the first is row {bad[0]}): fill "
            "them in or drop these rows."
        )
