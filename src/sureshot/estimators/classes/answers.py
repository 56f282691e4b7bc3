"""What a classifier that has been fitted says of rows: classes, probabilities, sets, doubts, reasons.

Every answer is made of the frozen `Fitted` that the classifier holds, asked for once, in blocks of rows that bound
memory. How it is learnt is `sureshot.estimators.base`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sureshot.computing.surroundings import undisturbed
from sureshot.estimators.arguments import Labels, Rows, Weights, check_count
from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.classes.class_labels import check_kind, class_numbers
from sureshot.estimators.classes.decisions import Decisions, LabelSets, check_share, unknown_label, with_unknown
from sureshot.estimators.classes.influence import Influence, influence_on
from sureshot.estimators.classes.p_values import ROUNDING
from sureshot.estimators.classes.suggestions import Suggestions, suggestions
from sureshot.estimators.classes.targets import plain_labels
from sureshot.estimators.fitted_attribute import ColumnNames, FittedAttribute
from sureshot.estimators.rows.validation import check_weights
from sureshot.warned import warn

LARGEST_BLOCK = 2048


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
class Answers(ClassifierMixin, BaseEstimator):
    """A classifier that has been fitted, as who asks it sees it."""

    classes_ = FittedAttribute("sorted_classes")
    class_prior_ = FittedAttribute("prior")
    temperature_ = FittedAttribute("settled.temperature")
    log_evidence_ = FittedAttribute("log_evidence")
    n_features_in_ = FittedAttribute("columns.n_features")
    feature_names_in_ = ColumnNames("columns.names")
    row_ids_ = FittedAttribute("row_ids.names")
    class_count_ = FittedAttribute("class_count")
    columns_ = FittedAttribute("kinds")
    encoder_ = FittedAttribute("reader.encoder")
    reading_ = FittedAttribute("reader.reading")

    _fitted: Any  # a ClassFitted of the estimator's own kind

    def predict(self, X: Rows) -> np.ndarray:
        """The most probable class of each row, (n,)."""
        fitted = self._current()
        return fitted.sorted_classes[self._predict_in_blocks(fitted, X, class_probabilities)[0].argmax(axis=1)]

    def predict_proba(self, X: Rows) -> np.ndarray:
        """Class probabilities (n, C), columns in the order of ``classes_``; deterministic."""
        return self._normalised(self._current(), X)

    def score(self, X: Rows, y: Labels, sample_weight: Weights | None = None) -> float:
        """How many of the labels are the most probable class; labels of another type than the model's are an error."""
        y = plain_labels(y)
        check_kind(self._current().classes, np.asarray(y))
        weight = None if sample_weight is None else check_weights(sample_weight, np.asarray(y))
        return float(super().score(X, y, weight))

    def predict_log_proba(self, X: Rows) -> np.ndarray:
        """Log class probabilities (n, C)."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))

    def predict_topk(self, X: Rows, k: int = 5) -> TopClasses:
        """The k most probable classes of each row, or all if there are fewer."""
        k, fitted = check_count("k", k), self._current()
        p = self._normalised(fitted, X)
        order = np.argsort(-p, axis=1, kind="stable")[:, :k]
        return TopClasses(fitted.sorted_classes[order], np.take_along_axis(p, order, 1))

    def decision_function(self, X: Rows) -> np.ndarray:
        """Log probabilities (n, C); of two classes how much larger that of the second is, (n,)."""
        found = self.predict_log_proba(X)
        return found[:, 1] - found[:, 0] if found.shape[1] == 2 else found

    def predict_latent(self, X: Rows) -> LatentPrediction:
        """Marginal posterior moments of the latents, each (n, C); for samplers, of the mixture of chains.

        Two classes may share one latent f; it is given as f/2 for one and -f/2 for the other. Learners that are no
        Gaussian processes give their scores, with variance 0 (a class without rows: minus infinity).
        """

        def latents(fitted: ClassFitted, queries: Tensor) -> tuple[Tensor, ...]:
            return tuple(part[:, fitted.places] for part in fitted.predictor.latents(queries))

        return LatentPrediction(*self._predict_in_blocks(self._current(), X, latents))

    def outlier_score(self, X: Rows) -> np.ndarray:
        """How little each row is like any known class (n,); larger is less like any.

        The sum of what the model says and of how far the row is from the labelled rows, each in deviations of what
        labelled rows have (`sureshot.estimators.outliers`); it grows without bound along any ray. A precomputed kernel
        knows no distances: there it is what the model says.

        A pipeline does not forward this method: ``sureshot.pipeline_call(pipeline, "outlier_score", X)`` does.
        """
        fitted = self._current()
        return self._outlier_scores(fitted, self._kept(fitted, X))

    def novelty_p_value(self, X: Rows) -> np.ndarray:
        """Conformal p-value of "one of the known classes" for each row, (n,); small for rows of no known class.

        The share of labelled rows whose `outlier_score`, each left out of its own, is as large. Rejecting p-values up
        to 0.05 rejects about 5 % of rows that are like the labelled ones; no row is held out. The smallest p-value of n
        labelled rows is 1 / (n + 1); of more than 2000 rows, 2000 are asked. Rows that are alone in their class do not
        count, unless all are: then p-values are too large, as what is left out looks like a class that is not known.
        ValueError for `TreeGPClassifier`, which keeps no rows.
        """
        fitted = self._current()
        return fitted.usual_outliers.p_values(self._outlier_scores(fitted, self._kept(fitted, X)))

    def predict_or_reject(self, X: Rows, false_alarm: float = 0.05, unknown: Any = None) -> np.ndarray:
        """The class of each row, or `unknown` for rows that are of none of the known classes, (n,).

        `false_alarm` is the share of rows of known classes that may be rejected: those whose `novelty_p_value` is no
        larger are. `unknown` is "unknown" where labels are text; elsewhere say what it is, -1 for instance. It must be
        no known class. A warning says so if there are too few labelled rows to reject any.
        """
        return self._decided("predict_or_reject", X, false_alarm, unknown).labels

    def decide(self, X: Rows, false_alarm: float = 0.05, unknown: Any = None) -> Decisions:
        """What `predict_or_reject` says, with the `novelty_p_value` and the `outlier_score` of each row, at one go."""
        return self._decided("decide", X, false_alarm, unknown)

    def _decided(self, method: str, X: Any, false_alarm: Any, unknown: Any) -> Decisions:
        """See `decide`."""
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
        """A set of labels for each row that holds the true one for a share `coverage` of rows.

        Conformal: classes whose probability is as large as that of a left-out row's own class is that often; no row is
        held out. The share is that of all rows to come together, not of each class. The most probable class is in every
        set, so that a model which is right more often covers more; `allow_empty` leaves it out where no class is
        probable enough, which keeps to the share. With fewer than ``coverage / (1 - coverage)`` labelled rows every
        class is in. Rows that are alone in their class do not count, unless all are. ValueError for
        `TreeGPClassifier`, which keeps no rows.
        """
        coverage, fitted = check_share("coverage", coverage), self._current()
        (p,) = self._predict_in_blocks(fitted, X, class_probabilities)
        members = fitted.usual_labels.p_values(-p) > 1 - coverage + ROUNDING
        if not allow_empty:
            members[np.arange(len(p)), p.argmax(axis=1)] = True
        return LabelSets(members, fitted.sorted_classes)

    def uncertainty(self, X: Rows) -> Uncertainty:
        """Total, aleatoric and epistemic uncertainty of each row, in nats, over the whole posterior.

        The total is that of the posterior's mean probabilities: more than the entropy of `predict_proba`, if the
        predictive rule is a surer one. Learners that are no Gaussian processes know no epistemic uncertainty.
        """

        def entropies(fitted: ClassFitted, queries: Tensor) -> tuple[Tensor, ...]:
            if len(fitted.classes) == 1:
                return (queries.new_zeros(len(queries)),) * 2
            return fitted.predictor.entropies(queries, fitted.temperature)

        total, aleatoric = self._predict_in_blocks(self._current(), X, entropies)
        return Uncertainty(total, aleatoric, np.maximum(total - aleatoric, 0))

    def suggest(self, X: Rows, n: int = 20) -> Suggestions:
        """The n rows of a pool X that are most worth a label, or all if there are fewer.

        Rows between two classes, no two of them alike (`sureshot.estimators.classes.suggestions`); none that is
        labelled already (a `TreeGPClassifier` keeps means, and does not know), and none twice. Labels for all of them
        at once: after each batch learn, and ask again.
        """
        fitted, n = self._current(), check_count("n", n)
        kept = self._kept(fitted, X)
        (p,) = self._in_blocks(fitted, kept, class_probabilities)
        return suggestions(fitted, kept, p / p.sum(axis=1, keepdims=True), n)

    def influence(self, X: Rows, n: int = 5, y: Labels | None = None) -> Influence:
        """The n labelled rows that spoke most for each answer, and the n that spoke most against it.

        By how much the log probability of the answer, or of the class in y (n,) in its place, falls if the row is left
        out and all settings stay. In closed form: exact for least squares, else a step towards the posterior without
        the row. Equal rows are left out together, but rows with ids (`row_id`) are named one by one. With the true
        labels as y, ``together`` has first the rows that mislead most: a wrong label is most likely there. A ValueError
        refuses models that are no Gaussian processes, or keep no rows.
        """
        fitted, n = self._current(), check_count("n", n)
        kept = self._kept(fitted, X)
        if y is None:
            return influence_on(fitted, kept, n)
        labels = np.asarray(plain_labels(y))
        if labels.shape != (len(kept),):
            raise ValueError(f"y must hold one label for each of the {len(kept)} rows of X; got shape {labels.shape}.")
        return influence_on(fitted, kept, n, class_numbers(fitted.classes, labels))

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is something to predict from."""
        return "_fitted" in self.__dict__

    def _current(self) -> Any:
        """What has been learnt: each call asks once, so that another thread may update the estimator meanwhile."""
        check_is_fitted(self)
        return self._fitted.settled

    def _kept(self, fitted: ClassFitted, X: Any) -> np.ndarray:
        """Rows as the reader keeps them."""
        checked, _ = fitted.reader.check(type(self).__name__, X, fitted.columns)
        return fitted.reader.keep(checked, fitting=False)

    def _blocks(self, fitted: ClassFitted, kept: np.ndarray) -> list[Tensor]:
        """What the kernel sees of rows, in blocks that bound memory."""
        inputs = fitted.predictor.inputs(kept)
        return list(inputs.split(min(LARGEST_BLOCK, max(1, fitted.predictor.queries_at_once))))

    def _outlier_scores(self, fitted: ClassFitted, kept: np.ndarray) -> np.ndarray:
        """See `outlier_score`."""
        with torch.no_grad():
            of_blocks = [fitted.predictor.outlier_scores(block) for block in self._blocks(fitted, kept)]
            of_model = torch.cat(of_blocks).cpu().numpy()
            return fitted.outlier_score(kept, of_model) if fitted.has_distances else of_model

    def _normalised(self, fitted: ClassFitted, X: Any) -> np.ndarray:
        """Class probabilities (n, C) that sum to one to the last digit."""
        (p,) = self._predict_in_blocks(fitted, X, class_probabilities)
        found: np.ndarray = p / p.sum(axis=1, keepdims=True)
        return found

    def _predict_in_blocks(
        self, fitted: ClassFitted, X: Any, predict: Callable[[ClassFitted, Tensor], tuple[Tensor, ...]]
    ) -> tuple[np.ndarray, ...]:
        """What `predict` gives for every row, as arrays."""
        return self._in_blocks(fitted, self._kept(fitted, X), predict)

    def _in_blocks(
        self, fitted: ClassFitted, kept: np.ndarray, predict: Callable[[ClassFitted, Tensor], tuple[Tensor, ...]]
    ) -> tuple[np.ndarray, ...]:
        """The same for rows as the reader keeps them."""
        with torch.no_grad():
            parts = [predict(fitted, block) for block in self._blocks(fitted, kept)]
        return tuple(torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True))


def class_probabilities(fitted: ClassFitted, queries: Tensor) -> tuple[Tensor]:
    """Of each of the sorted classes, (Q, C); their sum is 1 to rounding."""
    return (fitted.answers(fitted.predictor.moments(queries), fitted.temperature)[:, fitted.places],)
