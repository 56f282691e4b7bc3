"""`GPClassifier` as a model file: what is written, and how it is checked when read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.computing.layout import aligned
from sureshot.estimators.fitted import Format
from sureshot.estimators.gp.features import FeatureMap, InducingRoots
from sureshot.estimators.gp.fitted import GPFitted, LeftOutScores, evidence_of
from sureshot.estimators.gp.member import Member
from sureshot.estimators.gp.options import own_kernel
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.gp.plan_format import finite_or_none, or_nan, plan_from_file, plan_to_file, tensors, written
from sureshot.estimators.gp.posterior_arrays import IN_ONE_BASIS, pack_posterior, read_posterior
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.weight_space import FromRows, WeightSpace
from sureshot.estimators.rows.preprocessing import kernel_inputs
from sureshot.estimators.rows.validation import LabelledRows, weigh_classes
from sureshot.estimators.stored_rows import (
    HEADER,
    arrays_of,
    by_label_from_json,
    by_label_to_json,
    header_of,
    read_columns,
    read_rows,
    reader_of_rows,
    spanned_arrays,
    that_predicts,
)
from sureshot.kernels import Expression, evaluate, feature_map, kernel_from_json
from sureshot.persistence import Artifact, ArtifactError, require, require_header

KIND = "gp_classifier"
_PREFIX_POSTERIOR = "posterior."
_BY_LABEL = ("class_weight", "class_prior")
"""Arguments that may be a dict by label."""
_ENTRIES: dict[str, Any] = {"posterior": str, "log_evidence": (float, type(None))}
"""Header entries of a member beside its plan, with the types that are read."""


def _write(parameters: Mapping[str, Any], fitted: GPFitted) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a fitted estimator; `ArtifactError` for precomputed kernels and what needs pickle."""
    if fitted.precomputed:
        raise ArtifactError(
            "a model with kernel='precomputed' cannot be saved: it would not know the kernel of new rows. "
            "Fit with the kernel itself, by name or as a gpytorch kernel."
        )
    parts = [_write_member(member, fitted) for member in fitted.members]
    header = {
        **header_of(fitted),
        "parameters": _json_parameters(parameters),
        "leave_one_out_score": finite_or_none(fitted.score),
        "label_noise": fitted.label_noise,
        "changes": fitted.changes,
        "chosen_by": list(fitted.chosen_by),
        "class_weight": by_label_to_json(fitted.class_weight),
        "left_out": None if fitted.left_out is None else asdict(fitted.left_out),
        "members": [entries for entries, _ in parts],
    }
    arrays: dict[str, Any] = spanned_arrays(fitted.reader) | arrays_of(fitted.rows, None)
    if isinstance(given := parameters["kernel"], Kernel | Expression):
        header["given_kernel"] = written(own_kernel(given))
    for place, (_, own) in enumerate(parts):
        arrays |= {_prefix_member(place) + name: value for name, value in own.items()}
    return header, arrays


