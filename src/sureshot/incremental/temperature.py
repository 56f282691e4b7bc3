"""The temperature of scores by rows that took no part in making them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from sureshot.data.labelled import places_within_classes
from sureshot.metrics import likeliest_temperature

_COLDEST, _HOTTEST = 1e-4, 1e7  # cosines ask for small ones, densities in many dimensions for large ones
_SPREAD = 2.0  # standard deviation of log temperatures beforehand
_FOLDS, _MOST_LEFT_OUT = 5, 2000


def loss_and_temperature(
    scores: Tensor,  # (N, C)
    y: Tensor,  # (N,)
    usual: float,  # the temperature that such scores ask for as a rule
    worth: float | None = None,  # how many independent rows these are worth; N by default
) -> tuple[float, float]:
    """Mean log loss in nats at the temperature that suits scores best, and that temperature.

    Beforehand temperatures are log-normal around the usual one, within a factor of seven or so. A hundred rows say what
    they say; a few, or rows that are all named right by any margin and would ask for certainty, move it little.
    """
    scores = scores.double()
    scores = scores - scores.amax(-1, keepdim=True)
    rows = len(y) if worth is None else worth
    own = scores.gather(-1, y.unsqueeze(-1)).squeeze(-1)

    def loss(temperature: float) -> float:
        inverse = 1 / temperature
        return float((torch.logsumexp(scores * inverse, -1) - own * inverse).mean())

    def newton_step(log_temperature: float) -> float:
        inverse = math.exp(-log_temperature)
        share = torch.softmax(scores * inverse, -1)
        mean = (share * scores).sum(-1)
        spread = (share * scores.square()).sum(-1) - mean.square()
        slope = inverse * float((own - mean).mean()) + (log_temperature - math.log(usual)) / _SPREAD**2 / rows
        curvature = inverse * float((mean - own).mean()) + inverse**2 * float(spread.mean()) + 1 / _SPREAD**2 / rows
        return slope / curvature if curvature > 0 else 0.0

    bounds = _COLDEST, _HOTTEST
    found = math.log(likeliest_temperature(lambda t: rows * loss(t), usual, _SPREAD, bounds, tolerance=1e-7))
    # Values say no more than half of the digits: a step of Newton's says the others.
    temperature = min(max(math.exp(found - newton_step(found)), _COLDEST), _HOTTEST)
    return loss(temperature), temperature


def left_out_temperature(
    x: Tensor,  # (N, D)
    y: Tensor,  # (N,), each of C classes has a row
    scores_of_others: Callable[[Tensor, Tensor, Tensor], Tensor],  # of (queries, rows, their classes): (Q, C)
    usual: float,  # see `loss_and_temperature`; the answer where no class has two rows, or there is one class
) -> float:
    """The temperature of scores of rows by other rows: five folds, class by class.

    The only row of a class is never left out; of very many rows some are asked for.
    """
    counts = torch.bincount(y)
    number = torch.arange(len(y), device=y.device)
    place = places_within_classes(y, number)
    asked = number % -(-len(y) // _MOST_LEFT_OUT) == 0
    scores, labels = [], []
    for fold in range(_FOLDS):
        out = (counts[y] > 1) & (place % _FOLDS == fold)
        if len(counts) > 1 and bool((out & asked).any()):
            scores.append(scores_of_others(x[out & asked], x[~out], y[~out]))
            labels.append(y[out & asked])
    return loss_and_temperature(torch.cat(scores), torch.cat(labels), usual)[1] if scores else usual
