"""Small pieces that several likelihoods share.

Mean field chooses ``q(omega) = PG(h, c)`` with ``c^2 = E[psi^2]``. It enters only by its mean ``h tanh(c/2)
/ (2 c)`` (`sureshot.likelihoods.polya_gamma.half_tanh_ratio`) and by ``h log(2 cosh(c/2))``, both smooth functions of
``c^2``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sureshot.likelihoods.polya_gamma import log_cosh_half


def log_two_cosh_half(squared: Tensor) -> Tensor:
    """``log(2 cosh(c/2))`` as a smooth function of ``squared = c^2``, elementwise."""
    return log_cosh_half(squared) + math.log(2)


def one_hot(y: Tensor, n_classes: int, dtype: torch.dtype) -> Tensor:
    """Indicators of the labels, (..., C, N), from ``y`` (..., N)."""
    classes = torch.arange(n_classes, device=y.device).unsqueeze(-1)
    return (y.unsqueeze(-2) == classes).to(dtype)


def per_class(weight: Tensor | None) -> Tensor | float:
    """Weights (..., N) made to multiply values (..., C, N); 1 without weights."""
    return 1.0 if weight is None else weight.unsqueeze(-2)


def total(values: Tensor, weight: Tensor | None) -> Tensor:
    """Weighted sum over the data, (...), of values (..., N)."""
    return values.sum(-1) if weight is None else (weight * values).sum(-1)


def require_counts(weight: Tensor | None) -> None:
    """Refuse weights that are not whole numbers, as exact Polya-Gamma draws need (`ValueError`)."""
    if weight is None:
        return
    wrong = weight[(weight != weight.round()) | (weight < 0)]
    if wrong.numel():
        raise ValueError(
            "weight must hold whole numbers (0, 1, 2, ...) for Gibbs sampling, but it holds "
            f"{float(wrong[0]):g}: "
            'use inference="mean_field", which takes any weight, or repeat rows instead'
        )


def positive(name: str, value: float | Tensor) -> float | Tensor:
    """The value of a parameter; `ValueError` when it is not a positive finite number."""
    number = float(value.detach()) if isinstance(value, Tensor) else float(value)
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be a positive number, but it is {number:g}")
    return value
