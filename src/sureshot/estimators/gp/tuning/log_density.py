"""Numbers are scored by the log density of left-out ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.estimators.gp.model import LEAST_SQUARES, Model
from sureshot.estimators.gp.tuning.objective import LeftOutLatents, Objective
from sureshot.estimators.numbers.support import NumberSupport
from sureshot.estimators.rows.support import Support
from sureshot.gaussian.features import FeaturePrior
from sureshot.inference.least_squares import regression_log_evidence, regression_sites
from sureshot.inference.schemes import Conditioned, Request
from sureshot.likelihoods.base import PredictiveRule
from sureshot.likelihoods.local_link import NumberLink

PSEUDO_ROWS = 2.0
"""That say that left-out rows are as far off as the model says, however few there are to say how far they are."""


@dataclass(frozen=True)
class LogDensity(Objective):
    """Of a normal with the model's mean and variance, the deviations multiplied by what suits left-out rows best.

    That factor takes the place of a temperature.
    """

    regression = LEAST_SQUARES

    def condition(self, model: Model, features: Tensor, rows: Support, request: Request) -> Conditioned:
        assert isinstance(rows, NumberSupport)
        numbers, mean = rows.targets
        prior, sites = FeaturePrior(features[None], mean[:, None]), regression_sites(numbers, rows.weight, model.noise)
        posterior = prior.condition(sites)
        evidence = regression_log_evidence(prior, numbers, rows.weight, model.noise, posterior)
        return Conditioned(posterior, (posterior.mean, posterior.variance), sites, float(evidence.sum()))

    def score(
        self, model: Model, rule: PredictiveRule, latents: LeftOutLatents, rows: Support, usual_temperature: float
    ) -> tuple[Tensor, Tensor]:
        variance = latents.variance + latents.noise[:, None, None]
        return scored_numbers(latents.mean, variance, rows.targets[0], rows.usable, self.noise is None)

    def local_link(self, rows: Support) -> NumberLink:
        assert isinstance(rows, NumberSupport)
        return NumberLink(rows.residuals)

    def targets_look_random(self, latent: Tensor, rows: Support) -> bool:
        """Noise says so itself."""
        return False


def scored_numbers(
    mean: Tensor, variance: Tensor, numbers: Tensor, usable: Tensor, is_free: bool = True
) -> tuple[Tensor, Tensor]:
    """What deviations are to be multiplied by, (L,), if they may, and log densities (L, N), the targets' together.

    By means and variances (L, P, N) of left-out numbers (P, N) that count as much as is `usable` (N,).
    """
    squared = (numbers - mean).square() / variance
    count = usable.sum() * len(numbers)
    factor = ((squared @ usable).sum(-1) + PSEUDO_ROWS) / (count + PSEUDO_ROWS)
    factor = factor if is_free else torch.ones_like(factor)
    spread = factor[:, None, None]
    pointwise = -0.5 * (squared / spread + (2 * math.pi * variance * spread).log()).sum(1)
    return factor.sqrt(), torch.where(usable > 0, pointwise, torch.zeros_like(pointwise))
