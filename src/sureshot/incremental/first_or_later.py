"""The first session's classes, which a network has learnt, and later ones: a decision between the two kinds.

A network separates the classes that it was trained on better than later ones, and a row of any class looks like one of
the former. So what speaks for them counts for less than what speaks for a later class, and each kind has a temperature
of its own. No class of the first session can say so; rows of both kinds that are left out of their classes can.

The probability of a class is a product, as along two branches of a tree: that of its kind, and that of the class among
its kind. The first is a logistic regression on two numbers, the mean density of either kind's classes at a row over
that of a class of which nothing is known, both as logarithms. With slopes of one, odds as there are classes and equal
temperatures that is the softmax of all classes; this is where its standard normal prior lies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import expit
from torch import Tensor

from sureshot.incremental.temperature import loss_and_temperature

LATER_LOG_ODDS = 0.3
"""Added to those of a later class.

Left-out rows say what makes the whole probability likeliest, and there it is flat, while the most probable class is too
often one of the first session's.
"""

LEAST_SLOPE = 0.05
"""Of either number: a row that is more like some kind's classes is never less probably of this kind."""


@dataclass(frozen=True)
class FirstOrLater:
    """Log probabilities of the classes, from log densities (..., C) relative to that of a class without rows."""

    later: Tensor  # (C,) bool
    intercept: float
    slope_later: float
    slope_first: float
    sharpness: Tensor  # (C,), what log densities count for among classes of the same kind

    @classmethod
    def learnt(
        cls,
        scores: Tensor,  # (N, C), of rows that are left out of their classes, by the temperature
        y: Tensor,  # (N,)
        later: Tensor,  # (C,) bool
    ) -> FirstOrLater | None:
        """From rows of both kinds, all classes of equal weight; None without rows of both."""
        of_later = later[y]
        if not bool(of_later.any()) or bool(of_later.all()):
            return None
        sharpness = scores.new_empty(len(later))
        for kind in (False, True):
            classes, rows = (later == kind).nonzero().squeeze(-1), of_later == kind
            number = torch.cumsum(later == kind, 0) - 1
            temperature = loss_and_temperature(scores[rows][:, classes], number[y[rows]], 1.0)[1]
            sharpness[classes] = 1 / temperature
        first, beyond = (part.cpu().double().numpy() for part in _kinds(scores, later, later))
        found = _logistic(first, beyond, of_later.cpu().numpy(), int(later.sum()), int((~later).sum()))
        return cls(later, *found, sharpness)

    def log_probabilities(self, scores: Tensor, classes: Tensor | None = None) -> Tensor:
        """Of the classes (..., C), or of some of them (..., K) among which every row's is; minus infinity stays."""
        later, sharpness = self.later, self.sharpness
        if classes is not None:
            later, sharpness = later[classes], sharpness[classes]
        first, beyond = _kinds(scores, later, self.later)
        odds = (self.intercept + self.slope_later * beyond - self.slope_first * first).unsqueeze(-1)
        of_kind = torch.where(later, 1.0, -1.0).to(scores) * odds
        sharp = scores * sharpness
        whole = torch.where(later, _sum(sharp, later), _sum(sharp, ~later))
        found = sharp - whole + torch.nn.functional.logsigmoid(of_kind)
        return found.where(scores > -torch.inf, scores)


def _kinds(scores: Tensor, later: Tensor, every: Tensor) -> tuple[Tensor, Tensor]:
    """Log mean densities (...,) of the first session's classes and of later ones."""
    first, beyond = (_sum(scores, mask).squeeze(-1) for mask in (~later, later))
    return first - math.log(int((~every).sum())), beyond - math.log(int(every.sum()))


def _sum(scores: Tensor, mask: Tensor) -> Tensor:
    """Logarithm of the sum of some, (..., 1)."""
    return scores.masked_fill(~mask, -torch.inf).logsumexp(-1, keepdim=True)


def _logistic(
    first: np.ndarray, beyond: np.ndarray, is_later: np.ndarray, n_later: int, n_first: int
) -> tuple[float, float, float]:
    """Intercept and slopes where the prior and rows (N,), weighted by classes, are most probable."""
    inputs = np.stack([np.ones_like(first), beyond, -first], 1)
    sign = np.where(is_later, 1.0, -1.0)
    weight = np.where(is_later, n_later / is_later.sum(), n_first / (~is_later).sum())
    weight = weight / weight.mean()
    prior = np.array([math.log(n_later / n_first), 1.0, 1.0])

    def objective(coefficients: np.ndarray) -> tuple[float, np.ndarray]:
        margin, away = sign * (inputs @ coefficients), coefficients - prior
        value = weight @ np.logaddexp(0, -margin) + 0.5 * away @ away
        return float(value), away - inputs.T @ (weight * sign * expit(-margin))

    bounds = [(None, None), (LEAST_SLOPE, None), (LEAST_SLOPE, None)]
    options = {"ftol": 1e-14, "gtol": 1e-9}
    found = minimize(objective, prior, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    # Values say no more than half of the digits: a step of Newton's, where no bound holds, says the others.
    slope, free = expit(inputs @ found), found > [-np.inf, LEAST_SLOPE, LEAST_SLOPE]
    curvature = np.eye(3) + inputs.T @ ((weight * slope * (1 - slope))[:, None] * inputs)
    found[free] -= np.linalg.solve(curvature[np.ix_(free, free)], objective(found)[1][free])
    found[1:] = found[1:].clip(LEAST_SLOPE)
    return float(found[0]) + LATER_LOG_ODDS, float(found[1]), float(found[2])
