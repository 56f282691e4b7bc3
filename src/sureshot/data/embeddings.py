"""Embeddings and other bare matrices, from NumPy's NPZ files.

An encoder of text, images or sound gives one row of numbers for each item. ``numpy.savez(path, X=X, y=y)``
keeps such rows better than a CSV file (a tenth of the size, no digits lost). The rows are the array ``X`` or
``embedding``, (N, D); labels, if any, are ``y`` or ``label``, (N,) or (N, 1); ``feature_names``, (D,), is
optional; all other arrays (a ``split``, say) are left alone.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from sureshot.data.archives import opened
from sureshot.data.checks import check_names, listed, near
from sureshot.data.root import DataError

_log = logging.getLogger(__name__)

_FEATURES = ("X", "embedding")
_LABELS = ("y", "label")
_NAMES = "feature_names"


def read_npz(
    path: Path,
    target: str | None = None,  # the array of labels; by default y or label, if there
    *,
    allow_missing: bool = False,  # keep NaN, otherwise an error
) -> tuple[
    np.ndarray,  # (N, D)
    np.ndarray | None,  # (N,)
    list[str] | None,  # D
]:
    """Rows, labels and feature names of an NPZ file; float16 becomes float32, other numbers but float32 float64.

    The log names the arrays that are left alone.
    """
    with opened(path, "write it with numpy.savez(path, X=X, y=y)") as archive:
        names = list(archive.files)
        x_name = _choose(path, names, _FEATURES)
        if x_name is None:
            raise DataError(f"{path} has no array X or embedding{near('X', names)}; arrays: {listed(names) or 'none'}")
        y_name = _choose(path, names, _LABELS) if target is None else target
        if target is not None and target not in names:
            raise DataError(f"{path} has no array {target!r}{near(target, names)}; arrays: {listed(names)}")
        X = _array(archive, path, x_name)
        y = None if y_name is None else _array(archive, path, y_name)
        y = y[:, 0] if y is not None and y.ndim == 2 and y.shape[1] == 1 else y
        features = _array(archive, path, _NAMES) if _NAMES in names else None
    others = [name for name in names if name not in {x_name, y_name, _NAMES}]
    if others:
        _log.info("%s: left the arrays %s alone", path, listed(others))
    X = _check_matrix(path, x_name, X, allow_missing)
    if y is not None:
        _check_label_array(path, str(y_name), y, len(X))
    return X, y, _check_feature_names(path, features, X.shape[1])


def _array(archive: np.lib.npyio.NpzFile, path: Path, name: str) -> np.ndarray:
    try:
        return np.asarray(archive[name])
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        raise DataError(
            f"{path}: array {name!r} holds Python objects, which can run code when read and are refused: "
            "save it as numbers, or as text with .astype(str)"
        ) from None


def _choose(path: Path, names: list[str], candidates: tuple[str, str]) -> str | None:
    found = [name for name in candidates if name in names]
    if len(found) > 1:
        raise DataError(f"{path} has both arrays {found[0]} and {found[1]}: keep one of them")
    return found[0] if found else None


def _check_matrix(path: Path, name: str, X: np.ndarray, allow_missing: bool) -> np.ndarray:
    if X.ndim != 2:
        advice = "one row for each item and one column for each number"
        if X.ndim > 2:
            advice += f"; flatten with {name}.reshape(len({name}), -1)"
        raise DataError(f"{path}: array {name} has shape {X.shape}, expected two dimensions: {advice}")
    if 0 in X.shape:
        raise DataError(f"{path}: array {name} has shape {X.shape}: no {'rows' if not X.shape[0] else 'columns'}")
    if X.dtype.kind not in "fiub":
        raise DataError(f"{path}: array {name} has dtype {X.dtype}, expected real numbers")
    X = X.astype(np.float32 if X.dtype in (np.float16, np.float32) else np.float64)
    bad = np.isinf(X) if allow_missing else ~np.isfinite(X)
    if bad.any():
        rows = np.flatnonzero(bad.any(1))
        raise DataError(
            f"{path}: array {name} has NaN or infinite numbers in {len(rows)} of {len(X)} rows (the first is "
            f"row {rows[0]}, counted from 0); fill them in or drop those rows"
        )
    return X


def _check_label_array(path: Path, name: str, y: np.ndarray, n_rows: int) -> None:
    if y.ndim != 1:
        advice = "; for one-hot rows use .argmax(1)" if y.ndim == 2 and y.shape[1] > 1 else ""
        raise DataError(f"{path}: array {name} has shape {y.shape}, expected ({n_rows},){advice}")
    if len(y) != n_rows:
        raise DataError(f"{path}: {n_rows} rows but {len(y)} labels in array {name}")
    if y.dtype.kind not in "fiubUS":
        raise DataError(f"{path}: array {name} has dtype {y.dtype}, expected integers or text")


def _check_feature_names(path: Path, names: np.ndarray | None, width: int) -> list[str] | None:
    if names is None:
        return None
    if names.shape != (width,) or names.dtype.kind not in "U":
        raise DataError(
            f"{path}: array {_NAMES} has shape {names.shape} and dtype {names.dtype}, expected {width} texts"
        )
    listed_names = [str(name) for name in names]
    check_names(path, listed_names)
    return listed_names
