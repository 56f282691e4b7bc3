"""`FewShotClassifier`: a few-shot learner, meta-trained or not, as a scikit-learn estimator.

Nothing is tuned in `fit`. What a few labels cannot tell, how far to trust a distance and how sure to be, comes from
elsewhere: from other classes, by a checkpoint of `sureshot meta-train`, or from documented defaults
(`sureshot.estimators.few_shot_default`). So `fit` conditions on the labelled rows and is done. `GPClassifier`, in
contrast, chooses its settings from the labels, which pays from a few labels for each class on.

A checkpoint's backbone turns inputs into embeddings, in double precision; they are kept in single, so that the same
row has the same embedding in any batch. Everything after it is in double precision. The labelled rows are kept: as
they came without a checkpoint, as embeddings with one.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sureshot.estimators import options
from sureshot.estimators.base import LatentPrediction, ProbabilisticClassifier, Uncertainty
from sureshot.estimators.class_labels import class_numbers, grow, staying
from sureshot.estimators.few_shot_default import DefaultModel, check_directions, default_model
from sureshot.estimators.few_shot_inputs import Encoder, check_rows
from sureshot.estimators.few_shot_support import Answers, SupportSet, condition_on
from sureshot.estimators.layout import aligned
from sureshot.estimators.preprocessing import Scaling
from sureshot.estimators.threads import one_thread
from sureshot.estimators.validation import LabelledRows, check_inputs, check_labels, check_weights, merge_rows
from sureshot.meta.learners import Learner
from sureshot.meta.training.checkpoint import load_learner
from sureshot.persistence import load_artifact

NUMBERS_AT_ONCE = 2**24
LARGEST_BLOCK = 2048
MOMENTS_KEPT = 2**27  # numbers that `calibrate` keeps, 1 GB; what is beyond them it computes for every temperature
SMALL_SUPPORT = 2000  # distinct rows up to which one core was measured to be as fast as two


class FewShotClassifier(ProbabilisticClassifier):
    """Classification from a few labels, with what is not in them taken from a checkpoint or from defaults.

    Parameters
    ----------
    checkpoint : path or None, default=None
        A file that `sureshot meta-train` wrote, or the folder of its run (then the best checkpoint), of any learner.
        None is a stated Gaussian process on the inputs as they are: one-vs-each by mean field with a cosine kernel of
        output scale 64 if all rows have unit length, else an RBF kernel of output scale 32 on standardised columns;
        see `sureshot.estimators.few_shot_default`.
    random_state : int, RandomState or None, default=None
        For learners that sample. None is a fixed seed too: equal calls give equal models.
    device : str, default="auto"
        A torch device; "auto" takes CUDA when it is there.

    Attributes
    ----------
    classes_ : ndarray (C,)
        In sorted order after `fit`; `partial_fit` appends new ones.
    learner_ : Learner
        What is conditioned on the rows; the checkpoint's, in double precision.
    temperature_ : float
        The latents are divided by it; 1 until `calibrate` sets it.
    log_evidence_ : float
        Of the labels, in nats: a lower bound for mean field, exact for label regression, 0 if fewer than two classes
        have rows, NaN for learners that sample and those that are no Gaussian processes.
    n_features_in_, feature_names_in_
        Of flattened rows.
    input_shape_ : tuple of int
        Of one row, as the checkpoint takes it.

    Notes
    -----
    With a checkpoint, X has the shape that its backbone takes, or that shape flattened: images (n, channels, height,
    width), (n, height, width) for one channel, sequences (n, length, channels), embeddings (n, width). Images are
    uint8 (0 to 255) or lie in [0, 1].

    Time and memory grow with the cube and the square of the number of distinct rows, and time with the number of
    classes: milliseconds for a few classes of five rows, 40 s of one core for 150.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = FewShotClassifier().fit(X[::10], y[::10])
    >>> model.predict(X[:2])
    array([0, 0])
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: Any = None,
        device: str = "auto",
    ) -> None:
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.device = device

    learner_: Learner
    _encoder: Encoder | None  # of the checkpoint
    _default: DefaultModel | None  # without one
    _scaling: Scaling | None
    _rows: LabelledRows
    _answers: Answers
    _seed: int

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Condition on labelled rows.

        Parameters
        ----------
        X : array, DataFrame or tensor (n, D), or (n, ...) in the shape that the checkpoint takes
        y : array (n,)
            Labels of any sortable type, at least two distinct.
        sample_weight : array (n,), optional
            A weight of 2 equals two copies of the row; 0 equals leaving it out. Real numbers for Gaussian processes
            by mean field or label regression, whole numbers for other learners.
        """
        return self._changed_by(lambda successor: successor._fit(X, y, sample_weight))

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        self._start()
        x, labels, weight = self._checked(X, y, sample_weight, reset=True)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"FewShotClassifier needs at least two classes to tell apart; y has only one class, "
                f"{classes.tolist()[0]!r}."
            )
        self._condition(merge_rows(x, codes, weight), classes)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add labelled rows, of old or new classes: the result is that of `fit` on all rows so far.

        The temperature that `calibrate` has set stays.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`; a first call is a `fit` that may have one class only.
        classes : array, optional
            Further classes to make room for. A class without rows predicts from its prior (with a learner that is no
            Gaussian process and has none: probability 0). New classes are appended to ``classes_``; old columns never
            move.
        """
        return self._changed_by(lambda successor: successor._extend(X, y, classes, sample_weight))

    def _extend(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> None:
        first = not self.__sklearn_is_fitted__()
        if first:
            self._start()
        x, labels, weight = self._checked(X, y, sample_weight, reset=first)
        arriving = [labels] if classes is None else [labels, np.asarray(classes)]
        grown = grow(None if first else self.classes_, np.concatenate(arriving))
        codes = class_numbers(grown, labels)
        if not first:
            old = self._rows
            x, codes, weight = (np.concatenate(pair) for pair in ((old.x, x), (old.y, codes), (old.weight, weight)))
        self._condition(merge_rows(x, codes, weight), grown)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities (n, C), columns in the order of ``classes_``; deterministic."""
        (found,) = self._ask(X, lambda query: (self._probabilities(query),))
        return found / found.sum(axis=1, keepdims=True)

    def predict_latent(self, X: Any) -> LatentPrediction:
        """Marginal posterior moments of the latents, each (n, C).

        Learners that are no Gaussian processes give their scores, with variance 0 (a class without rows: minus
        infinity).
        """
        mean, variance = self._ask(X, lambda query: self._answers.latents(query))
        return LatentPrediction(mean, variance)

    def outlier_score(self, X: Any) -> np.ndarray:
        """How little each row is like any known class (n,); larger is less like any.

        For Gaussian processes the squared distance to the nearest class mean in the kernel's feature space, for other
        learners minus the largest score. A pipeline does not forward this method:
        call ``pipeline[-1].outlier_score(pipeline[:-1].transform(X))``.
        """
        (found,) = self._ask(X, lambda query: (self._answers.outlier_scores(query),))
        return found

    def uncertainty(self, X: Any) -> Uncertainty:
        """Total, aleatoric and epistemic uncertainty of each row, in nats.

        Learners that are no Gaussian processes know no epistemic uncertainty: it is 0.
        """
        total, aleatoric = self._ask(X, lambda query: self._answers.entropies(query, self.temperature_))
        return Uncertainty(total, aleatoric, np.maximum(total - aleatoric, 0))

    def calibrate(self, X: Any, y: Any) -> Self:
        """Set the temperature to the one that predicts these held-out labels best (by log probability).

        Kept until the next `fit`. Labels that the model does not know are an error.
        """
        return self._changed_by(lambda successor: successor._calibrate(X, y))

    def _calibrate(self, X: Any, y: Any) -> None:
        queries = self._queries(X)
        codes = class_numbers(self.classes_, check_labels(y, sum(map(len, queries))))
        answers = self._answers

        def loss(log_temperature: float) -> float:
            parts = [
                answers.probabilities(answers.moments(query) if known is None else known, math.exp(log_temperature))
                for query, known in zip(queries, kept, strict=True)
            ]
            chosen = torch.cat(parts).cpu().numpy()[np.arange(len(codes)), codes]
            return -float(np.log(np.maximum(chosen, 1e-300)).mean())

        with torch.no_grad():
            kept = _moments_within(MOMENTS_KEPT, answers, queries)
            found = minimize_scalar(loss, bounds=(-6.0, 6.0), method="bounded", options={"xatol": 1e-4})
        self.temperature_ = math.exp(found.x)

    def forget(self, classes: Any) -> Self:
        """Remove classes with all their rows; the others are as if these had never been seen.

        At least one class with rows must stay.
        """
        return self._changed_by(lambda successor: successor._forget(classes))

    def _forget(self, classes: Any) -> None:
        check_is_fitted(self)
        stays = staying(self.classes_, classes)
        kept = stays[self._rows.y]
        if not kept.any():
            raise ValueError("cannot forget every class that has rows: at least one must stay.")
        renumbered = np.cumsum(stays) - 1
        rows = LabelledRows(self._rows.x[kept], renumbered[self._rows.y[kept]], self._rows.weight[kept])
        self._condition(rows, self.classes_[stays])

    def save(self, path: str | Path) -> None:
        """Write the fitted model as safetensors with a JSON header: backbone, learner and labelled embeddings.

        Atomic; the checkpoint is not needed afterwards, and loading executes nothing.
        """
        from sureshot.estimators.few_shot_artifact import save_few_shot_classifier

        check_is_fitted(self)
        save_few_shot_classifier(self, path)

    @classmethod
    def load(cls, path: str | Path) -> FewShotClassifier:
        """Read a model that `save` wrote; predictions are equal to the last bit."""
        from sureshot.estimators.few_shot_artifact import KIND, few_shot_classifier_of

        return few_shot_classifier_of(load_artifact(path, KIND))

    @property
    def input_shape_(self) -> tuple[int, ...]:
        """Shape of one row: what the checkpoint's backbone takes, ``(n_features_in_,)`` without a checkpoint."""
        check_is_fitted(self)
        return (self.n_features_in_,) if self._encoder is None else self._encoder.shape

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a posterior to predict from."""
        return "_answers" in self.__dict__

    def _start(self) -> None:
        """What a first fit settles: the learner, the seed, the temperature."""
        self.__dict__.pop("_answers", None)
        device = options.device_for(self.device)
        if self.checkpoint is None:
            self._encoder = None
        elif isinstance(self.checkpoint, str | os.PathLike):
            learner = load_learner(self.checkpoint).double().requires_grad_(False)
            self._encoder = Encoder(learner.to(device))
        else:
            raise TypeError(f"checkpoint must be a path or None; got {type(self.checkpoint).__name__}.")
        self._seed = 0 if self.random_state is None else int(check_random_state(self.random_state).randint(2**31 - 1))
        self.temperature_ = 1.0

    def _checked(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows as they are kept, labels and weights; rows of weight zero are gone."""
        x = self._check_rows(X, reset)
        labels = check_labels(y, len(x))
        weight = check_weights(sample_weight, x)
        counted = weight > 0
        return self._as_kept(x[counted]), labels[counted], weight[counted]

    def _check_rows(self, X: Any, reset: bool) -> np.ndarray:
        if self._encoder is None:
            return check_inputs(self, X, reset=reset)
        return check_rows(self, X, self._encoder.shape, reset)

    def _as_kept(self, x: np.ndarray) -> np.ndarray:
        """Checked rows in the form in which labelled ones are kept."""
        return x if self._encoder is None else self._encoder(x)

    def _condition(self, rows: LabelledRows, classes: np.ndarray) -> None:
        """The posterior for these rows."""
        default, scaling = None, None
        if self._encoder is None:
            default, scaling = default_model(rows.x, rows.weight)
            learner: Learner = default.build().to(options.device_for(self.device))
            if default.n_features < rows.x.shape[1]:
                n_constant = rows.x.shape[1] - default.n_features
                warnings.warn(f"ignored {n_constant} constant columns of {rows.x.shape[1]}", stacklevel=6)
        else:
            learner = self._encoder.learner
        self._condition_with(rows, classes, learner, default, scaling)

    def _condition_with(
        self,
        rows: LabelledRows,
        classes: np.ndarray,
        learner: Learner,
        default: DefaultModel | None,
        scaling: Scaling | None,
    ) -> None:
        device = options.device_for(self.device)
        support = SupportSet(
            kernel_inputs(rows.x, scaling, device),
            aligned(rows.y, device),
            aligned(rows.weight, device),
            len(classes),
        )
        with one_thread() if len(rows.y) <= SMALL_SUPPORT else nullcontext():
            answers = condition_on(learner, support, self._seed)
        self.learner_, self._default, self._scaling = learner, default, scaling
        self.classes_, self._rows, self._answers = classes, rows, answers
        self.log_evidence_ = answers.log_evidence

    def _queries(self, X: Any) -> list[Tensor]:
        """What the kernel sees of rows, in blocks that bound memory."""
        check_is_fitted(self)
        x = self._as_kept(self._check_rows(X, reset=False))
        if self._default is not None:
            check_directions(self._default, x)
        inputs = kernel_inputs(x, self._scaling, options.device_for(self.device))
        size = min(LARGEST_BLOCK, max(1, NUMBERS_AT_ONCE // self._answers.numbers_per_query))
        return list(inputs.split(size))

    def _probabilities(self, query: Tensor) -> Tensor:
        """Class probabilities (Q, C) of what the kernel sees of rows."""
        return self._answers.probabilities(self._answers.moments(query), self.temperature_)

    def _ask(self, X: Any, question: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[np.ndarray, ...]:
        """The answers to a question about every row, as arrays."""
        queries = self._queries(X)
        with torch.no_grad():
            parts = [question(query) for query in queries]
        return tuple(torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True))


def _moments_within(numbers: int, answers: Answers, queries: list[Tensor]) -> list[tuple[Tensor, ...] | None]:
    """The moments of each block of queries, in about so many numbers; None for blocks that find no room."""
    kept: list[tuple[Tensor, ...] | None] = []
    for query in queries:
        moments = answers.moments(query) if numbers > 0 else None
        numbers -= sum(part.numel() for part in moments or ())
        kept.append(moments)
    return kept


def kernel_inputs(kept: np.ndarray, scaling: Scaling | None, device: torch.device) -> Tensor:
    """What the kernel sees of rows in the form in which they are kept."""
    return aligned(kept if scaling is None else scaling(kept), device)
