"""`GPClassifier` as a model file: what is written, and how it is checked when read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, get_args

import numpy as np
import torch
from gpytorch.kernels import Kernel

from sureshot.estimators.conditioning import Model, schemes_for
from sureshot.estimators.features import FeatureMap
from sureshot.estimators.fitted import Format
from sureshot.estimators.gp_fitted import GPFitted
from sureshot.estimators.gp_member import Member
from sureshot.estimators.layout import aligned
from sureshot.estimators.plan import Plan
from sureshot.estimators.posterior_arrays import pack_posterior, unpack_posterior
from sureshot.estimators.readers import TableReader
from sureshot.estimators.settings import Settings
from sureshot.estimators.stored_rows import (
    HEADER,
    arrays_of,
    by_label_from_json,
    by_label_to_json,
    header_of,
    read_columns,
    read_rows,
    read_scaling,
    scaling_arrays,
    that_predicts,
)
from sureshot.estimators.validation import LabelledRows, weigh_classes
from sureshot.kernels import Expression
from sureshot.kernels.config import kernel_config, kernel_from_config, kernel_state
from sureshot.likelihoods.base import PredictiveRule
from sureshot.persistence import Artifact, ArtifactError, require, require_header

KIND = "gp_classifier"
OWN_WEIGHTS = "own"
"""The rows of a file that says so have the weights that they came with; in older files those of their classes are
multiplied in."""
_PREFIX_KERNEL = "kernel."
_PREFIX_POSTERIOR = "posterior."
_BY_LABEL = ("class_weight", "class_prior")
"""Arguments that may be a dict by label."""
_OF_OLDER_FILES = {"ensemble": False, "relevance": False, "class_prior": "support"}
"""Arguments that older files lack."""
_ENTRIES: dict[str, Any] = {
    "kernel": dict,
    "model": dict,
    "posterior": str,
    "predictive": str,
    "temperature": float,
    "leave_one_out_score": (float, type(None)),
    "log_evidence": (float, type(None)),
}
"""Header entries of a member, with the types that are read."""


def _write(parameters: Mapping[str, Any], fitted: GPFitted) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a fitted estimator; `ArtifactError` for precomputed kernels and what needs pickle."""
    if fitted.precomputed:
        raise ArtifactError(
            "a model with kernel='precomputed' cannot be saved: it would not know the kernel of new rows. "
            "Fit with the kernel itself, by name or as a gpytorch kernel."
        )
    written = [_write_member(member) for member in fitted.members]
    header = {
        **header_of(fitted),
        "parameters": _json_parameters(parameters),
        "row_weights": OWN_WEIGHTS,
        "leave_one_out_score": _finite_or_none(fitted.score),
        "members": [entries for entries, _ in written],
    }
    arrays: dict[str, Any] = arrays_of(fitted.rows, None)
    for place, (_, own) in enumerate(written):
        arrays |= {_prefix_member(place) + name: value for name, value in own.items()}
    return header, arrays


def _write_member(member: Member) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header entries and arrays of a member."""
    plan = member.plan
    try:
        config = kernel_config(plan.kernel)
    except ValueError as error:
        raise ArtifactError(f"the kernel cannot be saved: {error}") from error
    kind, posterior = pack_posterior(member.posterior)
    entries = {
        "weight": plan.weight,
        "kernel": config,
        "model": asdict(plan.model),
        "posterior": kind,
        "predictive": plan.rule,
        "temperature": plan.temperature,
        "leave_one_out_score": _finite_or_none(plan.score),
        "log_evidence": _finite_or_none(member.log_evidence),
    }
    arrays: dict[str, Any] = {
        **scaling_arrays(plan.scaling),
        "bound_trace": np.asarray(member.trace, dtype=np.float64),
        **{_PREFIX_POSTERIOR + name: value for name, value in posterior.items()},
        **{_PREFIX_KERNEL + name: value for name, value in kernel_state(plan.kernel).items()},
    }
    for name in ("inducing", "projection"):
        value = getattr(member.feature_map, name)
        if value is not None:
            arrays[f"feature_map.{name}"] = value
    return entries, arrays


def _prefix_member(place: int) -> str:
    return f"members.{place}."


def _read(artifact: Artifact) -> tuple[dict[str, Any], GPFitted]:
    """The constructor's arguments and what was learnt; every malformed entry is one `ArtifactError`."""
    header = require_header(
        artifact, {**HEADER, "parameters": dict, "calibrated": bool, "leave_one_out_score": (float, type(None))}
    )
    classes, rows = read_rows(artifact, header)
    if rows.x.shape[1] != header["n_features_in"]:
        raise ArtifactError(f"{artifact.path}: the rows do not fit the columns; save the model again.")
    if not header["temperature"] > 0:
        raise ArtifactError(f"{artifact.path}: the temperature is not positive; save the model again.")
    parameters = _parameters(artifact.path, header["parameters"])
    try:
        if artifact.header.get("row_weights") != OWN_WEIGHTS:
            rows = _without_class_weights(rows, parameters["class_weight"], classes)
        weighted = weigh_classes(rows, parameters["class_weight"], classes)
    except (ValueError, TypeError) as error:
        raise ArtifactError(f"{artifact.path}: malformed class weights; save the model again.") from error
    members = tuple(
        _read_member(part, header["n_features_in"], len(weighted.y), len(classes))
        for part in _parts_of_members(artifact)
    )
    if parameters["kernel"] is None:
        parameters["kernel"] = members[0].plan.kernel
    fitted = GPFitted(
        classes=classes,
        columns=read_columns(header),
        reader=TableReader(),
        rows=rows,
        temperature=header["temperature"],
        calibrated=header["calibrated"],
        log_evidence=members[0].log_evidence,
        members=members,
        score=_or_nan(header["leave_one_out_score"]),
        weight_of_class=np.bincount(weighted.y, weighted.weight, minlength=len(classes)),
    )
    return parameters, that_predicts(artifact.path, lambda: fitted)


