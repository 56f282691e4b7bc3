"""One-vs-each as a binary logistic model on differences of latents.

The one-vs-each likelihood of a label, ``prod over c != y of sigma(f_y - f_c)``, is a product of logistic
factors in the differences ``psi[n, c] = f_c'[n] - f_c[n]`` with ``c' = y_n``, one for every pair of a datum
and a class other than its own. Write ``psi = A f``; A has a single +1 and a single -1 in each of its ``M = N
(C - 1)`` rows. Under the prior ``f_c ~ N(a_c, K)`` with one K shared by the classes, ``psi ~ N(A a, S)``
with

``S[(n, c), (m, d)] = K[n, m] ([y_n = y_m] - [y_n = d] - [c = y_m] + [c = d])``,

so every routine for a binary logistic model applies, with all labels equal to one: the joint posterior over
classes, the evidence given Polya-Gamma variables, leave-one-out. The price is M x M matrices.

Pairs are ordered by datum, then by the other class in increasing order. Everywhere ``y`` is (..., N) int64.
"""

from __future__ import annotations

import torch
from torch import Tensor


def other_classes(y: Tensor, n_classes: int) -> Tensor:
    """The classes that differ from each label, in increasing order, (..., N, C - 1) int64."""
    index = torch.arange(n_classes - 1, device=y.device)
    return index + (index >= y.unsqueeze(-1)).to(index.dtype)


def pairwise_differences(y: Tensor, n_classes: int, dtype: torch.dtype) -> Tensor:
    """Coefficients of the classes in every pair: +1 the label, -1 the other, (..., N, C - 1, C)."""
    identity = torch.eye(n_classes, dtype=dtype, device=y.device)
    return identity[y].unsqueeze(-2) - identity[other_classes(y, n_classes)]


def latents_to_pairs(f: Tensor, y: Tensor) -> Tensor:
    """``psi = A f``: differences ``f_y - f_c``, (..., M), of latents (..., C, N)."""
    return (pairwise_differences(y, f.shape[-2], f.dtype) @ f.mT.unsqueeze(-1)).squeeze(-1).flatten(-2)


def pairwise_gram(Kxx: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """Prior covariance S of the differences, (..., M, M), from the shared kernel matrix (..., N, N)."""
    coefficients = pairwise_differences(y, n_classes, Kxx.dtype).flatten(-3, -2)  # (..., M, C)
    expanded = Kxx.repeat_interleave(n_classes - 1, -1).repeat_interleave(n_classes - 1, -2)
    return (coefficients @ coefficients.mT) * expanded


def pairs_to_classes(values: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """``A' values``: from pairs (..., M) back to latents (..., C, N)."""
    coefficients = pairwise_differences(y, n_classes, values.dtype)
    pairs = values.unflatten(-1, (y.shape[-1], n_classes - 1))
    return (coefficients * pairs.unsqueeze(-1)).sum(-2).mT
