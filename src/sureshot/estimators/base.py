"""What every incremental classifier of sureshot does, once.

A concrete estimator says how to learn from rows and how to update what it has learnt; it is thin. Everything else,
checks, labels that come and go, weights, blocks of queries, calibration, model files, is here, in terms of the frozen
`Fitted` that it holds. A call that fails, at whatever point and for whatever reason, changes nothing: the next `Fitted`
is complete before it takes the place of the last one.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable
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

from sureshot.estimators.class_labels import class_numbers, extend_classes, kept_classes
from sureshot.estimators.class_prior import adapted_prior, prior_of_few
from sureshot.estimators.class_prior import class_prior as class_prior_of
from sureshot.estimators.fitted import Fitted, Format, TrainingSet
from sureshot.estimators.readers import Reader, read_labelled
from sureshot.estimators.settings import check_count
from sureshot.estimators.validation import LabelledRows, check_targets, check_unseen, joined_rows, merge_rows
from sureshot.kernels import is_unit_norm
from sureshot.persistence import Artifact, ArtifactError, load_artifact, save_artifact

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
        for part in self.path.split(".") if value is not None else ():
            value = getattr(value, part)
        if value is None:
            raise AttributeError(f"{owner.__name__} has no {self.name} (yet); fit() gives it to an estimator.")
        return value

    def __set__(self, estimator: Any, value: Any) -> None:
        raise AttributeError(f"{self.name} is learnt and cannot be set: fit() and calibrate() do that.")


class IncrementalClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that learns classes and rows as they come."""

    classes_ = FittedAttribute("classes")
    class_prior_ = FittedAttribute("prior")
    temperature_ = FittedAttribute("temperature")
    log_evidence_ = FittedAttribute("log_evidence")
    n_features_in_ = FittedAttribute("columns.n_features")
    feature_names_in_ = FittedAttribute("columns.names")

    random_state: Any
    _fitted: Any  # a Fitted of the estimator's own kind
    _format: ClassVar[Format]

    @abstractmethod
    def _reader(self) -> Reader:
        """What reads the rows of a first fit."""

    @abstractmethod
    def _learn(self, training: TrainingSet, known: Any, seed: int) -> Fitted:
        """Learn from labelled rows; what is `known` of other rows, unless that is None, keeps all its settings."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from labelled rows: X (n, D) with labels y (n,) of any sortable type, at least two distinct.

        A sample weight of 2 equals two copies of the row; 0 equals leaving it out. Whole numbers where posteriors are
        sampled.
        """
        return self._commit(self._first_rows(X, y, sample_weight), None)

    def _first_rows(self, X: Any, y: Any, sample_weight: Any, unseen: Any = None) -> TrainingSet:
        """What `fit` learns from; of features, `unseen` says of each row if their network was not trained on it."""
        reader = self._reader()
        data = read_labelled(reader, type(self).__name__, None, X, y, sample_weight)
        mask = None if unseen is None else check_unseen(unseen, len(data.checked))[data.counted]
        classes, codes = np.unique(data.labels, return_inverse=True)
        if len(classes) < 2:
            only = "sample_weight is 0 in all rows but those of" if data.weightless else "y has only"
            raise ValueError(
                f"{type(self).__name__} needs at least two classes to tell apart; {only} one class, "
                f"{classes.tolist()[0]!r}. partial_fit takes one class, and others later."
            )
        if mask is None or mask.all():  # nothing sets any apart
            rows = merge_rows(data.kept, codes, data.weight)
            return TrainingSet(reader, data.columns, classes, rows, data.checked)
        parts = [merge_rows(data.kept[part], codes[part], data.weight[part]) for part in (~mask, mask)]
        is_unseen = np.repeat([False, True], [len(part.y) for part in parts])
        return TrainingSet(reader, data.columns, classes, joined_rows(*parts), data.checked, is_unseen)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add labelled rows, of old or new classes: the result is that of `fit` on all rows so far, settings kept.

        A first call is a `fit` that may have one class only. `classes` are further ones to make room for; a class
        without rows predicts from its prior. New classes are appended to ``classes_``; old columns never move.
        """
        return self._extend(X, y, classes, sample_weight)

    def _extend(self, X: Any, y: Any, classes: Any, sample_weight: Any, keep_settings: bool = True) -> Self:
        known: Fitted | None = self._fitted if self.__sklearn_is_fitted__() else None
        reader = self._reader() if known is None else known.reader
        columns = None if known is None else known.columns
        data = read_labelled(reader, type(self).__name__, columns, X, y, sample_weight)
        arriving = [data.labels] if classes is None else [np.ravel(classes), data.labels]
        grown = extend_classes(None if known is None else known.classes, np.concatenate(arriving))
        codes = class_numbers(grown, data.labels)
        if known is None:
            rows = merge_rows(data.kept, codes, data.weight)
            return self._commit(TrainingSet(reader, data.columns, grown, rows, data.checked), None)
        rows = self._with_rows(known.rows, LabelledRows(data.kept, codes, data.weight))
        return self._commit(TrainingSet(reader, known.columns, grown, rows, None), known if keep_settings else None)

    def _with_rows(self, old: LabelledRows, new: LabelledRows) -> LabelledRows:
        """All rows, merged where they repeat."""
        pairs = ((old.x, new.x), (old.y, new.y), (old.weight, new.weight))
        return merge_rows(*(np.concatenate(pair) for pair in pairs))

    def forget(self, classes: Any) -> Self:
        """Remove classes with all their rows; the others are as if these had never been seen, settings kept.

        At least one class with rows must stay.
        """
        return self._without(classes)

    def _without(self, classes: Any) -> Self:
        known: Fitted = self._current()
        stays = kept_classes(known.classes, classes)
        kept = stays[known.rows.y]
        if not kept.any():
            raise ValueError("cannot forget every class that has rows: at least one must stay.")
        renumbered = np.cumsum(stays) - 1
        rows = LabelledRows(known.rows.x[kept], renumbered[known.rows.y[kept]], known.rows.weight[kept])
        return self._commit(TrainingSet(known.reader, known.columns, known.classes[stays], rows, None), known)

    def calibrate(self, X: Any, y: Any) -> Self:
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

    def set_class_prior(self, class_prior: Any) -> Self:
        """Say how often classes come: "auto", "support" (as in the labelled rows), "uniform", a dict, or an array.

        An array has the order of ``classes_``. Kept until rows are learnt or forgotten; `predict_latent`,
        `outlier_score` and `uncertainty` do not depend on it.
        """
        fitted = self._current()
        self._fitted = _with_prior(fitted, class_prior, class_prior_of(class_prior, fitted.classes))
        return self

    def adapt_prior(self, X: Any) -> Self:
        """Learn from unlabelled rows how often classes come (Saerens, Latinne & Decaestecker 2002).

        Right where rows of a class look like those that were learnt, wherever they come from, and none are of unknown
        classes. As `set_class_prior`; the result is ``class_prior_``.
        """
        fitted = replace(self._current(), class_prior=None)
        (p,) = self._predict_in_blocks(fitted, X, _probabilities)
        self._fitted = replace(fitted, class_prior=adapted_prior(p, fitted.frequencies))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, (n,)."""
        fitted = self._current()
        return fitted.classes[self._predict_in_blocks(fitted, X, _probabilities)[0].argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities (n, C), columns in the order of ``classes_``; deterministic."""
        (found,) = self._predict_in_blocks(self._current(), X, _probabilities)
        return found / found.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Log class probabilities (n, C)."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))

    def predict_topk(self, X: Any, k: int = 5) -> TopClasses:
        """The k most probable classes of each row, or all if there are fewer."""
        k, p = check_count("k", k), self.predict_proba(X)
        order = np.argsort(-p, axis=1, kind="stable")[:, :k]
        return TopClasses(self.classes_[order], np.take_along_axis(p, order, 1))

    def decision_function(self, X: Any) -> np.ndarray:
        """Log probabilities (n, C); of two classes how much larger that of the second is, (n,)."""
        found = self.predict_log_proba(X)
        return found[:, 1] - found[:, 0] if found.shape[1] == 2 else found

    def predict_latent(self, X: Any) -> LatentPrediction:
        """Marginal posterior moments of the latents, each (n, C); for samplers, of the mixture of chains.

        Two classes may share one latent f; it is given as -f/2 and f/2. Learners that are no Gaussian processes give
        their scores, with variance 0 (a class without rows: minus infinity).
        """
        return LatentPrediction(
            *self._predict_in_blocks(self._current(), X, lambda fitted, queries: fitted.latents(queries))
        )

    def outlier_score(self, X: Any) -> np.ndarray:
        """How little each row is like any known class (n,); larger is less like any.

        The sum of what the model says and of how far the row is from the labelled rows, each in deviations of what
        labelled rows have (`sureshot.estimators.outliers`); it grows without bound along any ray. A precomputed kernel
        knows no distances: there it is what the model says.

        A pipeline does not forward this method: call ``pipeline[-1].outlier_score(pipeline[:-1].transform(X))``.
        """
        fitted = self._current()
        kept = self._kept(fitted, X)
        with torch.no_grad():
            said = torch.cat([fitted.outlier_scores(block) for block in self._blocks(fitted, kept)]).cpu().numpy()
            return fitted.outlier_score(kept, said) if fitted.has_distances else said

    def uncertainty(self, X: Any) -> Uncertainty:
        """Total, aleatoric and epistemic uncertainty of each row, in nats, over the whole posterior.

        The total is that of the posterior's mean probabilities: more than the entropy of `predict_proba`, if the
        predictive rule is a surer one. Learners that are no Gaussian processes know no epistemic uncertainty.
        """

        def entropies(fitted: Fitted, queries: Tensor) -> tuple[Tensor, ...]:
            return fitted.entropies(queries, fitted.temperature)

        total, aleatoric = self._predict_in_blocks(self._current(), X, entropies)
        return Uncertainty(total, aleatoric, np.maximum(total - aleatoric, 0))

    def save(self, path: str | Path) -> None:
        """Write the fitted model as safetensors with a JSON header; atomic, and loading executes nothing."""
        fitted = self._current()
        header, arrays = self._format.write(self.get_params(deep=False), fitted)
        prior = None if fitted.class_prior is None else fitted.class_prior.tolist()
        save_artifact(path, self._format.kind, {**header, "class_prior": prior}, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote; predictions are equal to the last bit."""
        return cls.of_artifact(load_artifact(path, cls._format.kind))

    @classmethod
    def of_artifact(cls, artifact: Artifact) -> Self:
        """The model in a file that has been read."""
        parameters, fitted = cls._format.read(artifact)
        model = cls(**parameters)
        try:
            prior = class_prior_of(artifact.header.get("class_prior") or "support", fitted.classes)
        except ValueError as error:
            raise ArtifactError(f"{artifact.path}: malformed class prior; save the model again.") from error
        model._fitted = replace(fitted, class_prior=prior)
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
        self._fitted = _with_prior(self._learn(training, known, seed), stated, prior)
        if isinstance(given, np.random.RandomState):
            given.set_state(drawn.get_state())
        return self

    def _current(self) -> Any:
        """What has been learnt: each call asks once, so that another thread may update the estimator meanwhile."""
        check_is_fitted(self)
        return self._fitted

    def _kept(self, fitted: Fitted, X: Any) -> np.ndarray:
        """Rows as the reader keeps them."""
        checked, _ = fitted.reader.check(type(self).__name__, X, fitted.columns)
        return fitted.reader.keep(checked, fitting=False)

    def _blocks(self, fitted: Fitted, kept: np.ndarray) -> list[Tensor]:
        """What the kernel sees of rows, in blocks that bound memory."""
        inputs = fitted.inputs(kept)
        return list(inputs.split(min(LARGEST_BLOCK, max(1, fitted.queries_at_once))))

    def _predict_in_blocks(
        self, fitted: Fitted, X: Any, predict: Callable[[Fitted, Tensor], tuple[Tensor, ...]]
    ) -> tuple[np.ndarray, ...]:
        """What `predict` gives for every row, as arrays."""
        with torch.no_grad():
            parts = [predict(fitted, block) for block in self._blocks(fitted, self._kept(fitted, X))]
        return tuple(torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True))


def _random_state(given: Any) -> np.random.RandomState:
    try:
        return check_random_state(given)
    except ValueError as error:
        raise ValueError(
            "random_state must be None, a whole number from 0 to 4294967295 or a numpy.random.RandomState; "
            f"got {given!r}. Of a Generator take a number: int(generator.integers(2**32))."
        ) from error


def _with_prior(fitted: Fitted, stated: Any, prior: np.ndarray | None) -> Fitted:
    """With a class prior, which "auto" leaves to the rows: those of unit length are embeddings."""
    if isinstance(stated, str) and stated == "auto" and is_unit_norm(torch.from_numpy(fitted.rows.x)):
        prior = prior_of_few(fitted.frequencies)
    return replace(fitted, class_prior=prior)


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
