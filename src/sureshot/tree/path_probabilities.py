"""From the latents of the nodes to the probabilities of the classes.

The probability of a class is the product, along its path, of the probabilities of the sides taken. Products are sums of
logarithms here, from the root down over all nodes of a level at once, and at every node both sides' logarithms keep
their digits: that of the less likely side is computed, and ``log(1 - p)`` of it is the other's. So the classes'
probabilities sum to one whatever the latents are.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from sureshot.likelihoods.quadrature import log_expected_sigmoid
from sureshot.tree.class_tree import ClassTree

NodeRule = Literal["integral", "plug_in"]
"""``E[sigma(f)]``, or ``sigma(E[f])``; Achituve et al. (appendix C.1) often found the second the better with Gibbs."""


class SideLogProbabilities(NamedTuple):
    """Log probabilities of the two sides of every node; they are those of one coin."""

    left: Tensor  # (..., C - 1, Q)
    right: Tensor  # (..., C - 1, Q)


def side_log_probabilities(
    mean: Tensor,  # of latents, any shape
    variance: Tensor,  # of the same shape
    rule: NodeRule = "integral",
) -> SideLogProbabilities:
    """Log probabilities of left, ``sigma(-f)``, and right, ``sigma(f)``, elementwise.

    The integral is `log_expected_sigmoid` of the less likely side: 20-point Gauss-Hermite quadrature where that is
    accurate, and a rule that is where it is not. `sureshot.likelihoods.Logistic` integrates both sides and normalises
    them, which is the same up to the error of the quadrature. ValueError for another rule.
    """
    if rule not in get_args(NodeRule):
        raise ValueError(f"rule must be one of {', '.join(get_args(NodeRule))}, got {rule!r}")
    distance = mean.abs()
    less = logsigmoid(-distance) if rule == "plug_in" else log_expected_sigmoid(-distance, variance)
    more = torch.log1p(-less.exp())
    to_the_left = mean < 0
    return SideLogProbabilities(torch.where(to_the_left, more, less), torch.where(to_the_left, less, more))


def average_of_chains(sides: SideLogProbabilities) -> SideLogProbabilities:
    """Log of the probabilities averaged over the first dimension."""
    return SideLogProbabilities(*(part.logsumexp(0) - math.log(len(part)) for part in sides))


def class_log_probabilities(
    tree: ClassTree,
    sides: SideLogProbabilities,  # (..., C - 1, Q)
) -> Tensor:
    """Log probabilities of the classes, (..., C, Q): sums along their paths, a level of the tree at a time."""
    left = sides.left
    below = left.new_zeros(*left.shape[:-2], tree.n_classes + tree.n_nodes, left.shape[-1])  # of classes, then of nodes
    for level in tree.levels:
        nodes, to_left, to_right = (torch.tensor(part, device=left.device) for part in level)
        above = below[..., tree.n_classes + nodes, :]
        below[..., to_left, :] = above + left[..., nodes, :]
        below[..., to_right, :] = above + sides.right[..., nodes, :]
    return below[..., : tree.n_classes, :]
