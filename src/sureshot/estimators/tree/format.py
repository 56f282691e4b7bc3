"""`TreeGPClassifier` as a model file: kept rows, sessions, what the first session taught, and nothing of the trees.

The rest is a function of these and a seed, and is computed again on loading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sureshot.estimators.fitted import Format, TrainingSet
from sureshot.estimators.gp.settings import device_for
from sureshot.estimators.stored_rows import (
    HEADER,
    arrays_of,
    header_of,
    read_columns,
    read_rows,
    read_scaling,
    reader_of_rows,
    that_predicts,
)
from sureshot.estimators.tree.fitted import TreeFitted, restored
from sureshot.estimators.tree.settings import SETTINGS, settings_of, strategy_of
from sureshot.persistence import Artifact, ArtifactError, require, require_header

KIND = "tree_gp_classifier"
_PREFIX = "shared."
_COVARIANCES: dict[str, tuple[int | str | None, ...]] = {
    "centre": ("K",),
    "basis": ("K", "R"),
    "between": ("R",),
    "within": ("R",),
    "temperature": (),
    "tail": (),
}
_OF_NETWORK = "of_network"  # there if rows are features of a network


def _write(parameters: Mapping[str, Any], fitted: TreeFitted) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a fitted estimator."""
    random_state = parameters["random_state"]
    header: dict[str, Any] = {
        **header_of(fitted),
        "random_state": int(random_state) if isinstance(random_state, int | np.integer) else None,
        "seed": fitted.seed,
        "settings": settings_of(fitted.strategy, parameters),
    }
    arrays = arrays_of(fitted.rows, fitted.scaling)
    arrays["sessions"] = fitted.sessions
    arrays |= {_PREFIX + name: part.cpu().numpy() for name, part in fitted.model.shared.items()}
    return header, arrays


def _read(artifact: Artifact) -> tuple[dict[str, Any], TreeFitted]:
    """The constructor's arguments and what was learnt; every malformed entry is one `ArtifactError`."""
    header = require_header(artifact, {**HEADER, "random_state": (int, type(None)), "seed": int, "settings": dict})
    classes, rows = read_rows(artifact, header)
    if not header["temperature"] > 0 or header["seed"] < 0:
        raise ArtifactError(f"{artifact.path}: malformed temperature or seed; save the model again.")
    settings = _settings(artifact, header["settings"])
    reader = reader_of_rows(artifact, rows)
    scaling = read_scaling(artifact, rows.x.shape[1])
    recommended = settings["strategy"] == "recommended"
    wanted = _COVARIANCES if recommended else {"temperature": ()}
    if recommended and _PREFIX + _OF_NETWORK in artifact.arrays:
        wanted = wanted | {_OF_NETWORK: ()}
    arrays = require(
        artifact,
        {"sessions": ("int64", ("C",)), **{_PREFIX + name: ("float64", shape) for name, shape in wanted.items()}},
        {"C": len(classes), "K": len(scaling.kept)},
    )
    sessions = arrays.pop("sessions")
    shared = {name.removeprefix(_PREFIX): part for name, part in arrays.items()}
    if sessions.min() < 0 or not shared["temperature"] > 0 or (recommended and not _possible(shared)):
        raise ArtifactError(f"{artifact.path}: malformed sessions or covariances; save the model again.")

    device = device_for("auto", len(rows.y))

    def build() -> TreeFitted:
        training = TrainingSet(reader, read_columns(artifact.header), classes, rows, None)
        return restored(training, scaling, strategy_of(settings), sessions, shared, header["seed"], device)

    fitted = that_predicts(artifact.path, build)
    parameters = {**settings, "random_state": header["random_state"]}
    calibrated = bool(artifact.header.get("calibrated", False))
    return parameters, replace(fitted, temperature=header["temperature"], calibrated=calibrated)


TREE_FORMAT = Format(KIND, _write, _read)


def _possible(covariances: Mapping[str, np.ndarray]) -> bool:
    return bool((covariances["within"] > 0).all() and covariances["tail"] >= 0)


def _settings(artifact: Artifact, values: dict[str, Any]) -> dict[str, Any]:
    if set(values) != set(SETTINGS):
        raise ArtifactError(f"{artifact.path}: malformed settings of the strategy; save the model again.")
    found = {name: float(value) if SETTINGS[name] is float else value for name, value in values.items()}
    if any(type(found[name]) is not kind for name, kind in SETTINGS.items()):
        raise ArtifactError(f"{artifact.path}: malformed settings of the strategy; save the model again.")
    try:
        strategy_of(found)
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"{artifact.path}: {error}") from error
    return found
