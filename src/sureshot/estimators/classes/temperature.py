"""Predictive rules on left-out latents: their temperature and their score.

The averaging rules account for the uncertainty of the latents and keep temperature 1; the plug-in rule gets the
temperature that maximises the leave-one-out log probability under a log-normal prior.

An average gets the share of labels that are drawn at random as well (`fit_average`): where labels are wrong here and
there, one temperature for all makes every row doubt instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from sureshot.estimators.rows.support import Support
from sureshot.likelihoods.base import Likelihood
from sureshot.likelihoods.softmax import Softmax

# Standard deviation of the prior on the log temperature: about what the best temperatures of one-shot tasks show
# (docs/results/one-shot-defaults.md).
TEMPERATURE_SPREAD = 0.6
RIGHT_LABELS = 15.0  # labels that are known to be right beforehand: with few rows, luck looks like noise
_STARTS = ((0.0, 1e-3), (-0.7, 0.2))  # of the log temperature, from the best without noise, and of the noise
_SMALLEST_PROBABILITY = 1e-300
_NEAR, _FLAT = 1 / 16, 1e-12  # the parabola's step, and its least bend


def plug_in_temperatures(
    likelihood: Likelihood,
    means: Tensor,  # (L, C, N)
    support: Support,
    default_temperature: float,
) -> tuple[Tensor, Tensor]:
    """The best temperature (L,) for each of several leave-one-out latents, and the smoothed scores (L, N) at them.

    The best of nine a factor of e apart, three halvings of the step, and the vertex of a parabola through three there.
    """
    usable = support.usable
    log_default = math.log(default_temperature)
    pointwise = (_scores_of_softmax if isinstance(likelihood, Softmax) else _scores)(likelihood, means, support)

    def value(log_temperatures: Tensor) -> Tensor:
        distance = (log_temperatures - log_default) / TEMPERATURE_SPREAD
        return (usable * pointwise(log_temperatures)).sum(-1) - 0.5 * distance**2

    grid = log_default + torch.linspace(-4, 4, 9, dtype=means.dtype, device=means.device)
    highest, place = value(grid[:, None].expand(-1, len(means))).max(0)
    centre, sides = grid[place], means.new_tensor([[-1.0], [1.0]])
    for width in (0.5, 0.25, 0.125):
        beside = centre + width * sides
        highest, place = torch.cat([highest[None], value(beside)]).max(0)
        centre = torch.cat([centre[None], beside]).gather(0, place[None])[0]
    below, above = value(centre + _NEAR * sides)
    slope, bend = above - below, (2 * highest - below - above).clamp_min(_FLAT)
    centre = centre + (0.5 * _NEAR * slope / bend).clamp(-2 * _NEAR, 2 * _NEAR)
    return centre.exp(), pointwise(centre)


def _scores(likelihood: Likelihood, means: Tensor, support: Support) -> Callable[[Tensor], Tensor]:
    """Smoothed log probabilities (..., L, N) as a function of log temperatures (..., L)."""
    return lambda log_temperatures: smoothed_score(
        likelihood.log_plug_in(means / log_temperatures.exp()[..., None, None]), support
    )


def _scores_of_softmax(likelihood: Likelihood, means: Tensor, support: Support) -> Callable[[Tensor], Tensor]:
    """As `_scores`, for logits that are proportional to the inverse temperature.

    With the largest logit of a row subtracted once, only the normaliser is computed anew; the rest is a multiple.
    """
    logits = likelihood.class_logits(means).contiguous()  # sums over classes that lie innermost are slow
    logits = logits - logits.amax(-2, keepdim=True)
    numerator = smoothed_score(logits, support)

    def pointwise(log_temperatures: Tensor) -> Tensor:
        inverse = log_temperatures.exp().reciprocal().unsqueeze(-1)
        normaliser = (logits * inverse.unsqueeze(-1)).exp_().sum(-2).log_()
        return (numerator * inverse).sub_(normaliser)

    return pointwise


def with_noise(p: Tensor, noise: float | Tensor) -> Tensor:
    """Probabilities (..., C, N) where a share of labels is drawn at random from all classes."""
    return (1 - noise) * p + noise / p.shape[-2]


def tempered_average(p: Tensor, temperature: float | Tensor, noise: float | Tensor) -> Tensor:
    """An average's probabilities (C, N) at a temperature of their logarithms and a share of random labels."""
    return with_noise(torch.softmax(log_probability(p) / temperature, 0), noise)


def fit_average(
    p: Tensor,  # (C, N), an average's probabilities of left-out rows
    support: Support,
) -> tuple[float, float, Tensor]:
    """Temperature of the log probabilities, share of random labels, and the smoothed scores (N,) at both.

    The posterior's mode: the temperature as in `plug_in_temperatures` around 1, the noise as if `RIGHT_LABELS` labels
    had been seen that are right.
    """
    usable = support.usable
    temperatures, pointwise = plug_in_temperatures(Softmax(), log_probability(p)[None], support, 1.0)
    plain = math.log(float(temperatures[0]))

    def scored(point: Tensor) -> tuple[Tensor, Tensor]:
        noise = torch.sigmoid(point[1])
        scores = smoothed_score(log_probability(tempered_average(p, point[0].exp(), noise)), support)
        value = usable @ scores - 0.5 * (point[0] / TEMPERATURE_SPREAD).square() + RIGHT_LABELS * (1 - noise).log()
        return value, scores

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.from_numpy(point).to(p).requires_grad_()
        with torch.enable_grad():
            value = -scored(free)[0]
        return value.item(), torch.autograd.grad(value, free)[0].cpu().numpy()

    without = float(usable @ pointwise[0]) - 0.5 * (plain / TEMPERATURE_SPREAD) ** 2
    starts = [np.array([plain + shift, math.log(share / (1 - share))]) for shift, share in _STARTS]
    options = {
        "method": "L-BFGS-B",
        "bounds": [(plain - 4, plain + 4), (-12.0, 4.0)],
        "options": {"ftol": 1e-12, "gtol": 1e-8},  # rows in another order are to give the same
    }
    found = min((minimize(loss, start, jac=True, **options) for start in starts), key=lambda end: end.fun)
    if not without < -found.fun:
        return math.exp(plain), 0.0, pointwise[0]
    best = torch.from_numpy(found.x).to(p)
    return float(best[0].exp()), float(torch.sigmoid(best[1])), scored(best)[1]


def smoothed_score(log_probability: Tensor, support: Support) -> Tensor:
    """Log probability of the labels (..., N) as if one row in all had a label drawn at random, from (..., C, N).

    Without it, a small support whose left-out labels are all predicted right asks for certainty. One
    pseudo-mistake among n rows is Laplace's rule of succession, as Platt 1999 smooths the targets of his sigmoid.
    """
    share = 1 / (1 + support.able.sum())
    picked = log_probability.gather(-2, support.y.expand(*log_probability.shape[:-2], 1, -1)).squeeze(-2)
    return (1 - share) * picked + share * log_probability.mean(-2)


def log_probability(probability: Tensor) -> Tensor:
    """The logarithm; of 0 that of the smallest probability there is."""
    return probability.clamp_min(_SMALLEST_PROBABILITY).log()
