"""What would be said of each row without it, from what particles keep.

Given the Polya-Gamma variables the labels are as if ``t = 1 / (2 omega)`` had been seen with noise of variance
``1 / omega``, so with ``K = S + W^-1`` the contrasts G of a row have, given those of all others, the moments

    mean = t_G - (K^-1_GG)^-1 (K^-1 t)_G,   covariance = (K^-1_GG)^-1 - W_G^-1.

Latents that are seen through inducing inputs have a posterior of weights, off which the row's own data are taken.

Without the row particles have other weights, too: theirs divided by how probable they find its label. (The kernels and
the variables of other rows are those that were drawn with the row; these weights are the importance of that.)

Reference: Rasmussen & Williams 2006, section 5.4.2, for the moments; Gelfand et al. 1992, for the weights.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor

from sureshot.structure.collapsed import Collapsed
from sureshot.structure.prediction import class_probabilities, in_contrasts, where_finite
from sureshot.structure.smc import SmcState
from sureshot.structure.sparse import Features, Sparse

_LEAST_VARIANCE = 1e-12


class LeftOut(NamedTuple):
    """Of N rows, each given the others."""

    mean: Tensor  # (M, L, N), as `sureshot.structure.prediction.moments`
    covariance: Tensor  # (M, N, L, L)
    weights: Tensor  # (M, N), of the particles without the row


def left_out(state: SmcState) -> LeftOut:
    """Moments of the rows' latents, each row without its label, and the weights that particles then have.

    TypeError for whitened latents.
    """
    mean, covariance = moments_left_out(state)
    rows, m = torch.arange(len(state.y)), len(state.particles)
    own = torch.cat([class_probabilities(mean[[k]], covariance[[k]])[:, state.y, rows] for k in range(m)])
    weights = (state.log_weights.unsqueeze(-1) - own.clamp_min(1e-300).log()).softmax(0)
    return LeftOut(mean, covariance, weights)


def moments_left_out(state: SmcState) -> tuple[Tensor, Tensor]:
    """The moments alone; where they overflow those of `where_finite`."""
    if isinstance(state.latent, Sparse):
        return _by_weights(state, state.latent)
    if not isinstance(state.latent, Collapsed):
        raise TypeError("rows can be left out of collapsed latents only")
    latent = state.latent
    n, c, m = len(state.y), state.n_classes, len(state.particles)
    order = state.contrasts.row.argsort(stable=True)  # row by row, C - 1 each
    others = state.contrasts.other[order].view(n, c - 1)
    parts = [_contrasts(latent.part(slice(k, k + 1)), order, c - 1) for k in range(m)]  # large: one at a time
    means, covariances = (torch.stack(part) for part in zip(*parts, strict=True))  # (M, N, C - 1 (, C - 1))
    if c == 2:
        return where_finite(((2.0 * state.y - 1) * means.squeeze(-1)).unsqueeze(1), covariances)
    # Up to what all classes share: the latent of the own class is 0.
    place = torch.nn.functional.one_hot(others, c).to(means)  # (N, C - 1, C)
    mean = -torch.einsum("mng,ngc->mcn", means, place)
    return where_finite(mean, torch.einsum("ngc,mngh,nhd->mncd", place, covariances, place))


def of_classes(state: SmcState, covariance: Tensor) -> Tensor:
    """Covariances of `left_out` as those of a latent for each class, as `sureshot.structure.prediction.moments` has.

    Labels never tell what all classes share: it keeps its prior variance.
    """
    if state.n_classes == 2 or not isinstance(state.latent, Collapsed):
        return covariance
    c = state.n_classes
    shared = state.particles.diagonals(state.prior, state.x) + state.particles.nuggets(state.prior).unsqueeze(-1)
    centring = torch.eye(c, dtype=covariance.dtype) - 1 / c
    return centring @ covariance @ centring + (shared / (2 * c))[..., None, None]


def _by_weights(state: SmcState, latent: Sparse) -> tuple[Tensor, Tensor]:
    """Of latents that are seen through inducing inputs, which stay where they are."""
    data, parts = state.data, []
    for k in range(len(state.particles)):  # large: one at a time
        features = cast(Features, data.covariance(state.particles.chosen([k])))
        parts.append(in_contrasts(state, *latent.part(slice(k, k + 1)).left_out(features)))
    means, covariances = (torch.cat(part) for part in zip(*parts, strict=True))
    return means, covariances


def _contrasts(latent: Collapsed, order: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Means (N, G) and covariances (N, G, G) of one particle's contrasts without those of their row."""
    omega, factor, whitened = (part[0] for part in latent)
    root = omega.sqrt()
    inverse = torch.linalg.solve_triangular(factor, torch.diag(root), upper=False)  # L^-1 W^1/2
    grouped = inverse[:, order].unflatten(-1, (-1, size))  # (P, N, G)
    precision = torch.einsum("png,pnh->ngh", grouped, grouped)
    pull = torch.einsum("png,p->ng", grouped, whitened)  # K^-1 t
    omega = omega[order].view(-1, size)
    covariance = torch.linalg.inv(precision)
    mean = 0.5 / omega - (covariance @ pull.unsqueeze(-1)).squeeze(-1)
    covariance = covariance - torch.diag_embed(1 / omega)
    covariance.diagonal(dim1=-2, dim2=-1).clamp_(min=_LEAST_VARIANCE)
    return mean, covariance
