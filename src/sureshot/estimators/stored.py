"""What the model file of any estimator holds: a frozen value, written by its annotations (`persistence.values`).

An estimator adds what is its own, says how that follows from its `Fitted`, and how a `Fitted` follows from it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.data.mixed_columns import check_kinds, name_from_json, name_to_json
from sureshot.estimators.fitted import Fitted, TrainingSet
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.estimators.rows.readers import TableReader
from sureshot.estimators.rows.row_ids import RowIds
from sureshot.estimators.rows.validation import Columns
from sureshot.kernels import Expression
from sureshot.kernels.dense import own_kernel
from sureshot.networks.backbones import Backbone
from sureshot.persistence import Artifact, ArtifactError
from sureshot.persistence.values import pack, unpack
from sureshot.structure.grammar import Grammar
from sureshot.structure.structure import Structure


@dataclass(frozen=True, kw_only=True)
class Stored(ABC):
    """The part that all estimators have."""

    arguments: dict[str, Any]  # of the constructor, as `argument_to_json` has them
    columns: Columns
    reader: TableReader | None  # None of an estimator whose rows are kept as a network has them
    rows: LabelledRows
    row_ids: RowIds | None
    arguments_changed: bool  # since the fit, those that every update takes as they are

    as_learnt: ClassVar[tuple[str, ...]] = ("columns", "rows", "row_ids")
    """Fields that what was learnt has, too."""

    def check_parts(self) -> None:
        """ValueError for parts that do not belong together."""
        if not len(self.rows.y):
            raise ValueError("there are no rows")
        if self.reader is not None and self.rows.x.shape[1] != self.reader.width(self.columns.n_features):
            raise ValueError("the rows do not fit the columns")

    @abstractmethod
    def answers(self, fitted: Any, moments: tuple[Tensor, ...]) -> Tensor:
        """What a query with these moments is told: finite numbers (1, C)."""

    @property
    def training(self) -> TrainingSet:
        """What the estimator had learnt from."""
        assert self.reader is not None
        kinds = check_kinds(argument_from_json(self.arguments["columns"]))
        reader = replace(self.reader, kinds=kinds, time=self.arguments.get("time"))
        return TrainingSet(reader, self.columns, np.empty(0), self.rows, None)


@dataclass(frozen=True)
class Format:
    """How an estimator's model files are written and read."""

    kind: str  # what the file says it holds
    of: type[Fitted]
    stored: type[Stored]
    own: Callable[[Any], dict[str, Any]]  # from a `Fitted` to the fields that it does not have `as_learnt`
    fitted: Callable[[Any], Any]  # back
    # Moments of a query, by which it is found out whether the parts of a file fit together.
    moments: Callable[[Any], tuple[Tensor, ...]] = field(
        default=lambda fitted: fitted.predictor.moments(fitted.predictor.inputs(fitted.rows.x[:1]))
    )


def to_file(
    form: Format, arguments: Mapping[str, Any], fitted: Fitted, arguments_changed: bool
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a fitted estimator; `ArtifactError` for what no file can hold."""
    try:
        stored = form.stored(
            arguments={name: argument_to_json(name, value) for name, value in arguments.items() if name != "verbose"},
            arguments_changed=arguments_changed,
            reader=fitted.reader if isinstance(fitted.reader, TableReader) else None,
            **{name: getattr(fitted, name) for name in form.stored.as_learnt},
            **form.own(fitted),
        )
        return pack(stored)
    except ArtifactError:
        raise
    except ValueError as error:
        raise ArtifactError(f"the model cannot be saved: {error}") from error


def from_file(form: Format, artifact: Artifact) -> tuple[dict[str, Any], Any, bool]:
    """The constructor's arguments, what was learnt, and whether arguments have changed since.

    Whatever is malformed is one `ArtifactError`.

    The parts are asked for one prediction, so that those that do not fit together are found now, and not at the first
    query of a user.
    """
    stored = unpack(form.stored, artifact.header, artifact.arrays, artifact.path)
    try:
        arguments = {name: argument_from_json(value) for name, value in stored.arguments.items()}
        fitted = form.fitted(stored)
        names = {one.name for one in fields(fitted)}.intersection(stored.as_learnt)
        fitted = replace(fitted, **{name: getattr(stored, name) for name in names})
        if fitted.row_ids is not None:
            fitted.row_ids.check_rows(fitted.distinct_rows)
        with torch.no_grad():
            finite = bool(stored.answers(fitted, form.moments(fitted)).isfinite().all())
    except ArtifactError:
        raise
    except (RuntimeError, ValueError, AssertionError, IndexError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ArtifactError(
            f"{artifact.path}: the parts of the model do not fit together ({reason}); save the model again."
        ) from error
    if not finite:
        raise ArtifactError(f"{artifact.path}: the model gives answers that are not finite; fit it again.")
    return arguments, fitted, stored.arguments_changed


_OF_A_MACHINE = {"device": "auto", "n_jobs": None}  # a file is read on others


def argument_to_json(name: str, value: Any) -> Any:
    """An argument of a constructor as JSON; a generator's state is left out, and what suits one machine."""
    if isinstance(value, Kernel | Expression):
        return {"kernel": own_kernel(value).to_json()}
    if isinstance(value, np.random.RandomState) or (callable(value) and not isinstance(value, Backbone)):
        return None
    if name in _OF_A_MACHINE:
        return _OF_A_MACHINE[name]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Backbone):
        value = value.config
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
