"""The empirical-Bayes Gaussian classifier: what base classes say about new ones, from moments alone.

Covariances within and between classes come from the base session and stay; a class is then its number of rows and their
sum (`sureshot.incremental.two_covariances`). One temperature, which left-out rows of the base session choose, undoes
that the coordinates are not as independent as the model says.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from sureshot.incremental.baselines.base import Baseline
from sureshot.incremental.method import Memory
from sureshot.incremental.two_covariances import LEAST_SHRINKAGE, ClassSums, PredictiveDensities, TwoCovariances


class GaussianClasses(NamedTuple):
    """All that is kept; the densities follow from the rest."""

    shared: TwoCovariances
    classes: ClassSums
    densities: PredictiveDensities


class EmpiricalBayesGaussian(Baseline[GaussianClasses]):
    """`TwoCovariances.estimated` and a temperature."""

    name = "empirical_bayes"

    def __init__(
        self,
        shrinkage: float = LEAST_SHRINKAGE,  # of the covariance within classes, at least
    ) -> None:
        if not 0 < shrinkage <= 1:
            raise ValueError(f"shrinkage must be above 0 and at most 1, got {shrinkage}")
        self.shrinkage = shrinkage

    def _learnt(self, x: Tensor, y: Tensor, n_classes: int) -> GaussianClasses:
        shared = TwoCovariances.estimated_and_tempered(x, y, self.shrinkage)
        return _with_densities(shared, ClassSums.of_rows(x, y, n_classes))

    def _grown(self, state: GaussianClasses, x: Tensor, y: Tensor, n_classes: int) -> GaussianClasses:
        return _with_densities(state.shared, state.classes.plus(ClassSums.of_rows(x, y, n_classes)))

    def _scores(self, state: GaussianClasses, x: Tensor) -> Tensor:
        return state.shared.scores(state.densities, x)

    def _outlier(self, state: GaussianClasses, x: Tensor) -> Tensor:
        """Log density under a class without rows, over that under the class that suits best."""
        shared, densities = state.shared, state.densities
        return -(shared.scores(densities, x).amax(-1) + shared.first_over_prior(densities, x))

    def _memory(self, state: GaussianClasses, n_classes: int) -> Memory:
        shared, classes = state.shared, state.classes
        parts = (shared.centre, shared.basis, shared.between, shared.within, shared.temperature)
        return Memory(sum(part.numel() for part in parts), classes.sums.numel() + classes.counts.numel(), n_classes)


def _with_densities(shared: TwoCovariances, classes: ClassSums) -> GaussianClasses:
    return GaussianClasses(shared, classes, shared.densities(classes))
