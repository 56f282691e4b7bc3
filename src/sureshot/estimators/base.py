"""How every incremental classifier of sureshot learns, forgets, is calibrated and saved, once.

A concrete estimator says how to learn from rows and how to update what it has learnt; it is thin. Everything else,
checks, labels that come and go, weights, model files, is here, in terms of the frozen `ClassFitted` that it holds;
predictions are in `sureshot.estimators.classes.answers`. A call that fails, at whatever point and for whatever reason,
changes nothing: the next `Fitted` is complete before it takes the place of the last one.
"""

from __future__ import annotations

import copy
import sys
from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Self

import joblib
import numpy as np
import torch
from sklearn.utils import check_random_state

from sureshot.computing.surroundings import undisturbed
from sureshot.estimators.arguments import ByLabel, Labels, Rows, Weights
from sureshot.estimators.classes.answers import Answers, class_probabilities
from sureshot.estimators.classes.calibration import calibrated_temperature
from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.classes.class_labels import announced, class_numbers, extend_classes, kept_classes
from sureshot.estimators.classes.class_prior import adapted_prior, carried_prior, same_prior, usual_prior
from sureshot.estimators.classes.class_prior import class_prior as class_prior_of
from sureshot.estimators.classes.targets import LabelledData, check_targets, read_labelled
from sureshot.estimators.fitted import KEEPS, TrainingSet
from sureshot.estimators.rows.labelled_rows import LabelledRows, joined_rows, merge_rows, same_rows
from sureshot.estimators.rows.readers import Reader
from sureshot.estimators.rows.row_ids import RowIds, RowsAsTheyCame, check_known, check_row_ids
from sureshot.estimators.rows.validation import check_unseen
from sureshot.estimators.stored import Format, from_file, to_file
from sureshot.kernels import is_unit_norm
from sureshot.persistence import Artifact, ArtifactError, artifact_of, load_artifact, save_artifact
from sureshot.progress import ProgressLines, reported_to
from sureshot.warned import warn


