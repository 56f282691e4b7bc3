"""What regression on labels says by the particles' kernels: a second opinion beside the logistic posterior.

Every contrast is taken for a number that was seen with Gaussian noise. The logistic likelihood is that if its
Polya-Gamma variable is kept at its mean for a latent of zero, 1/4: the number is 2, the variance of the noise 4. Rows
that are certain then still pull, which the logistic likelihood lets go of; so means are smoother averages of labels,
and prefer shorter length-scales than the posterior's. Inputs are multiplied by a scale for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sureshot.gaussian.algebra import solve_vectors
from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.collapsed import Collapsed
from sureshot.structure.leave_one_out import moments_left_out
from sureshot.structure.prediction import latent_coefficients
from sureshot.structure.rejuvenation_data import Data
from sureshot.structure.smc import SmcState

_OMEGA = 0.25


@dataclass(frozen=True)
class LabelRegression:
    """Of each particle, on the labels of a state."""

    scale: float  # by which inputs are multiplied
    dual: Tensor  # (M, N, L), what the kernels of a query with the rows are multiplied by

    @classmethod
    def of(cls, state: SmcState, scale: float) -> LabelRegression:
        """On all labels."""
        coefficients = latent_coefficients(state)  # (P, L)
        found = torch.zeros(len(state.particles), len(state.y), coefficients.shape[-1], dtype=torch.float64)
        for own, one in zip(found, _each(state, scale), strict=True):
            of_contrasts = solve_vectors(one.factor.mT, one.whitened, upper=True) * _OMEGA**0.5
            own.index_add_(0, state.contrasts.row, of_contrasts.mT * coefficients)
        return cls(scale, found)

    def means(
        self,
        state: SmcState,
        x: Tensor,  # (Q, D)
    ) -> Tensor:
        """Of the queries' latents (M, L, Q), as `prediction.moments` has them; 0 if they overflow."""
        gram = state.particles.grams(state.prior, SharedRows(self.scale * state.x, self.scale * x))
        found = self.dual.mT @ gram
        return torch.where(found.isfinite(), found, 0.0)


def means_left_out(state: SmcState, scale: float) -> Tensor:
    """What would be said of each row's latents without its label, (M, L, N)."""
    alone = replace(state, log_weights=state.log_weights[:1] * 0, particles=state.particles.chosen([0]))
    return torch.cat([moments_left_out(replace(alone, latent=one))[0] for one in _each(state, scale)])


def _each(state: SmcState, scale: float) -> Iterator[Collapsed]:
    """The latents of one particle at a time, as their matrices are large."""
    data = Data.of(state.prior, scale * state.x, state.contrasts)
    omega = torch.full((1, len(state.contrasts)), _OMEGA, dtype=torch.float64)
    for k in range(len(state.particles)):
        yield Collapsed.of(omega, data.covariance(state.particles.chosen([k])))
