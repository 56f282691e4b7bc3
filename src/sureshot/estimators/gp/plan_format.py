"""A plan of `GPClassifier` in a model file: header entries and arrays, and how they are checked when read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast, get_args

import numpy as np
from torch import Tensor

from sureshot.computing.layout import aligned
from sureshot.estimators.gp.conditioning import Model, schemes_for
from sureshot.estimators.gp.plan import Plan, Saying
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.estimators.stored_rows import read_scaling, scaling_arrays
from sureshot.kernels import Expression, Scale, kernel_from_json
from sureshot.likelihoods.base import PredictiveRule
from sureshot.persistence import Artifact, ArtifactError, require_header

_ENTRIES: dict[str, Any] = {
    "kernel": dict,
    "model": dict,
    "predictive": str,
    "temperature": float,
    "leave_one_out_score": (float, type(None)),
}
"""Header entries, with the types that are read; older files lack the others."""


def plan_to_file(plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header entries and arrays; `ArtifactError` for a kernel that needs pickle."""
    entries = {
        "weight": plan.weight,
        "kernel": written(plan.kernel),
        "model": asdict(plan.model),
        "predictive": plan.rule,
        "temperature": plan.temperature,
        "least_temperature": plan.least_temperature,
        "leave_one_out_score": finite_or_none(plan.score),
        "as_chosen": None if plan.as_chosen is None else list(plan.as_chosen),
        "of_two": None if plan.of_two is None else asdict(plan.of_two),
    }
    return entries, scaling_arrays(plan.scaling)


def plan_from_file(
    part: Artifact,  # entries and arrays of a member
    n_columns: int,
) -> Plan:
    """What `plan_to_file` gave; every malformed entry is one `ArtifactError`."""
    entries = require_header(part, _ENTRIES)
    scaling = read_scaling(part, n_columns)
    if entries["predictive"] not in get_args(PredictiveRule) or not entries["temperature"] > 0:
        raise ArtifactError(f"{part.path}: unknown predictive rule or temperature; save the model again.")
    try:
        kernel = kernel_from_json(entries["kernel"])
        if not isinstance(kernel, Scale):
            raise ValueError("it has no output scale")
    except ValueError as error:
        raise ArtifactError(f"{part.path}: the kernel is malformed: {error}") from error
    return Plan(
        scaling,
        kernel,
        _model(part.path, entries["model"]),
        entries["predictive"],
        entries["temperature"],
        or_nan(entries["leave_one_out_score"]),
        float(part.header.get("weight", 1.0)),
        _least_temperature(part, entries["temperature"], scaling),
        as_chosen=_as_chosen(part),
        of_two=_of_two(part),
    )


def written(kernel: Expression) -> Mapping[str, Any]:
    """A kernel as JSON; `ArtifactError` where it cannot be."""
    try:
        return kernel.to_json()
    except ValueError as error:
        raise ArtifactError(f"the kernel cannot be saved: {error}") from error


def _as_chosen(part: Artifact) -> tuple[float, float] | None:
    """Output scale and noise as they were chosen; None where none are said, as in older files."""
    found = part.header.get("as_chosen")
    if found is None:
        return None
    match found:
        case [float(raw), float(noise)] if math.isfinite(raw) and 0 < noise < math.inf:
            return raw, noise
    raise ArtifactError(f"{part.path}: malformed output scale and noise; save the model again.")


def _of_two(part: Artifact) -> Saying | None:
    """What was chosen for two classes; None where these are all, and in older files."""
    match part.header.get("of_two"):
        case None:
            return None
        case {"model": dict(model), "rule": str(rule), "temperature": float(temperature), **further} if not further:
            if rule in get_args(PredictiveRule) and 0 < temperature < math.inf:
                return Saying(_model(part.path, model), cast(PredictiveRule, rule), temperature)
    raise ArtifactError(f"{part.path}: malformed choices for two classes; save the model again.")


def _model(place: str, values: dict[str, Any]) -> Model:
    expected = asdict(Model("softmax", "laplace"))
    right = set(values) == set(expected) and all(
        isinstance(values[name], type(default)) or (isinstance(default, float) and isinstance(values[name], int))
        for name, default in expected.items()
    )
    if not right or values["inference"] not in schemes_for(values["likelihood"]):
        raise ArtifactError(f"{place}: malformed likelihood or inference; save the model again.")
    return Model(**values)


def _least_temperature(part: Artifact, temperature: float, scaling: Scaling) -> float:
    """Of relevance; older files have the temperature only."""
    found = part.header.get("least_temperature", 0.0 if scaling.relevance is None else temperature)
    if not isinstance(found, float | int) or found < 0:
        raise ArtifactError(f"{part.path}: malformed temperature; save the model again.")
    return float(found)


def tensors(arrays: Any, prefix: str) -> dict[str, Tensor]:
    """The arrays whose names begin so, by what follows."""
    return {name.removeprefix(prefix): aligned(value) for name, value in arrays.items() if name.startswith(prefix)}


def finite_or_none(value: float) -> float | None:
    """As JSON can say it."""
    return float(value) if np.isfinite(value) else None


def or_nan(value: float | None) -> float:
    """What `finite_or_none` was made of."""
    return float("nan") if value is None else float(value)
