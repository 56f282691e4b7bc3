"""What every estimator of sureshot that learns from rows as they come can do, whatever their targets are.

Everything is in terms of the frozen `Fitted` that it holds: rows are read, asked about in blocks that bound memory, and
given ids; what was learnt is saved, loaded, copied and pickled. A call that fails, at whatever point and for whatever
reason, changes nothing: the next `Fitted` is complete before it takes the place of the last one.
"""

from __future__ import annotations

import copy
import sys
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sureshot.computing.surroundings import own_surroundings, undisturbed
from sureshot.computing.workers import are_workers, each
from sureshot.estimators.arguments import Labels, Rows, Weights, check_count, checked_random_state
from sureshot.estimators.fitted import KEEPS, Fitted, TrainingSet
from sureshot.estimators.fitted_attribute import ColumnNames, FittedAttribute
from sureshot.estimators.rows.labelled_rows import LabelledRows, merge_rows
from sureshot.estimators.rows.readers import LabelledData, Reader
from sureshot.estimators.rows.row_ids import RowIds, RowsAsTheyCame, check_known, check_row_ids
from sureshot.estimators.stored import Format, from_file, to_file
from sureshot.estimators.suggestions import Suggestions, suggestions
from sureshot.persistence import Artifact, ArtifactError, artifact_of, load_artifact, save_artifact
from sureshot.progress import ProgressLines, reported_to

LARGEST_BLOCK = 2048

Predict = Callable[[Any, Tensor], tuple[Tensor, ...]]
"""What is asked of a `Fitted` about queries (Q, D), in tensors (Q, ...)."""


