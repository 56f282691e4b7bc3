"""Where a member's posterior is: the features of its weights, and the posterior itself, which variances need.

Means need neither, see `member`. After a fit both are at hand. A model file does not hold the features of the
labelled rows, by far the largest part of a model: what is read makes them from the rows when it is first asked for more
than means.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from sureshot.computing.layout import aligned
from sureshot.computing.threads import threads_for
from sureshot.estimators.gp.features import FeatureMap, InducingRoots
from sureshot.estimators.gp.posterior_arrays import build_posterior
from sureshot.gaussian.posterior import Posterior


class WeightSpace(ABC):
    """The posterior of the weights, and what makes their features of a feature map's values."""

    projection: Tensor | None
    """``P`` (M, R), by which kernel values against inducing inputs are features; None where they are already."""

    posterior: Posterior
    """Moments at queries by features (Q, R)."""


@dataclass(frozen=True)
class Known(WeightSpace):
    """Both are at hand."""

    projection: Tensor | None
    posterior: Posterior


@dataclass(frozen=True)
class FromRows(WeightSpace):
    """Both are made of the labelled rows when first asked for, as `weight_space` made them on fitting."""

    feature_map: FeatureMap
    inputs: Tensor  # (N, D), the labelled rows as the kernel sees them
    kind: str  # of the posterior
    arrays: Mapping[str, Tensor]  # that hold it, but for features and weights
    coefficients: Tensor  # (S, C, R or M), of the means
    roots: InducingRoots | None = None  # where the posterior's arrays mean something in their basis only
    orthogonal: bool = True  # see `roots_of`

    @cached_property
    def _known(self) -> Known:
        with threads_for(len(self.inputs)), torch.no_grad():
            roots = self.roots or roots_of(self.feature_map, self.orthogonal)
            features = training_features(self.feature_map, self.inputs, roots)
            return weight_space(self.kind, self.arrays, features, self.coefficients, roots)

    @property
    def projection(self) -> Tensor | None:  # type: ignore[override]
        """See `WeightSpace.projection`."""
        return self._known.projection

    @property
    def posterior(self) -> Posterior:  # type: ignore[override]
        """See `WeightSpace.posterior`."""
        return self._known.posterior


def roots_of(feature_map: FeatureMap, orthogonal: bool) -> InducingRoots | None:
    """Of the inducing inputs; None where features are explicit. `Model.searches` says for whom they are orthogonal."""
    inducing = feature_map.inducing
    return None if inducing is None else InducingRoots.of(feature_map.kernel, inducing, orthogonal)


def training_features(feature_map: FeatureMap, inputs: Tensor, roots: InducingRoots | None) -> Tensor:
    """Features (N, R) of the labelled rows."""
    inducing = feature_map.inducing
    if roots is not None and inducing is not None and torch.equal(inducing, inputs):
        return aligned(roots.features)
    values = feature_map(inputs).cross[0]
    return aligned(values if roots is None else values @ roots.inverse)


def weight_space(
    kind: str,
    arrays: Mapping[str, Tensor],  # that hold the posterior, but for features and weights
    features: Tensor,  # (N, R), of the labelled rows
    coefficients: Tensor,  # (S, C, R or M)
    roots: InducingRoots | None,
) -> Known:
    """From what a model file holds, and what follows from the labelled rows."""
    weights = coefficients if roots is None else coefficients @ roots.features
    posterior = build_posterior(
        kind, features, aligned(weights), {name: aligned(part) for name, part in arrays.items()}
    )
    return Known(None if roots is None else aligned(roots.inverse), posterior)
