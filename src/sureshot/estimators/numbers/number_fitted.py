"""What a regressor has learnt: a scale of numbers, members that are averaged, and how far off left-out rows were."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sureshot.estimators.fitted import Fitted
from sureshot.estimators.numbers.mixture import NormalMixture
from sureshot.estimators.numbers.prediction import Prediction
from sureshot.estimators.numbers.tails import noise_scales
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.outliers import OutlierScore, learnt_score
from sureshot.estimators.rows.labelled_rows import LabelledRows

MOST_JUDGES = 4000
"""Left-out rows, evenly chosen, that weigh members and make intervals."""
_CHOSEN = 2
_LEAST = 1e-12


def optimism(n_rows: int) -> float:
    """How many times farther off new numbers are than those of left-out rows that have chosen the settings; 1 of none.

    As if they had chosen two numbers (Akaike's final prediction error). Of 144 fits of 10 to 120 rows of six tables
    intervals of nominal 90 % then cover 86 to 93 % of new numbers, without 83 to 89 %.
    """
    return math.sqrt((n_rows + _CHOSEN) / max(n_rows - _CHOSEN, 1)) if n_rows else 1.0


def judges(rows: LabelledRows) -> Tensor:
    """Places of the rows that are left out."""
    return torch.from_numpy(spread(len(rows.y), MOST_JUDGES))


def spread(count: int, most: int) -> np.ndarray:
    """Places of so many, at most, evenly spread."""
    found: np.ndarray = np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
    return found


Pulling = Callable[[Tensor, Tensor, Tensor], Tensor]
"""What means fall by, (Q, E, P), on the scale on which numbers are learnt.

Of queries (Q, D), without each of the rows at places (E,), of which a share (E,) leaves."""


class NumberPredictor(ABC):
    """Answers about queries (Q, D) on the scale on which numbers are learnt."""

    @property
    def queries_at_once(self) -> int:
        """How many queries keep the memory of an answer within bounds; any number where not stated."""
        return sys.maxsize

    @property
    @abstractmethod
    def weight(self) -> np.ndarray:
        """Of the members, (M,), sum 1."""

    @abstractmethod
    def inputs(self, kept: np.ndarray) -> Tensor:
        """What members see of rows in the form in which the reader keeps them."""

    @abstractmethod
    def moments(self, queries: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of each member: means (Q, M, P), and variances (Q, M) of numbers and of latents without noise.

        Then what the row multiplies deviations by, (Q, P).
        """


@dataclass(frozen=True)
class NumberFitted(Fitted, ABC):
    """What a regressor of numbers has learnt."""

    predictor: NumberPredictor
    target: TargetScale
    one_target: bool  # whether y had one dimension
    wider: float = field(default=1.0, kw_only=True)  # what `calibrate` multiplies deviations by
    calibrated: bool = field(default=False, kw_only=True)
    chosen_by: int = field(default=0, kw_only=True)  # how many left-out rows chose the settings
    degrees: float = field(default=math.inf, kw_only=True)  # of freedom of the noise; infinite of a normal
    farther: float = field(default=1.0, kw_only=True)  # times that new numbers are off than left-out ones, as measured

    @property
    def n_rows(self) -> float:
        """Labelled rows, one of weight 2 as two."""
        return float(self.rows.weight.sum())

    @property
    def usual(self) -> NormalMixture:
        """A normal of all labelled numbers, (1, P): what is known of a number before its row is."""
        mean = np.average(self.rows.y, axis=0, weights=self.rows.weight)
        deviation = np.sqrt(np.average((self.rows.y - mean) ** 2, axis=0, weights=self.rows.weight))
        return NormalMixture(
            np.ones(1), mean[None, None], np.maximum(deviation, _LEAST * abs(mean) + _LEAST)[None, None]
        )

    def prediction(self, mean: np.ndarray, variance: np.ndarray, latent: np.ndarray, widths: np.ndarray) -> Prediction:
        """By moments (n, M, P) and (n, M), of numbers and of latents without noise, and widths (n, P) of rows."""
        scales, shares = noise_scales(self.degrees)
        means, spread = np.moveaxis(mean, 1, 0), latent.T + scales[:, None, None] * (variance - latent).T
        noisy = spread[..., None] * np.broadcast_to(widths, means.shape) ** 2 + self.reader.doubt  # (K, M, n, P)
        deviation = self.wider * np.sqrt(noisy)
        weight = np.outer(shares, self.predictor.weight).ravel()
        means = np.broadcast_to(means, deviation.shape).reshape(-1, *means.shape[1:])
        return Prediction(
            NormalMixture(weight, means, deviation.reshape(means.shape)), self.target, math.isfinite(self.degrees)
        )

    @abstractmethod
    def pulling(self) -> Pulling:
        """What labelled rows do to means."""

    @abstractmethod
    def covariance_within(self, queries: Tensor) -> np.ndarray:
        """Of latents at queries (Q, D), (Q, Q), the average of the members'; `ValueError` where these have none."""

    def covariance(self, queries: Tensor) -> np.ndarray:
        """Of numbers at queries (Q, D), (Q, Q, P), in the user's units: correlations are those on the scale."""
        within = self.covariance_within(queries)[..., None]
        mean, variance, latent, widths = (part.cpu().numpy() for part in self.predictor.moments(queries))
        found, weight = self.prediction(mean, variance, latent, widths), self.predictor.weight
        apart = mean - np.tensordot(weight, mean, (0, 1))[:, None]  # (n, M, P)
        scaled = self.wider**2 * within * widths[:, None] * widths + np.einsum("m,imp,jmp->ijp", weight, apart, apart)
        usual, places = found.scaled.deviation, np.arange(len(queries))
        correlation = scaled / (usual[:, None] * usual)
        correlation[places, places] = 1.0
        covariance: np.ndarray = correlation * found.deviation[:, None] * found.deviation
        return covariance

    @property
    @abstractmethod
    def left_out(self) -> tuple[np.ndarray, Prediction]:
        """Numbers (K, P) of rows that were left out one at a time, and what is said of them; kept."""

    @cached_property
    def usual_errors(self) -> np.ndarray:
        """How far off left-out numbers were, in deviations, (P, K), each increasing.

        Of rows alone that the reader has not learnt from, if it has from others.
        """
        if self.reader.unseen_errors is not None:
            return self.reader.unseen_errors / self.wider
        if not len(self.rows.y):
            return self.rows.y.T
        y, found = self.left_out
        return np.sort(found.errors(y).T, axis=1)

    @property
    def errors_to_expect(self) -> np.ndarray:
        """How far off new numbers are, as `usual_errors`."""
        return optimism(self.chosen_by) * self.farther * self.usual_errors

    def deviations_within(self, coverage: float) -> np.ndarray:
        """Deviations (P,) within which a share of new numbers lies: conformal where left-out rows are enough."""
        errors = self.errors_to_expect
        rank = math.ceil(coverage * (errors.shape[1] + 1) - 1e-9)
        return np.full(len(errors), np.inf) if rank > errors.shape[1] else errors[:, rank - 1]

    @cached_property
    def outlier_score(self) -> OutlierScore:
        """What makes the outlier score of rows; made when it is first asked for."""
        return learnt_score(self, lambda queries: self.unknown(self.predictor.moments(queries)[2]))

    def unknown(self, latent: Tensor) -> Tensor:
        """Deviations (Q,) of latents, by the members' variances (Q, M)."""
        return (latent @ latent.new_tensor(self.predictor.weight)).sqrt()
