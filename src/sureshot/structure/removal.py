"""Rows that are taken away again: the weights of a posterior that never saw them.

The reverse of taking rows in: one contrast after another, each is integrated out with its Polya-Gamma variable, and a
particle's weight is divided by what it predicted for it. Exact; but a row that mattered leaves few particles with
weight, so resampling and rejuvenation come behind it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from sureshot.likelihoods.quadrature import log_expected_sigmoid
from sureshot.structure.collapsed import Collapsed
from sureshot.structure.rejuvenation import Data
from sureshot.structure.smc import SmcState

_LEAST = 1e-12


def without_rows(
    state: SmcState,
    stays: Tensor,  # (N,) bool
) -> SmcState:
    """The state with some rows only, weights adjusted, nothing resampled or moved."""
    kept = stays[state.contrasts.row]
    covariance = Data.of(state.prior, state.x, state.contrasts).covariance(state.particles)
    mean, posterior = _posterior(state.latent, covariance, (~kept).nonzero().flatten())
    log_weights = state.log_weights
    omega = state.latent.omega[:, ~kept]
    for j in range(omega.shape[-1]):
        w, v = omega[:, j], posterior[:, j, j]
        share = (1 - w * v).clamp_min(_LEAST)
        gain = -(0.5 - w * mean[:, j]) / share
        column = posterior[:, :, j]
        log_weights = log_weights - log_expected_sigmoid(mean[:, j] + v * gain, v / share)
        mean = mean + column * gain.unsqueeze(-1)
        posterior = posterior + (w / share)[:, None, None] * column.unsqueeze(-1) * column.unsqueeze(-2)
    places = kept.nonzero().flatten()
    contrasts = state.contrasts.chosen(places)
    total = log_weights.logsumexp(0)
    return replace(
        state,
        x=state.x[stays],
        y=state.y[stays],
        contrasts=replace(contrasts, row=(stays.cumsum(0) - 1)[contrasts.row]),
        latent=Collapsed.of(state.latent.omega[:, places], covariance[:, places][:, :, places]),
        log_weights=log_weights - total,
        log_evidence=state.log_evidence + float(total),
    )


def _posterior(latent: Collapsed, covariance: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of some contrasts given all the Polya-Gamma variables."""
    mean, own = latent.predicted(covariance[:, :, places])
    return mean, covariance[:, places][:, :, places] - own.mT @ own
