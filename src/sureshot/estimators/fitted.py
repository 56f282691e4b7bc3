"""The result of a fit, as a value.

Everything that an estimator has learnt is one frozen `Fitted`. Learning and updating compute the next one completely,
and the estimator then takes it over in one assignment; predicting, calibrating, forgetting and saving are written once
in terms of it. A model file is made of a `Fitted` and the constructor's arguments (`stored`).
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sureshot.estimators.classes.class_prior import assumed, under_prior
from sureshot.estimators.classes.left_out import labels_left_out, outlier_scores_left_out
from sureshot.estimators.classes.p_values import LeftOut
from sureshot.estimators.outliers import MOST_LEFT_OUT, OutlierScore, as_they_are, scalings_for
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.estimators.rows.readers import Reader
from sureshot.estimators.rows.row_ids import RowIds
from sureshot.estimators.rows.validation import Columns, LabelledRows, merge_rows
from sureshot.kernels import is_unit_norm


@dataclass(frozen=True)
class TrainingSet:
    """What an estimator learns from: all labelled rows that it knows, not only those of the latest call."""

    reader: Reader
    columns: Columns
    classes: np.ndarray  # (C,), some may have no row
    rows: LabelledRows  # as the reader keeps them, with the weights that they came with
    checked: np.ndarray | None  # (n, width), X as the first call gave it; None afterwards
    unseen: np.ndarray | None = None  # (N,) bool, rows that the network which made them was not trained on; None: all
    row_ids: RowIds | None = None  # of the rows; None: none has an id

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """Of the rows' columns (D,), where they have any."""
        return self.reader.names_of(self.columns)


class NoInfluence(ValueError):
    """What a model predicts from are no rows, or no Gaussian process."""


class Predictor(ABC):
    """What is said of queries (Q, D), in the form in which a kernel sees them."""

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
class Fitted(Predictor):
    """What an incremental classifier has learnt, and what it says of queries.

    Queries are what `inputs` makes of rows; (Q, D).
    """

    classes: np.ndarray  # (C,), in the order in which they came: of class numbers, and of what is said of classes here
    columns: Columns  # of the inputs, as the user knows them
    reader: Reader
    rows: LabelledRows  # as the reader keeps them, with the weights that they came with
    temperature: float  # the latents are divided by it
    calibrated: bool  # whether `calibrate` has set the temperature
    log_evidence: float  # in nats
    class_prior: np.ndarray | None = field(default=None, kw_only=True)  # (C,), in place of the frequencies; None: these
    row_ids: RowIds | None = field(default=None, kw_only=True)  # of `distinct_rows`; None: none has an id
    arguments: str = field(default="", kw_only=True)  # a hash of those that an update takes as they are by then

    @property
    def distinct_rows(self) -> LabelledRows:
        """The labelled rows, equal ones merged into one."""
        return self.rows

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
    def kinds(self) -> dict[Any, str] | None:
        """What the columns of a DataFrame were taken for, by name; None where all are numbers."""
        return None if self.reader.encoder is None else self.reader.encoder.kinds

    def with_prior(self, class_prior: np.ndarray | None) -> Self:
        """The same where classes come as another prior (C,) says; None: as among the labelled rows."""
        return replace(self, class_prior=class_prior)

    @property
    def prior(self) -> np.ndarray:
        """How often each of the sorted classes is expected to come, (C,), summing to 1."""
        prior = assumed(self.frequencies) if self.class_prior is None else self.class_prior
        return prior[self.places]

    def answers(self, moments: tuple[Tensor, ...], temperature: float) -> Tensor:
        """As `probabilities`, where classes come as the class prior says."""
        return self.under_prior(self.probabilities(moments, temperature))

    def under_prior(self, p: Tensor) -> Tensor:
        """Probabilities (Q, C) where classes come as the class prior says."""
        return p if self.class_prior is None else under_prior(p, self.frequencies, self.class_prior)

    @property
    def settled(self) -> Fitted:
        """The same with all that predictions need, of what an update has put off."""
        return self

    @property
    def uncalibrated(self) -> Self:
        """The same as `calibrate` needs it, with nothing but the temperature to say how sure to be."""
        return self

    def calibrated_as(self, known: Fitted | None) -> Self:
        """As sure as `calibrate` has made what was known before, if it has: by as much more or less than is usual."""
        if known is None or not known.calibrated or self.calibrated:
            return self
        found, ratio = self.uncalibrated, known.temperature / known.usual_temperature
        return replace(found, temperature=ratio * found.usual_temperature, calibrated=True)

    @property
    def usual_temperature(self) -> float:
        """Where `calibrate` expects the temperature."""
        return 1.0

    @property
    def queries_at_once(self) -> int:
        """How many queries keep the memory of an answer within bounds; any number where not said."""
        return sys.maxsize

    @property
    def has_distances(self) -> bool:
        """Whether rows are kept as points, between which distances mean something."""
        return True

    def scalings(self, x: np.ndarray) -> tuple[Scaling, ...]:
        """Maps of columns under which distances of rows (N, D) count, as the reader keeps them."""
        return scalings_for(x) if self.reader.has_columns else (as_they_are(x.shape[1]),)

    @property
    def has_directions(self) -> bool:
        """Whether only the direction of rows matters, so that one of zeros is like none of them."""
        return is_unit_norm(self.rows.x)

    @cached_property
    def outlier_score(self) -> OutlierScore:
        """What makes the outlier score of rows and of what the model says of them; made when it is first asked for."""
        x = merge_rows(self.rows.x, np.zeros(len(self.rows.y)), np.ones(len(self.rows.y))).x
        some = x[np.unique(np.linspace(0, len(x) - 1, MOST_LEFT_OUT).astype(np.int64))]
        blocks = self.inputs(some).split(max(1, self.queries_at_once))
        said = torch.cat([self.outlier_scores(block) for block in blocks]).cpu().numpy()
        return OutlierScore.of(x, self.scalings(x), said, self.has_directions)

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
        """What `probabilities` says of queries without each of some labelled rows, (Q, E, C), before a class prior.

        Settings stay as they are.
        """
        raise NoInfluence(
            "influence is known of Gaussian processes that keep their labelled rows: GPClassifier, FewShotClassifier "
            "without a checkpoint or with one of a Gaussian process, KernelSearchClassifier."
        )

    @property
    def learnt(self) -> LabelledRows:
        """The rows that something has been learnt from."""
        return self.rows

    @cached_property
    def usual_outliers(self) -> LeftOut:
        """Outlier scores of labelled rows, each left out; made when they are first asked for."""
        return outlier_scores_left_out(self)

    @cached_property
    def usual_labels(self) -> LeftOut:
        """How improbable labelled rows find their own labels, each left out; made when it is first asked for."""
        return labels_left_out(self)

    @abstractmethod
    def outlier_scores_left_out(self) -> Tensor:
        """What `outlier_scores` says of each row of `learnt` without it, (N,); see `left_out`."""

    @abstractmethod
    def probabilities_left_out(self) -> Tensor:
        """What `probabilities` says of each row of `learnt` without it, (N, C), before a class prior."""

    @abstractmethod
    def inputs(self, kept: np.ndarray) -> Tensor:
        """What the kernel sees of rows in the form in which the reader keeps them."""
