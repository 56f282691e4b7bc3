"""The two functions of a Polya-Gamma variable that every expected site and evidence bound is made of.

Mean field chooses ``q(omega) = PG(h, c)`` with ``c^2 = E[psi^2]``. It enters only by its mean ``h tanh(c/2) / (2
c)`` and by ``h log(2 cosh(c/2))``. Both are even in c, so they are functions of ``c^2``, and are computed so:
as functions of c their derivatives at 0 are ``0/0``.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

_SERIES_BELOW = 1e-2


def polya_gamma_mean(squared: Tensor) -> Tensor:
    """``tanh(c/2) / (2 c)``, the mean of PG(1, c), as a smooth function of ``squared = c^2``, elementwise."""
    series = 0.25 - squared / 48 + squared**2 / 480 - 17 * squared**3 / 80640
    root = squared.clamp_min(_SERIES_BELOW).sqrt()
    return torch.where(squared < _SERIES_BELOW, series, torch.tanh(0.5 * root) / (2 * root))


def log_two_cosh_half(squared: Tensor) -> Tensor:
    """``log(2 cosh(c/2))`` as a smooth function of ``squared = c^2``, elementwise."""
    series = 0.6931471805599453 + squared / 8 - squared**2 / 192 + squared**3 / 2880
    root = squared.clamp_min(_SERIES_BELOW).sqrt()
    return torch.where(squared < _SERIES_BELOW, series, 0.5 * root + softplus(-root))


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
    """Check that weights are whole numbers, as exact Polya-Gamma draws need.

    Raises
    ------
    ValueError
        With the first weight that is not.
    """
    if weight is None:
        return
    wrong = weight[(weight != weight.round()) | (weight < 0)]
    if wrong.numel():
        raise ValueError(
            f"weight must hold whole numbers (0, 1, 2, ...) for Gibbs sampling, but it holds {float(wrong[0]):g}: "
            'use inference="mean_field", which takes any weight, or repeat rows instead'
        )


def positive_temperature(temperature: float | Tensor) -> float | Tensor:
    """The temperature, checked.

    Raises
    ------
    ValueError
        When it is not a positive number.
    """
    if not float(temperature) > 0:
        raise ValueError(f"temperature must be a positive number, but it is {float(temperature):g}")
    return temperature


def draw_polya_gamma(h: Tensor, z: Tensor, generator: torch.Generator | None) -> Tensor:
    """Exact draws of PG(h, z), elementwise."""
    from sureshot.polya_gamma import sample_polya_gamma

    return sample_polya_gamma(h, z, generator=generator)
