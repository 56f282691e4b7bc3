"""Variational free energy: inducing inputs by a bound of the kernel's own evidence (Titsias 2009).

``log N(y; m, Q + S) - tr(S^-1 (K - Q)) / 2`` never exceeds the evidence and equals it where all rows are inducing
inputs, so that more of these never hurt. Queries are predicted as by `fitc`, but with the noise S alone.
"""

from torch import Tensor

from sureshot.approximations.inducing import Inducing, unexplained


class FreeEnergy(Inducing):
    """With the bound's price for what features leave of rows' variances."""

    name = "vfe"
    learnt = ("inputs",)

    def withheld(self, x: Tensor, features: Tensor) -> Tensor:
        return unexplained(self.kernel.diagonal(x), features)


class StochasticVariational(FreeEnergy):
    """By batches of rows (Hensman, Fusi & Lawrence 2013).

    The Gaussian q of values at inducing inputs is free meanwhile; a last natural-gradient step, over all rows and of
    length 1, leaves it at that of the bound above.
    """

    name = "svgp"
    in_batches = True
