"""Predictions of queries without each of the rows, given the Polya-Gamma variables of the others.

With ``B = I + W^1/2 S W^1/2 = L L'`` of all contrasts, ``z = B^-1 W^1/2 k`` for their covariances k with a query,
``u = L'^-1`` times what is whitened, and the block ``G = (B^-1)_rr`` of the contrasts of a row and its copies, the
moments of a query without these are

    mean - z_r' G^-1 u_r,   covariance + z_r' G^-1 z_r,

and particles have the weights that `removal.without` gives them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor

from sureshot.gaussian.algebra import solve_vectors
from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.collapsed import SHIFT, Collapsed, unseen_in_turn
from sureshot.structure.prediction import latent_coefficients, where_finite
from sureshot.structure.smc import SmcState


class WithoutRows(NamedTuple):
    """Of Q queries, without each of E sets of rows."""

    mean: Tensor  # (M, L, Q, E), as `sureshot.structure.prediction.moments`
    covariance: Tensor  # (M, Q, E, L, L)
    weights: Tensor  # (M, E), of the particles


def moments_without(
    state: SmcState,  # whose latents are integrated out
    x: Tensor,  # (Q, D)
    sets: list[Tensor],  # E of them, numbers of rows that leave together
) -> WithoutRows:
    """See above; moments that overflow are those of `where_finite`."""
    n_latents, n_queries, n_sets = latent_coefficients(state).shape[-1], len(x), len(sets)
    scale = 1.0 if state.n_classes == 2 else 0.5
    prior = scale * (state.particles.diagonals(state.prior, x) + state.particles.nuggets(state.prior).unsqueeze(-1))
    mean = x.new_empty(len(prior), n_latents, n_queries, n_sets)
    covariance = x.new_empty(len(prior), n_queries, n_sets, n_latents, n_latents)
    log_weights = state.log_weights.unsqueeze(-1).repeat(1, n_sets)
    groups = _groups(state, sets)
    for k in range(len(prior)):  # large: one at a time
        one = _Particle.of(state, k, x)
        left = torch.diag_embed(prior[k].unsqueeze(-1).expand(-1, n_latents)) - one.explained
        mean[k] = one.means_without(groups, n_sets)
        for those, contrasts in groups:
            out, block = one.solved[contrasts], one.block(contrasts)
            back = torch.einsum("sgql,sgh,shqm->qslm", out, torch.linalg.inv(block), out)
            covariance[k, :, those] = left.unsqueeze(1) + back
            log_weights[k, those] += _unseen(one.latent.omega[0][contrasts], block, one.pull[contrasts])
    mean, covariance = where_finite(mean.flatten(2), covariance.flatten(1, 2))
    weights = torch.where(log_weights.isnan(), -torch.inf, log_weights).softmax(0)
    return WithoutRows(mean.unflatten(2, (n_queries, n_sets)), covariance.unflatten(1, (n_queries, n_sets)), weights)


def means_without(
    state: SmcState,  # of one particle
    x: Tensor,  # (Q, D)
    sets: list[Tensor],
) -> Tensor:
    """The means alone (L, Q, E)."""
    return _Particle.of(state, 0, x).means_without(_groups(state, sets), len(sets))


@dataclass(frozen=True)
class _Particle:
    """What one particle knows of Q queries."""

    latent: Collapsed
    mean: Tensor  # (L, Q), given all rows
    explained: Tensor  # (Q, L, L), what all rows take off the prior covariance
    solved: Tensor  # (P, Q, L), z
    pull: Tensor  # (P,), u
    inverse: Tensor  # (P, P), B^-1

    @classmethod
    def of(cls, state: SmcState, k: int, x: Tensor) -> _Particle:
        coefficients, chosen = latent_coefficients(state), state.particles.chosen([k])
        gram = chosen.grams(state.prior, SharedRows(state.x, x))[0]  # (N, Q)
        cross = gram[state.contrasts.row].unsqueeze(-1) * coefficients.unsqueeze(1)  # (P, Q, L)
        latent = cast(Collapsed, state.latent).chosen(slice(k, k + 1))
        mean, taken = latent.predicted(cross.flatten(1).unsqueeze(0))
        solved = torch.linalg.solve_triangular(latent.factor[0].mT, taken[0], upper=True)
        taken, solved = (part.unflatten(-1, cross.shape[1:]) for part in (taken[0], solved))
        half = torch.linalg.solve_triangular(latent.factor[0], torch.eye(len(solved), dtype=x.dtype), upper=False)
        return cls(
            latent,
            mean[0].view(cross.shape[1:]).mT,
            torch.einsum("pqc,pqd->qcd", taken, taken),
            solved,
            solve_vectors(latent.factor.mT, latent.whitened, upper=True)[0],
            half.mT @ half,
        )

    def block(self, contrasts: Tensor) -> Tensor:
        """Of sets of contrasts (S, G) the blocks G (S, G, G)."""
        return self.inverse[contrasts.unsqueeze(-1), contrasts.unsqueeze(-2)]

    def means_without(self, groups: list[tuple[Tensor, Tensor]], n_sets: int) -> Tensor:
        """(L, Q, E)"""
        found = self.mean.unsqueeze(-1).repeat(1, 1, n_sets)
        for those, contrasts in groups:
            weighted = torch.linalg.solve(self.block(contrasts), self.pull[contrasts])
            found[..., those] -= torch.einsum("sgql,sg->lqs", self.solved[contrasts], weighted)
        return found


def _groups(state: SmcState, sets: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Those of the sets (S,) that leave with as many contrasts, and these (S, G)."""
    order = state.contrasts.row.argsort(stable=True).view(-1, state.n_classes - 1)  # row by row
    sizes = torch.tensor([len(rows) for rows in sets])
    return [
        (those, torch.stack([order[sets[k]].flatten().sort().values for k in those.tolist()]))
        for those in ((sizes == size).nonzero().flatten() for size in sizes.unique())
    ]


def _unseen(omega: Tensor, block: Tensor, pull: Tensor) -> Tensor:
    """What sets (S,) of contrasts (S, G) that are unseen add to the logarithm of a particle's weight."""
    root = omega.sqrt()
    eye = torch.eye(omega.shape[-1], dtype=omega.dtype)
    covariance = (eye - block) / (root.unsqueeze(-1) * root.unsqueeze(-2))
    return unseen_in_turn(SHIFT / omega - pull / root, covariance, omega).sum(-1)
