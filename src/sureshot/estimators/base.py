"""What every incremental classifier of sureshot does, once.

A concrete estimator says how to learn from rows and how to update what it has learnt; it is thin. Everything else,
checks, labels that come and go, weights, blocks of queries, calibration, model files, is here, in terms of the frozen
`Fitted` that it holds. A call that fails, at whatever point and for whatever reason, changes nothing: the next `Fitted`
is complete before it takes the place of the last one.
"""

from __future__ import annotations

import copy
import math
import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sureshot.estimators.arguments import ByLabel, Labels, Rows, Weights
from sureshot.estimators.class_labels import check_kind, class_numbers, extend_classes, kept_classes
from sureshot.estimators.class_prior import adapted_prior, prior_of_few
from sureshot.estimators.class_prior import class_prior as class_prior_of
from sureshot.estimators.decisions import LabelSets, check_share, unknown_label, with_unknown
from sureshot.estimators.fitted import Fitted, Format, TrainingSet
from sureshot.estimators.influence import Influence, influence_on
from sureshot.estimators.left_out import ROUNDING
from sureshot.estimators.readers import LabelledData, Reader, read_labelled
from sureshot.estimators.row_ids import RowIds, RowsAsTheyCame, check_known, check_row_ids
from sureshot.estimators.row_ids_format import ids_from_file, ids_to_file
from sureshot.estimators.settings import check_count
from sureshot.estimators.stored_rows import kinds_from_json, kinds_to_json
from sureshot.estimators.suggestions import Suggestions, suggestions
from sureshot.estimators.validation import LabelledRows, check_targets, check_unseen, joined_rows, merge_rows, same_rows
from sureshot.kernels import is_unit_norm
from sureshot.persistence import Artifact, ArtifactError, load_artifact, save_artifact
from sureshot.progress import ProgressLines, reported_to

LARGEST_BLOCK = 2048
SPREAD_OF_TEMPERATURES = 2.0  # standard deviation of their logarithms, before `calibrate` has seen a row
MAX_CACHED_MOMENTS = 2**27  # numbers that `calibrate` keeps, 1 GB; the others it computes for every temperature


@dataclass(frozen=True)
class LatentPrediction:
    """Marginal moments of the latents at queries, a column for each class in the order of ``classes_``."""

    mean: np.ndarray  # (n, C)
    variance: np.ndarray  # (n, C)


@dataclass(frozen=True)
class Uncertainty:
    """Predictive entropy in nats and what it is made of, each (n,)."""

    total: np.ndarray  # entropy of the mean class probabilities
    aleatoric: np.ndarray  # mean entropy over the posterior: what more data would not remove
    epistemic: np.ndarray  # the difference, the mutual information of label and latents: what more data would remove


@dataclass(frozen=True)
class TopClasses:
    """The most probable classes of rows, first the most probable."""

    labels: np.ndarray  # (n, k)
    probabilities: np.ndarray  # (n, k)


