"""Stochastic variational inference: the bound of `vfe` climbed by batches of rows (Hensman, Fusi & Lawrence 2013).

The Gaussian q of values at inducing inputs is free meanwhile. A last natural-gradient step, over all rows and of length
1, leaves it where it is best: at that of `vfe`.
"""

from sureshot.approximations.vfe import FreeEnergy


class StochasticVariational(FreeEnergy):
    """With q where a full step leaves it."""

    name = "svgp"
    in_batches = True
