"""Rows taken away: from one evidence to another, both integrals of latents under kernels that are enumerated."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import logsigmoid

from sureshot.gaussian.algebra import times_vector
from sureshot.structure.collapsed import Collapsed
from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.particles import Particles
from sureshot.structure.removal import without
from sureshot.structure.smc import SmcState, extended
from sureshot.structure.structure import Structure
from sureshot.structure.whitened import Whitened
from tests.structure.oracles import F64, covariances, draws_and_log_weights, positive_definite, seeded

PRIOR, KIND = KernelPrior(Grammar(scale=1, mean_variance=1), 1), Structure(("SQUARED-EXPONENTIAL",))
KERNELS = ((3.0, 1.0, 0.0), (0.0, 2.0, -0.5))  # nugget, amplitude, length-scale
CASES = {  # places and labels of rows; those at -1 with the first label go
    "one row": ([-1.0, -0.8, 0.3, 0.8], [1, 0, 0, 1], 2),
    "five copies": ([-1.0] * 5 + [-0.5, 0.3, 0.8], [1] * 5 + [1, 0, 1], 2),
    "one of rows that contradict each other": ([-1.0, -1.0, 0.3, 0.8], [1, 0, 0, 1], 2),
    "two copies of three classes": ([-1.0, -1.0, -0.5, 0.3, 0.8], [2, 2, 2, 0, 1], 3),
    "five classes": ([-1.0, -0.5, 0.3, 0.8], [4, 1, 0, 2], 5),
}


@pytest.mark.parametrize("case", CASES)
def test_the_weights_of_never_having_seen_data_lead_from_one_evidence_to_the_other(case: str) -> None:
    """Of each kernel in the mean over particles, which are draws of the posterior of all rows by their weights."""
    rows, labels, n_classes = CASES[case]
    x, y, m = torch.tensor(rows, dtype=F64).unsqueeze(-1), torch.tensor(labels), 6000
    particles = Particles((KIND,) * len(KERNELS), tuple(torch.tensor(KERNELS, dtype=F64)))
    every = covariances(PRIOR, particles, x, y, n_classes)
    kept = (~((x[:, 0] == -1) & (y == y[0]))).repeat_interleave(n_classes - 1)
    generator = seeded(1)
    for covariance in every:
        left = covariance[kept][:, kept]
        _, log_weights = draws_and_log_weights(left.unsqueeze(0), 20_000, generator)
        exact = log_weights.exp().squeeze(-1)
        many = covariance.expand(m, -1, -1)
        latent, taken_in = Collapsed.empty(m).extended(many[:, :0], many, generator)
        _, taken_away = latent.without(kept, many, left.expand(m, -1, -1))
        found = (taken_in.sum(-1) + taken_away).exp()
        error = math.hypot(float(found.std()) / m**0.5, float(exact.std()) / len(exact) ** 0.5)
        assert error < 0.03 * float(exact.mean())
        assert abs(float(found.mean() - exact.mean())) < 4 * error


def test_whitened_latents_that_stay_are_as_they_were_and_others_take_their_probability_with_them() -> None:
    covariance, kept = positive_definite(3, 6), torch.tensor([True, False, True, True, False, True])
    latent, taken_in = Whitened.empty(3).extended(covariance[:, :0], covariance, seeded(0))
    left = covariance[:, kept][:, :, kept]
    fewer, taken_away = latent.without(kept, covariance, left)
    torch.testing.assert_close(fewer.factor @ fewer.factor.mT, left)
    psi, stays = (times_vector(one.factor, one.eta) for one in (latent, fewer))
    torch.testing.assert_close(stays, psi[:, kept])
    torch.testing.assert_close(taken_in, logsigmoid(psi))
    torch.testing.assert_close(taken_away, -logsigmoid(psi[:, ~kept]).sum(-1))


def test_of_no_comparisons_the_evidence_is_one() -> None:
    x, y = torch.tensor([[-1.0], [0.2], [0.9]], dtype=F64), torch.tensor([0, 1, 0])
    state, _ = extended(SmcState.start(PRIOR, 4, 2, seeded(0)), x, y, 2, seeded(1))
    assert state.log_evidence < 0
    assert without(state, y == 0, torch.tensor([True, False])).log_evidence == 0
