"""By which rule latents become probabilities: as the labels of rows that are left out are told best.

Averaging over the latents' uncertainty is right if the prior is. Where labels follow from the columns almost surely,
a process whose amplitude and length-scale they choose still doubts what lies between them, and probabilities at the
latents' posterior means, at a temperature, say the labels of left-out rows better. Where the posterior's kernels are
too smooth for that, regression on labels by the same kernels at a shorter range says them better still. So latents are
stacked: a weighted sum of posterior means and of the regression's, two weights and one of six ranges for all kernels.
Weights for each kernel would fit the chance in its Polya-Gamma variables, and were measured to predict worse.

Reference: Yao et al. 2018, for stacking by rows left out; here it is of latents, not of densities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from sureshot.estimators.classes.temperature import TEMPERATURE_SPREAD
from sureshot.likelihoods.base import PredictiveRule
from sureshot.metrics import likeliest_temperature
from sureshot.structure.least_squares import LeastSquaresMeans, means_left_out, means_of_queries_without
from sureshot.structure.leave_one_out import RowsLeftOut, left_out
from sureshot.structure.prediction import averaged_probabilities, class_probabilities
from sureshot.structure.smc import SmcState
from sureshot.structure.whitened import Whitened

SearchRule = Literal["integral", "plug_in", "stacked"]
RULES: tuple[SearchRule, ...] = get_args(SearchRule)
SCALES = tuple(2 ** (k / 4) for k in range(6))
"""Of inputs in the regression, by which length-scales are divided."""

_SPREAD = 1.0  # of the logarithm of a stacked weight around that of one half, in standard deviations
_LEAST = 1e-300
_FARTHEST = 8.0  # a logarithm of a weight


@dataclass(frozen=True)
class Stack:
    """Latents that are summed: their posterior means and those of regression on labels."""

    posterior: float  # weights
    regression: float
    of_labels: LeastSquaresMeans

    @classmethod
    def of(cls, state: SmcState, posterior: float, regression: float, scale: float) -> Stack:
        """With the regression on the labels of a state."""
        return cls(posterior, regression, LeastSquaresMeans.of(state, scale))


@dataclass(frozen=True)
class Chosen:
    """A rule, and what belongs to it."""

    rule: SearchRule
    temperature: float = 1.0
    stack: Stack | None = None

    def on(self, state: SmcState) -> Chosen:
        """The same on the labels of another state."""
        if self.stack is None or not len(state.contrasts):
            return replace(self, stack=None)
        stack = self.stack
        return replace(self, stack=Stack.of(state, stack.posterior, stack.regression, stack.of_labels.scale))

    @property
    def of_latents(self) -> PredictiveRule:
        """What is done with `moments`."""
        return "integral" if self.rule == "integral" else "plug_in"

    def means(self, state: SmcState, x: Tensor, mean: Tensor) -> Tensor:
        """Means (M, L, Q) of the latents that become probabilities, by the posterior's means there."""
        if self.stack is None:
            return mean
        return self.stack.posterior * mean + self.stack.regression * self.stack.of_labels.means(state, x)

    def means_left_out(self, state: SmcState, out: RowsLeftOut) -> Tensor:
        """Those (M, L, K) at the K rows of the state that differ, each without itself."""
        if self.stack is None:
            return out.mean
        of_labels = means_left_out(state, self.stack.of_labels.scale, out.copies)
        return self.stack.posterior * out.mean + self.stack.regression * of_labels

    def means_without(self, state: SmcState, x: Tensor, sets: list[Tensor], mean: Tensor) -> Tensor:
        """Those (M, L, Q, E) without each of E sets of rows."""
        if self.stack is None:
            return mean
        of_labels = means_of_queries_without(state, self.stack.of_labels.scale, x, sets)
        return self.stack.posterior * mean + self.stack.regression * of_labels

    def probabilities(
        self,
        mean: Tensor,  # (M, L, Q), `means`
        covariance: Tensor,  # (M, Q, L, L)
        weights: Tensor,  # (M,) or (M, Q)
        temperature: float,
        own: Tensor,  # (M, L, Q), the posterior's means
        absent: Tensor,  # (C,) bool, which classes have no rows
    ) -> Tensor:
        """Class probabilities (Q, C).

        What separates rows of known classes does not describe a class without rows, and regression on labels takes it
        for ruled out; it has what the posterior's own doubt leaves it.
        """
        p = _normalised(averaged_probabilities(mean, covariance, weights, temperature, self.of_latents))
        if not bool(absent.any()):
            return p
        doubt = _normalised(averaged_probabilities(own, covariance, weights)).masked_fill(~absent, 0)
        return _normalised(p.masked_fill(absent, 0)) * (1 - doubt.sum(-1, keepdim=True)) + doubt


