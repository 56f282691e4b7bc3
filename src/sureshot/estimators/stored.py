"""What the model file of any estimator holds: a frozen value, written by its annotations (`persistence.values`).

An estimator adds what is its own, says how that follows from its `Fitted`, and how a `Fitted` follows from it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.estimators.rows.mixed_columns import check_kinds, name_from_json, name_to_json
from sureshot.estimators.rows.readers import TableReader
from sureshot.estimators.rows.row_ids import RowIds
from sureshot.estimators.rows.validation import Columns
from sureshot.kernels import Expression
from sureshot.kernels.dense import own_kernel
from sureshot.persistence import Artifact, ArtifactError
from sureshot.persistence.values import pack, unpack
from sureshot.structure.grammar import Grammar
from sureshot.structure.structure import Structure


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The part that all estimators have."""

    arguments: dict[str, Any]  # of the constructor, as `argument_to_json` has them
    classes: np.ndarray  # (C,)
    columns: Columns
    reader: TableReader | None  # None of an estimator whose rows are kept as a network has them
    rows: LabelledRows
    temperature: float
    calibrated: bool
    class_prior: np.ndarray | None  # (C,)
    row_ids: RowIds | None
    arguments_changed: bool  # since the fit, those that every update takes as they are

    def check_parts(self) -> None:
        """ValueError for parts that do not belong together."""
        n_classes, y = len(self.classes), self.rows.y
        if not len(y) or y.min() < 0 or y.max() >= n_classes:
            raise ValueError("the rows do not fit the classes")
        if self.reader is not None and self.rows.x.shape[1] != self.reader.width(self.columns.n_features):
            raise ValueError("the rows do not fit the columns")
        if not 0 < self.temperature < np.inf:
            raise ValueError("the temperature must be positive")
        prior = self.class_prior
        if prior is not None and (prior.shape != (n_classes,) or (prior < 0).any() or abs(prior.sum() - 1) > 1e-6):
            raise ValueError("malformed class prior")

    @property
    def training(self) -> TrainingSet:
        """What the estimator had learnt from."""
        assert self.reader is not None
        kinds = check_kinds(argument_from_json(self.arguments["columns"]))
        reader = replace(self.reader, kinds=kinds, time=self.arguments.get("time"))
        return TrainingSet(reader, self.columns, self.classes, self.rows, None)


@dataclass(frozen=True)
class Format:
    """How an estimator's model files are written and read."""

    kind: str  # what the file says it holds
    of: type[ClassFitted]
    stored: type[Stored]
    own: Callable[[Any], dict[str, Any]]  # from a `Fitted` to the fields that `Stored` lacks
    fitted: Callable[[Any], ClassFitted]  # back
    # Moments of a query, by which it is found out whether the parts of a file fit together.
    moments: Callable[[Any], tuple[Tensor, ...]] = field(
        default=lambda fitted: fitted.predictor.moments(fitted.predictor.inputs(fitted.rows.x[:1]))
    )


def to_file(
    form: Format, arguments: Mapping[str, Any], fitted: ClassFitted, arguments_changed: bool
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a fitted estimator; `ArtifactError` for what no file can hold."""
    try:
        stored = form.stored(
            arguments={name: argument_to_json(name, value) for name, value in arguments.items() if name != "verbose"},
            classes=fitted.classes,
            columns=fitted.columns,
            reader=fitted.reader if isinstance(fitted.reader, TableReader) else None,
            rows=fitted.rows,
            temperature=fitted.temperature,
            calibrated=fitted.calibrated,
            class_prior=fitted.class_prior,
            row_ids=fitted.row_ids,
            arguments_changed=arguments_changed,
            **form.own(fitted),
        )
        return pack(stored)
    except ArtifactError:
        raise
    except ValueError as error:
        raise ArtifactError(f"the model cannot be saved: {error}") from error


def from_file(form: Format, artifact: Artifact) -> tuple[dict[str, Any], ClassFitted, bool]:
    """The constructor's arguments, what was learnt, and whether arguments have changed since.

    Whatever is malformed is one `ArtifactError`.

    The parts are asked for one prediction, so that those that do not fit together are found now, and not at the first
    query of a user.
    """
    stored = unpack(form.stored, artifact.header, artifact.arrays, artifact.path)
    try:
        arguments = {name: argument_from_json(value) for name, value in stored.arguments.items()}
        fitted = replace(
            form.fitted(stored),
            temperature=stored.temperature,
            calibrated=stored.calibrated,
            class_prior=stored.class_prior,
            row_ids=stored.row_ids,
        )
        if fitted.row_ids is not None:
            fitted.row_ids.check_rows(fitted.distinct_rows)
        with torch.no_grad():
            probabilities = fitted.predictor.probabilities(form.moments(fitted), fitted.temperature)
        finite = bool(probabilities.isfinite().all()) and probabilities.shape == (1, len(fitted.classes))
    except ArtifactError:
        raise
    except (RuntimeError, ValueError, AssertionError, IndexError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ArtifactError(
            f"{artifact.path}: the parts of the model do not fit together ({reason}); save the model again."
        ) from error
    if not finite:
        raise ArtifactError(f"{artifact.path}: the model gives probabilities that are not finite; fit it again.")
    return arguments, fitted, stored.arguments_changed


_OF_A_MACHINE = {"device": "auto", "n_jobs": None}  # a file is read on others


def argument_to_json(name: str, value: Any) -> Any:
    """An argument of a constructor as JSON; a generator's state is left out, and what suits one machine."""
    if isinstance(value, Kernel | Expression):
        return {"kernel": own_kernel(value).to_json()}
    if isinstance(value, np.random.RandomState) or callable(value):
        return None
    if name in _OF_A_MACHINE:
        return _OF_A_MACHINE[name]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Grammar):
        return {"grammar": value.to_json()}
    if isinstance(value, pd.Series):
        value = value.to_dict()
    if isinstance(value, Mapping):
        return {"by name": [[name_to_json(key), argument_to_json("", one)] for key, one in value.items()]}
    if isinstance(value, Tensor):
        value = value.cpu().numpy()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [argument_to_json("", one) for one in value]
    return str(value) if isinstance(value, Structure) else value


def argument_from_json(stored: Any) -> Any:
    """The argument that `argument_to_json` wrote; an array is a list."""
    match stored:
        case {"kernel": expression}:
            return Expression.from_json(expression)
        case {"grammar": grammar}:
            return Grammar.from_json(grammar)
        case {"by name": list(pairs)}:
            return {name_from_json(key): argument_from_json(value) for key, value in pairs}
    return stored
