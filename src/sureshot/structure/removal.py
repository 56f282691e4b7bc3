"""Rows and classes that are taken away again: the weights of a posterior that never saw them.

Exact; but a row that mattered leaves few particles with weight, so resampling and rejuvenation come behind it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from sureshot.structure.contrasts import Contrasts
from sureshot.structure.smc import SmcState, normalised


def without(
    state: SmcState,
    rows: Tensor,  # (N,) bool, those that stay
    classes: Tensor | None = None,  # (C,) bool, those that stay; all rows of the others must go
) -> SmcState:
    """The state without some rows and classes, weights adjusted, nothing resampled or moved."""
    old = state.contrasts
    classes = torch.ones(state.n_classes, dtype=torch.bool) if classes is None else classes
    kept = rows[old.row] & classes[old.own] & classes[old.other]
    left, number = old.chosen(kept.nonzero().flatten()), classes.cumsum(0) - 1
    fewer = replace(
        state,
        x=state.x[rows],
        y=state.y[rows] if state.of_numbers else number[state.y[rows]],
        n_classes=int(classes.sum()),
        contrasts=Contrasts((rows.cumsum(0) - 1)[left.row], number[left.own], number[left.other]),
    )
    of_all, of_left = (one.data.covariance(state.particles) for one in (state, fewer))
    latent, increments = state.latent.without(kept, of_all, of_left)
    log_weights, total = normalised(state.log_weights + increments)
    # Of no comparisons the evidence is known, and its estimate would keep the error of what was taken away.
    log_evidence = state.log_evidence + total if len(left) else 0.0
    return replace(fewer, latent=latent, log_weights=log_weights, log_evidence=log_evidence)