def _parts_of_members(artifact: Artifact) -> list[Artifact]:
    """The file's entries and arrays of each member; of older files, which have one, all of them."""
    if "members" not in artifact.header:
        return [artifact]
    listed = artifact.header["members"]
    if not isinstance(listed, list) or not listed or not all(isinstance(entries, dict) for entries in listed):
        raise ArtifactError(f"{artifact.path}: malformed members; save the model again.")
    parts = []
    for place, entries in enumerate(listed):
        prefix = _prefix_member(place)
        own = {name.removeprefix(prefix): a for name, a in artifact.arrays.items() if name.startswith(prefix)}
        parts.append(replace(artifact, header=entries, arrays=own))
    weights = [part.header.get("weight") for part in parts]
    numbers = [float(weight) for weight in weights if isinstance(weight, float | int) and weight > 0]
    if len(numbers) < len(parts) or abs(sum(numbers) - 1) > 1e-6:
        raise ArtifactError(f"{artifact.path}: the members' weights do not sum to one; save the model again.")
    return parts


def _read_member(part: Artifact, n_columns: int, n_rows: int, n_classes: int) -> Member:
    entries = require_header(part, _ENTRIES)
    scaling = read_scaling(part, n_columns)
    trace = require(part, {"bound_trace": ("float64", ("T",))})["bound_trace"]
    if entries["predictive"] not in get_args(PredictiveRule) or not entries["temperature"] > 0:
        raise ArtifactError(f"{part.path}: unknown predictive rule or temperature; save the model again.")
    try:
        kernel = kernel_from_config(entries["kernel"], _tensors(part.arrays, _PREFIX_KERNEL))
    except ValueError as error:
        raise ArtifactError(f"{part.path}: the kernel is malformed: {error}") from error
    maps = _tensors(part.arrays, "feature_map.")
    posterior = {
        name.removeprefix(_PREFIX_POSTERIOR): value
        for name, value in part.arrays.items()
        if name.startswith(_PREFIX_POSTERIOR)
    }
    plan = Plan(
        scaling,
        kernel,
        _model(part.path, entries["model"]),
        entries["predictive"],
        entries["temperature"],
        _or_nan(entries["leave_one_out_score"]),
        float(part.header.get("weight", 1.0)),
    )
    return Member(
        plan,
        FeatureMap(kernel, maps.get("inducing"), maps.get("projection")),
        unpack_posterior(entries["posterior"], posterior, n_rows, n_classes),
        _or_nan(entries["log_evidence"]),
        tuple(trace.tolist()),
        precomputed=False,
    )


GP_FORMAT = Format(KIND, _write, _read)


def _without_class_weights(rows: LabelledRows, class_weight: Any, classes: np.ndarray) -> LabelledRows:
    """Rows of an older file with the weights that they came with; balanced ones are left, and then stay balanced."""
    if not isinstance(class_weight, dict):
        return rows
    ones = LabelledRows(rows.x, rows.y, np.ones(len(rows.y)))
    return replace(rows, weight=rows.weight / weigh_classes(ones, class_weight, classes).weight)


def _json_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """The constructor's arguments; a kernel object is null, since the fitted kernel is stored."""
    parameters = dict(given)
    if isinstance(parameters["kernel"], Kernel | Expression):
        parameters["kernel"] = None
    if isinstance(parameters["random_state"], np.random.RandomState):
        parameters["random_state"] = None
    parameters |= {name: by_label_to_json(parameters[name]) for name in _BY_LABEL}
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in parameters.items()}


def _parameters(place: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The constructor's arguments, checked; the kernel is None where it was an object."""
    values = _OF_OLDER_FILES | parameters
    if set(values) != {field.name for field in fields(Settings)} - {"seed"} | {"random_state"}:
        raise ArtifactError(f"{place}: the parameters are not those of this version of GPClassifier; fit it again.")
    values |= {name: by_label_from_json(place, values[name]) for name in _BY_LABEL}
    if any(isinstance(value, list | dict) for name, value in values.items() if name not in _BY_LABEL):
        raise ArtifactError(f"{place}: malformed parameters; save the model again.")
    return values


def _model(place: str, values: dict[str, Any]) -> Model:
    expected = asdict(Model("softmax", "laplace"))
    right = set(values) == set(expected) and all(
        isinstance(values[name], type(default)) or (isinstance(default, float) and isinstance(values[name], int))
        for name, default in expected.items()
    )
    if not right or values["inference"] not in schemes_for(values["likelihood"]):
        raise ArtifactError(f"{place}: malformed likelihood or inference; save the model again.")
    return Model(**values)


def _tensors(arrays: Any, prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): aligned(value) for name, value in arrays.items() if name.startswith(prefix)}


def _finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)
