"""Ids of rows in model files: names in the header, to which rows they belong in arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from sureshot.estimators.rows.row_ids import RowIds
from sureshot.estimators.rows.validation import LabelledRows
from sureshot.persistence import Artifact, ArtifactError, decode_labels, encode_labels, require

_PREFIX = "row_ids."
_LARGEST_DIFFERENCE = 1e-9  # of a row's weight from the sum of what it is made of, relative


def ids_to_file(ids: RowIds | None) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """The entry of the header, and arrays."""
    if ids is None:
        return None, {}
    arrays = {"row": ids.row, "weight": ids.weight, "unnamed": ids.unnamed}
    return encode_labels(ids.names), {_PREFIX + name: values for name, values in arrays.items()}


def ids_from_file(artifact: Artifact, rows: LabelledRows) -> RowIds | None:
    """The ids of merged rows; None of files without any, as older ones are."""
    if artifact.header.get("row_ids") is None:
        return None
    names = decode_labels(artifact.header["row_ids"])
    shapes: dict[str, tuple[str, tuple[int | str | None, ...]]] = {
        _PREFIX + "row": ("int64", ("K",)),
        _PREFIX + "weight": ("float64", ("K",)),
        _PREFIX + "unnamed": ("float64", ("N",)),
    }
    row, weight, unnamed = require(artifact, shapes, {"K": len(names), "N": len(rows.y)}).values()
    if not (_possible(names, row, weight, unnamed) and _add_up(rows, row, weight, unnamed)):
        raise ArtifactError(f"{artifact.path}: the ids do not fit the rows; save the model again.")
    return RowIds(names, row, weight, unnamed)


def _possible(names: np.ndarray, row: np.ndarray, weight: np.ndarray, unnamed: np.ndarray) -> bool:
    if names.dtype.kind not in "Ui" or not len(names) or row.min() < 0 or row.max() >= len(unnamed):
        return False
    return bool((names[1:] > names[:-1]).all() and (weight > 0).all() and (unnamed >= 0).all())


def _add_up(rows: LabelledRows, row: np.ndarray, weight: np.ndarray, unnamed: np.ndarray) -> bool:
    together = unnamed + np.bincount(row, weight, minlength=len(rows.y))
    return bool((np.abs(together - rows.weight) <= _LARGEST_DIFFERENCE * rows.weight).all())
