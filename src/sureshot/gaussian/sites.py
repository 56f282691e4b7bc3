"""Gaussian sites: the likelihood of a datum as a Gaussian in its latents.

A conjugate likelihood turns each datum, given its auxiliary variables, into a Gaussian factor
``exp(b f - w f^2 / 2)`` per latent function. It is the one word that likelihoods and inference share.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Sites(NamedTuple):
    """Gaussian factors ``exp(shift * f - precision * f^2 / 2)``, one for every latent value."""

    precision: Tensor  # (..., C, N), not negative
    shift: Tensor  # (..., C, N)
