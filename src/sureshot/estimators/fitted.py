"""The result of a fit, as a value.

Everything that an estimator has learnt is one frozen `Fitted`. Learning and updating compute the next one completely,
and the estimator then takes it over in one assignment; reading, forgetting and saving are written once in terms of it.
What answers about rows is a part of it, its predictor. A model file is made of a `Fitted` and the constructor's
arguments (`stored`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from sureshot.estimators.outliers import as_they_are, scalings_for
from sureshot.estimators.rows.labelled_rows import LabelledRows, with_rows
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.estimators.rows.readers import Reader
from sureshot.estimators.rows.row_ids import RowIds
from sureshot.estimators.rows.validation import Columns
from sureshot.kernels import is_unit_norm

KEEPS = (False, "auto")
"""Values of `TrainingSet.retune` by which what is known is kept."""


@dataclass(frozen=True)
class TrainingSet:
    """What an estimator learns from: the rows of a call, and what it knows."""

    reader: Reader
    columns: Columns
    classes: np.ndarray  # (C,), some may have no row; none where targets are numbers
    given: LabelledRows | None  # all rows that there are now; None: those that are `known`, and those that `came`
    checked: np.ndarray | None  # (n, width), X as the first call gave it; None afterwards
    unseen: np.ndarray | None = None  # (N,) bool, rows that the network which made them was not trained on; None: all
    row_ids: RowIds | None = None  # of the rows; None: none has an id
    known: Fitted | None = None
    came: LabelledRows | None = None  # equal ones merged
    retune: Any = False  # whether settings are chosen anew; "auto": once answers are worse than was promised
    one_target: bool = True  # of numbers, whether y had one dimension

    @cached_property
    def rows(self) -> LabelledRows:
        """All labelled rows as the reader keeps them, with the weights that they came with, equal ones merged."""
        return self._merged[0] if self.given is None else self.given

    @cached_property
    def _merged(self) -> tuple[LabelledRows, np.ndarray]:
        assert self.known is not None
        assert self.came is not None
        return with_rows(self.known.distinct_rows, self.came)

    @property
    def places(self) -> np.ndarray | None:
        """Where among the rows those are that were known, then those that `came`; None where some may have gone."""
        return None if self.given is not None else self._merged[1]

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """Of the rows' columns (D,), where they have any."""
        return self.reader.names_of(self.columns)


@dataclass(frozen=True)
class Fitted:
    """What any estimator has learnt: how rows are read, and the rows."""

    columns: Columns  # of the inputs, as the user knows them
    reader: Reader
    rows: LabelledRows  # as the reader keeps them, with the weights that they came with
    log_evidence: float  # in nats
    row_ids: RowIds | None = field(default=None, kw_only=True)  # of `distinct_rows`; None: none has an id
    class_arguments: str = field(default="", kw_only=True)  # a hash of `class_weight` and `class_prior` at the time

    @property
    def distinct_rows(self) -> LabelledRows:
        """The labelled rows, equal ones merged into one."""
        return self.rows

    @property
    def learnt(self) -> LabelledRows:
        """The rows that something has been learnt from."""
        return self.rows

    @property
    def settled(self) -> Fitted:
        """The same with all that predictions need, of what an update has put off."""
        return self

    @property
    def kinds(self) -> dict[Any, str] | None:
        """What the columns of a DataFrame were taken for, by name; None where all are numbers."""
        return None if self.reader.encoder is None else self.reader.encoder.kinds

    @property
    def has_distances(self) -> bool:
        """Whether rows are kept as points, between which distances mean something."""
        return True

    def scalings(self, x: np.ndarray) -> tuple[Scaling, ...]:
        """Maps of columns under which distances of rows (N, D) count, as the reader keeps them."""
        if not self.reader.has_columns:
            return (as_they_are(x.shape[1]),)
        if self.reader.clock is not None:  # a row is not unlike all others for being new
            x = x.copy()
            x[:, self.reader.clock.place] = 0.0
        return scalings_for(x)

    @property
    def has_directions(self) -> bool:
        """Whether only the direction of rows matters, so that one of zeros is like none of them."""
        return is_unit_norm(self.rows.x)
