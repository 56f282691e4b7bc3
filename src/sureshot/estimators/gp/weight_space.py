"""Where a member's posterior of the weights is, which variances need and means do not, see `process`.

After a fit it is at hand. A model file does not hold the features of the labelled rows, by far the largest part of a
model: what is read makes them from the rows when it is first asked for more than means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from sureshot.approximations.base import Finite
from sureshot.computing.layout import aligned
from sureshot.computing.threads import threads_for
from sureshot.estimators.gp.posterior_arrays import build_posterior
from sureshot.gaussian.posterior import Posterior


@dataclass(frozen=True)
class WeightSpace:
    """A posterior that is at hand."""

    posterior: Posterior  # moments at queries by features (Q, R)


@dataclass(frozen=True)
class LazyWeightSpace:
    """A posterior that is made of the labelled rows when first asked for, as `weight_space` made it on fitting."""

    approximation: Finite
    inputs: Tensor  # (N, D), the labelled rows as the kernel sees them
    kind: str  # of the posterior
    arrays: Mapping[str, Tensor]  # that hold it, but for features and weights
    coefficients: Tensor  # (S, C, R or M), of the means

    @cached_property
    def posterior(self) -> Posterior:
        with threads_for(len(self.inputs)), torch.no_grad():
            features = self.approximation.features(self.inputs)
            return weight_space(self.kind, self.arrays, features, self.coefficients, self.approximation).posterior


def weight_space(
    kind: str,
    arrays: Mapping[str, Tensor],  # that hold the posterior, but for features and weights
    features: Tensor,  # (N, R), of the labelled rows
    coefficients: Tensor,  # (S, C, R or M)
    approximation: Finite,
) -> WeightSpace:
    """From what a model file holds, and what follows from the labelled rows."""
    weights = aligned(approximation.weights(coefficients))
    return WeightSpace(build_posterior(kind, features, weights, {name: aligned(part) for name, part in arrays.items()}))
