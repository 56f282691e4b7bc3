"""The evidence estimate is unbiased where moves of all kinds come behind rows that are known beforehand.

The evidences of all labelings of some rows sum to one, so no other estimate of them is needed. Where moves come at a
stopping time there is a bias (`sureshot.structure.smc`), far below what a test has time to see.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.leaves import LogNormal
from sureshot.structure.rejuvenation import Rejuvenation
from sureshot.structure.smc import SmcState, extended, systematic
from tests.structure.oracles import F64, seeded

PRIOR = KernelPrior(Grammar(amplitude=LogNormal(1.0, 1.5), max_depth=3, scale=1, mean_variance=1), 1)
X = torch.tensor([[-1.2], [1.0], [-0.4], [0.5]], dtype=F64)
N_PARTICLES, N_RUNS, N_SWEEPS = 6, 60, 1


def estimates(y: Tensor, how: Rejuvenation, generator: torch.Generator) -> Tensor:
    """Of the evidence by runs (R,) that are made together: two rows, resampling where it is due, moves, two rows."""
    n, m = N_PARTICLES, N_PARTICLES * N_RUNS
    state, first = weighed(SmcState.start(PRIOR, m, 2, generator), y[:2], generator)
    total = first.logsumexp(-1, keepdim=True)
    log_weights = first - total
    few = (-(2 * log_weights).logsumexp(-1)).exp() < 0.97 * n
    drawn = torch.stack([systematic(one, generator) for one in log_weights])
    kept = torch.where(few.unsqueeze(-1), drawn, torch.arange(n)) + n * torch.arange(N_RUNS).unsqueeze(-1)
    log_weights = torch.where(few.unsqueeze(-1), -math.log(n), log_weights)
    assert 0.1 < float(few.to(F64).mean()) < 1
    particles, latent = state.particles.chosen(kept.flatten().tolist()), state.latent.chosen(kept.flatten())
    for _ in range(N_SWEEPS):
        particles, latent, _ = how.sweep(state.data, particles, latent, generator)
    _, second = weighed(replace(state, particles=particles, latent=latent), y[2:], generator)
    return (total + log_weights + math.log(n) + second).logsumexp(-1).exp()


def weighed(state: SmcState, y: Tensor, generator: torch.Generator) -> tuple[SmcState, Tensor]:
    """With further rows, and the logarithms of the weights (R, M) that they give, each run's summing to its mean."""
    n = len(state.x)
    even = replace(state, log_weights=torch.full_like(state.log_weights, -math.log(N_PARTICLES)), log_evidence=0.0)
    grown, _ = extended(even, X[n : n + len(y)], y, 2, generator)
    return grown, (grown.log_weights + grown.log_evidence).view(N_RUNS, N_PARTICLES)


@pytest.mark.slow
def test_the_evidences_of_all_labelings_sum_to_one() -> None:
    labelings = [torch.tensor([0, *rest]) for rest in torch.cartesian_prod(*[torch.arange(2)] * 3).tolist()]
    found = [estimates(y, Rejuvenation(), seeded(k)) for k, y in enumerate(labelings)]
    total = 2 * sum(float(one.mean()) for one in found)  # the other half has the labels exchanged
    error = 2 * math.sqrt(sum(float(one.var()) / N_RUNS for one in found))
    assert error < 0.012
    assert abs(total - 1) < 4 * error
