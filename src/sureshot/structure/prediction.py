"""What particles say of queries."""

from __future__ import annotations

import torch
from torch import Tensor

from sureshot.gaussian.algebra import times_vector
from sureshot.kernels.shared_rows import SharedRows
from sureshot.likelihoods import OneVsEach
from sureshot.structure.smc import SmcState


def class_moments(
    state: SmcState,
    x: Tensor,  # (Q, D)
) -> tuple[Tensor, Tensor]:
    """Means (M, C, Q) and covariances (M, Q, C, C) of ``f_c / sqrt(2)`` under each particle."""
    gram = state.particles.grams(state.prior, SharedRows(state.x, x))  # (M, N, Q)
    of_classes = state.contrasts.of_classes(state.n_classes) / 2**0.5  # (P, C)
    own = state.particles.diagonals(state.prior, x) + state.particles.nuggets(state.prior).unsqueeze(-1)
    cross = gram[:, state.contrasts.row].unsqueeze(-1) * of_classes.unsqueeze(1)  # (M, P, Q, C)
    mean, solved = state.latent.predicted(cross.flatten(-2))
    solved = solved.unflatten(-1, cross.shape[-2:])
    covariance = torch.diag_embed((own / 2).unsqueeze(-1).expand(*own.shape, state.n_classes))
    covariance = covariance - torch.einsum("mpqc,mpqd->mqcd", solved, solved)
    return mean.unflatten(-1, cross.shape[-2:]).mT, covariance


def probabilities(
    state: SmcState,
    x: Tensor,  # (Q, D)
    n_draws: int | None = None,  # of a query's latent under each particle; None for quadrature
    generator: torch.Generator | None = None,  # of the draws
) -> Tensor:
    """Class probabilities of queries, averaged over the particles, (Q, C).

    With `n_draws`, K of the paper's eq. 29, they are a Monte-Carlo average, for two classes only.
    """
    if n_draws is not None and (n_draws < 1 or state.n_classes != 2):
        raise ValueError(f"n_draws must be at least 1, of two classes, got {n_draws} of {state.n_classes}")
    mean, covariance = class_moments(state, x)
    weights = state.log_weights.exp()
    if state.n_classes == 2:
        link = state.latent.link
        difference = mean[:, 1] - mean[:, 0]
        spread = covariance[..., 0, 0] + covariance[..., 1, 1] - 2 * covariance[..., 0, 1]
        spread = spread.clamp_min(1e-12)
        if n_draws is None:
            second = link.log_expected(difference, spread).exp()
        else:
            noise = torch.randn(n_draws, *difference.shape, generator=generator, dtype=torch.float64)
            second = link.log_probability(difference + spread.sqrt() * noise).exp().mean(0)
        p = times_vector(second.mT, weights)
        return torch.stack([1 - p, p], -1)
    found = OneVsEach().integral(mean, covariance)  # (M, C, Q)
    return torch.einsum("m,mcq->qc", weights, found)
