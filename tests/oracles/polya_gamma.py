"""The density of Polya-Gamma variables, from the alternating series or by inverting the Laplace transform."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sureshot.likelihoods.polya_gamma import log_cosh_half

CONTOUR_NODES = 80
CONTOUR_REACH = 7.0  # exp(-7^2) = 5e-22


def log_density(x: Tensor, h: Tensor | float, z: Tensor | float, terms: int = 64) -> Tensor:
    """Log density of PG(h, z) at x, for any real h > 0.

    The alternating series of Polson et al. (2013, section 2.2) wherever it keeps 12 digits. For large x or h
    its terms cancel; there the Laplace transform is inverted by the trapezoid rule on a parabola through its
    saddle point, accurate to about 11 digits for every x and h. The arguments are broadcast; the log density is -inf at
    x <= 0. 64 terms suffice wherever the series is used for h < 100; with fewer, the inversion takes over.
    """
    wide = torch.promote_types(x.dtype, torch.float64)
    shape_parameter = torch.as_tensor(h, dtype=wide, device=x.device)
    location = torch.as_tensor(z, dtype=wide, device=x.device)
    positive, shape_parameter, location = torch.broadcast_tensors(x.to(wide), shape_parameter, location)
    inside = positive > 0
    positive = torch.where(inside, positive, torch.ones_like(positive))
    series, reliable = series_log_density(positive, shape_parameter, terms)
    untilted = torch.where(reliable, series, inverted_log_density(positive, shape_parameter))
    tilt = shape_parameter * log_cosh_half(location.square()) - location.square() * positive / 2
    return torch.where(inside, untilted + tilt, -math.inf).to(x.dtype)


def series_log_density(x: Tensor, h: Tensor, terms: int) -> tuple[Tensor, Tensor]:
    """Log density of PG(h, 0) by the alternating series, and where it can be relied on."""
    n = torch.arange(terms, dtype=x.dtype, device=x.device)
    x_, h_ = x.unsqueeze(-1), h.unsqueeze(-1)
    size = torch.lgamma(n + h_) - torch.lgamma(n + 1) + torch.log(2 * n + h_) - (2 * n + h_).square() / (8 * x_)
    largest = size.amax(-1)  # (...), as size is (..., terms)
    total = (torch.exp(size - largest.unsqueeze(-1)) * (1 - 2 * (n % 2))).sum(-1)
    reliable = (total > 1e-4) & (size[..., -1] - largest < -37.0)
    log_total = torch.log(torch.where(reliable, total, torch.ones_like(total)))
    scale = (h - 1) * math.log(2.0) - torch.lgamma(h) - 0.5 * torch.log(2 * math.pi * x**3)
    return scale + largest + log_total, reliable


def inverted_log_density(x: Tensor, h: Tensor) -> Tensor:
    """Log density of PG(h, 0) from its Laplace transform cosh(sqrt(s/2))^-h, singular at s <= -pi^2/2.

    On s = -pi^2/2 + mu (1 + iu)^2 the integrand is nearly exp(-x mu u^2) when mu puts u = 0 at the saddle
    point, where the mean of the tilted distribution is x.
    """
    branch = -(math.pi**2) / 2
    log_mu = torch.log(h / x + (h / x).square() / 8)
    for _ in range(16):  # contracts by at least a half, as the mean falls between mu^-1/2 and mu^-1
        w = torch.sqrt(torch.complex(branch + log_mu.exp(), torch.full_like(x, 1e-12)) / 2)
        log_mu = log_mu + torch.log(h * (torch.tanh(w) / (4 * w)).real / x)
    kappa = torch.maximum(x * log_mu.exp(), torch.full_like(x, 8.0))  # narrow enough a parabola, also for small h
    mu = (kappa / x).unsqueeze(-1)
    step = CONTOUR_REACH / CONTOUR_NODES
    u = step * torch.arange(CONTOUR_NODES, dtype=x.dtype, device=x.device) / kappa.sqrt().unsqueeze(-1)
    direction = torch.complex(torch.ones_like(u), u)  # (..., nodes)
    w = torch.sqrt((branch + mu * direction.square()) / 2)
    log_cosh = w + torch.log1p(torch.exp(-2 * w)) - math.log(2.0)
    exponent = x.unsqueeze(-1) * (branch + mu * direction.square()) - h.unsqueeze(-1) * log_cosh
    peak = exponent[..., :1].real
    values = (torch.exp(exponent - peak) * direction).real
    integral = step * (values.sum(-1) - values[..., 0] / 2)
    return torch.log(integral) + peak.squeeze(-1) + torch.log(2 * mu.squeeze(-1) / math.pi) - 0.5 * torch.log(kappa)
