"""By which rule latents become probabilities: what is chosen, against minima that are found otherwise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from sureshot.estimators.search.rule import SCALES, chosen_rule
from sureshot.structure.least_squares import means_left_out
from sureshot.structure.leave_one_out import left_out
from tests.structure.test_leave_one_out import state_of


def test_a_temperature_fits_the_labels_of_rows_left_out_and_stays_near_one() -> None:
    """By a grid: minus log probabilities at the mean of all particles' latents, log T having the deviation 0.6."""
    state = state_of(2)
    out = left_out(state)
    mean = np.einsum("mk,mk->k", out.weights.numpy(), out.mean[:, 0].numpy())
    signed = (2 * state.y[out.copies.first].numpy() - 1) * mean
    logs = np.linspace(-4, 4, 80_001)
    loss = np.logaddexp(0, -signed / np.exp(logs)[:, None]).sum(-1) + (logs / 0.6) ** 2 / 2
    chosen = chosen_rule(state, "plug_in")
    assert math.log(chosen.temperature) == pytest.approx(logs[loss.argmin()], abs=2e-3)
    assert abs(logs[loss.argmin()]) > 0.05, "the rows must have a say"


def test_a_stack_fits_the_labels_of_rows_left_out_and_stays_near_halves() -> None:
    """Of every scale the least loss of two weights, whose logarithms have the deviation 1 around that of one half."""
    state = state_of(2)
    out = left_out(state)
    signs = 2 * state.y[out.copies.first].numpy() - 1
    weights, found = out.weights.numpy(), []
    for scale in SCALES:
        means = (out.mean, means_left_out(state, scale, out.copies))
        pair = np.stack([np.einsum("mk,mk->k", weights, one[:, 0].numpy()) for one in means])

        def loss(logarithms: np.ndarray, signed: np.ndarray = signs * pair) -> float:
            fit = np.logaddexp(0, -np.exp(logarithms) @ signed).sum()
            return float(fit + ((logarithms - math.log(0.5)) ** 2).sum() / 2)

        best = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10})
        found.append((best.fun, scale, *np.exp(best.x)))
    _, scale, posterior, regression = min(found)
    stack = chosen_rule(state, "stacked").stack
    assert stack is not None
    assert stack.of_labels.scale == scale
    assert (stack.posterior, stack.regression) == pytest.approx((posterior, regression), rel=1e-3)