@undisturbed
class IncrementalClassifier(Answers):
    """A classifier that learns classes and rows as they come."""

    columns: Any
    random_state: Any
    verbose: bool
    class_weight: Any = None  # this and the next of estimators that have no such argument
    class_prior: Any = "support"
    _formats: ClassVar[tuple[Format, ...]]

    @abstractmethod
    def _reader(self) -> Reader:
        """What reads the rows of a first fit."""

    @property
    def _window(self) -> float | None:
        """How long rows are kept, in units of their time; None: for ever."""
        return None

    @abstractmethod
    def _learn(self, training: TrainingSet, known: Any, seed: int) -> ClassFitted:
        """Learn from labelled rows; what is `known` of other rows, unless that is None, keeps all its settings."""

    def fit(self, X: Rows, y: Labels, sample_weight: Weights | None = None, *, row_id: Labels | None = None) -> Self:
        """Learn from labelled rows.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows.
        y : array (n,)
            Labels of any sortable type, at least two distinct.
        sample_weight : array (n,), optional
            A weight of 2 equals two copies of the row, 0 equals leaving it out (its cells must still be readable).
            Whole numbers where posteriors are sampled.
        row_id : array (n,), optional
            Text or whole numbers, all different, by which `partial_fit` replaces rows and `forget` removes them later.

        Returns
        -------
        self
        """
        return self._commit(self._first_rows(X, y, sample_weight, row_id), None)

    def _first_rows(self, X: Any, y: Any, sample_weight: Any, row_id: Any, unseen: Any = None) -> TrainingSet:
        """What `fit` learns from; of features, `unseen` marks rows that their network was not trained on."""
        with self._listening():
            data = read_labelled(self._reader(), type(self).__name__, None, X, y, sample_weight)
        names = self._checked_ids(row_id, len(data.checked), None)
        mask = None if unseen is None else check_unseen(unseen, len(data.checked))[data.counted]
        classes, codes = np.unique(data.labels, return_inverse=True)
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
            data = read_labelled(reader, type(self).__name__, columns, X, y, sample_weight)
        names = self._checked_ids(row_id, len(data.checked), known)
        arriving = data.labels if classes is None else announced(classes, data.labels)
        grown = extend_classes(None if known is None else known.classes, arriving)
        codes = class_numbers(grown, data.labels)
        if known is None:
            rows, row_ids = self._merged(data, codes, names)
            return self._commit(
                TrainingSet(data.reader, data.columns, grown, rows, data.checked, row_ids=row_ids), None
            )
        reader, clock, window = data.reader, data.reader.clock, self._window
        new = merge_rows(data.kept, codes, data.weight)
        if names is None and known.row_ids is None and window is None:
            training = TrainingSet(reader, known.columns, grown, None, None, known=known, came=new, retune=retune)
            return self._commit(training, known)
        came, before = _as_they_came(data, codes, names), known.distinct_rows
        together = RowsAsTheyCame.apart(before, known.row_ids).with_rows(came, names, reader.arrival)
        if window is not None and clock is not None:
            together = together.latest(clock.place, window)
        rows, row_ids = together.merged()
        nothing_new = len(grown) == len(known.classes) and same_rows(before, rows)
        if names is not None and retune in KEEPS and nothing_new and known.class_arguments == self._class_arguments:
            self._fitted = replace(known, row_ids=row_ids, reader=reader)
            return self
        training = TrainingSet(reader, known.columns, grown, rows, None, row_ids=row_ids, came=new, retune=retune)
        return self._commit(training, known)

    def _merged(
        self, data: LabelledData, codes: np.ndarray, names: np.ndarray | None
    ) -> tuple[LabelledRows, RowIds | None]:
        """The rows of a first call, those that count and are not too old, equal ones as one."""
        window, clock = self._window, data.reader.clock
        if names is None and window is None:
            return merge_rows(data.kept, codes, data.weight), None
        came = _as_they_came(data, codes, names)
        return (came if window is None or clock is None else came.latest(clock.place, window)).merged()

    def _checked_ids(self, row_id: Any, n_rows: int, known: ClassFitted | None) -> np.ndarray | None:
        """Ids of rows, where the estimator keeps rows."""
        return None if row_id is None else check_row_ids(row_id, n_rows, None if known is None else known.row_ids)

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

    def _known_ids(self, rows: Any, known: ClassFitted) -> np.ndarray:
        """Ids of rows that the model knows."""
        return check_known(rows, known.row_ids)

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

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file, atomically.

        The format is safetensors with a JSON header. Loading it executes nothing.

        Parameters
        ----------
        path : path
            The file, which is replaced if there is one.
        """
        save_artifact(path, *self._contents(self._current().settled))

    def _contents(self, fitted: ClassFitted) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
        """What a model file says it holds, its header and its arrays."""
        form = next(form for form in self._formats if isinstance(fitted, form.of))
        return form.kind, *to_file(form, self._arguments, fitted, fitted.class_arguments != self._class_arguments)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote.

        Parameters
        ----------
        path : path
            The file.

        Returns
        -------
        estimator
            Its predictions are equal to the last bit.

        Raises
        ------
        ArtifactError
            If the file is damaged, or another kind of model.
        """
        return cls.of_artifact(load_artifact(path, *(form.kind for form in cls._formats)))

    @classmethod
    def of_artifact(cls, artifact: Artifact) -> Self:
        """Restore a model from a file that has been read.

        Parameters
        ----------
        artifact : Artifact
            The contents of the file (`sureshot.persistence.load_artifact`).

        Returns
        -------
        estimator
        """
        model = cls.__new__(cls)
        arguments, fitted, changed = cls._restored(artifact)
        for name, argument in {**signature(cls).parameters, **signature(cls._owner()).parameters}.items():
            setattr(model, name, arguments.get(name, argument.default))
        model._take_over(fitted, changed)
        return model

    @classmethod
    def _restored(cls, artifact: Artifact) -> tuple[dict[str, Any], ClassFitted, bool]:
        """Arguments and fitted value of a file; `ArtifactError` for other arguments than the constructor's."""
        form = next(form for form in cls._formats if form.kind == artifact.kind)
        arguments, fitted, changed = from_file(form, artifact)
        if set(arguments) != set(cls._owner()._get_param_names()) - {"verbose"}:
            raise ArtifactError(
                f"{artifact.path}: the arguments are not those of this version of {cls._owner().__name__}: fit again."
            )
        return arguments, fitted, changed

    def _take_over(self, fitted: ClassFitted, changed: bool) -> None:
        self._fitted = replace(fitted, class_arguments="" if changed else self._class_arguments)

    @classmethod
    def _owner(cls) -> type[IncrementalClassifier]:
        """The estimator of ours whose constructor has the arguments, of which a subclass may have fewer."""
        return next(kind for kind in cls.__mro__ if "_formats" in vars(kind))

    @property
    def _arguments(self) -> dict[str, Any]:
        """The constructor's arguments by name, all that learning knows."""
        return {name: getattr(self, name) for name in self._owner()._get_param_names()}

    def _commit(self, training: TrainingSet, known: ClassFitted | None) -> Self:
        """Learn with a seed, and take the result over; a random state of the user's moves on only if that succeeds.

        A temperature that `calibrate` has set stays even if no other setting does.
        """
        given = self.random_state
        drawn = copy.deepcopy(given) if isinstance(given, np.random.RandomState) else given
        seed = 0 if drawn is None else int(_random_state(drawn).randint(2**31 - 1))
        class_prior_of(self.class_prior, training.classes)  # an error before anything is learnt
        with self._listening():
            found = self._learn(training, known if training.retune in KEEPS else None, seed).calibrated_as(known)
        found = replace(found, class_prior=_prior_of(found, self.class_prior), row_ids=training.row_ids)
        if known is not None and self._has_set_prior(known):
            try:
                found = found.with_prior(carried_prior(known.class_prior, known.classes, found.classes))
            except ValueError:
                warn(_PRIOR_OF_OTHERS)
        self._fitted = replace(found, class_arguments=self._class_arguments)
        if isinstance(given, np.random.RandomState):
            given.set_state(drawn.get_state())
        return self

    def _has_set_prior(self, known: ClassFitted) -> bool:
        """Whether a fitted model has a prior that is not that of the arguments it was fitted with."""
        if known.class_arguments != self._class_arguments:
            return False
        return not same_prior(_prior_of(known, self.class_prior), known.class_prior)

    @property
    def _class_arguments(self) -> str:
        """A hash of `class_weight` and `class_prior`, which every update takes as they are; it keeps other settings."""
        return str(joblib.hash([self.class_weight, self.class_prior]))

    def _listening(self) -> AbstractContextManager[None]:
        """Where `verbose`, whoever else listens hears nothing: the same is not said twice."""
        return reported_to(ProgressLines(type(self).__name__, sys.stderr)) if self.verbose else nullcontext()

    def __getstate__(self) -> Any:
        """What is pickled: beside the arguments what a model file holds, so that equal fits are equal bytes.

        As `joblib.hash` asks for; whatever has been computed for who asked is left out. What no file can hold, such as
        a model of a precomputed kernel, is pickled as it is. What an update has put off is done first.
        """
        state = super().__getstate__()
        if "_fitted" not in state:
            return state
        fitted = self._fitted.settled
        try:
            return state | {"_fitted": artifact_of(*self._contents(fitted))}
        except (TypeError, ValueError):
            return state | {"_fitted": fitted}

    def __setstate__(self, state: Any) -> None:
        """As it was pickled; on the processor, wherever it was."""
        super().__setstate__(state)
        if isinstance(stored := self.__dict__.get("_fitted"), Artifact):
            _, fitted, changed = self._restored(stored)
            self._take_over(fitted, changed)

    def __copy__(self) -> Self:
        """The same arguments, and what was learnt, which is a value."""
        found = type(self).__new__(type(self))
        found.__dict__.update(self.__dict__)
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Arguments of its own; what was learnt never changes, and both may hold it."""
        found = copy.copy(self)
        memo[id(self)] = found
        arguments = {name: value for name, value in self.__dict__.items() if name != "_fitted"}
        found.__dict__.update(copy.deepcopy(arguments, memo))
        return found


_PRIOR_OF_OTHERS = (
    "the class prior that was set says nothing of some of the classes there are now, and holds no longer: "
    "set it anew (set_class_prior, adapt_prior)."
)


def _as_they_came(data: LabelledData, codes: np.ndarray, names: np.ndarray | None) -> RowsAsTheyCame:
    """The rows that count, with class numbers and ids if there are any."""
    rows = LabelledRows(data.kept, codes, data.weight)
    return RowsAsTheyCame.of(rows, None if names is None else names[data.counted])


def _random_state(given: Any) -> np.random.RandomState:
    try:
        return check_random_state(given)
    except ValueError as error:
        raise ValueError(
            "random_state must be None, a whole number from 0 to 4294967295 or a numpy.random.RandomState; "
            f"got {given!r}. Of a Generator take a number: int(generator.integers(2**32))."
        ) from error


def _prior_of(fitted: ClassFitted, stated: Any) -> np.ndarray | None:
    """The class prior that is stated, for the rows that were learnt; None: their frequencies."""
    return usual_prior(stated, fitted.classes, fitted.frequencies, is_unit_norm(torch.from_numpy(fitted.rows.x)))
