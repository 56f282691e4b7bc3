"""Polya-Gamma variables PG(h, z): draws and moments.

A logistic factor becomes Gaussian once a Polya-Gamma variable is known (Polson et al. 2013, theorem 1):
``sigma(f)^h = 2^-h exp(h f / 2) E[exp(-omega f^2 / 2)]`` with omega ~ PG(h, 0), and given f the variable has
the distribution PG(h, f). Gibbs sampling draws it; mean field needs its expectation only. Everything follows
from the Laplace transform ``E[exp(-t omega)] = (cosh(z / 2) / cosh(sqrt(z^2 + 2 t) / 2))^h``: PG(h, z) is
PG(h, 0) with its density multiplied by ``exp(-z^2 x / 2)``, and for whole h a sum of h draws of PG(1, z).

**The sampler.** With k = |z| / 2, ``x = 4 omega`` has the density

    cosh(k) exp(-k^2 x / 2) sqrt(2 / (pi x^3)) exp(-1 / (2 x)) r(x),
    r(x) = 1 - 3 q + 5 q^3 - 7 q^6 + 9 q^10 - ... = prod_n (1 - q^n)^3,   q = exp(-4 / x),

Devroye's alternating series with its first term taken out (the product is Jacobi's identity). So 0 < r <= 1 for
every x, and what stands before r is in proportion to the inverse Gaussian with mean 1 / k and shape 1: we propose from
that and accept with probability r, at a rate of ``1 / (1 + exp(-|z|))``, never below 1/2. ``1 - 3 q <= r`` accepts most
proposals; for the others r is computed to double precision, beyond x = 2.5 in the form that its modular transformation
gives. Proposals are drawn in float64 for every dtype of z.

The inverse Gaussian is Michael, Schucany & Haas' (1976), in a form without cancellation: with a = N^2 / 2 and
d = k + a + sqrt(a (a + 2 k)), x is 1 / d with probability d / (d + k), else d / k^2. One uniform decides both
this and the acceptance.

**Large h.** A sum of h draws costs time proportional to h, and the logistic-softmax asks for thousands. From h = 256 on
a shifted gamma with the same first three cumulants is drawn instead, whose total variation distance is below 0.02 / h
for every z (8e-5 at h = 256).

References
----------
Polson, Scott & Windle (2013), Bayesian inference for logistic models using Polya-Gamma latent variables.
Devroye (2009), On exact simulation algorithms for some distributions related to Jacobi theta functions.
Michael, Schucany & Haas (1976), Generating random variates using transformations with multiple roots.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

_SERIES_TERMS = 18
_SERIES_BELOW = 1.0  # of z^2: above it closed forms keep nearly all digits, in second derivatives too
_BLOCK = {"cpu": 32768}  # proposals at a time: their workspace stays in a core's cache
_BLOCK_ELSEWHERE = 1 << 20
_CHUNK = 1 << 20  # draws held at a time when sums of draws are needed
_SMALL = 4096  # below so many pending draws a round costs its call overhead only, so several proposals are free
_SUMMED_BELOW = 256  # of h: sums of unit draws below, the shifted gamma from there on
_SPLIT = 2.5  # of x: both forms of the acceptance probability are exact to rounding here


def _tanh_ratio_series() -> list[Fraction]:
    """Coefficients a_k of ``tanh(c/2) / (2c) = sum_k a_k (c^2)^k``, from tanh' = 1 - tanh^2."""
    tanh = [Fraction(1)]  # of tanh(u) / u in powers of u^2
    for k in range(1, _SERIES_TERMS):
        convolution = sum((tanh[i] * tanh[k - 1 - i] for i in range(k)), Fraction(0))
        tanh.append(-convolution / (2 * k + 1))
    return [a / 4 ** (k + 1) for k, a in enumerate(tanh)]


_RATIO = [float(a) for a in _tanh_ratio_series()]
_LOG_COSH = [0.0] + [float(a / (2 * k + 2)) for k, a in enumerate(_tanh_ratio_series())]
_THIRD = [float(4 * k * (k - 1) * a) for k, a in enumerate(_tanh_ratio_series())][2:]
_VARIANCE = [float(-2 * k * a) for k, a in enumerate(_tanh_ratio_series())][1:]


def _polynomial(x: Tensor, coefficients: list[float]) -> Tensor:
    """Horner's rule, lowest power first."""
    value = torch.full_like(x, coefficients[-1])
    for a in reversed(coefficients[:-1]):
        value = value * x + a
    return value


