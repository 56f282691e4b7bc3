"""What settings are compared by: how well the targets of left-out rows are predicted, or the evidence.

All that tuning needs to know of targets is here: classes are scored by the log loss of their labels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from sureshot.estimators.classes.class_prior import assumed
from sureshot.estimators.classes.temperature import (
    fit_average,
    log_probability,
    plug_in_temperatures,
    smoothed_score,
)
from sureshot.estimators.gp.model import LEAST_SQUARES, Model
from sureshot.estimators.rows.support import Support
from sureshot.inference.schemes import Conditioned, Request
from sureshot.likelihoods.base import PredictiveRule
from sureshot.likelihoods.local_link import LabelLink, LocalLink
from sureshot.likelihoods.softmax import Softmax

RANDOM_GAIN = 3.0  # nats, from which on a share of random labels is believed


class LeftOutLatents(NamedTuple):
    """Leave-one-out predictions of the rows' latents, by several settings."""

    mean: Tensor  # (L, P, N)
    variance: Tensor  # (L, P, N), of the latents
    noise: Tensor  # (L,), variance, of least squares


@dataclass(frozen=True)
class Objective(ABC):
    """How latents of left-out rows predict targets, and how good the predictions are."""

    rule: PredictiveRule  # from latents to predictions
    by_evidence: bool = False  # whether the evidence compares settings; left-out rows then fit temperatures only
    noise: float | None = None  # variance of numbers, where it is stated: as it is, without a temperature

    regression: ClassVar[Model]  # in closed form, by which kernels are compared

    @abstractmethod
    def condition(self, model: Model, features: Tensor, rows: Support, request: Request) -> Conditioned:
        """The posterior of the weights of features (N, R), given the rows' targets."""

    @abstractmethod
    def score(
        self,
        model: Model,
        rule: PredictiveRule,
        latents: LeftOutLatents,
        rows: Support,
        usual_temperature: float,  # where rows cannot tell
    ) -> tuple[Tensor, Tensor]:
        """The best temperature (L,) of each setting, and log densities (L, N) of the rows' targets at it."""

    @abstractmethod
    def local_link(self, rows: Support) -> LocalLink:
        """How a regression on nearest rows predicts targets."""

    @abstractmethod
    def targets_look_random(self, latent: Tensor, rows: Support) -> bool:
        """Whether some targets have nothing to do with their rows, by `regression`'s tempered latents (P, N)."""


@dataclass(frozen=True)
class LabelLogLoss(Objective):
    """Log probabilities of labels."""

    regression = LEAST_SQUARES

    def condition(self, model: Model, features: Tensor, rows: Support, request: Request) -> Conditioned:
        return model.condition(features, rows.y, rows.n_classes, rows.weight, request)

    def score(
        self, model: Model, rule: PredictiveRule, latents: LeftOutLatents, rows: Support, usual_temperature: float
    ) -> tuple[Tensor, Tensor]:
        likelihood = model.predictive_likelihood
        if rule == "plug_in":
            return plug_in_temperatures(likelihood, latents.mean, rows, usual_temperature)
        probabilities = likelihood.predict(latents.mean, latents.variance, rule)
        return torch.ones_like(latents.noise), smoothed_score(log_probability(probabilities), rows)

    def local_link(self, rows: Support) -> LabelLink:
        return label_link(rows.y, rows.weight, rows.n_classes)

    def targets_look_random(self, latent: Tensor, rows: Support) -> bool:
        """By what the best share of random labels gains on left-out rows."""
        p = torch.softmax(latent, 0)
        _, _, scores = fit_average(p, rows)
        _, plain = plug_in_temperatures(Softmax(), log_probability(p)[None], rows, 1.0)
        return float(rows.usable @ (scores - plain[0])) > RANDOM_GAIN


def label_link(y: Tensor, weight: Tensor, n_classes: int) -> LabelLink:
    """Of labelled rows."""
    totals = torch.bincount(y, weight, minlength=n_classes).cpu().numpy()
    return LabelLink(y, torch.from_numpy(assumed(totals)).to(weight))
