"""Polya-Gamma variables PG(h, z): exact draws, moments, density and divergence.

A logistic factor becomes Gaussian once a Polya-Gamma variable is known (Polson, Scott & Windle 2013, theorem 1):
``sigma(f)^h = 2^-h exp(h f / 2) E[exp(-omega f^2 / 2)]`` with omega ~ PG(h, 0), and the variable's conditional given
f is PG(h, f). Gibbs sampling draws it; mean field only needs its expectation. PG(h, z) has Laplace transform
``E[exp(-t omega)] = (cosh(z / 2) / cosh(sqrt(z^2 + 2 t) / 2))^h``.

References: Polson, Scott & Windle (2013), "Bayesian inference for logistic models using Polya-Gamma latent
variables"; Devroye (2009), "On exact simulation algorithms for some distributions related to Jacobi theta functions".
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

_SERIES_TERMS = 12
_SERIES_BELOW = 0.25  # of z^2; above it the closed forms keep nearly all digits, second derivatives included
_BLOCK = 16384


def _tanh_ratio_series() -> list[Fraction]:
    """Coefficients a_k of ``tanh(c/2)/(2c) = sum_k a_k (c^2)^k``, from tanh' = 1 - tanh^2."""
    tanh = [Fraction(1)]  # tanh(u) / u in powers of u^2
    for k in range(1, _SERIES_TERMS):
        tanh.append(-sum((tanh[i] * tanh[k - 1 - i] for i in range(k)), Fraction(0)) / (2 * k + 1))
    return [value / 4 ** (k + 1) for k, value in enumerate(tanh)]


_RATIO = [float(a) for a in _tanh_ratio_series()]
_LOG_COSH = [0.0] + [float(a / (2 * (k + 1))) for k, a in enumerate(_tanh_ratio_series())]
_VARIANCE = [float(-2 * k * a) for k, a in enumerate(_tanh_ratio_series())][1:]
_DIVERGENCE = [0.0] + [float(a * Fraction(-k, 2 * (k + 1))) for k, a in enumerate(_tanh_ratio_series())]


def _polynomial(x: Tensor, coefficients: list[float]) -> Tensor:
    """Horner's rule, lowest power first."""
    value = torch.full_like(x, coefficients[-1])
    for a in reversed(coefficients[:-1]):
        value = value * x + a
    return value


