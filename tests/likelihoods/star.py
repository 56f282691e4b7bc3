"""A datum's one-vs-each site as the dense matrix over the classes that the library avoids."""

from __future__ import annotations

import torch
from torch import Tensor

from sureshot.likelihoods.auxiliary import one_hot, per_class
from sureshot.likelihoods.polya_gamma import sample_polya_gamma


def draw_omega(f: Tensor, y: Tensor, weight: Tensor, generator: torch.Generator) -> Tensor:
    """Draw ``omega_c ~ PG(s, f_y - f_c)`` for every class but the label, where it is 0; (..., C, N)."""
    own = one_hot(y, f.shape[-2], f.dtype)
    tilt = (own * f).sum(-2, keepdim=True) - f
    return sample_polya_gamma((1 - own) * per_class(weight), tilt, generator)


def star_precision(omega: Tensor, y: Tensor) -> Tensor:
    """Precision over the classes at every datum, (..., N, C, C), from omega (..., C, N) with omega_y = 0.

    Its rows sum to zero: the common mode of the latents is not observed.
    """
    own = one_hot(y, omega.shape[-2], omega.dtype).mT  # (..., N, C)
    values = omega.mT
    star = torch.diag_embed(values + own * values.sum(-1, keepdim=True))
    cross = own.unsqueeze(-1) * values.unsqueeze(-2)
    return star - cross - cross.mT
