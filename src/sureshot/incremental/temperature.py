"""The temperature of scores by rows that took no part in making them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

# Cosines ask for small ones, densities in many dimensions for large ones.
_COLDEST, _HOTTEST = 1e-3, 1e6
_FOLDS, _MOST_LEFT_OUT = 5, 2000
_HALVINGS = 45  # of the interval of log temperatures: to ten digits


def loss_and_temperature(
    scores: Tensor,  # (N, C)
    y: Tensor,  # (N,)
) -> tuple[float, float]:
    """Mean log loss in nats at the temperature that suits scores best, and that temperature.

    One row in all is counted as labelled at random: without it rows that are all named right ask for certainty.
    """
    scores = scores.double()
    scores = scores - scores.amax(-1, keepdim=True)
    share = 1 / (1 + len(y))
    own = scores.gather(-1, y.unsqueeze(-1)).squeeze(-1)
    observed = float(((1 - share) * own + share * scores.mean(-1)).mean())

    def expected(log_temperature: float) -> float:
        return float((torch.softmax(scores / math.exp(log_temperature), -1) * scores).sum(-1).mean())

    # The mean score by the probabilities falls as the temperature rises, and at the best one it is that of the labels.
    cold, hot = math.log(_COLDEST), math.log(_HOTTEST)
    if expected(hot) == observed:  # all scores are equal
        return float(cross_entropy(scores, y)), 1.0
    for _ in range(_HALVINGS):
        middle = (cold + hot) / 2
        cold, hot = (middle, hot) if expected(middle) > observed else (cold, middle)
    found = math.exp((cold + hot) / 2)
    return float(cross_entropy(scores / found, y)), found


def left_out_temperature(
    x: Tensor,  # (N, D)
    y: Tensor,  # (N,), each of C classes has a row
    scores_of_others: Callable[[Tensor, Tensor, Tensor], Tensor],  # of (queries, rows, their classes): (Q, C)
    otherwise: float,  # where no class has two rows, or there is one class
) -> float:
    """The temperature of scores of rows by other rows: five folds, class by class.

    The only row of a class is never left out; of very many rows some are asked for.
    """
    counts = torch.bincount(y)
    place = torch.empty_like(y)
    order = y.argsort(stable=True)
    place[order] = torch.arange(len(y), device=y.device) - (torch.cumsum(counts, 0) - counts)[y[order]]
    every = -(-len(y) // _MOST_LEFT_OUT)
    asked = torch.arange(len(y), device=y.device) % every == 0
    scores, labels = [], []
    for fold in range(_FOLDS):
        out = (counts[y] > 1) & (place % _FOLDS == fold)
        if len(counts) > 1 and bool((out & asked).any()):
            scores.append(scores_of_others(x[out & asked], x[~out], y[~out]))
            labels.append(y[out & asked])
    return loss_and_temperature(torch.cat(scores), torch.cat(labels))[1] if scores else otherwise
