"""Checks of what a model file holds, before anything is computed with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sureshot.persistence.artifact import Artifact, ArtifactError

_FAMILIES = {"float": "f", "int": "iu", "bool": "b"}


def require(
    artifact: Artifact,
    arrays: Mapping[str, tuple[str, int | tuple[int | str | None, ...]]],
    sizes: Mapping[str, int] | None = None,  # sizes known from the header, for example ``{"C": len(classes)}``
) -> dict[str, np.ndarray]:
    """The named arrays of an artefact, once their dtypes, shapes and values are found to be right.

    For each name a dtype ("float64", or a family: "float", "int", "bool") and the number of dimensions or the shape. A
    size in a shape is a number, None (any), or a letter that means the same size everywhere: ``{"x": ("float64", ("N",
    "D")), "labels": ("int64", ("N",))}``.
    """
    known = dict(sizes or {})
    found = {}
    for name, (dtype, shape) in arrays.items():
        if name not in artifact.arrays:
            raise ArtifactError(f"{artifact.path} lacks the array {name!r}, it holds {sorted(artifact.arrays)[:20]}.")
        array = artifact.arrays[name]
        family = _FAMILIES.get(dtype)
        if not (array.dtype == np.dtype(dtype) if family is None else array.dtype.kind in family):
            raise ArtifactError(f"{artifact.path}: the array {name!r} must be {dtype}, it is {array.dtype}.")
        expected = (None,) * shape if isinstance(shape, int) else shape
        fits = len(expected) == array.ndim
        for size, actual in zip(expected, array.shape, strict=False):
            if isinstance(size, str):
                size = known.setdefault(size, actual)
            fits &= size is None or size == actual
        if not fits:
            wanted = tuple(known.get(size, size) if isinstance(size, str) else size for size in expected)
            raise ArtifactError(
                f"{artifact.path}: the array {name!r} must have the shape {_shape_text(wanted)}, it has {array.shape}."
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ArtifactError(f"{artifact.path}: the array {name!r} holds NaN or infinite values.")
        found[name] = array
    return found


def require_header(artifact: Artifact, entries: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """The named header entries of an artefact, once they are found to be there and of the right JSON types.

    `float` accepts whole numbers too (and gives a float); `int` does not accept booleans. Add ``type(None)`` where null
    is allowed.
    """
    found = {}
    for name, types in entries.items():
        if name not in artifact.header:
            raise ArtifactError(f"{artifact.path} lacks the header entry {name!r}.")
        value = artifact.header[name]
        allowed = types if isinstance(types, tuple) else (types,)
        if type(value) is int and float in allowed and int not in allowed:
            value = float(value) if abs(value) <= 2**53 else value  # larger ones would be changed
        if type(value) not in allowed:
            names = " or ".join(kind.__name__ for kind in allowed)
            raise ArtifactError(
                f"{artifact.path}: the header entry {name!r} must be of type {names}, it is {type(value).__name__}."
            )
        found[name] = value
    return found


def _shape_text(shape: tuple[int | str | None, ...]) -> str:
    return "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
