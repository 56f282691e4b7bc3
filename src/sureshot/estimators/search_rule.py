"""By which rule latents become probabilities, and what they are divided by: as rows that are left out are told best.

Averaging over the latents' uncertainty is right if the prior is. Where labels follow from the columns almost surely,
a process whose amplitude and length-scale they choose still doubts what lies between them, and probabilities at the
latents' posterior means, at a temperature, say the labels of left-out rows better.
"""

from __future__ import annotations

import math

import torch
from scipy.optimize import minimize_scalar

from sureshot.estimators.temperature import TEMPERATURE_SPREAD
from sureshot.likelihoods.base import PredictiveRule
from sureshot.structure.collapsed import Collapsed
from sureshot.structure.leave_one_out import left_out
from sureshot.structure.prediction import averaged_probabilities
from sureshot.structure.smc import SmcState

RULES: tuple[PredictiveRule, ...] = ("integral", "plug_in")
_LEAST = 1e-300


def chosen_rule(
    state: SmcState,
    predictive: str,  # "auto" or one of `RULES`
) -> tuple[PredictiveRule, float]:
    """The rule and its temperature; the integral's is 1, which is where it means what it says.

    Whitened latents say nothing of rows left out: "auto" is the integral, and the temperature 1.
    """
    if not len(state.contrasts) or not isinstance(state.latent, Collapsed):
        return "integral" if predictive == "auto" else predictive, 1.0  # type: ignore[return-value]
    if predictive == "integral":
        return "integral", 1.0
    out = left_out(state)
    rows = torch.arange(len(state.y))

    def loss(rule: PredictiveRule, temperature: float) -> float:
        p = averaged_probabilities(out.mean, out.covariance, out.weights, temperature, rule)
        return -float(p[rows, state.y].clamp_min(_LEAST).log().sum())

    def penalised(log_temperature: float) -> float:
        return loss("plug_in", math.exp(log_temperature)) + 0.5 * (log_temperature / TEMPERATURE_SPREAD) ** 2

    found = minimize_scalar(penalised, bounds=(-4.0, 4.0), method="bounded", options={"xatol": 1e-3})
    if predictive == "auto" and loss("integral", 1.0) <= found.fun:
        return "integral", 1.0
    return "plug_in", math.exp(found.x)
