"""How a regressor learns, forgets and is calibrated, in terms of the frozen `NumberFitted` that it holds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np

from sureshot.computing.surroundings import undisturbed
from sureshot.estimators.arguments import Labels, Rows, Weights
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.numbers.answers import NumberAnswers
from sureshot.estimators.numbers.number_fitted import NumberFitted
from sureshot.estimators.numbers.targets import check_numbers
from sureshot.estimators.rows.labelled_rows import merge_rows, same_rows
from sureshot.estimators.rows.readers import Reader, read_labelled
from sureshot.estimators.rows.row_ids import RowsAsTheyCame

_NO_CLASSES = np.empty(0)


@undisturbed
class IncrementalRegressor(NumberAnswers):
    """A regressor that learns rows as they come."""

    def _reader_of(self, X: Any, y: Any, sample_weight: Any) -> Reader:
        """What reads the rows of a first fit, where these themselves have to say how."""
        return self._reader()

    def _first_rows(self, X: Any, y: Any, sample_weight: Any, row_id: Any) -> TrainingSet:
        with self._listening():
            data = read_labelled(
                self._reader_of(X, y, sample_weight), type(self).__name__, None, X, y, sample_weight, check_numbers
            )
        names = self._checked_ids(row_id, len(data.checked), None)
        rows, row_ids = self._merged(data, data.targets, names)
        one_target = np.asarray(y).ndim < 2
        return TrainingSet(
            data.reader, data.columns, _NO_CLASSES, rows, data.checked, row_ids=row_ids, one_target=one_target
        )

    def partial_fit(
        self,
        X: Rows,
        y: Any,
        sample_weight: Weights | None = None,
        retune: bool = False,
        *,
        row_id: Labels | None = None,
    ) -> Self:
        """Add rows, and keep the settings.

        The posterior is the one that `fit` on all rows so far would give with the same kernels, scaling of columns and
        scale of numbers; how far a row is trusted under noise with tails is what was known when it came. The first call
        is a `fit`.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows.
        y : array (n,) or (n, P)
            Their numbers.
        sample_weight : array (n,), optional
            As in `fit`.
        retune : bool, default=False
            Choose all settings anew from all rows.
        row_id : array (n,), optional
            A row with a known id replaces the row that had it, and removes it if its weight is 0 and that of another is
            not. Without ids, rows that are sent twice count twice.

        Returns
        -------
        self
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y, sample_weight, row_id=row_id)
        known: NumberFitted = self._fitted
        with self._listening():
            check = partial(check_numbers, n_targets=known.rows.y.shape[1])
            data = read_labelled(known.reader, type(self).__name__, known.columns, X, y, sample_weight, check)
        names = self._checked_ids(row_id, len(data.checked), known)
        rows, row_ids = self._together(known, data, data.targets, names)
        if not retune and names is not None and same_rows(known.distinct_rows, rows):
            self._fitted = replace(known, row_ids=row_ids, reader=data.reader)
            return self
        came = merge_rows(data.kept, data.targets, data.weight)
        training = self._training(known, rows, row_ids, data.reader, came)
        return self._commit(replace(training, retune=bool(retune)), known)

    def forget(self, rows: Labels | float) -> Self:
        """Remove rows by their ids, as if they had never been seen; settings are kept.

        Parameters
        ----------
        rows : id or array
            Ids of rows to remove.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If no row would be left.
        """
        known: NumberFitted = self._current()
        if np.size(rows) == 0:
            return self
        came = RowsAsTheyCame.apart(known.distinct_rows, known.row_ids).without(self._known_ids(rows, known))
        left, row_ids = came.merged()
        if not len(left.y):
            raise ValueError("cannot forget every row: at least one must stay. To start anew, call fit.")
        return self._commit(self._training(known, left, row_ids, known.reader), known)

    def _training(self, known: NumberFitted, rows: Any, row_ids: Any, reader: Any, came: Any = None) -> TrainingSet:
        return TrainingSet(
            reader, known.columns, _NO_CLASSES, rows, None, row_ids=row_ids, came=came, one_target=known.one_target
        )

    def calibrate(self, X: Rows, y: Any) -> Self:
        """Set how sure to be by a calibration set: what all standard deviations are multiplied by.

        It maximises the log density of these numbers under one normal each, with as much weight on what left-out rows
        say as two rows have. It stays until the next `fit`.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows that were not learnt from.
        y : array (n,) or (n, P)
            Their numbers.

        Returns
        -------
        self
        """
        fitted = replace(self._current(), wider=1.0)
        found = self._prediction(fitted, X)
        squared = found.errors(check_numbers(y, len(found.scaled.means[0]), len(fitted.target.mean))) ** 2
        factor = (squared.sum() + _PSEUDO_ROWS) / (squared.size + _PSEUDO_ROWS)
        self._fitted = replace(fitted, wider=float(np.sqrt(factor)), calibrated=True)
        return self

    def _completed(self, found: Any, known: Any, training: TrainingSet) -> Any:
        """How sure `calibrate` has made it stays even if no other setting does."""
        found = super()._completed(found, known, training)
        if known is None or not known.calibrated:
            return found
        return replace(found, wider=known.wider, calibrated=True)


_PSEUDO_ROWS = 2.0