def _write_member(member: Member, fitted: GPFitted) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header entries and arrays of a member."""
    kind, held = _held(member, fitted)
    entries, arrays = plan_to_file(member.plan)
    entries |= {"posterior": kind, "log_evidence": finite_or_none(member.log_evidence)}
    arrays |= {
        **held,
        "bound_trace": np.asarray(member.trace, dtype=np.float64),
        "posterior.coefficients": member.coefficients,
        "posterior.prior_mean": member.prior_mean,
    }
    if member.feature_map.projection is not None:
        arrays["feature_map.projection"] = member.feature_map.projection
    return entries, arrays


def _held(member: Member, fitted: GPFitted) -> tuple[str, dict[str, Any]]:
    """What cannot be computed again from the rows of the file: their features can, and what their weights say."""
    if isinstance(member.space, FromRows):
        kind, arrays = member.space.kind, dict(member.space.arrays)
    else:
        kind, _, arrays = pack_posterior(member.posterior)
    del arrays["prior_mean"]
    if kind.startswith("softmax"):
        del arrays["row_weight"]
    if member.plan.model.likelihood == "gaussian":
        del arrays["precision"]
    held: dict[str, Any] = {_PREFIX_POSTERIOR + name: value for name, value in arrays.items()}
    inducing = member.feature_map.inducing
    if inducing is not None:
        x = kernel_inputs(fitted.learnt.x, member.plan.scaling, inducing.device)
        if not torch.equal(inducing, x):
            held["feature_map.inducing"] = inducing
        if kind.startswith(IN_ONE_BASIS):
            held["feature_map.projection"] = member.space.projection
    return kind, held


def _prefix_member(place: int) -> str:
    return f"members.{place}."


def _read(artifact: Artifact) -> tuple[dict[str, Any], GPFitted]:
    """The constructor's arguments and what was learnt; every malformed entry is one `ArtifactError`."""
    header = require_header(
        artifact, {**HEADER, "parameters": dict, "calibrated": bool, "leave_one_out_score": (float, type(None))}
    )
    if not header["temperature"] > 0:
        raise ArtifactError(f"{artifact.path}: the temperature is not positive; save the model again.")
    parameters = _parameters(artifact.path, header["parameters"])
    learnt_with = by_label_from_json(artifact.path, artifact.header.get("class_weight"))
    classes, rows = read_rows(artifact, header)
    reader = reader_of_rows(artifact, rows)
    try:
        weighted = weigh_classes(rows, learnt_with, classes, parameters["inference"])
    except (ValueError, TypeError) as error:
        raise ArtifactError(f"{artifact.path}: malformed class weights; save the model again.") from error
    weight_of_class = np.bincount(weighted.y, weighted.weight, minlength=len(classes))
    members = tuple(_read_member(part, rows.x.shape[1], weighted, len(classes)) for part in _parts_of_members(artifact))
    if parameters["kernel"] is None:
        parameters["kernel"] = _read_given_kernel(artifact)
    fitted = GPFitted(
        classes=classes,
        columns=read_columns(artifact.header),
        reader=reader,
        rows=rows,
        temperature=header["temperature"],
        calibrated=header["calibrated"],
        log_evidence=evidence_of(members),
        members=members,
        score=or_nan(header["leave_one_out_score"]),
        weight_of_class=weight_of_class,
        label_noise=_read_label_noise(artifact),
        left_out=_read_left_out(artifact),
        changes=_read_changes(artifact),
        chosen_by=_read_chosen_by(artifact),
        class_weight=learnt_with,
    )
    return parameters, that_predicts(artifact.path, lambda: fitted, _means_of_one)


def _read_given_kernel(artifact: Artifact) -> Expression:
    """The constructor's kernel, an object, as it was given."""
    try:
        return kernel_from_json(artifact.header.get("given_kernel"))
    except ValueError as error:
        raise ArtifactError(f"{artifact.path}: the given kernel is malformed: {error}") from error


def _means_of_one(fitted: GPFitted) -> tuple[Tensor, ...]:
    """Moments of a row as if variances were zero: variances may take all features of all rows, which is not yet due."""
    found: list[Tensor] = []
    for member in fitted.members:
        mean = member.means(member.values(torch.ones(1, fitted.rows.x.shape[1], dtype=torch.float64)))
        coupled = member.plan.model.likelihood == "one_vs_each" and member.plan.model.inference == "gibbs"
        found += [
            mean,
            mean.new_zeros(len(mean), 1, mean.shape[1], mean.shape[1]) if coupled else torch.zeros_like(mean),
        ]
    return tuple(found)


def _read_label_noise(artifact: Artifact) -> float:
    """The share of labels that are random; older files have none."""
    found = artifact.header.get("label_noise", 0.0)
    if not isinstance(found, float) or not 0 <= found < 1:
        raise ArtifactError(f"{artifact.path}: malformed label noise; save the model again.")
    return found


def _read_changes(artifact: Artifact) -> int:
    """Rows that came or went since temperatures were chosen; older files have none."""
    found = artifact.header.get("changes", 0)
    if not isinstance(found, int) or found < 0:
        raise ArtifactError(f"{artifact.path}: malformed number of changes; save the model again.")
    return found


def _read_chosen_by(artifact: Artifact) -> tuple[int, int]:
    """Rows and classes by which settings were chosen; older files do not know."""
    found = artifact.header.get("chosen_by", [0, 0])
    if not isinstance(found, list) or len(found) != 2 or not all(isinstance(one, int) and one >= 0 for one in found):
        raise ArtifactError(f"{artifact.path}: malformed numbers of rows and classes; save the model again.")
    return found[0], found[1]


