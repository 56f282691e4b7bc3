"""What the model files of all estimators have in common: classes, columns, labelled rows and the scaling of columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sureshot.data.remembered import Remembered
from sureshot.estimators.fitted import Fitted
from sureshot.estimators.rows.mixed_columns import ColumnEncoder, check_kinds, name_from_json, name_to_json
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.estimators.rows.ranks import Ranks
from sureshot.estimators.rows.readers import Reader, TableReader
from sureshot.estimators.rows.sparse_rows import SpannedRows
from sureshot.estimators.rows.validation import Columns, LabelledRows
from sureshot.persistence import Artifact, ArtifactError, decode_labels, encode_labels, require

FittedKind = TypeVar("FittedKind", bound=Fitted)

HEADER: dict[str, Any] = {
    "classes": dict,
    "n_features_in": int,
    "feature_names_in": (list, type(None)),
    "temperature": float,
}
"""Entries of `header_of`, with the types that are read."""


def header_of(fitted: Fitted) -> dict[str, Any]:
    """Header entries of what any estimator has learnt."""
    names = fitted.columns.names
    encoder = fitted.reader.encoder
    medians = fitted.reader.medians if isinstance(fitted.reader, TableReader) else None
    reading = fitted.reader.reading
    return {
        "classes": encode_labels(fitted.classes),
        "n_features_in": int(fitted.columns.n_features),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "column_names": None if fitted.columns.others is None else list(fitted.columns.others),
        "reading": None if reading is None else reading.to_json(),
        "temperature": fitted.temperature,
        "calibrated": fitted.calibrated,
        "encoder": None if encoder is None else encoder.to_json(),
        "medians": None if medians is None else list(medians),
        "spanned": _spanned_header(fitted.reader),
    }


def arrays_of(rows: LabelledRows, scaling: Scaling | None) -> dict[str, Any]:
    """The rows as arrays, and the scaling if there is one.

    Numbers are written in the smallest type that holds them all to the last bit, weights where one of them is not 1.
    """
    arrays: dict[str, Any] = {"rows.x": _narrow(rows.x), "rows.y": rows.y.astype(np.min_scalar_type(rows.y.max()))}
    if (rows.weight != 1).any():
        arrays["rows.weight"] = rows.weight
    return arrays if scaling is None else arrays | scaling_arrays(scaling)


def _narrow(x: np.ndarray) -> np.ndarray:
    """Embeddings often come from half precision, and pixels are whole numbers."""
    for dtype in (np.float16, np.float32):
        with np.errstate(over="ignore"):
            narrow = x.astype(dtype)
        if np.array_equal(narrow, x):
            return narrow
    return x


def scaling_arrays(scaling: Scaling) -> dict[str, Any]:
    """A scaling as arrays."""
    kept = scaling.kept.astype(np.int64)
    arrays = {"scaling.kept": kept, "scaling.mean": scaling.mean, "scaling.scale": scaling.scale}
    if scaling.ranks is not None:
        arrays |= {"scaling.knots": scaling.ranks.knots, "scaling.scores": scaling.ranks.scores}
    if scaling.relevance is not None:
        arrays["scaling.relevance"] = scaling.relevance
    if scaling.limits is not None:
        arrays["scaling.limits"] = scaling.limits
    if scaling.deviations is not None:
        arrays["scaling.deviations"] = scaling.deviations
    return arrays


def by_label_to_json(given: Any) -> Any:
    """An argument that may be a dict by label or an array, as JSON."""
    if isinstance(given, pd.Series):
        given = given.to_dict()
    if isinstance(given, Mapping):
        values = [float(value) for value in given.values()]
        return {"labels": encode_labels(np.array(list(given), dtype=object)), "weights": values}
    if given is None or isinstance(given, str):
        return given
    return np.asarray(given.cpu().numpy() if isinstance(given, Tensor) else given, dtype=np.float64).tolist()


def by_label_from_json(place: str, stored: Any) -> Any:
    """The argument that `by_label_to_json` wrote; an array is a list."""
    if not isinstance(stored, dict):
        return stored
    if set(stored) != {"labels", "weights"} or not isinstance(stored["weights"], list):
        raise ArtifactError(f"{place}: malformed weights of classes; save the model again.")
    return dict(zip(decode_labels(stored["labels"]).tolist(), stored["weights"], strict=False))


def kinds_to_json(columns: Any) -> Any:
    """The argument `columns` as JSON: names need not be text, and those of several levels are lists."""
    if not isinstance(columns, Mapping):
        return columns
    return [[name_to_json(name), kind] for name, kind in columns.items()]


def kinds_from_json(artifact: Artifact) -> Any:
    """The argument that `kinds_to_json` wrote; older files have none."""
    stored = artifact.header.get("columns", "auto")
    try:
        given = {name_from_json(name): kind for name, kind in stored} if isinstance(stored, list) else stored
        check_kinds(given)
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"{artifact.path}: malformed kinds of columns; save the model again.") from error
    return given


def read_table_reader(artifact: Artifact) -> tuple[TableReader, int]:
    """The reader of a table, and the number of columns in which it keeps rows; older files have no encoder."""
    stored, n_features = artifact.header.get("encoder"), artifact.header["n_features_in"]
    try:
        kinds = check_kinds(kinds_from_json(artifact))
        encoder = None if stored is None else ColumnEncoder.from_json(stored)
    except ValueError as error:
        raise ArtifactError(f"{artifact.path}: {error}; save the model again.") from error
    if encoder is not None and len(encoder.columns) != n_features:
        raise ArtifactError(f"{artifact.path}: the encoder does not fit the columns; save the model again.")
    spanned = _read_spanned(artifact, n_features)
    if spanned is not None:
        return TableReader(kinds=kinds, spanned=spanned), spanned.width
    medians, reading = _read_medians(artifact, n_features), read_reading(artifact)
    reader = TableReader(encoder=encoder, medians=medians, kinds=kinds, reading=reading)
    return reader, n_features if encoder is None else len(encoder.names)


def read_reading(artifact: Artifact) -> Remembered | None:
    """How the first file was read; older files do not say."""
    try:
        return Remembered.from_json(artifact.header.get("reading"))
    except ValueError as error:
        raise ArtifactError(f"{artifact.path}: {error}; save the model again.") from error


def _read_medians(artifact: Artifact, n_features: int) -> tuple[float, ...] | None:
    """What later gaps are; older files have none."""
    stored = artifact.header.get("medians")
    if stored is None:
        return None
    numbers = isinstance(stored, list) and all(type(value) in (int, float) and math.isfinite(value) for value in stored)
    if not numbers or len(stored) != n_features:
        raise ArtifactError(f"{artifact.path}: malformed medians of columns; save the model again.")
    return tuple(map(float, stored))


def reader_of_rows(artifact: Artifact, rows: LabelledRows) -> TableReader:
    """The same, of rows that fit it."""
    reader, width = read_table_reader(artifact)
    if rows.x.shape[1] != width:
        raise ArtifactError(f"{artifact.path}: the rows do not fit the columns; save the model again.")
    return reader


def _spanned_header(reader: Reader) -> dict[str, Any] | None:
    spanned = reader.spanned if isinstance(reader, TableReader) else None
    return None if spanned is None else {"exact": spanned.exact, "unit": spanned.unit}


def spanned_arrays(reader: Reader) -> dict[str, Any]:
    """What sparse rows span, as arrays; none of other rows."""
    spanned = reader.spanned if isinstance(reader, TableReader) else None
    return {} if spanned is None else {"spanned.seen": spanned.seen, "spanned.basis": spanned.basis}


def _read_spanned(artifact: Artifact, n_features: int) -> SpannedRows | None:
    stored = artifact.header.get("spanned")
    if stored is None:
        return None
    arrays = require(artifact, {"spanned.seen": ("int64", ("K",)), "spanned.basis": ("float64", ("K", "R"))})
    seen = arrays["spanned.seen"]
    right = isinstance(stored, dict) and all(isinstance(stored.get(name), bool) for name in ("exact", "unit"))
    if not right or (len(seen) and (seen.min() < 0 or seen.max() >= n_features)):
        raise ArtifactError(f"{artifact.path}: what sparse rows span is malformed; save the model again.")
    return SpannedRows(n_features, seen, arrays["spanned.basis"], stored["exact"], stored["unit"])


def read_columns(header: dict[str, Any]) -> Columns:
    """The columns as the user knows them."""
    names, others = header["feature_names_in"], header.get("column_names")
    return Columns(
        header["n_features_in"],
        None if names is None else np.asarray(names, dtype=object),
        tuple(others) if isinstance(others, list) else None,
    )


def read_rows(artifact: Artifact, header: dict[str, Any]) -> tuple[np.ndarray, LabelledRows]:
    """Classes (C,) and labelled rows; `ArtifactError` where they do not fit together."""
    shapes: dict[str, tuple[str, int | tuple[int | str | None, ...]]] = {
        "rows.x": ("float", ("N", "D")),
        "rows.y": ("int", ("N",)),
    }
    x, y = require(artifact, shapes).values()
    x, y = x.astype(np.float64), y.astype(np.int64)
    if "rows.weight" in artifact.arrays:
        weight = require(artifact, {"rows.weight": ("float64", (len(y),))})["rows.weight"]
    else:
        weight = np.ones(len(y))
    classes = decode_labels(header["classes"])
    if not len(y) or y.min() < 0 or y.max() >= len(classes) or not (weight > 0).all():
        raise ArtifactError(f"{artifact.path}: the rows do not fit the classes; save the model again.")
    return classes, LabelledRows(x, y, weight)


def read_scaling(artifact: Artifact, n_columns: int) -> Scaling:
    """The scaling of so many columns; `ArtifactError` where it does not fit them."""
    kept, mean, scale = require(
        artifact,
        {
            "scaling.kept": ("int64", ("K",)),
            "scaling.mean": ("float64", ("K",)),
            "scaling.scale": ("float64", ("K",)),
        },
    ).values()
    if (len(kept) and (kept.min() < 0 or kept.max() >= n_columns)) or not (scale > 0).all():
        raise ArtifactError(f"{artifact.path}: the scaling does not fit the columns; save the model again.")
    ranks, relevance = _read_ranks(artifact, len(kept)), _read_relevance(artifact, len(kept))
    limits, deviations = _read_limits(artifact, len(kept)), _read_deviations(artifact, len(kept))
    return Scaling(kept, mean, scale, ranks, relevance, limits, deviations)


def _read_ranks(artifact: Artifact, n_columns: int) -> Ranks | None:
    if "scaling.knots" not in artifact.arrays:
        return None
    shapes = dict.fromkeys(("scaling.knots", "scaling.scores"), ("float64", (n_columns, "Q")))
    knots, scores = require(artifact, shapes).values()
    if not knots.shape[1] or (np.diff(knots) < 0).any() or (np.diff(scores) < 0).any():
        raise ArtifactError(f"{artifact.path}: the ranks of the columns are malformed; save the model again.")
    return Ranks(knots, scores)


def _read_relevance(artifact: Artifact, n_columns: int) -> np.ndarray | None:
    if "scaling.relevance" not in artifact.arrays:
        return None
    relevance = require(artifact, {"scaling.relevance": ("float64", (n_columns,))})["scaling.relevance"]
    if not (relevance >= 0).all():
        raise ArtifactError(f"{artifact.path}: the columns' relevance is negative; save the model again.")
    return relevance


def _read_limits(artifact: Artifact, n_columns: int) -> np.ndarray | None:
    if "scaling.limits" not in artifact.arrays:
        return None
    limits = require(artifact, {"scaling.limits": ("float64", (2, n_columns))})["scaling.limits"]
    if not (limits[0] <= limits[1]).all():
        raise ArtifactError(f"{artifact.path}: the limits of the columns are malformed; save the model again.")
    return limits


def _read_deviations(artifact: Artifact, n_columns: int) -> np.ndarray | None:
    if "scaling.deviations" not in artifact.arrays:
        return None
    deviations = require(artifact, {"scaling.deviations": ("float64", (n_columns,))})["scaling.deviations"]
    if not (deviations > 0).all():
        raise ArtifactError(f"{artifact.path}: the deviations of the columns are malformed; save the model again.")
    return deviations


def that_predicts(
    place: str,
    build: Callable[[], FittedKind],
    moments: Callable[[FittedKind], tuple[Tensor, ...]] = lambda fitted: fitted.moments(
        fitted.inputs(fitted.rows.x[:1])
    ),
) -> FittedKind:
    """What the parts of a file make, after one prediction, of a stored row if not stated otherwise.

    Parts that do not fit together are an `ArtifactError` now, not at the user's first query.
    """
    try:
        fitted = build()
        with torch.no_grad():
            probabilities = fitted.probabilities(moments(fitted), fitted.temperature)
        finite = bool(probabilities.isfinite().all()) and probabilities.shape == (1, len(fitted.classes))
    except (RuntimeError, ValueError, AssertionError, IndexError) as error:
        raise ArtifactError(f"{place}: the parts of the model do not fit together; save the model again.") from error
    if not finite:
        raise ArtifactError(f"{place}: the model gives probabilities that are not finite; fit it again.")
    return fitted
