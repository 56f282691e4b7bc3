"""Stein variational gradient descent: particles that climb a log density and keep apart.

Reference: Liu and Wang (2016), Stein variational gradient descent, equation 8 and section 5 (bandwidth).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def stein_direction(
    particles: Tensor,  # (..., M, P), at least two
    slopes: Tensor,  # (..., M, P), of the log density at each
) -> Tensor:
    """Where the particles go, (..., M, P), with the kernel ``exp(-d^2 / h)``.

    ``h`` is the square of the median distance of two particles over log M, so that the others together weigh about as
    much as a particle itself.
    """
    n_particles = particles.shape[-2]
    centred = particles - particles.mean(-2, keepdim=True)  # distances do not move with the origin, rounding does
    squared = centred.square().sum(-1)
    distances = (squared.unsqueeze(-1) + squared.unsqueeze(-2) - 2 * centred @ centred.mT).clamp_min(0)
    row, column = torch.triu_indices(n_particles, n_particles, 1, device=particles.device)
    tiny = torch.finfo(particles.dtype).eps ** 2
    between = distances[..., row, column].clamp_min(tiny).sqrt()
    bandwidth = (between.quantile(0.5, -1).square() / math.log(n_particles))[..., None, None]
    kernel = (-distances / bandwidth).exp()
    apart = centred * kernel.sum(-1, keepdim=True) - kernel @ centred
    return (kernel @ slopes + 2 / bandwidth * apart) / n_particles