def _small_and_large(c_squared: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where the series holds, its argument, and c for the closed form; both differentiable everywhere."""
    small = c_squared < _SERIES_BELOW
    near = torch.where(small, c_squared, torch.zeros_like(c_squared))
    far = torch.where(small, torch.ones_like(c_squared), c_squared).sqrt()
    return small, near, far


def half_tanh_ratio(c_squared: Tensor) -> Tensor:
    """``tanh(c/2) / (2c)``, the mean of PG(1, c), as a differentiable function of c^2.

    In c itself the automatic derivative at 0 would be NaN; here it is -1/48, and higher derivatives are right too.
    """
    small, near, c = _small_and_large(c_squared)
    return torch.where(small, _polynomial(near, _RATIO), torch.tanh(c / 2) / (2 * c))


def log_cosh_half(c_squared: Tensor) -> Tensor:
    """``log cosh(c/2)`` as a differentiable function of c^2; its derivative is half `half_tanh_ratio`."""
    small, near, c = _small_and_large(c_squared)
    closed = c / 2 + torch.nn.functional.softplus(-c) - math.log(2.0)
    return torch.where(small, _polynomial(near, _LOG_COSH), closed)


def polya_gamma_variance(z: Tensor) -> Tensor:
    """``Var[PG(1, z)] = (2 tanh(z/2) - z sech^2(z/2)) / (4 z^3)``."""
    small, near, c = _small_and_large(z.square())
    decay = torch.exp(-c)
    closed = (torch.tanh(c / 2) / 2 - c * decay / (1 + decay).square()) / c**3
    return torch.where(small, _polynomial(near, _VARIANCE), closed)


@torch.no_grad()
def sample_polya_gamma(
    h: Tensor | int,  # whole numbers 0, 1, 2, ... of any dtype, broadcast with z; PG(0, z) is 0: no observation
    z: Tensor,  # finite, of any floating dtype; only |z| matters
    generator: torch.Generator | None = None,  # on the device of z
) -> Tensor:
    """Draw from PG(h, z), independently for every element, with the dtype and device of z.

    Exact for h below 256, in time proportional to h; from there on to 8e-5 in total variation (see the notes of this
    module), in little more.
    """
    if not z.is_floating_point():
        raise ValueError(f"z must be a floating-point tensor, got {z.dtype}; try z.to(torch.float64).")
    finite = torch.isfinite(z)
    if not bool(finite.all()):
        bad = int(z.numel() - finite.sum())
        raise ValueError(
            f"z must be finite, but {bad} of its {z.numel()} values are NaN or infinite; "
            "check the latent values it was computed from."
        )
    counts = _checked_counts(h, z.device)
    shape = np.broadcast_shapes(counts.shape, z.shape)
    flat = z.expand(shape).reshape(-1)
    smallest, largest = (int(limit) for limit in counts.aminmax()) if flat.numel() else (0, 0)
    if smallest == largest == 1:
        return _draw_unit(flat, generator).reshape(shape)
    counts = counts.expand(shape).reshape(-1)
    flat = flat.to(_working_dtype(z.device))
    out = torch.zeros_like(flat)
    many = (counts >= _SUMMED_BELOW).nonzero().squeeze(-1)
    if many.numel():
        out[many] = _draw_large(counts[many].to(flat.dtype), flat[many], generator)
        counts = counts.index_fill(0, many, 0)
        largest = int(counts.max())
    # Each binary digit of h in turn: few passes of equal-sized sums, in a fixed order on every device.
    for digit in range(largest.bit_length()):
        index = ((counts >> digit) & 1).nonzero().squeeze(-1)
        columns = 1 << digit
        for part in index.split(_CHUNK >> digit):
            location = flat.index_select(0, part).unsqueeze(-1).expand(-1, columns).reshape(-1)
            out.index_add_(0, part, _draw_unit(location, generator).reshape(-1, columns).sum(-1))
    return out.to(z.dtype).reshape(shape)


def _working_dtype(device: torch.device) -> torch.dtype:
    """float64 wherever the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def _draw_large(h: Tensor, z: Tensor, generator: torch.Generator | None) -> Tensor:
    """The shifted gamma with the mean, variance and third cumulant of PG(h, z); h and z (n,)."""
    mean, variance, third = half_tanh_ratio(z.square()), polya_gamma_variance(z), _third_cumulant(z)
    shift = mean - 2 * variance.square() / third
    gamma = torch._standard_gamma(h * 4 * variance**3 / third.square(), generator=generator)
    return h * shift + third / (2 * variance) * gamma


def _third_cumulant(z: Tensor) -> Tensor:
    """Of PG(1, z): four times the second derivative of its mean in z^2."""
    small, near, c = _small_and_large(z.square())
    tanh, decay = torch.tanh(c / 2), torch.exp(-c)
    sech2 = 4 * decay / (1 + decay).square()
    closed = (3 * tanh / (2 * c) - 3 * sech2 / 4 - c * tanh * sech2 / 4) / c**4
    return torch.where(small, _polynomial(near, _THIRD), closed)


def _draw_unit(z: Tensor, generator: torch.Generator | None) -> Tensor:
    """PG(1, z) for z (n,): rounds of proposals for the elements that have not accepted one yet."""
    out = torch.empty_like(z)
    block = _BLOCK.get(z.device.type, _BLOCK_ELSEWHERE)
    dtype = _working_dtype(z.device)
    work = torch.empty(10, max(min(block, z.numel()), _SMALL) + 1, dtype=dtype, device=z.device)
    regions: list[slice | Tensor] = [slice(start, start + block) for start in range(0, z.numel(), block)]
    pending = z.numel()
    while pending:
        tries = max(1, min(16, _SMALL // pending))
        rejected = []
        for region in regions:
            location = z[region]
            half = work[9, : tries * location.numel()]
            half.view(tries, -1).copy_(location)
            # A floor of k, far below where it changes anything, spares the divisions by 0.
            half.abs_().mul_(0.5).clamp_(min=torch.finfo(dtype).tiny ** 0.25)
            draw, failed = _propose(half, work, generator)
            if tries > 1:
                accepted = torch.ones_like(half)
                accepted[failed] = 0
                any_accepted, earliest = accepted.view(tries, -1).max(0)  # the first of equal values
                draw = draw.view(tries, -1).gather(0, earliest.unsqueeze(0)).squeeze(0)
                failed = (any_accepted == 0).nonzero().squeeze(-1)
            out[region] = draw.to(out.dtype)
            rejected.append(failed + region.start if isinstance(region, slice) else region[failed])
        remaining = torch.cat(rejected)
        pending = remaining.numel()
        regions = list(remaining.split(block))
    return out


def _propose(k: Tensor, work: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """One proposal for PG(1, 2k) for each k (m,), and the positions of those to reject.

    Works in place in rows 0..8 of ``work``. Choices between two values are linear interpolations with weight
    0 or 1 (exact), several times faster on CPU than ``torch.where``.
    """
    m = k.shape[0]
    pairs = (m + 1) // 2
    # Box-Muller, squared: e cos^2 and e sin^2 of one exponential e are two independent N^2 / 2.
    exponential = work[0, :pairs].uniform_(generator=generator).neg_().add_(1).log_().neg_()
    share = work[1, :pairs].uniform_(generator=generator).mul_(math.pi / 2).cos_().square_()
    a = work[2, : 2 * pairs]
    torch.mul(exponential, share, out=a[:pairs])
    torch.sub(exponential, a[:pairs], out=a[pairs:])
    a = a[:m]
    d = torch.add(a, k, alpha=2, out=work[3, :m]).mul_(a).sqrt_().add_(a).add_(k)
    total = torch.add(d, k, out=work[4, :m])
    coin = work[5, :m].uniform_(generator=generator).mul_(total)
    smaller = torch.lt(coin, d, out=work[6, :m])  # 1 where x is the smaller root 1 / d
    inverse = torch.mul(k, k, out=work[7, :m]).div_(d).lerp_(d, smaller)  # 1 / x
    # Given the root, the coin is uniform again: on (0, d), or counted from the other end on (0, k).
    level = total.sub_(coin).lerp_(coin, smaller)
    height = torch.lerp(k, d, smaller, out=work[8, :m])
    bound = torch.mul(inverse, -4, out=d).exp_().mul_(-3).add_(1).mul_(height)
    undecided = (level >= bound).nonzero().squeeze(-1)
    probability = _acceptance_probability(inverse.index_select(0, undecided))
    accepted = level.index_select(0, undecided) < probability * height.index_select(0, undecided)
    return inverse.reciprocal_().mul_(0.25), undecided[~accepted]


def _acceptance_probability(inverse: Tensor) -> Tensor:
    """r(x) of the module docstring, to double precision, given 1 / x."""
    q = torch.exp(-4 * inverse)
    q2 = q * q
    q3 = q2 * q
    r = 1 - q * (3 - q2 * (5 - q3 * (7 - q2 * q2 * (9 - q3 * q2 * (11 - 13 * q3 * q3)))))
    far = (inverse < 1 / _SPLIT).nonzero().squeeze(-1)
    x = inverse.index_select(0, far).reciprocal_()
    leading = (math.pi / 2) ** 1.5 * x * x.sqrt() * torch.exp(0.5 / x - math.pi**2 / 8 * x)
    return r.index_copy_(0, far, leading * (1 - 3 * torch.exp(-(math.pi**2) * x)))


def _checked_counts(h: Tensor | int, device: torch.device) -> Tensor:
    values = torch.as_tensor(h, device=device)
    if values.is_floating_point():
        wrong = ~((values >= 0) & (values == values.floor()) & torch.isfinite(values))
    else:
        wrong = values < 0
    if bool(wrong.any()):
        raise ValueError(
            f"h must be a whole number 0, 1, 2, ... to be drawn, got {_worst(values, wrong)}: Gibbs sampling "
            "takes whole weights only. Round or rescale them, or use mean field, which takes any weight."
        )
    return values.to(torch.int64)


def _worst(values: Tensor, wrong: Tensor) -> str:
    """The first offending value, for a message."""
    return f"{values[wrong].reshape(-1)[0].item()} (in {int(wrong.sum())} of {values.numel()} values)"
