"""Fully independent training conditional: rows keep the variance that inducing inputs do not see, each for itself.

The diagonal of ``Q + diag(K - Q)`` is the kernel's own, but its evidence is no bound of the kernel's: it may be larger,
and takes what inducing inputs miss for noise of single rows.

References: Snelson & Ghahramani 2006; Bauer, van der Wilk & Rasmussen 2016.
"""

from __future__ import annotations

from dataclasses import dataclass

from sureshot.approximations.inducing import Inducing


@dataclass(frozen=True)
class IndependentConditional(Inducing):
    """With what features leave of rows' variances."""

    name = "fitc"
    learnt = ("inputs",)
    residual: bool = True
