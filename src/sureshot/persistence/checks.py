"""Checks of what a model file holds, before anything is computed with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sureshot.persistence.artifact import Artifact, ArtifactError


def require(artifact: Artifact, arrays: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, np.ndarray]:
    """The named arrays, each of the given dtype ("float": of any precision) and shape, and finite (`ArtifactError`)."""
    for name, (dtype, shape) in arrays.items():
        if name not in artifact.arrays:
            raise ArtifactError(f"{artifact.path} lacks the array {name!r}, it holds {sorted(artifact.arrays)[:20]}.")
        array = artifact.arrays[name]
        if not (array.dtype.kind == "f" if dtype == "float" else array.dtype == np.dtype(dtype)):
            raise ArtifactError(f"{artifact.path}: the array {name!r} must be {dtype}, it is {array.dtype}.")
        if array.shape != shape:
            raise ArtifactError(
                f"{artifact.path}: the array {name!r} must have the shape {shape}, it has {array.shape}."
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ArtifactError(f"{artifact.path}: the array {name!r} holds NaN or infinite values.")
    return {name: artifact.arrays[name] for name in arrays}


def require_header(artifact: Artifact, *names: str) -> dict[str, dict[str, Any]]:
    """The named entries of the header, each a mapping (`ArtifactError`)."""
    for name in names:
        if name not in artifact.header:
            raise ArtifactError(f"{artifact.path} lacks the header entry {name!r}.")
        if not isinstance(artifact.header[name], dict):
            kind = type(artifact.header[name]).__name__
            raise ArtifactError(f"{artifact.path}: the header entry {name!r} must be a mapping, it is a {kind}.")
    return {name: artifact.header[name] for name in names}
