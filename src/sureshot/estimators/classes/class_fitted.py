"""What a classifier has learnt: classes, how often they come, and a predictor of them.

A `ClassPredictor` answers about rows; it knows no labelled rows, no class prior and no temperature. A `ClassFitted` has
one, and knows what its answers mean for a user.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from sureshot.estimators.classes.class_prior import assumed, under_prior
from sureshot.estimators.classes.left_out import labels_left_out, outlier_scores_left_out, places_left_out
from sureshot.estimators.classes.p_values import CalibrationScores
from sureshot.estimators.fitted import Fitted
from sureshot.estimators.outliers import OutlierScore, learnt_score
from sureshot.estimators.rows.folds import by_folds
from sureshot.estimators.rows.labelled_rows import LabelledRows


class NoInfluence(ValueError):
    """What a model predicts from are no rows, or no Gaussian process."""


class ClassPredictor(ABC):
    """Answers about queries (Q, D), in the form in which a kernel sees them; classes (C,) in the order they came."""

    @property
    def queries_at_once(self) -> int:
        """How many queries keep the memory of an answer within bounds; any number where not stated."""
        return sys.maxsize

    @abstractmethod
    def inputs(self, kept: np.ndarray) -> Tensor:
        """What the kernel sees of rows in the form in which the reader keeps them."""

    @abstractmethod
    def moments(self, queries: Tensor) -> tuple[Tensor, ...]:
        """What `probabilities` needs of the queries; costly, and the same for all temperatures."""

    @abstractmethod
    def probabilities(self, moments: tuple[Tensor, ...], temperature: float) -> Tensor:
        """Class probabilities (Q, C) of queries with these `moments`, the latents divided by the temperature."""

    @abstractmethod
    def latents(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Marginal means and variances of the latents, each (Q, C)."""

    @abstractmethod
    def outlier_scores(self, queries: Tensor) -> Tensor:
        """How little a query is like any class that has rows, as far as the model knows, (Q,); see `outliers`."""

    @abstractmethod
    def entropies(self, queries: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Total and aleatoric uncertainty in nats, each (Q,)."""


@dataclass(frozen=True)
class ClassFitted(Fitted, ABC):
    """What an incremental classifier has learnt."""

    classes: np.ndarray  # (C,), in the order in which they came: of class numbers, and of the predictor's answers
    predictor: ClassPredictor
    temperature: float  # the latents are divided by it
    calibrated: bool  # whether `calibrate` has set the temperature
    class_prior: np.ndarray | None = field(default=None, kw_only=True)  # (C,), in place of the frequencies; None: these

    @property
    def places(self) -> np.ndarray:
        """Where the sorted classes are among `classes`, (C,) int64: what leaves an estimator has them in this order."""
        return np.argsort(self.classes, kind="stable")

    @property
    def sorted_classes(self) -> np.ndarray:
        """The classes (C,) as users see them, whenever each came."""
        return self.classes[self.places]

    @property
    def frequencies(self) -> np.ndarray:
        """How often each class came, (C,), by the sum of its rows' weights: what probabilities take for granted."""
        return np.bincount(self.rows.y, self.rows.weight, minlength=len(self.classes))

    @property
    def class_count(self) -> np.ndarray:
        """How many labelled rows each of the sorted classes has, (C,), by the sum of their weights."""
        rows = self.distinct_rows
        return np.bincount(rows.y, rows.weight, minlength=len(self.classes))[self.places]

    def with_prior(self, class_prior: np.ndarray | None) -> Self:
        """The same where classes come as another prior (C,) says; None: as among the labelled rows."""
        return replace(self, class_prior=class_prior)

    @property
    def prior(self) -> np.ndarray:
        """How often each of the sorted classes is expected to come, (C,), summing to 1."""
        prior = assumed(self.frequencies) if self.class_prior is None else self.class_prior
        return prior[self.places]

    def answers(self, moments: tuple[Tensor, ...], temperature: float) -> Tensor:
        """Posterior class probabilities (Q, C) under the class prior, of queries with these moments."""
        return self.under_prior(self.predictor.probabilities(moments, temperature))

    def under_prior(self, p: Tensor) -> Tensor:
        """Probabilities (Q, C) where classes come as the class prior says."""
        return p if self.class_prior is None else under_prior(p, self.frequencies, self.class_prior)

    @property
    def uncalibrated(self) -> Self:
        """The same as `calibrate` needs it, with nothing but the temperature to say how sure to be."""
        return self

    def calibrated_as(self, known: ClassFitted | None) -> Self:
        """As sure as `calibrate` has made what was known before, if it has: by as much more or less than is usual."""
        if known is None or not known.calibrated or self.calibrated:
            return self
        found, ratio = self.uncalibrated, known.temperature / known.usual_temperature
        return replace(found, temperature=ratio * found.usual_temperature, calibrated=True)

    @property
    def usual_temperature(self) -> float:
        """Where `calibrate` expects the temperature."""
        return 1.0

    @cached_property
    def outlier_score(self) -> OutlierScore:
        """What makes the outlier score of rows and of the predictor's; made when it is first asked for."""
        return learnt_score(self, self.predictor.outlier_scores)

    @cached_property
    def places_left_out(self) -> np.ndarray:
        """Places (M,) among the rows of `learnt` of those that decisions are calibrated by."""
        return places_left_out(self.learnt, len(self.classes))

    @property
    @abstractmethod
    def _left_out(self) -> tuple[Tensor, Tensor]:
        """Probabilities (M, C) and outlier scores (M,) of the rows at `places_left_out`, each without itself; kept."""

    def outlier_scores_left_out(self) -> Tensor:
        """The predictor's `outlier_scores` of each row at `places_left_out` without it, (M,)."""
        return self._left_out[1]

    def probabilities_left_out(self) -> Tensor:
        """The predictor's `probabilities` of each row at `places_left_out` without it, (M, C), before a class prior."""
        return self._left_out[0]

    @cached_property
    def usual_outliers(self) -> CalibrationScores:
        """Outlier scores of labelled rows, each left out; made when they are first asked for."""
        with torch.no_grad():
            of_model = self.outlier_scores_left_out().cpu().numpy()
            score = self.outlier_score if self.has_distances else None
        return outlier_scores_left_out(self.learnt, self.places_left_out, of_model, score, self.scalings)

    @cached_property
    def usual_labels(self) -> CalibrationScores:
        """How improbable labelled rows find their own labels, each left out; made when it is first asked for."""
        with torch.no_grad():
            p = self.under_prior(self.probabilities_left_out()).cpu().numpy()
        return labels_left_out(self.learnt, self.places_left_out, p)

    @property
    def entries_without(self) -> int:
        """How many numbers `probabilities_without` takes for each query and row."""
        return len(self.classes)

    def probabilities_without(
        self,
        queries: Tensor,
        place: Tensor,  # (E,) int64, among `distinct_rows`
        share: Tensor,  # (E,), of the row's weight that leaves
    ) -> Tensor:
        """Probabilities of queries without each of some labelled rows, (Q, E, C), before a class prior.

        Settings stay as they are.
        """
        raise NoInfluence(
            "influence is known of Gaussian processes that keep their labelled rows: GPClassifier, FewShotClassifier "
            "without a checkpoint or with one of a Gaussian process, KernelSearchClassifier."
        )


def left_out_by_folds(
    rows: LabelledRows,
    without: Callable[[Tensor, Tensor], ClassPredictor],  # given rows (N', ) that stay, and their weights
    temperature: float,
) -> tuple[Tensor, Tensor]:
    """Probabilities (N, C) and outlier scores (N,) of rows by predictors that have not seen their fold."""
    y, weight, share = (torch.from_numpy(part) for part in (rows.y, rows.weight, rows.left_out_shares))

    def of_fold(stays: Tensor, stay_weight: Tensor, fold: Tensor) -> Tensor:
        predictor = without(stays, stay_weight)
        queries = predictor.inputs(rows.x[fold.numpy()])
        p = predictor.probabilities(predictor.moments(queries), temperature)
        return torch.cat([p, predictor.outlier_scores(queries).unsqueeze(-1)], -1)

    both = by_folds(y, weight, share, of_fold)
    return both[:, :-1], both[:, -1]