class FittedAttribute:
    """An attribute of an estimator that is there once it is fitted: one of its `Fitted`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, estimator: Any, owner: type) -> Any:
        if estimator is None:
            return self
        value = estimator.__dict__.get("_fitted")
        for part in self.path.split("."):
            value = None if value is None else getattr(value, part)
        if value is None:
            raise AttributeError(f"{owner.__name__} has no {self.name} (yet); fit() gives it to an estimator.")
        return value

    def __set__(self, estimator: Any, value: Any) -> None:
        raise AttributeError(f"{self.name} is learnt and cannot be set: fit() and calibrate() do that.")


class IncrementalClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that learns classes and rows as they come."""

    classes_ = FittedAttribute("classes")
    class_prior_ = FittedAttribute("prior")
    temperature_ = FittedAttribute("settled.temperature")
    log_evidence_ = FittedAttribute("settled.log_evidence")
    has_rows_ = FittedAttribute("has_rows")  # whether the labelled rows are there, which a compact file leaves out
    n_features_in_ = FittedAttribute("columns.n_features")
    feature_names_in_ = FittedAttribute("columns.names")
    row_ids_ = FittedAttribute("row_ids.names")
    columns_ = FittedAttribute("kinds")

    columns: Any
    random_state: Any
    verbose: bool
    _fitted: Any  # a Fitted of the estimator's own kind
    _format: ClassVar[Format]

    @abstractmethod
    def _reader(self) -> Reader:
        """What reads the rows of a first fit."""

    @abstractmethod
    def _learn(self, training: TrainingSet, known: Any, seed: int) -> Fitted:
        """Learn from labelled rows; what is `known` of other rows, unless that is None, keeps all its settings."""

    def fit(self, X: Rows, y: Labels, sample_weight: Weights | None = None, *, row_id: Labels | None = None) -> Self:
        """Learn from labelled rows: X (n, D) with labels y (n,) of any sortable type, at least two distinct.

        A sample weight of 2 equals two copies of the row; 0 equals leaving it out. Whole numbers where posteriors are
        sampled. `row_id` (n,), text or whole numbers, each once, names rows for corrections: `partial_fit` replaces
        and `forget` removes the rows that have ids (docs/corrections.md).
        """
        return self._commit(self._first_rows(X, y, sample_weight, row_id), None)

    def _first_rows(self, X: Any, y: Any, sample_weight: Any, row_id: Any, unseen: Any = None) -> TrainingSet:
        """What `fit` learns from; of features, `unseen` says of each row if their network was not trained on it."""
        with self._listening():
            data = read_labelled(self._reader(), type(self).__name__, None, X, y, sample_weight)
        names = self._checked_ids(row_id, len(data.checked), None)
        mask = None if unseen is None else check_unseen(unseen, len(data.checked))[data.counted]
        classes, codes = np.unique(data.labels, return_inverse=True)
        if len(classes) < 2:
            only = "sample_weight is 0 in all rows but those of" if data.weightless else "y has only"
            raise ValueError(
                f"{type(self).__name__} needs at least two classes to tell apart; {only} one class, "
                f"{classes.tolist()[0]!r}. partial_fit takes one class, and others later."
            )
        if mask is None or mask.all():  # nothing sets any apart
            rows, row_ids = _merged(data, codes, names)
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
        """Add labelled rows, of old or new classes: the result is that of `fit` on all rows so far, settings kept.

        A first call is a `fit` that may have one class only. `classes` are further ones to make room for; a class
        without rows predicts from its prior. New classes are appended to ``classes_``; old columns never move.

        A row whose id (`row_id`) is known takes the place of the row that had it; one of weight 0, beside others that
        count, removes it. So a call that is repeated changes nothing. Without ids rows that are sent twice count twice.
        """
        return self._extend(X, y, classes, sample_weight, row_id)

    def _extend(
        self, X: Any, y: Any, classes: Any, sample_weight: Any, row_id: Any, keep_settings: bool = True
    ) -> Self:
        known: Fitted | None = self._fitted if self.__sklearn_is_fitted__() else None
        if known is not None:
            _check_rows(known, "partial_fit")
        reader = self._reader() if known is None else known.reader
        columns = None if known is None else known.columns
        with self._listening():
            data = read_labelled(reader, type(self).__name__, columns, X, y, sample_weight)
        names = self._checked_ids(row_id, len(data.checked), known)
        arriving = [data.labels] if classes is None else [np.ravel(classes), data.labels]
        grown = extend_classes(None if known is None else known.classes, np.concatenate(arriving))
        codes = class_numbers(grown, data.labels)
        if known is None:
            rows, row_ids = _merged(data, codes, names)
            return self._commit(
                TrainingSet(data.reader, data.columns, grown, rows, data.checked, row_ids=row_ids), None
            )
        came, before = _as_they_came(data, codes, names), known.distinct_rows
        rows, row_ids = RowsAsTheyCame.apart(before, known.row_ids).with_rows(came, names).merged()
        if names is not None and keep_settings and len(grown) == len(known.classes) and same_rows(before, rows):
            self._fitted = replace(known, row_ids=row_ids)
            return self
        training = TrainingSet(reader, known.columns, grown, rows, None, row_ids=row_ids)
        return self._commit(training, known if keep_settings else None)

    def _checked_ids(self, row_id: Any, n_rows: int, known: Fitted | None) -> np.ndarray | None:
        """Ids of rows, where the estimator keeps rows."""
        return None if row_id is None else check_row_ids(row_id, n_rows, None if known is None else known.row_ids)

    def forget(self, classes: Labels | float | None = None, rows: Labels | float | None = None) -> Self:
        """Remove classes with all their rows, and rows by their ids; the others are as if these had never been seen.

        Settings are kept. A class that has lost its last row in this way stays, and predicts from its prior. At least
        one row must stay.
        """
        return self._without(classes, rows)

    def _without(self, classes: Any, rows: Any) -> Self:
        known: Fitted = self._with_its_rows("forget")
        if classes is None and rows is None:
            raise ValueError("say what to forget: classes= (labels), or rows= (ids that rows came with).")
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

    def _known_ids(self, rows: Any, known: Fitted) -> np.ndarray:
        """Ids of rows that the model knows."""
        return check_known(rows, known.row_ids)

    def calibrate(self, X: Rows, y: Labels) -> Self:
        """Set the temperature to the one that predicts these held-out labels best (by log probability).

        Kept until the next `fit`. Labels that the model does not know are an error. Beforehand temperatures are
        log-normal around 1, within a factor of seven or so: what counts little beside a hundred rows, and keeps five
        that are named right from making all others certain.
        """
        fitted = self._current()
        blocks = self._blocks(fitted, self._kept(fitted, X))
        codes = class_numbers(fitted.classes, check_targets(y, sum(map(len, blocks))))
        with torch.no_grad():
            kept = _cached_moments(MAX_CACHED_MOMENTS, fitted, blocks)

            def loss(log_temperature: float) -> float:
                parts = [
                    fitted.answers(fitted.moments(block) if known is None else known, math.exp(log_temperature))
                    for block, known in zip(blocks, kept, strict=True)
                ]
                chosen = torch.cat(parts).cpu().numpy()[np.arange(len(codes)), codes]
                beforehand = 0.5 * (log_temperature / SPREAD_OF_TEMPERATURES) ** 2
                return -float(np.log(np.maximum(chosen, 1e-300)).mean()) + beforehand / len(codes)

            found = minimize_scalar(loss, bounds=(-6.0, 6.0), method="bounded", options={"xatol": 1e-4})
        self._fitted = replace(fitted, temperature=math.exp(found.x), calibrated=True)
        return self

    def set_class_prior(self, class_prior: ByLabel) -> Self:
        """Say how often classes come: "auto", "support" (as in the labelled rows), "uniform", a dict, or an array.

        An array has the order of ``classes_``. Kept until rows are learnt or forgotten; `predict_latent`,
        `outlier_score` and `uncertainty` do not depend on it.
        """
        auto = isinstance(class_prior, str) and class_prior == "auto"
        fitted = self._with_its_rows("class_prior='auto'") if auto else self._current()
        self._fitted = _with_prior(fitted, class_prior, class_prior_of(class_prior, fitted.classes), fitted.row_ids)
        return self

    def adapt_prior(self, X: Rows) -> Self:
        """Learn from unlabelled rows how often classes come (Saerens, Latinne & Decaestecker 2002).

        Right where rows of a class look like those that were learnt, wherever they come from, and none are of unknown
        classes. As `set_class_prior`; the result is ``class_prior_``.
        """
        fitted = replace(self._current(), class_prior=None)
        (p,) = self._predict_in_blocks(fitted, X, _probabilities)
        self._fitted = replace(fitted, class_prior=adapted_prior(p, fitted.frequencies))
        return self

    def predict(self, X: Rows) -> np.ndarray:
        """The most probable class of each row, (n,)."""
        fitted = self._current()
        return fitted.classes[self._predict_in_blocks(fitted, X, _probabilities)[0].argmax(axis=1)]

    def predict_proba(self, X: Rows) -> np.ndarray:
        """Class probabilities (n, C), columns in the order of ``classes_``; deterministic."""
        (found,) = self._predict_in_blocks(self._current(), X, _probabilities)
        return found / found.sum(axis=1, keepdims=True)

    def score(self, X: Rows, y: Labels, sample_weight: Weights | None = None) -> float:
        """How many of the labels are the most probable class; labels of another type than the model's are an error."""
        check_kind(self._current().classes, np.asarray(y))
        return float(super().score(X, y, sample_weight))

    def predict_log_proba(self, X: Rows) -> np.ndarray:
        """Log class probabilities (n, C)."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))

    def predict_topk(self, X: Rows, k: int = 5) -> TopClasses:
        """The k most probable classes of each row, or all if there are fewer."""
        k, p = check_count("k", k), self.predict_proba(X)
        order = np.argsort(-p, axis=1, kind="stable")[:, :k]
        return TopClasses(self.classes_[order], np.take_along_axis(p, order, 1))

    def decision_function(self, X: Rows) -> np.ndarray:
        """Log probabilities (n, C); of two classes how much larger that of the second is, (n,)."""
        found = self.predict_log_proba(X)
        return found[:, 1] - found[:, 0] if found.shape[1] == 2 else found

    def predict_latent(self, X: Rows) -> LatentPrediction:
        """Marginal posterior moments of the latents, each (n, C); for samplers, of the mixture of chains.

        Two classes may share one latent f; it is given as -f/2 and f/2. Learners that are no Gaussian processes give
        their scores, with variance 0 (a class without rows: minus infinity).
        """
        return LatentPrediction(
            *self._predict_in_blocks(self._current(), X, lambda fitted, queries: fitted.latents(queries))
        )

    def outlier_score(self, X: Rows) -> np.ndarray:
        """How little each row is like any known class (n,); larger is less like any.

        The sum of what the model says and of how far the row is from the labelled rows, each in deviations of what
        labelled rows have (`sureshot.estimators.outliers`); it grows without bound along any ray. A precomputed kernel
        knows no distances: there it is what the model says.

        A pipeline does not forward this method: ``sureshot.pipeline_call(pipeline, "outlier_score", X)`` does.
        """
        return self._outlier_scores(self._with_its_rows("outlier_score"), X)

    def novelty_p_value(self, X: Rows) -> np.ndarray:
        """Conformal p-value of "one of the known classes" for each row, (n,); small for rows of no known class.

        The share of labelled rows whose `outlier_score`, each left out of its own, is as large. Rejecting p-values up
        to 0.05 rejects about 5 % of rows that are like the labelled ones; no row is held out. The smallest p-value of n
        labelled rows is 1 / (n + 1). Rows that are alone in their class do not count, unless all are: then p-values
        are too large, as what is left out looks like a class that is not known. ValueError for `TreeGPClassifier`,
        which keeps no rows.
        """
        fitted = self._with_its_rows("novelty_p_value")
        return fitted.usual_outliers.p_values(self._outlier_scores(fitted, X))

    def predict_or_reject(self, X: Rows, false_alarm: float = 0.05, unknown: Any = None) -> np.ndarray:
        """The class of each row, or `unknown` for rows that are of none of the known classes, (n,).

        `false_alarm` is the share of rows of known classes that may be rejected: those whose `novelty_p_value` is no
        larger are. `unknown` is "unknown" where labels are text; elsewhere say what it is, -1 for instance. It must be
        no known class. A warning says so if there are too few labelled rows to reject any.
        """
        false_alarm, fitted = check_share("false_alarm", false_alarm), self._with_its_rows("predict_or_reject")
        unknown = unknown_label(unknown, fitted.classes)
        scores, usual = self._outlier_scores(fitted, X), fitted.usual_outliers
        if usual.smallest > false_alarm + ROUNDING:
            warnings.warn(
                f"nothing is rejected at false_alarm={false_alarm:g}: {usual.n_rows:g} labelled rows tell p-values "
                f"down to {usual.smallest:.3g} only. Take a larger false_alarm, or label more rows.",
                stacklevel=2,
            )
        (p,) = self._predict_in_blocks(fitted, X, _probabilities)
        return with_unknown(fitted.classes[p.argmax(axis=1)], usual.p_values(scores) <= false_alarm + ROUNDING, unknown)

    def predict_set(self, X: Rows, coverage: float = 0.9, allow_empty: bool = False) -> LabelSets:
        """A set of labels for each row that holds the true one for a share `coverage` of rows.

        Conformal: classes whose probability is as large as that of a left-out row's own class is that often; no row is
        held out. The share is that of all rows to come together, not of each class. The most probable class is in every
        set, so that a model which is right more often covers more; `allow_empty` leaves it out where no class is
        probable enough, which keeps to the share. With fewer than ``coverage / (1 - coverage)`` labelled rows every
        class is in. Rows that are alone in their class do not count, unless all are. ValueError for
        `TreeGPClassifier`, which keeps no rows.
        """
        coverage, fitted = check_share("coverage", coverage), self._with_its_rows("predict_set")
        (p,) = self._predict_in_blocks(fitted, X, _probabilities)
        members = fitted.usual_labels.p_values(-p) > 1 - coverage + ROUNDING
        if not allow_empty:
            members[np.arange(len(p)), p.argmax(axis=1)] = True
        return LabelSets(members, fitted.classes)

    def uncertainty(self, X: Rows) -> Uncertainty:
        """Total, aleatoric and epistemic uncertainty of each row, in nats, over the whole posterior.

        The total is that of the posterior's mean probabilities: more than the entropy of `predict_proba`, if the
        predictive rule is a surer one. Learners that are no Gaussian processes know no epistemic uncertainty.
        """

        def entropies(fitted: Fitted, queries: Tensor) -> tuple[Tensor, ...]:
            return fitted.entropies(queries, fitted.temperature)

        total, aleatoric = self._predict_in_blocks(self._current(), X, entropies)
        return Uncertainty(total, aleatoric, np.maximum(total - aleatoric, 0))

    def suggest(self, X: Rows, n: int = 20) -> Suggestions:
        """The n rows of a pool X that are most worth a label, or all if there are fewer.

        Rows between two classes, no two of them alike (`sureshot.estimators.suggestions`); none that is labelled
        already, and none twice. Labels for all of them at once: after each batch learn, and ask again.
        """
        fitted, n = self._with_its_rows("suggest"), check_count("n", n)
        kept = self._kept(fitted, X)
        (p,) = self._in_blocks(fitted, kept, _probabilities)
        return suggestions(fitted, kept, p / p.sum(axis=1, keepdims=True), n)

    def influence(self, X: Rows, n: int = 5) -> Influence:
        """The n labelled rows that drove each answer: shares of the latent difference of the two most probable classes.

        Rows are named by their ids, if they came with any (`row_id`). A ValueError refuses models that are no Gaussian
        processes, or keep no rows.
        """
        fitted = self._with_its_rows("influence")
        return influence_on(fitted, self._kept(fitted, X), check_count("n", n))

    def save(self, path: str | Path, compact: bool = False) -> None:
        """Write the fitted model as safetensors with a JSON header; atomic, and loading executes nothing.

        A `compact` file holds no labelled rows: the model predicts as before, and refuses what needs them, such as
        `partial_fit`, `forget` and `outlier_score`. Exact models of kernels without explicit features predict by the
        rows as their kernel sees them, which stay. Of `GPClassifier` only: the others predict from labelled rows.
        """
        fitted, write = self._current(), self._format.write
        if compact:
            if self._format.write_compact is None:
                raise ArtifactError(
                    f"{type(self).__name__} cannot be saved compact: it predicts from its labelled rows. Leave compact "
                    "out; GPClassifier has compact files."
                )
            write = self._format.write_compact
        header, arrays = write(self.get_params(deep=False), fitted)
        prior = None if fitted.class_prior is None else fitted.class_prior.tolist()
        names, of_rows = ids_to_file(None if compact else fitted.row_ids)
        further = {"class_prior": prior, "row_ids": names, "columns": kinds_to_json(self.columns)}
        save_artifact(path, self._format.kind, header | further, {**arrays, **of_rows})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote; predictions are equal to the last bit, of compact files to rounding."""
        return cls.of_artifact(load_artifact(path, cls._format.kind))

    @classmethod
    def of_artifact(cls, artifact: Artifact) -> Self:
        """The model in a file that has been read."""
        parameters, fitted = cls._format.read(artifact)
        model = cls(**parameters, columns=kinds_from_json(artifact))
        try:
            prior = class_prior_of(artifact.header.get("class_prior") or "support", fitted.classes)
        except ValueError as error:
            raise ArtifactError(f"{artifact.path}: malformed class prior; save the model again.") from error
        model._fitted = replace(fitted, class_prior=prior, row_ids=ids_from_file(artifact, fitted.distinct_rows))
        return model

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is something to predict from."""
        return "_fitted" in self.__dict__

    def _commit(self, training: TrainingSet, known: Fitted | None) -> Self:
        """Learn with a seed, and take the result over; a random state of the user's moves on only if that succeeds."""
        given = self.random_state
        drawn = copy.deepcopy(given) if isinstance(given, np.random.RandomState) else given
        seed = 0 if drawn is None else int(_random_state(drawn).randint(2**31 - 1))
        stated = getattr(self, "class_prior", "support")
        prior = class_prior_of(stated, training.classes)
        with self._listening():
            found = self._learn(training, known, seed)
        self._fitted = _with_prior(found, stated, prior, training.row_ids)
        if isinstance(given, np.random.RandomState):
            given.set_state(drawn.get_state())
        return self

    def _listening(self) -> AbstractContextManager[None]:
        """Where `verbose`, whoever else listens hears nothing: the same is not said twice."""
        return reported_to(ProgressLines(type(self).__name__, sys.stderr)) if self.verbose else nullcontext()

    def _current(self) -> Any:
        """What has been learnt: each call asks once, so that another thread may update the estimator meanwhile."""
        check_is_fitted(self)
        return self._fitted.settled

    def __getstate__(self) -> Any:
        """What is pickled and copied: what an update has put off is done first."""
        state = super().__getstate__()
        return state | {"_fitted": self._fitted.settled} if "_fitted" in state else state

    def _with_its_rows(self, method: str) -> Any:
        """What has been learnt, for a method that needs the labelled rows."""
        fitted = self._current()
        _check_rows(fitted, method)
        return fitted

    def _kept(self, fitted: Fitted, X: Any) -> np.ndarray:
        """Rows as the reader keeps them."""
        checked, _ = fitted.reader.check(type(self).__name__, X, fitted.columns)
        return fitted.reader.keep(checked, fitting=False)

    def _blocks(self, fitted: Fitted, kept: np.ndarray) -> list[Tensor]:
        """What the kernel sees of rows, in blocks that bound memory."""
        inputs = fitted.inputs(kept)
        return list(inputs.split(min(LARGEST_BLOCK, max(1, fitted.queries_at_once))))

    def _outlier_scores(self, fitted: Fitted, X: Any) -> np.ndarray:
        """See `outlier_score`."""
        kept = self._kept(fitted, X)
        with torch.no_grad():
            said = torch.cat([fitted.outlier_scores(block) for block in self._blocks(fitted, kept)]).cpu().numpy()
            return fitted.outlier_score(kept, said) if fitted.has_distances else said

    def _predict_in_blocks(
        self, fitted: Fitted, X: Any, predict: Callable[[Fitted, Tensor], tuple[Tensor, ...]]
    ) -> tuple[np.ndarray, ...]:
        """What `predict` gives for every row, as arrays."""
        return self._in_blocks(fitted, self._kept(fitted, X), predict)

    def _in_blocks(
        self, fitted: Fitted, kept: np.ndarray, predict: Callable[[Fitted, Tensor], tuple[Tensor, ...]]
    ) -> tuple[np.ndarray, ...]:
        """The same for rows as the reader keeps them."""
        with torch.no_grad():
            parts = [predict(fitted, block) for block in self._blocks(fitted, kept)]
        return tuple(torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True))


