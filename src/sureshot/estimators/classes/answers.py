"""Predictions of a fitted classifier: classes, probabilities, sets of labels, outlier scores, influence.

Every answer is made of the frozen `ClassFitted` that the classifier holds, asked for once, in blocks of rows that bound
memory. How it is learnt is `sureshot.estimators.base`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from torch import Tensor

from sureshot.computing.surroundings import undisturbed
from sureshot.data.checks import check_share
from sureshot.estimators.arguments import Labels, Rows, Weights, check_count
from sureshot.estimators.base import IncrementalEstimator
from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.classes.class_labels import check_kind, class_numbers
from sureshot.estimators.classes.decisions import Decisions, LabelSets, unknown_label, with_unknown
from sureshot.estimators.classes.influence import Influence, influence_on
from sureshot.estimators.classes.p_values import ROUNDING
from sureshot.estimators.classes.suggestions import doubts_of
from sureshot.estimators.classes.targets import plain_labels
from sureshot.estimators.fitted_attribute import FittedAttribute
from sureshot.estimators.rows.validation import check_weights
from sureshot.warned import warn


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


@undisturbed
class Answers(ClassifierMixin, IncrementalEstimator):
    """The methods that predict, shared by all classifiers."""

    classes_ = FittedAttribute("sorted_classes")
    class_prior_ = FittedAttribute("prior")
    temperature_ = FittedAttribute("settled.temperature")
    class_count_ = FittedAttribute("class_count")

    def predict(self, X: Rows) -> np.ndarray:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.

        Returns
        -------
        ndarray (n,)
            Labels, of the type that `fit` took.
        """
        fitted = self._current()
        return fitted.sorted_classes[self._predict_in_blocks(fitted, X, class_probabilities)[0].argmax(axis=1)]

    def predict_proba(self, X: Rows) -> np.ndarray:
        """Predict class probabilities.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.

        Returns
        -------
        ndarray (n, C)
            Each row sums to 1. Columns are in the order of ``classes_``.
        """
        return self._normalised(self._current(), X)

    def score(self, X: Rows, y: Labels, sample_weight: Weights | None = None) -> float:
        """Return the accuracy on labelled rows.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.
        y : array (n,)
            True labels. Labels of another type than those of the model are an error.
        sample_weight : array (n,), optional
            Weights of the rows.

        Returns
        -------
        float
            The share of the labels that `predict` finds.
        """
        y = plain_labels(y)
        check_kind(self._current().classes, np.asarray(y))
        weight = None if sample_weight is None else check_weights(sample_weight, np.asarray(y))
        return float(super().score(X, y, weight))

    def predict_log_proba(self, X: Rows) -> np.ndarray:
        """Predict logarithms of class probabilities.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.

        Returns
        -------
        ndarray (n, C)
            Columns are in the order of ``classes_``.
        """
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))

    def predict_topk(self, X: Rows, k: int = 5) -> TopClasses:
        """Predict the most probable classes of each row.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.
        k : int, default=5
            How many; all classes if there are fewer.

        Returns
        -------
        TopClasses
            ``labels`` and ``probabilities``, each (n, k), the most probable first.
        """
        k, fitted = check_count("k", k), self._current()
        p = self._normalised(fitted, X)
        order = np.argsort(-p, axis=1, kind="stable")[:, :k]
        return TopClasses(fitted.sorted_classes[order], np.take_along_axis(p, order, 1))

    def decision_function(self, X: Rows) -> np.ndarray:
        """Return scores of the classes: their log probabilities.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.

        Returns
        -------
        ndarray (n, C), or (n,) for two classes
            Log probabilities; for two classes that of the second less that of the first.
        """
        found = self.predict_log_proba(X)
        return found[:, 1] - found[:, 0] if found.shape[1] == 2 else found

    def predict_latent(self, X: Rows) -> LatentPrediction:
        """Return the posterior of the latent functions.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.

        Returns
        -------
        LatentPrediction
            ``mean`` and ``variance``, each (n, C): marginal moments, for samplers of the mixture of chains. Two classes
            that share one latent f have f/2 and -f/2. Learners that are not Gaussian processes have variance 0.
        """

        def latents(fitted: ClassFitted, queries: Tensor) -> tuple[Tensor, ...]:
            return tuple(part[:, fitted.places] for part in fitted.predictor.latents(queries))

        return LatentPrediction(*self._predict_in_blocks(self._current(), X, latents))

    def novelty_p_value(self, X: Rows) -> np.ndarray:
        """Return conformal p-values of "the row is of a known class".

        The p-value is the share of labelled rows whose leave-one-out `outlier_score` is at least as large. So rejecting
        p-values up to 0.05 rejects about 5 % of rows that are like the labelled ones.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.

        Returns
        -------
        ndarray (n,)
            At least 1 / (m + 1) for m labelled rows, 2000 of these at most.

        Raises
        ------
        ValueError
            By `TreeGPClassifier`, which keeps no rows.

        Notes
        -----
        The only row of a class does not count, as without it the class is unknown, unless all rows are such: p-values
        are then too large.
        """
        fitted = self._current()
        return fitted.usual_outliers.p_values(self._outlier_scores(fitted, self._kept(fitted, X)))

    def predict_or_reject(self, X: Rows, false_alarm: float = 0.05, unknown: Any = None) -> np.ndarray:
        """Predict the class of each row, or reject it as being of no known class.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.
        false_alarm : float, default=0.05
            The share of rows of known classes that may be rejected: a row is if its `novelty_p_value` is no larger.
        unknown : label, optional
            What a rejected row gets. "unknown" where labels are text, otherwise to be stated (-1, for instance). It
            must not be a known class.

        Returns
        -------
        ndarray (n,)
            Labels.

        Warns
        -----
        UserWarning
            If there are too few labelled rows for any to be rejected.
        """
        return self.decide(X, false_alarm, unknown).labels

    def decide(self, X: Rows, false_alarm: float = 0.05, unknown: Any = None) -> Decisions:
        """Return what `predict_or_reject` returns, with the p-values and outlier scores behind it.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.
        false_alarm, unknown
            As in `predict_or_reject`.

        Returns
        -------
        Decisions
            Labels, `novelty_p_value` and `outlier_score`, each (n,).
        """
        false_alarm, fitted = check_share("false_alarm", false_alarm), self._current()
        unknown = unknown_label(unknown, fitted.classes)
        kept = self._kept(fitted, X)
        scores, usual = self._outlier_scores(fitted, kept), fitted.usual_outliers
        if usual.smallest > false_alarm + ROUNDING:
            warn(
                f"nothing is rejected at false_alarm={false_alarm:g}: {usual.n_rows:g} labelled rows tell p-values "
                f"down to {usual.smallest:.3g} only. Take a larger false_alarm, or label more rows.",
            )
        (p,) = self._in_blocks(fitted, kept, class_probabilities)
        p_values = usual.p_values(scores)
        labels = with_unknown(fitted.sorted_classes[p.argmax(axis=1)], p_values <= false_alarm + ROUNDING, unknown)
        return Decisions(labels, p_values, scores)

    def predict_set(self, X: Rows, coverage: float = 0.9, allow_empty: bool = False) -> LabelSets:
        """Predict sets of labels that contain the true one with a stated probability.

        Conformal prediction: a class is in the set if its probability is among what left-out rows give their own class.
        Coverage is guaranteed for rows that are exchangeable with the labelled ones, over all classes together.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.
        coverage : float, default=0.9
            The share of rows whose set contains the true label. With fewer than ``coverage / (1 - coverage)`` labelled
            rows every class is in every set.
        allow_empty : bool, default=False
            Leave the most probable class out, too, where it is not probable enough: coverage is then close to what was
            asked for, otherwise it can be larger.

        Returns
        -------
        LabelSets
            Membership (n, C), and the sets as lists of labels.

        Raises
        ------
        ValueError
            By `TreeGPClassifier`, which keeps no rows.

        Notes
        -----
        The only row of a class does not count, unless all rows are such.
        """
        coverage, fitted = check_share("coverage", coverage), self._current()
        (p,) = self._predict_in_blocks(fitted, X, class_probabilities)
        members = fitted.usual_labels.p_values(-p) > 1 - coverage + ROUNDING
        if not allow_empty:
            members[np.arange(len(p)), p.argmax(axis=1)] = True
        return LabelSets(members, fitted.sorted_classes)

    def uncertainty(self, X: Rows) -> Uncertainty:
        """Split predictive uncertainty into an aleatoric and an epistemic part.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.

        Returns
        -------
        Uncertainty
            ``total``, ``aleatoric`` and ``epistemic``, each (n,), in nats. The total is the entropy of the posterior
            mean of class probabilities; it exceeds the entropy of `predict_proba` where the predictive rule is a surer
            one. The epistemic part is 0 for learners that are not Gaussian processes.
        """

        def entropies(fitted: ClassFitted, queries: Tensor) -> tuple[Tensor, ...]:
            if len(fitted.classes) == 1:
                return (queries.new_zeros(len(queries)),) * 2
            return fitted.predictor.entropies(queries, fitted.temperature)

        total, aleatoric = self._predict_in_blocks(self._current(), X, entropies)
        return Uncertainty(total, aleatoric, np.maximum(total - aleatoric, 0))

    def influence(self, X: Rows, n: int = 5, y: Labels | None = None) -> Influence:
        """Find the labelled rows behind each prediction.

        The influence of a labelled row is how much the log probability of the answer falls if the row is left out and
        all settings stay. It is in closed form: exact for least squares, otherwise a step towards the posterior without
        the row.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.
        n : int, default=5
            How many labelled rows for, and how many against each answer.
        y : array (n,), optional
            Explain these labels in place of the predictions. With true labels, ``together`` lists the most misleading
            rows first, where a wrong label is most likely.

        Returns
        -------
        Influence
            ``proponents`` and ``opponents``, each (n, k), by ids or places, with their influence in nats, and
            ``together``, all labelled rows by their sums. Equal rows are left out together unless they have ids.

        Raises
        ------
        ValueError
            For models that are not Gaussian processes or keep no rows.
        """
        fitted, n = self._current(), check_count("n", n)
        kept = self._kept(fitted, X)
        if y is None:
            return influence_on(fitted, kept, n)
        labels = np.asarray(plain_labels(y))
        if labels.shape != (len(kept),):
            raise ValueError(f"y must hold one label for each of the {len(kept)} rows of X; got shape {labels.shape}.")
        return influence_on(fitted, kept, n, class_numbers(fitted.classes, labels))

    def _own_outlier_scores(self, fitted: ClassFitted, kept: np.ndarray) -> np.ndarray:
        (found,) = self._in_blocks(fitted, kept, lambda fitted, queries: (fitted.predictor.outlier_scores(queries),))
        return found

    def _doubts(self, fitted: ClassFitted, kept: np.ndarray) -> np.ndarray:
        (p,) = self._in_blocks(fitted, kept, class_probabilities)
        return doubts_of(fitted, p / p.sum(axis=1, keepdims=True))

    def _normalised(self, fitted: ClassFitted, X: Any) -> np.ndarray:
        """Class probabilities (n, C) that sum to one to the last digit."""
        (p,) = self._predict_in_blocks(fitted, X, class_probabilities)
        found: np.ndarray = p / p.sum(axis=1, keepdims=True)
        return found


def class_probabilities(fitted: ClassFitted, queries: Tensor) -> tuple[Tensor]:
    """Of each of the sorted classes, (Q, C); their sum is 1 to rounding."""
    return (fitted.answers(fitted.predictor.moments(queries), fitted.temperature)[:, fitted.places],)
