"""How every incremental classifier of sureshot learns, forgets and is calibrated, once.

A concrete estimator says how to learn from rows and how to update what it has learnt; it is thin. Labels that come and
go, and weights and priors of their classes, are here, in terms of the frozen `ClassFitted` that it holds; predictions
are in `sureshot.estimators.classes.answers`, and what has nothing to do with labels is in `sureshot.estimators.base`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import joblib
import numpy as np
import torch

from sureshot.computing.surroundings import undisturbed
from sureshot.estimators.arguments import ByLabel, Labels, Rows, Weights
from sureshot.estimators.classes.answers import Answers, class_probabilities
from sureshot.estimators.classes.calibration import calibrated_temperature
from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.classes.class_labels import announced, class_numbers, extend_classes, kept_classes
from sureshot.estimators.classes.class_prior import adapted_prior, carried_prior, same_prior, usual_prior
from sureshot.estimators.classes.class_prior import class_prior as class_prior_of
from sureshot.estimators.classes.targets import check_targets
from sureshot.estimators.fitted import KEEPS, Fitted, TrainingSet
from sureshot.estimators.rows.labelled_rows import joined_rows, merge_rows, same_rows
from sureshot.estimators.rows.readers import read_labelled
from sureshot.estimators.rows.row_ids import RowsAsTheyCame
from sureshot.estimators.rows.validation import check_unseen
from sureshot.kernels import is_unit_norm
from sureshot.warned import warn


@undisturbed
class IncrementalClassifier(Answers):
    """A classifier that learns classes and rows as they come."""

    class_weight: Any = None  # this and the next of estimators that have no such argument
    class_prior: Any = "support"

    _fitted: Any  # a ClassFitted of the estimator's own kind

    def _first_rows(self, X: Any, y: Any, sample_weight: Any, row_id: Any, unseen: Any = None) -> TrainingSet:
        """What `fit` learns from; of features, `unseen` marks rows that their network was not trained on."""
        with self._listening():
            data = read_labelled(self._reader(), type(self).__name__, None, X, y, sample_weight, check_targets)
        names = self._checked_ids(row_id, len(data.checked), None)
        mask = None if unseen is None else check_unseen(unseen, len(data.checked))[data.counted]
        classes, codes = np.unique(data.targets, return_inverse=True)
        if len(classes) < 2:
            only = "sample_weight is 0 in all rows but those of" if data.weightless else "y has only"
            raise ValueError(
                f"{type(self).__name__} needs at least two classes; {only} one class, "
                f"{classes.tolist()[0]!r}. partial_fit takes one class, and others later."
            )
        if mask is None or mask.all():  # nothing sets any apart
            rows, row_ids = self._merged(data, codes, names)
            return TrainingSet(data.reader, data.columns, classes, rows, data.checked, row_ids=row_ids)
        parts = [merge_rows(data.kept[part], codes[part], data.weight[part]) for part in (~mask, mask)]
        is_unseen = np.repeat([False, True], [len(part.y) for part in parts])
        return TrainingSet(data.reader, data.columns, classes, joined_rows(*parts), data.checked, is_unseen)

    def partial_fit(
        self,
        X: Rows,
        y: Labels,
        classes: Labels | None = None,
        sample_weight: Weights | None = None,
        *,
        row_id: Labels | None = None,
    ) -> Self:
        """Add labelled rows, of known or new classes, and keep the settings.

        The result is that of `fit` on all rows so far with the same settings; `FewShotClassifier` without a checkpoint
        chooses them anew. A column that was constant, and so left out, stays out. The first call is a `fit` that may
        have one class only.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows.
        y : array (n,)
            Labels.
        classes : array, optional
            Further classes to make room for; one without rows predicts from its prior.
        sample_weight : array (n,), optional
            As in `fit`.
        row_id : array (n,), optional
            A row with a known id replaces the row that had it, and removes it if its weight is 0 and that of another is
            not. Without ids, rows that are sent twice count twice.

        Returns
        -------
        self
            With ``classes_`` sorted anew.
        """
        return self._extend(X, y, classes, sample_weight, row_id)

    def _extend(self, X: Any, y: Any, classes: Any, sample_weight: Any, row_id: Any, retune: Any = False) -> Self:
        known: ClassFitted | None = self._fitted if self.__sklearn_is_fitted__() else None
        reader = self._reader() if known is None else known.reader
        columns = None if known is None else known.columns
        with self._listening():
            data = read_labelled(reader, type(self).__name__, columns, X, y, sample_weight, check_targets)
        names = self._checked_ids(row_id, len(data.checked), known)
        arriving = data.targets if classes is None else announced(classes, data.targets)
        grown = extend_classes(None if known is None else known.classes, arriving)
        codes = class_numbers(grown, data.targets)
        if known is None:
            rows, row_ids = self._merged(data, codes, names)
            return self._commit(
                TrainingSet(data.reader, data.columns, grown, rows, data.checked, row_ids=row_ids), None
            )
        reader, new = data.reader, merge_rows(data.kept, codes, data.weight)
        if names is None and known.row_ids is None and self._window is None:
            training = TrainingSet(reader, known.columns, grown, None, None, known=known, came=new, retune=retune)
            return self._commit(training, known)
        rows, row_ids = self._together(known, data, codes, names)
        nothing_new = len(grown) == len(known.classes) and same_rows(known.distinct_rows, rows)
        if names is not None and retune in KEEPS and nothing_new and known.class_arguments == self._class_arguments:
            self._fitted = replace(known, row_ids=row_ids, reader=reader)
            return self
        training = TrainingSet(reader, known.columns, grown, rows, None, row_ids=row_ids, came=new, retune=retune)
        return self._commit(training, known)

    def forget(self, classes: Labels | float | None = None, rows: Labels | float | None = None) -> Self:
        """Remove classes with all their rows, or rows by their ids, as if they had never been seen.

        Settings are kept, but for those of `FewShotClassifier` without a checkpoint, which chooses them anew.

        Parameters
        ----------
        classes : label or array, optional
            Classes to remove.
        rows : id or array, optional
            Ids of rows to remove. A class that loses its last row so stays, and predicts from its prior.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If no row would be left.
        """
        return self._without(classes, rows)

    def _without(self, classes: Any, rows: Any) -> Self:
        known: ClassFitted = self._current()
        if classes is None and rows is None:
            raise ValueError("say what to forget: classes= (labels), or rows= (ids that rows came with).")
        if all(given is None or np.size(given) == 0 for given in (classes, rows)):
            return self
        stays = np.ones(len(known.classes), dtype=bool) if classes is None else kept_classes(known.classes, classes)
        came = RowsAsTheyCame.apart(known.distinct_rows, known.row_ids)
        if rows is not None:
            came = came.without(self._known_ids(rows, known))
        left, row_ids = came.of_classes(stays).merged()
        if not len(left.y):
            what = "every class that has rows" if rows is None else "every row"
            raise ValueError(f"cannot forget {what}: at least one must stay. To start anew, call fit.")
        training = TrainingSet(known.reader, known.columns, known.classes[stays], left, None, row_ids=row_ids)
        return self._commit(training, known)

    def calibrate(self, X: Rows, y: Labels) -> Self:
        """Set the temperature by a calibration set.

        It maximises the log probability of these labels, with a log-normal prior around what leave-one-out predictions
        say (around 1 for an average). The prior counts little beside fifty rows, and keeps five from undoing what was
        learnt. The temperature stays until the next `fit`.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows that were not learnt from.
        y : array (n,)
            Their labels, all of known classes.

        Returns
        -------
        self
        """
        fitted = self._current().settled.uncalibrated
        blocks = self._blocks(fitted, self._kept(fitted, X))
        codes = class_numbers(fitted.classes, check_targets(y, sum(map(len, blocks))))
        temperature = calibrated_temperature(fitted, blocks, codes)
        self._fitted = replace(fitted, temperature=temperature, calibrated=True)
        return self

    def set_class_prior(self, class_prior: ByLabel) -> Self:
        """State how often classes come.

        It stays until the next `fit`. If a new class comes that it does not name, the constructor's ``class_prior``
        holds again, or "support" where it has none, with a warning. `predict_latent`, `outlier_score` and `uncertainty`
        do not depend on it.

        Parameters
        ----------
        class_prior : {"auto", "support", "uniform"}, dict or array (C,)
            As often as in the labelled rows ("support"), equally often, or as stated, by label or in the order of
            ``classes_``. `TreeGPClassifier` counts classes alike, so that "support" is "uniform" there.

        Returns
        -------
        self
        """
        fitted = self._current()
        self._fitted = fitted.with_prior(_prior_of(fitted, class_prior))
        return self

    def adapt_prior(self, X: Rows) -> Self:
        """Learn from unlabelled rows how often classes come.

        Right if the rows of a class look like those that were learnt and no row is of an unknown class.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows without labels.

        Returns
        -------
        self
            With the result as ``class_prior_``; it stays as that of `set_class_prior` does.

        References
        ----------
        Saerens, Latinne & Decaestecker 2002, Adjusting the outputs of a classifier to new a priori probabilities.
        """
        fitted = replace(self._current(), class_prior=None)
        (p,) = self._predict_in_blocks(fitted, X, class_probabilities)
        self._fitted = fitted.with_prior(_prior_of(fitted, adapted_prior(p, fitted.frequencies[fitted.places])))
        return self

    def _take_over(self, fitted: Fitted, changed: bool) -> None:
        self._fitted = replace(fitted, class_arguments="" if changed else self._class_arguments)

    def _has_changed(self, fitted: Fitted) -> bool:
        return fitted.class_arguments != self._class_arguments

    def _commit(self, training: TrainingSet, known: ClassFitted | None) -> Self:
        class_prior_of(self.class_prior, training.classes)  # an error before anything is learnt
        return super()._commit(training, known)

    def _completed(self, found: ClassFitted, known: ClassFitted | None, training: TrainingSet) -> ClassFitted:
        """With a class prior; a temperature that `calibrate` has set stays even if no other setting does."""
        found = super()._completed(found.calibrated_as(known), known, training)
        found = replace(found, class_prior=_prior_of(found, self.class_prior))
        if known is not None and self._has_set_prior(known):
            try:
                found = found.with_prior(carried_prior(known.class_prior, known.classes, found.classes))
            except ValueError:
                warn(_PRIOR_OF_OTHERS)
        return replace(found, class_arguments=self._class_arguments)

    def _has_set_prior(self, known: ClassFitted) -> bool:
        """Whether a fitted model has a prior that is not that of the arguments it was fitted with."""
        if known.class_arguments != self._class_arguments:
            return False
        return not same_prior(_prior_of(known, self.class_prior), known.class_prior)

    @property
    def _class_arguments(self) -> str:
        """A hash of `class_weight` and `class_prior`, which every update takes as they are; it keeps other settings."""
        return str(joblib.hash([self.class_weight, self.class_prior]))


_PRIOR_OF_OTHERS = (
    "the class prior that was set says nothing of some of the classes there are now, and holds no longer: "
    "set it anew (set_class_prior, adapt_prior)."
)


def _prior_of(fitted: ClassFitted, stated: Any) -> np.ndarray | None:
    """The class prior that is stated, for the rows that were learnt; None: their frequencies."""
    return usual_prior(stated, fitted.classes, fitted.frequencies, is_unit_norm(torch.from_numpy(fitted.rows.x)))