@undisturbed
class IncrementalEstimator(BaseEstimator):
    """An estimator that learns rows as they come."""

    n_features_in_ = FittedAttribute("columns.n_features")
    feature_names_in_ = ColumnNames("columns.names")
    row_ids_ = FittedAttribute("row_ids.names")
    columns_ = FittedAttribute("kinds")
    encoder_ = FittedAttribute("reader.encoder")
    reading_ = FittedAttribute("reader.reading")
    log_evidence_ = FittedAttribute("log_evidence")

    columns: Any
    random_state: Any
    verbose: bool
    _fitted: Any  # a `Fitted` of the estimator's own kind
    _formats: ClassVar[tuple[Format, ...]]

    @abstractmethod
    def _reader(self) -> Reader:
        """What reads the rows of a first fit."""

    @property
    def _window(self) -> float | None:
        """How long rows are kept, in units of their time; None: for ever."""
        return None

    @abstractmethod
    def _learn(self, training: TrainingSet, known: Any, seed: int) -> Any:
        """Learn from labelled rows; what is `known` of other rows, unless that is None, keeps all its settings."""

    def _completed(self, found: Any, known: Any, training: TrainingSet) -> Any:
        """What was learnt, with all that is the same for every kind of model."""
        return replace(found, row_ids=training.row_ids)

    def _commit(self, training: TrainingSet, known: Any) -> Self:
        """Learn with a seed, and take the result over; a random state of the user's moves on only if that succeeds."""
        given = self.random_state
        seed, drawn = self._drawn_seed()
        with self._listening():
            found = self._learn(training, known if training.retune in KEEPS else None, seed)
            found = self._completed(found, known, training)
        self._fitted = found
        if isinstance(given, np.random.RandomState):
            given.set_state(drawn.get_state())
        return self

    def _drawn_seed(self) -> tuple[int, Any]:
        """A seed, and the random state after it was drawn; the user's stays where it is."""
        drawn = copy.deepcopy(self.random_state)
        return 0 if drawn is None else int(checked_random_state(drawn).randint(2**31 - 1)), drawn

    def _merged(
        self, data: LabelledData, targets: np.ndarray, names: np.ndarray | None
    ) -> tuple[LabelledRows, RowIds | None]:
        """The rows of a first call, those that count and are not too old, equal ones as one."""
        window, clock = self._window, data.reader.clock
        if names is None and window is None:
            return merge_rows(data.kept, targets, data.weight), None
        came = as_they_came(data, targets, names)
        return (came if window is None or clock is None else came.latest(clock.place, window)).merged()

    def _together(
        self, known: Fitted, data: LabelledData, targets: np.ndarray, names: np.ndarray | None
    ) -> tuple[LabelledRows, RowIds | None]:
        """Known rows and those that came, in place of those whose ids they have; none that is too old."""
        came, clock, window = as_they_came(data, targets, names), data.reader.clock, self._window
        found = RowsAsTheyCame.apart(known.distinct_rows, known.row_ids).with_rows(came, names, data.reader.arrival)
        return (found if window is None or clock is None else found.latest(clock.place, window)).merged()

    def _checked_ids(self, row_id: Any, n_rows: int, known: Any) -> np.ndarray | None:
        """Ids of rows, where the estimator keeps rows."""
        return None if row_id is None else check_row_ids(row_id, n_rows, None if known is None else known.row_ids)

    def _known_ids(self, rows: Any, known: Any) -> np.ndarray:
        """Ids of rows that the model knows."""
        return check_known(rows, known.row_ids)

    def fit(self, X: Rows, y: Any, sample_weight: Weights | None = None, *, row_id: Labels | None = None) -> Self:
        """Learn from rows with their targets.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows.
        y : array (n,), or (n, P) for P targets of a regressor
            Labels of any sortable type, at least two distinct; of a regressor numbers. Several targets share kernels
            and neighbours, each with its own mean and deviation.
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

    @abstractmethod
    def _first_rows(self, X: Any, y: Any, sample_weight: Any, row_id: Any) -> TrainingSet:
        """What `fit` learns from."""

    def outlier_score(self, X: Rows) -> np.ndarray:
        """Score how unlike all labelled rows each row is.

        The sum of the model's own doubt, noise apart, and of the distance to the labelled rows, each standardised by
        what labelled rows have. It grows without bound along any ray. A precomputed kernel has no distances, and uses
        the model's doubt alone. Pipelines do not forward this method; use
        ``sureshot.pipeline_call(pipeline, "outlier_score", X)``.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.

        Returns
        -------
        ndarray (n,)
            Larger is more unlike.
        """
        fitted = self._current()
        return self._outlier_scores(fitted, self._kept(fitted, X))

    def _outlier_scores(self, fitted: Any, kept: np.ndarray) -> np.ndarray:
        """The same of rows as the reader keeps them."""
        own = self._own_outlier_scores(fitted, kept)
        with torch.no_grad():
            return fitted.outlier_score(kept, own) if fitted.has_distances else own

    @abstractmethod
    def _own_outlier_scores(self, fitted: Any, kept: np.ndarray) -> np.ndarray:
        """Of the model (n,), whatever the distances are."""

    def suggest(self, X: Rows, n: int = 20) -> Suggestions:
        """Choose the rows of a pool whose targets are most worth knowing.

        These lie between two classes; or of their numbers little is known, noise apart. No two of them are alike.
        Label or measure them all, learn, and ask again.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.
        n : int, default=20
            How many; all if there are fewer.

        Returns
        -------
        Suggestions
            ``rows``, places in X, and ``score``: 1 minus the margin between the two classes, or the standard deviation
            without noise on the scale on which numbers are learnt. None that is labelled already (`TreeGPClassifier`
            cannot know), and none twice.
        """
        fitted, n = self._current(), check_count("n", n)
        kept = self._kept(fitted, X)
        return suggestions(fitted, lambda: fitted.outlier_score, kept, self._doubts(fitted, kept), n)

    @abstractmethod
    def _doubts(self, fitted: Any, kept: np.ndarray) -> np.ndarray:
        """How much a target may tell (n,)."""

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file, atomically.

        The format is safetensors with a JSON header. Loading it executes nothing.

        Parameters
        ----------
        path : path
            The file, which is replaced if there is one.
        """
        save_artifact(path, *self._contents(self._current().settled))

    def _contents(self, fitted: Fitted) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
        """What a model file says it holds, its header and its arrays."""
        form = next(form for form in self._formats if isinstance(fitted, form.of))
        return form.kind, *to_file(form, self._arguments, fitted, self._has_changed(fitted))

    def _has_changed(self, fitted: Fitted) -> bool:
        """Whether arguments that every update takes as they are have changed since the fit."""
        return False

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
    def _restored(cls, artifact: Artifact) -> tuple[dict[str, Any], Fitted, bool]:
        """Arguments and fitted value of a file; `ArtifactError` for other arguments than the constructor's."""
        form = next(form for form in cls._formats if form.kind == artifact.kind)
        arguments, fitted, changed = from_file(form, artifact)
        if set(arguments) != set(cls._owner()._get_param_names()) - {"verbose"}:
            raise ArtifactError(
                f"{artifact.path}: the arguments are not those of this version of {cls._owner().__name__}: fit again."
            )
        return arguments, fitted, changed

    def _take_over(self, fitted: Fitted, changed: bool) -> None:
        """What a file held, whose arguments have changed since the fit or not."""
        self._fitted = fitted

    @classmethod
    def _owner(cls) -> type[IncrementalEstimator]:
        """The estimator of ours whose constructor has the arguments, of which a subclass may have fewer."""
        return next(kind for kind in cls.__mro__ if "_formats" in vars(kind))

    @property
    def _arguments(self) -> dict[str, Any]:
        """The constructor's arguments by name, all that learning knows."""
        return {name: getattr(self, name) for name in self._owner()._get_param_names()}

    def _listening(self) -> AbstractContextManager[None]:
        """Where `verbose`, whoever else listens hears nothing: the same is not said twice."""
        return reported_to(ProgressLines(type(self).__name__, sys.stderr)) if self.verbose else nullcontext()

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is something to predict from."""
        return "_fitted" in self.__dict__

    def _current(self) -> Any:
        """What has been learnt: each call asks once, so that another thread may update the estimator meanwhile."""
        check_is_fitted(self)
        return self._fitted.settled

    def _kept(self, fitted: Any, X: Any) -> np.ndarray:
        """Rows as the reader keeps them."""
        checked, _ = fitted.reader.check(type(self).__name__, X, fitted.columns)
        return fitted.reader.keep(checked, fitting=False)

    def _blocks(self, fitted: Any, kept: np.ndarray) -> list[Tensor]:
        """What the kernel sees of rows, in blocks that bound memory."""
        inputs = fitted.predictor.inputs(kept)
        return list(inputs.split(min(LARGEST_BLOCK, max(1, fitted.predictor.queries_at_once))))

    def _predict_in_blocks(self, fitted: Fitted, X: Any, predict: Predict) -> tuple[np.ndarray, ...]:
        """What `predict` gives for every row, as arrays."""
        return self._in_blocks(fitted, self._kept(fitted, X), predict)

    def _in_blocks(self, fitted: Fitted, kept: np.ndarray, predict: Predict) -> tuple[np.ndarray, ...]:
        """The same for rows as the reader keeps them; by workers, where there are any and more than one block."""
        blocks = self._blocks(fitted, kept)
        if len(blocks) > 1 and are_workers():
            model = copy.copy(self)
            model._fitted = fitted
            parts = each(partial(_by_worker, predict), model, [block.cpu().numpy() for block in blocks])
        else:
            parts = [_arrays(predict, fitted, block) for block in blocks]
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))

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


def as_they_came(data: LabelledData, targets: np.ndarray, names: np.ndarray | None) -> RowsAsTheyCame:
    """The rows that count, with their targets, and ids if there are any."""
    rows = LabelledRows(data.kept, targets, data.weight)
    return RowsAsTheyCame.of(rows, None if names is None else names[data.counted])


def _arrays(predict: Predict, fitted: Any, queries: Tensor) -> tuple[np.ndarray, ...]:
    with torch.no_grad():
        return tuple(part.contiguous().cpu().numpy() for part in predict(fitted, queries))


def _by_worker(predict: Predict, model: IncrementalEstimator, queries: np.ndarray) -> tuple[np.ndarray, ...]:
    with own_surroundings():
        return _arrays(predict, model._fitted, torch.tensor(queries))