def _as_they_came(data: LabelledData, codes: np.ndarray, names: np.ndarray | None) -> RowsAsTheyCame:
    """The rows that count, with class numbers and ids if there are any."""
    rows = LabelledRows(data.kept, codes, data.weight)
    return RowsAsTheyCame.of(rows, None if names is None else names[data.counted])


def _merged(data: LabelledData, codes: np.ndarray, names: np.ndarray | None) -> tuple[LabelledRows, RowIds | None]:
    """The same, equal rows as one."""
    if names is None:
        return merge_rows(data.kept, codes, data.weight), None
    return _as_they_came(data, codes, names).merged()


def _check_rows(fitted: Fitted, method: str) -> None:
    """Refuse what needs labelled rows where a compact file has brought none."""
    if not fitted.has_rows:
        raise ValueError(
            f"{method} needs the labelled rows, and this model was saved compact, without them: load the whole model, "
            "or fit again."
        )


def _random_state(given: Any) -> np.random.RandomState:
    try:
        return check_random_state(given)
    except ValueError as error:
        raise ValueError(
            "random_state must be None, a whole number from 0 to 4294967295 or a numpy.random.RandomState; "
            f"got {given!r}. Of a Generator take a number: int(generator.integers(2**32))."
        ) from error


def _with_prior(fitted: Fitted, stated: Any, prior: np.ndarray | None, row_ids: RowIds | None) -> Fitted:
    """With ids, and a class prior, which "auto" leaves to the rows: those of unit length are embeddings."""
    if isinstance(stated, str) and stated == "auto" and is_unit_norm(torch.from_numpy(fitted.rows.x)):
        prior = prior_of_few(fitted.frequencies)
    return replace(fitted, class_prior=prior, row_ids=row_ids)


def _probabilities(fitted: Fitted, queries: Tensor) -> tuple[Tensor]:
    return (fitted.answers(fitted.moments(queries), fitted.temperature),)


def _cached_moments(budget: int, fitted: Fitted, blocks: list[Tensor]) -> list[tuple[Tensor, ...] | None]:
    """The moments of each block of queries, in about `budget` numbers; None for blocks that find no room."""
    kept: list[tuple[Tensor, ...] | None] = []
    for block in blocks:
        moments = fitted.moments(block) if budget > 0 else None
        budget -= sum(part.numel() for part in moments or ())
        kept.append(moments)
    return kept
