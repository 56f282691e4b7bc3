"""Rows and classes that are taken away again: the weights of a posterior that never saw them.

The reverse of taking them in: one contrast after another, each is integrated out with its Polya-Gamma variable, and a
particle's weight is divided by what it predicted for it. Exact; but a row that mattered leaves few particles with
weight, so resampling and rejuvenation come behind it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from sureshot.likelihoods.quadrature import log_expected_sigmoid
from sureshot.structure.collapsed import Collapsed
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.rejuvenation import Data
from sureshot.structure.smc import SmcState

_LEAST = 1e-12


def without(
    state: SmcState,
    rows: Tensor,  # (N,) bool, those that stay
    classes: Tensor | None = None,  # (C,) bool, those that stay; all rows of the others must go
) -> SmcState:
    """The state without some rows and classes, weights adjusted, nothing resampled or moved."""
    old = state.contrasts
    classes = torch.ones(state.n_classes, dtype=torch.bool) if classes is None else classes
    kept = rows[old.row] & classes[old.own] & classes[old.other]
    covariance = Data.of(state.prior, state.x, old).covariance(state.particles)
    mean, posterior = _posterior(state.latent, covariance, (~kept).nonzero().flatten())
    log_weights, omega = state.log_weights, state.latent.omega[:, ~kept]
    for j in range(omega.shape[-1]):
        w, v = omega[:, j], posterior[:, j, j]
        share = (1 - w * v).clamp_min(_LEAST)
        gain = -(0.5 - w * mean[:, j]) / share
        column = posterior[:, :, j]
        log_weights = log_weights - log_expected_sigmoid(mean[:, j] + v * gain, v / share)
        mean = mean + column * gain.unsqueeze(-1)
        posterior = posterior + (w / share)[:, None, None] * column.unsqueeze(-1) * column.unsqueeze(-2)
    places = kept.nonzero().flatten()
    left, number = old.chosen(places), classes.cumsum(0) - 1
    total = log_weights.logsumexp(0)
    return replace(
        state,
        x=state.x[rows],
        y=number[state.y[rows]],
        n_classes=int(classes.sum()),
        contrasts=Contrasts((rows.cumsum(0) - 1)[left.row], number[left.own], number[left.other]),
        latent=Collapsed.of(state.latent.omega[:, places], covariance[:, places][:, :, places]),
        log_weights=log_weights - total,
        log_evidence=state.log_evidence + float(total),
    )


def _posterior(latent: Collapsed, covariance: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of some contrasts given all the Polya-Gamma variables."""
    mean, own = latent.predicted(covariance[:, :, places])
    return mean, covariance[:, places][:, :, places] - own.mT @ own
