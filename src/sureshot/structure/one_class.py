"""Class probabilities while all rows are of one class: what can be known before there is a second one.

Other classes are announced and have no rows. How large they are follows from how rows come. As likely as not rows are
sorted by class, and all classes have equal shares; else their order is random, and the rule of succession holds. That
all n are of one class is what sorted rows do, and others rarely.

Which rows are theirs: those unlike the rows seen. The p-value u of a query, the share of rows that are as far from all
others as it is, is uniform for the class that was seen. For another class small ones are likelier; its density is taken
to be ``1 / (2 sqrt(u))``, of Beta(1/2, 1): queries farther off than three quarters of the rows are rather of another.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sureshot.structure.prediction import distance_from_rows, distances_left_out
from sureshot.structure.smc import SmcState


def one_class_probabilities(
    state: SmcState,  # with rows of one class, or none
    x: Tensor,  # (Q, D)
    n_classes: int,  # C
) -> Tensor:
    """Class probabilities (Q, C)."""
    found = _shares(state.y, n_classes).expand(len(x), -1).clone()
    if len(state.y) > 1 and n_classes > 1:
        others = torch.arange(n_classes) != state.y[0]
        found[:, others] *= _times_likelier(state, x).unsqueeze(-1)
    return found / found.sum(-1, keepdim=True)


def _shares(y: Tensor, n_classes: int) -> Tensor:
    """Of the classes (C,), whatever a query looks like."""
    n, c = len(y), n_classes
    random = math.exp(math.lgamma(n + 1) + math.lgamma(c + 1) - math.lgamma(n + c))  # probability of n alike
    seen = torch.bincount(y, minlength=c).to(torch.float64)
    return (1 / c + random * (seen + 1) / (n + c)) / (1 + random)


def _times_likelier(state: SmcState, x: Tensor) -> Tensor:
    """How much likelier queries are in another class (Q,), averaged over the p-values between a row and the next."""
    own, far = distances_left_out(state), distance_from_rows(state, x).unsqueeze(-1)
    near = 1e-9  # of distances that are the same
    low = (own > far + near).sum(-1) / (len(own) + 1)
    high = ((own >= far - near).sum(-1) + 1) / (len(own) + 1)
    return (high.sqrt() - low.sqrt()) / (high - low)
