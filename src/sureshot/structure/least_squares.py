"""What regression on labels says by the particles' kernels: a second opinion beside the logistic posterior.

Every contrast is taken for a number that was seen with Gaussian noise. The logistic likelihood is that if its
Polya-Gamma variable is kept at its mean for a latent of zero, 1/4: the number is 2, the variance of the noise 4. Means
are smoother averages of labels, and prefer shorter length-scales than the posterior's: inputs are multiplied by a scale
for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from sureshot.gaussian.algebra import solve_vectors
from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.collapsed import Collapsed
from sureshot.structure.copies import Copies
from sureshot.structure.inducing import Inputs
from sureshot.structure.leave_one_out import moments_left_out
from sureshot.structure.prediction import latent_coefficients
from sureshot.structure.smc import SmcState
from sureshot.structure.sparse import Sparse
from sureshot.structure.without_rows import means_without

_OMEGA = 0.25


@dataclass(frozen=True)
class LeastSquaresMeans:
    """Of each particle, on the labels of a state."""

    scale: float  # by which inputs are multiplied
    dual: Tensor  # (M, N, L), by what the kernels of a query with the rows are multiplied; or (M, m, L), its features

    @classmethod
    def of(cls, state: SmcState, scale: float) -> LeastSquaresMeans:
        """On all labels."""
        if state.inducing is not None:
            return cls(scale, torch.cat([_weights(one) for one in _each(state, scale)]))
        coefficients = latent_coefficients(state)  # (P, L)
        found = torch.zeros(len(state.particles), len(state.y), coefficients.shape[-1], dtype=torch.float64)
        for own, one in zip(found, _each(state, scale), strict=True):
            latent = cast(Collapsed, one.latent)
            of_contrasts = solve_vectors(latent.factor.mT, latent.whitened, upper=True) * _OMEGA**0.5
            own.index_add_(0, state.contrasts.row, of_contrasts.mT * coefficients)
        return cls(scale, found)

    def means(
        self,
        state: SmcState,
        x: Tensor,  # (Q, D)
    ) -> Tensor:
        """Of the queries' latents (M, L, Q), as `prediction.moments` has them; 0 if they overflow."""
        if state.inducing is None:
            of_queries = state.particles.grams(state.prior, SharedRows(self.scale * state.x, self.scale * x))
        else:
            inputs = Inputs.of(self.scale * x, self.scale * state.inducing)
            of_queries = inputs.features(state.prior, state.particles)[0].mT
        found = self.dual.mT @ of_queries
        return torch.where(found.isfinite(), found, 0.0)


def means_left_out(state: SmcState, scale: float, copies: Copies) -> Tensor:
    """Leave-one-out means (M, L, K) of the latents of the K rows that differ."""
    return torch.cat([moments_left_out(one, copies)[0] for one in _each(state, scale)])


def means_of_queries_without(state: SmcState, scale: float, x: Tensor, sets: list[Tensor]) -> Tensor:
    """Of the latents of queries (Q, D) without each of E sets of rows, (M, L, Q, E); 0 if they overflow."""
    found = torch.stack([means_without(one, scale * x, sets) for one in _each(state, scale)])
    return torch.where(found.isfinite(), found, 0.0)


def _weights(state: SmcState) -> Tensor:
    """Of the features (M, m, L), for the latents of `prediction.moments`."""
    latent, n_latents = cast(Sparse, state.latent), 1 if state.n_classes == 2 else state.n_classes
    weights = solve_vectors(latent.factor.mT, latent.whitened, upper=True).unflatten(-1, (n_latents, -1))
    return weights.mT if n_latents == 1 else weights.mT / 2**0.5


def _each(state: SmcState, scale: float) -> Iterator[SmcState]:
    """The state with one particle at a time, as their matrices are large, and with the latents of the regression."""
    inducing = None if state.inducing is None else scale * state.inducing
    scaled = replace(state, x=scale * state.x, inducing=inducing, log_weights=state.log_weights[:1] * 0)
    data, omega = scaled.data, torch.full((1, len(state.contrasts)), _OMEGA, dtype=torch.float64)
    for k in range(len(state.particles)):
        particles, latent = state.particles.chosen([k]), state.latent.chosen(slice(k, k + 1)).restored({"omega": omega})
        yield replace(scaled, particles=particles, latent=latent.given([0], data.covariance(particles)))
