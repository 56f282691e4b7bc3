"""Subset of regressors: for rows and queries alike the kernel is what inducing inputs see of it.

Far from these all functions are zero, and so is the variance: it is surest where it knows least, a defect that `fitc`
and `vfe` mend.

Reference: Quinonero-Candela & Rasmussen 2005.
"""

from torch import Tensor

from sureshot.approximations.inducing import Inducing
from sureshot.gaussian.prior import Queries


class SubsetOfRegressors(Inducing):
    """Prior variances of queries are those of their features."""

    name = "sor"
    learnt = ("inputs",)
    of_features = True

    def values(self, x: Tensor) -> Queries:
        values, _ = super().values(x)
        return Queries(values, (values @ self.projection).square().sum(-1))