def _normalised(p: Tensor) -> Tensor:
    return p / p.sum(-1, keepdim=True).clamp_min(_LEAST)


INTEGRAL = Chosen("integral")
"""Where nothing is chosen."""


def chosen_rule(
    state: SmcState,
    predictive: str,  # "auto" or one of `RULES`
) -> Chosen:
    """The rule; the integral's temperature is 1, which is where it means what it says.

    Whitened latents say nothing of rows left out: "auto" is the integral, and the temperature 1.
    """
    if not len(state.contrasts) or isinstance(state.latent, Whitened):
        return Chosen("plug_in") if predictive == "plug_in" else INTEGRAL
    if predictive == "integral":
        return INTEGRAL
    out = left_out(state)
    if predictive == "plug_in":

        def loss_at(temperature: float) -> float:
            return float(_loss(state, out, out.mean, "plug_in", temperature))

        return Chosen("plug_in", likeliest_temperature(loss_at, 1.0, TEMPERATURE_SPREAD))
    losses = {scale: _stacked(state, out, scale) for scale in SCALES}
    scale = min(losses, key=lambda one: losses[one][0])
    loss, weights = losses[scale]
    if predictive == "auto" and _loss(state, out, out.mean, "integral") <= loss:
        return INTEGRAL
    return Chosen("stacked", stack=Stack.of(state, *weights, scale))


def _loss(state: SmcState, out: RowsLeftOut, mean: Tensor, rule: PredictiveRule, temperature: float = 1.0) -> Tensor:
    """Minus the log probability of the labels of rows left out, with these means (M, L, K)."""
    return _surprise(state, out, averaged_probabilities(mean, out.covariance, out.weights, temperature, rule))


def _surprise(state: SmcState, out: RowsLeftOut, p: Tensor) -> Tensor:
    own = p[torch.arange(len(p)), state.y[out.copies.first]]
    return -(out.copies.evidence * own.clamp_min(_LEAST).log()).sum()


def _stacked(state: SmcState, out: RowsLeftOut, scale: float) -> tuple[float, tuple[float, float]]:
    """The least penalised loss with the regression at a scale, and the weights of the posterior and of it."""
    pair = torch.stack(
        [torch.einsum("mn,mln->ln", out.weights, mean) for mean in (out.mean, means_left_out(state, scale, out.copies))]
    )

    def penalised(logarithms: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.from_numpy(logarithms).requires_grad_()
        with torch.enable_grad():
            mean = (free.exp()[:, None, None] * pair).sum(0, keepdim=True)
            p = class_probabilities(mean, out.covariance, "plug_in")[0].mT
            penalty = (free - math.log(0.5)).square().sum() / (2 * _SPREAD**2)
            value = _surprise(state, out, p) + penalty
            (slope,) = torch.autograd.grad(value, free)
        return float(value.detach()), slope.numpy()

    found = minimize(penalised, np.full(2, math.log(0.5)), jac=True, bounds=[(-_FARTHEST, _FARTHEST)] * 2)
    first, second = np.exp(found.x).tolist()
    return float(found.fun), (first, second)
