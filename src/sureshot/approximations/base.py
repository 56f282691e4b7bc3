"""What an approximation is: a kernel with what makes priors of it.

An `Approximation` is a value. It makes the `Prior` of latents at rows, exactly or by fewer numbers than pairs of rows,
and says what that prior knows of other rows. Nobody who conditions asks which one it is. Leading dimensions of rows
(tasks, nodes, and last the classes) lead in what is made of them.

Those whose latents are linear in features are `Finite`, and conditioned on in weight space.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from torch import Tensor

from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.prior import Prior, Queries
from sureshot.kernels.expression import Expression


@dataclass(frozen=True)
class Approximation(ABC):
    """Of a kernel."""

    kernel: Expression

    @abstractmethod
    def prior(self, x: Tensor, mean: Tensor) -> Prior:
        """Of latents at rows (..., C or 1, N, D), with this mean, scalar or (..., C, 1)."""

    @abstractmethod
    def queries(self, x: Tensor) -> Queries:
        """Prior moments of other rows (..., C or 1, Q, D)."""


@dataclass(frozen=True)
class Finite(Approximation):
    """By R features, linear in M values that are cheaper to compute: means of weights w are values times ``P w``."""

    learnt: ClassVar[tuple[str, ...]] = ()
    """Fields that evidence learns with the kernel's scales."""
    in_batches: ClassVar[bool] = False
    """Whether it does so by batches of rows."""

    of_features: ClassVar[bool] = False
    """Whether functions have nothing beside features, so that these make covariances of queries."""

    @property
    def projection(self) -> Tensor | None:
        """``P`` (M, R), by which values are features; None where they are already."""
        return None

    @abstractmethod
    def values(self, x: Tensor) -> Queries:
        """Values (..., Q, M) of rows (..., Q, D) in the place of features, and prior variances (..., Q)."""

    def weights(self, coefficients: Tensor) -> Tensor:
        """Weights (..., R) of the functions that have these coefficients (..., M) of values."""
        return coefficients

    def coefficients(self, weights: Tensor) -> Tensor:
        """Coefficients (..., M) of values, from weights (..., R)."""
        return weights if self.projection is None else weights @ self.projection.mT

    def queries(self, x: Tensor) -> Queries:
        """Features, and the kernel's own variances."""
        values, variance = self.values(x)
        return Queries(values if self.projection is None else values @ self.projection, variance)

    def features(self, x: Tensor) -> Tensor:
        """Of rows (..., N, D), (..., N, R)."""
        return self.queries(x).cross

    def covariance(self, x: Tensor) -> Tensor:
        """Prior covariances of rows (Q, D), (Q, Q): the kernel's own, or those of the features."""
        if not self.of_features:
            return self.kernel(x)
        features = self.features(x)
        return features @ features.mT

    def prior(self, x: Tensor, mean: Tensor) -> FeaturePrior:
        return FeaturePrior(self.features(x), mean, None, self.queries)

    def withheld(self, x: Tensor, features: Tensor) -> Tensor | None:
        """Variances (..., N) that rows have as queries and not in their prior, for which a bound pays; None: none."""
        return None

    def scaled(self, kernel: Expression, scale: float) -> Self:
        """Of a kernel that is this one times a number."""
        return replace(self, kernel=kernel)