def _split(c_squared: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where the series holds, its argument, and c for the closed form; each safe to differentiate everywhere."""
    small = c_squared < _SERIES_BELOW
    near = torch.where(small, c_squared, torch.zeros_like(c_squared))
    far = torch.where(small, torch.ones_like(c_squared), c_squared).sqrt()
    return small, near, far


def half_tanh_ratio(c_squared: Tensor) -> Tensor:
    """``tanh(c/2) / (2 c)`` as a differentiable function of c^2: the mean of PG(1, c); shape of ``c_squared``."""
    small, near, c = _split(c_squared)
    return torch.where(small, _polynomial(near, _RATIO), torch.tanh(c / 2) / (2 * c))


def log_cosh_half(c_squared: Tensor) -> Tensor:
    """``log cosh(c/2)`` as a differentiable function of c^2; its derivative is ``half_tanh_ratio / 2``."""
    small, near, c = _split(c_squared)
    closed = c / 2 + torch.nn.functional.softplus(-c) - math.log(2.0)
    return torch.where(small, _polynomial(near, _LOG_COSH), closed)


def _operands(h: Tensor | float, z: Tensor) -> tuple[Tensor, Tensor]:
    h = torch.as_tensor(h, device=z.device).to(z.dtype)
    if not bool((h >= 0).all()):
        raise ValueError("h must be >= 0.")
    return h, z


def polya_gamma_mean(h: Tensor | float, z: Tensor) -> Tensor:
    """``E[PG(h, z)] = h tanh(z/2) / (2 z)``."""
    h, z = _operands(h, z)
    return h * half_tanh_ratio(z.square())


def polya_gamma_variance(h: Tensor | float, z: Tensor) -> Tensor:
    """``Var[PG(h, z)]``."""
    h, z = _operands(h, z)
    small, near, c = _split(z.square())
    decay = torch.exp(-c)
    closed = (2 * torch.tanh(c / 2) - 4 * c * decay / (1 + decay).square()) / (4 * c**3)
    return h * torch.where(small, _polynomial(near, _VARIANCE), closed)


def polya_gamma_kl(h: Tensor | float, c: Tensor) -> Tensor:
    """``KL(PG(h, c) || PG(h, 0)) = h log cosh(c/2) - (h c / 4) tanh(c/2)``."""
    h, c = _operands(h, c)
    small, near, far = _split(c.square())
    closed = far / 2 + torch.nn.functional.softplus(-far) - math.log(2.0) - far / 4 * torch.tanh(far / 2)
    return h * torch.where(small, _polynomial(near, _DIVERGENCE), closed)


def polya_gamma_log_density(x: Tensor, h: Tensor | float, z: Tensor | float, terms: int = 64) -> Tensor:
    """Log density of PG(h, z) at x > 0 by the alternating series."""
    h = torch.as_tensor(h, dtype=x.dtype, device=x.device)
    z = torch.as_tensor(z, dtype=x.dtype, device=x.device)
    n = torch.arange(terms, dtype=x.dtype, device=x.device)
    x_, h_ = x.unsqueeze(-1), h.unsqueeze(-1)
    log_term = (
        torch.lgamma(n + h_)
        - torch.lgamma(n + 1)
        - torch.lgamma(h_)
        + torch.log(2 * n + h_)
        - (2 * n + h_).square() / (8 * x_)
    )
    top = log_term.amax(-1, keepdim=True)
    series = (torch.exp(log_term - top) * (1 - 2 * (n % 2))).sum(-1)
    log_base = (
        (h - 1) * math.log(2.0) - 0.5 * torch.log(2 * math.pi * x**3) + top.squeeze(-1) + torch.log(series)
    )
    return log_base + h * log_cosh_half(z.square()) - z.square() * x / 2


def _acceptance(inverse: Tensor) -> Tensor:
    """Density of J*(1, 0) over its first left-hand series term, at 1/x."""
    left = inverse > 1 / 3.1
    q = torch.exp(torch.where(left, -4 * inverse, inverse / 2 - math.pi**2 / (8 * inverse)))
    series, power = torch.full_like(q, 13.0), None
    for k, a in ((6, 11.0), (5, 9.0), (4, 7.0), (3, 5.0), (2, 3.0), (1, 1.0)):
        power = q**k
        series = a - power * series
    right = (math.pi / 2) ** 1.5 * q / inverse**1.5
    return torch.where(left, series, right)


def _draw_block(half: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    m = half.shape[0]
    pairs = (m + 1) // 2
    u = torch.rand(2 * pairs + m, dtype=half.dtype, device=half.device, generator=generator)
    e = -torch.log(1 - u[:pairs])
    a = e * torch.cos(u[pairs : 2 * pairs] * (math.pi / 2)).square()
    a = torch.cat([a, e - a])[:m]
    d = half + a + torch.sqrt(a * (a + 2 * half))
    total = d + half
    g = u[2 * pairs :] * total
    first = g < d
    inverse = torch.where(first, d, half.square() / d)
    accepted = torch.where(first, g, total - g) < torch.where(first, d, half) * _acceptance(inverse)
    return 0.25 / inverse, (~accepted).nonzero().squeeze(-1)


def _draw_one(z: Tensor, generator: torch.Generator | None) -> Tensor:
    """PG(1, z) for flat z."""
    half = z.abs() / 2
    out = torch.empty_like(half)
    pending = torch.arange(half.shape[0], device=z.device)
    while pending.numel():
        rest = []
        for index in pending.split(_BLOCK):
            draw, rejected = _draw_block(half[index], generator)
            out[index] = draw
            rest.append(index[rejected])
        pending = torch.cat(rest)
    return out


@torch.no_grad()
def sample_polya_gamma(h: Tensor | int, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Exact draws from PG(h, z), h = 0, 1, 2, ...; h and z broadcast."""
    h = torch.as_tensor(h, device=z.device)
    if not bool(torch.isfinite(z).all()):
        raise ValueError("z must be finite.")
    if not bool(((h >= 0) & (h == torch.floor(h.double()))).all()):
        raise ValueError("h must be a whole number 0, 1, 2, ...: use mean field for fractional weights.")
    h, z = torch.broadcast_tensors(h, z)
    counts = h.to(torch.int64).reshape(-1)
    flat = z.to(torch.float64).reshape(-1)
    out = torch.zeros_like(flat)
    bit = 0
    largest = int(counts.max()) if counts.numel() else 0
    while (1 << bit) <= largest:
        index = ((counts >> bit) & 1).nonzero().squeeze(-1)
        for part in index.split(max(1, (1 << 20) >> bit)):
            draws = _draw_one(flat[part].repeat_interleave(1 << bit), generator)
            out[part] += draws.reshape(-1, 1 << bit).sum(-1)
        bit += 1
    return out.to(z.dtype).reshape(z.shape)
