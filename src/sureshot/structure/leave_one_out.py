"""Leave-one-out prediction of each row without it and its copies, from what particles keep.

Given the Polya-Gamma variables the labels are as if ``t = 1 / (2 omega)`` had been seen with noise of variance
``1 / omega``, so with ``K = S + W^-1`` the contrasts G of rows have, given those of all others, the moments

    mean = t_G - (K^-1_GG)^-1 (K^-1 t)_G,   covariance = (K^-1_GG)^-1 - W_G^-1.

Latents that are seen through inducing inputs have a posterior of weights, off which the row's own data are taken.

Particles were drawn given all rows, so without some they have other importance weights: theirs divided by the
likelihood of what leaves, the contrasts of the row and of its copies one after another, each integrated out with its
variable. That is the factor by which a label entered, and the weight that `sureshot.structure.removal` gives.

Reference: Rasmussen & Williams 2006, section 5.4.2, for the moments; Gelfand et al. 1992, for the weights.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor

from sureshot.gaussian.algebra import times_vector
from sureshot.structure.collapsed import SHIFT, Collapsed, unseen_in_turn
from sureshot.structure.copies import Copies
from sureshot.structure.prediction import in_contrasts, where_finite
from sureshot.structure.smc import SmcState
from sureshot.structure.sparse import Features, Sparse

_LEAST_VARIANCE = 1e-12


class RowsLeftOut(NamedTuple):
    """Of the K rows that differ, each given the others."""

    mean: Tensor  # (M, L, K), as `sureshot.structure.prediction.moments`
    covariance: Tensor  # (M, K, L, L)
    weights: Tensor  # (M, K), of the particles without the row
    copies: Copies


def left_out(state: SmcState) -> RowsLeftOut:
    """Moments of the rows' latents, each row without its label, and the weights that particles then have.

    TypeError for whitened latents.
    """
    copies = Copies.of(state.x, state.y)
    mean, covariance, log_weights = _left_out(state, copies, weighed=True)
    log_weights = torch.where(log_weights.isfinite(), log_weights, 0.0)  # what overflows says nothing
    return RowsLeftOut(mean, covariance, (state.log_weights.unsqueeze(-1) + log_weights).softmax(0), copies)


def moments_left_out(state: SmcState, copies: Copies) -> tuple[Tensor, Tensor]:
    """The moments alone; where they overflow those of `where_finite`."""
    return _left_out(state, copies, weighed=False)[:2]


def _left_out(state: SmcState, copies: Copies, weighed: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The moments, and logarithms of the weights (M, K) of never having seen what leaves, zeros if not `weighed`."""
    if isinstance(state.latent, Sparse):
        return _by_weights(state, state.latent, copies, weighed)
    if not isinstance(state.latent, Collapsed):
        raise TypeError("rows can be left out of collapsed latents only")
    latent = state.latent
    c, m = state.n_classes, len(state.particles)
    order = state.contrasts.row.argsort(stable=True).view(-1, c - 1)  # row by row
    each = (latent.chosen(slice(k, k + 1)) for k in range(m))  # large: one at a time
    parts = [_contrasts(one, order, copies, weighed) for one in each]
    means, covariances, log_weights = (torch.stack(part) for part in zip(*parts, strict=True))
    if c == 2:
        means = ((2.0 * state.y[copies.first] - 1) * means.squeeze(-1)).unsqueeze(1)
        return *where_finite(means, covariances), log_weights
    # Up to what all classes share: the latent of the own class is 0.
    others = state.contrasts.other[order[copies.first]]
    place = torch.nn.functional.one_hot(others, c).to(means)  # (K, C - 1, C)
    mean = -torch.einsum("mng,ngc->mcn", means, place)
    return *where_finite(mean, torch.einsum("ngc,mngh,nhd->mncd", place, covariances, place)), log_weights


def of_classes(state: SmcState, out: RowsLeftOut) -> Tensor:
    """Covariances (M, K, L, L) as those of a latent for each class, as `sureshot.structure.prediction.moments` has.

    Labels never tell what all classes share: it keeps its prior variance.
    """
    if state.n_classes == 2 or not isinstance(state.latent, Collapsed):
        return out.covariance
    c, x = state.n_classes, state.x[out.copies.first]
    shared = state.particles.diagonals(state.prior, x) + state.particles.nuggets(state.prior).unsqueeze(-1)
    centring = torch.eye(c, dtype=shared.dtype) - 1 / c
    return centring @ out.covariance @ centring + (shared / (2 * c))[..., None, None]


def _by_weights(state: SmcState, latent: Sparse, copies: Copies, weighed: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Of latents that are seen through inducing inputs, which stay where they are."""
    data, parts, none = state.data, [], torch.zeros(1, len(copies.first), dtype=torch.float64)
    for k in range(len(state.particles)):  # large: one at a time
        features = cast(Features, data.covariance(state.particles.chosen([k])))
        one = latent.chosen(slice(k, k + 1))
        moments = in_contrasts(state, *one.left_out(features, copies))
        parts.append((*moments, one.weights_left_out(features, copies) if weighed else none))
    means, covariances, log_weights = (torch.cat(part) for part in zip(*parts, strict=True))
    return means, covariances, log_weights


def _contrasts(latent: Collapsed, order: Tensor, copies: Copies, weighed: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Means (K, G) and covariances (K, G, G) of one particle's contrasts without those of their row, and weights (K,).

    From where those of the rows are (N, G).
    """
    omega, factor, whitened = latent.omega[0], latent.factor[0], latent.whitened[0]
    root = omega.sqrt()
    inverse = torch.linalg.solve_triangular(factor, torch.diag(root), upper=False)  # L^-1 W^1/2
    size = order.shape[1]
    mean = omega.new_empty(len(copies.first), size)
    covariance = omega.new_empty(len(copies.first), size, size)
    log_weights = omega.new_zeros(len(copies.first))
    for those, rows in copies.sets():
        leaving = order[rows].flatten(1)  # (S, R G), those of the row that is asked in front
        grouped = inverse[:, leaving]  # (P, S, R G)
        precision = torch.einsum("psg,psh->sgh", grouped, grouped)  # K^-1_GG
        inverted = torch.linalg.inv(precision)
        pull = torch.einsum("psg,p->sg", grouped, whitened)  # K^-1 t
        every = omega[leaving]
        own = every[:, :size]
        mean[those] = SHIFT / own - times_vector(inverted, pull)[:, :size]
        covariance[those] = inverted[:, :size, :size] - torch.diag_embed(1 / own)
        if not weighed:
            continue
        given_all = torch.diag_embed(1 / every) - precision / (every.unsqueeze(-1) * every.unsqueeze(-2))
        log_weights[those] = unseen_in_turn((SHIFT - pull) / every, given_all, every).sum(-1)
    covariance.diagonal(dim1=-2, dim2=-1).clamp_(min=_LEAST_VARIANCE)
    return mean, covariance, log_weights
