"""Exact draws of a Gaussian latent that a logistic factor has seen: the density ``sigma(f) N(f; m, v)``, normalised.

``sigma(f) <= min(1, e^f)``: on the positive side the proposal is the Gaussian itself, on the negative side ``e^f``
moves its mean by v. Truncated there, a proposal is accepted with ``sigma(|f|)``, at least one half, wherever m and v
are. (To draw from the Gaussian and accept with sigma(f) can take ten thousand tries.)
"""

from __future__ import annotations

import torch
from scipy.special import ndtri_exp
from torch import Tensor


def sample_tilted(
    mean: Tensor,
    variance: Tensor,  # positive; broadcasts with the mean
    generator: torch.Generator | None = None,
) -> Tensor:
    """One draw for each mean and variance, in their shape, float64; ValueError for values that are not finite."""
    mean, variance = (part.double() for part in torch.broadcast_tensors(mean, variance))
    if not bool((mean.isfinite() & variance.isfinite() & (variance > 0)).all()):
        raise ValueError("mean and variance must be finite, and the variance positive")
    found = torch.empty_like(mean)
    left = torch.ones_like(mean, dtype=torch.bool)
    while bool(left.any()):
        draw, accepted = _tried(mean[left], variance[left], generator)
        places = left.nonzero(as_tuple=True)
        kept = tuple(place[accepted] for place in places)
        found[kept] = draw[accepted]
        left[kept] = False
    return found


def _tried(mean: Tensor, variance: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Proposals, and which are accepted."""
    deviation = variance.sqrt()
    u = torch.rand(3, *mean.shape, generator=generator, dtype=torch.float64, device=mean.device)
    u = u.clamp_min(torch.finfo(torch.float64).tiny)
    above = mean / deviation
    below = -(mean + variance) / deviation
    log_above, log_below = (torch.special.log_ndtr(side) for side in (above, below))
    log_share = log_above - torch.logaddexp(log_above, log_below + mean + variance / 2)
    positive = u[0].log() < log_share
    log_mass = torch.where(positive, log_above, log_below) + u[1].log()
    z = torch.from_numpy(ndtri_exp(log_mass.cpu().numpy())).to(mean.device)
    draw = torch.where(positive, mean - deviation * z, mean + variance + deviation * z)
    return draw, u[2] < torch.sigmoid(draw.abs())