def _read_left_out(artifact: Artifact) -> LeftOutScores | None:
    """Scores of left-out rows; older files have none."""
    entries = artifact.header.get("left_out")
    if entries is None:
        return None
    try:
        return LeftOutScores(*(float(entries[field.name]) for field in fields(LeftOutScores)))
    except (TypeError, KeyError, ValueError) as error:
        raise ArtifactError(f"{artifact.path}: malformed scores of left-out rows; save the model again.") from error


def _parts_of_members(artifact: Artifact) -> list[Artifact]:
    """The file's entries and arrays of each member."""
    listed = artifact.header.get("members")
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


def _read_member(part: Artifact, n_columns: int, rows: LabelledRows, n_classes: int) -> Member:
    """From its entries and arrays; rows with the weights of their classes multiplied in."""
    plan = plan_from_file(part, n_columns)
    entries = require_header(part, _ENTRIES)
    trace = require(part, {"bound_trace": ("float64", ("T",))})["bound_trace"]
    try:
        held = _read_held(part, plan, rows, entries["posterior"], n_classes)
    except (KeyError, ValueError, RuntimeError, IndexError) as error:
        if isinstance(error, ArtifactError):
            raise
        raise ArtifactError(
            f"the model file's posterior is malformed ({' '.join(str(error).split())[:160]}): save the model again."
        ) from error
    evidence = or_nan(entries["log_evidence"])
    return Member(plan, *held, evidence, tuple(trace.tolist()), precomputed=False)


def _read_held(
    part: Artifact, plan: Plan, rows: LabelledRows, kind: str, n_classes: int
) -> tuple[FeatureMap, Tensor, Tensor, WeightSpace]:
    """Feature map, coefficients, prior mean and weight space of a member."""
    maps, arrays = tensors(part.arrays, "feature_map."), tensors(part.arrays, _PREFIX_POSTERIOR)
    inducing, projection = maps.get("inducing"), maps.get("projection")
    inputs = kernel_inputs(rows.x, plan.scaling, torch.device("cpu"))
    if inducing is None and feature_map(plan.kernel, inputs.shape[1]) is None:
        inducing = inputs
    of_inducing = inducing is not None
    found = FeatureMap(plan.kernel, inducing, None if of_inducing else projection)
    coefficients = arrays.pop("coefficients")
    if plan.model.likelihood == "gaussian":
        arrays["precision"] = (aligned(rows.weight) / plan.model.noise).expand(len(coefficients), 1, -1)
    if kind.startswith("softmax"):
        arrays["row_weight"] = aligned(rows.weight)
    kind, arrays = read_posterior(kind, arrays, coefficients, len(rows.y), n_classes)
    roots = None
    if inducing is not None and kind.startswith(IN_ONE_BASIS):
        inverse = _present(projection)
        roots = InducingRoots(inverse, evaluate(plan.kernel, inducing).detach() @ inverse)
    space = FromRows(found, inputs, kind, arrays, coefficients, roots, plan.model.searches)
    return found, coefficients, arrays["prior_mean"], space


def _present(projection: Tensor | None) -> Tensor:
    if projection is None:
        raise ValueError("it has no projection")
    return projection


GP_FORMAT = Format(KIND, _write, _read)


def _json_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """The constructor's arguments but the kinds of columns; a kernel object is null, as it is stored by itself."""
    parameters = {name: value for name, value in given.items() if name not in ("columns", "verbose")}
    if isinstance(parameters["kernel"], Kernel | Expression):
        parameters["kernel"] = None
    if isinstance(parameters["random_state"], np.random.RandomState):
        parameters["random_state"] = None
    parameters |= {name: by_label_to_json(parameters[name]) for name in _BY_LABEL}
    parameters["device"] = "auto"  # a file is read on other machines
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in parameters.items()}


def _parameters(place: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The constructor's arguments, checked; the kernel is None where it was an object."""
    values = dict(parameters)
    if set(values) != {field.name for field in fields(Settings)} - {"seed"} | {"random_state"}:
        raise ArtifactError(f"{place}: the parameters are not those of this version of GPClassifier; fit it again.")
    values |= {name: by_label_from_json(place, values[name]) for name in _BY_LABEL}
    if any(isinstance(value, list | dict) for name, value in values.items() if name not in _BY_LABEL):
        raise ArtifactError(f"{place}: malformed parameters; save the model again.")
    return values
