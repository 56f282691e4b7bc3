"""Sequential Monte Carlo over structures: evidence and posterior against importance sampling, calibration, batches.

Simulation-based calibration: kernels, latents and labels are drawn together, and what was drawn must rank uniformly
among draws of the particles that a run leaves. These are draws of the posterior up to terms of one over the number of
particles, far below what so many data sets show.
"""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.particles import Particles
from sureshot.structure.prediction import class_moments, probabilities
from sureshot.structure.smc import SmcSettings, SmcState, smc_step
from tests.structure.oracles import F64, kernel_matrix, seeded
from tests.structure.toys import TOYS, Toy, reference, run, scores, summary

pytestmark = pytest.mark.slow

SIZES = {"threshold": [10, 10], "corners": [12, 6, 6], "three classes": [2, 2, 2]}
N_DRAWS = 7


@pytest.mark.parametrize("name", TOYS)
def test_evidence_and_posterior_by_importance_sampling(name: str) -> None:
    """The first batch of "threshold" has a single class, "three classes" a third one in the third batch."""
    toy = TOYS[name]
    summaries = torch.stack([summary(run(toy, SIZES[name], 80, seed)) for seed in range(6)])
    assert float(summaries[:, 0].std()) < 0.55
    assert max(map(abs, scores(summaries, reference(toy)))) < 4


def test_one_batch_or_ten_give_the_same_posterior() -> None:
    """And the same predictions."""
    toy, queries = TOYS["threshold"], torch.tensor([[-1.0], [0.3], [1.1], [3.0]], dtype=F64)
    found = []
    for sizes in ([20], [2] * 10):
        states = [run(toy, sizes, 40, seed) for seed in range(6)]
        found.append(torch.stack([torch.cat([summary(one), probabilities(one, queries)[:, 1]]) for one in states]))
    error = sum(values.var(0) / len(values) for values in found).sqrt()
    assert float(((found[0].mean(0) - found[1].mean(0)) / error).abs().max()) < 4.5
    assert float(found[0].std(0)[3:].max()) < 0.16, "or there would be nothing to compare"


def simulated(prior: KernelPrior, x: Tensor, generator: torch.Generator) -> tuple[Particles, Tensor, Tensor]:
    """A kernel, latents of the logistic model on rows, and labels."""
    particle = Particles.drawn(prior, 1, generator)
    root = torch.linalg.cholesky(kernel_matrix(prior, particle.structures[0], particle.z[0], x))
    f = root @ torch.randn(len(x), generator=generator, dtype=F64)
    return particle, f, (torch.rand(len(x), generator=generator, dtype=F64) < torch.sigmoid(f)).long()


def quantities(particles: Particles, f: Tensor, y: Tensor) -> Tensor:
    """What is ranked (M, Q): size, a first leaf that is linear, two numbers, latents (M, N'), and their agreement.

    The last, with labels of rows beside them, is what a sampler would get wrong that does not look at the labels.
    """
    sizes = [float(len(structure)) for structure in particles.structures]
    linear = [float(structure.symbols[structure.leaves[0]] == "LINEAR") for structure in particles.structures]
    numbers = torch.stack([z[:2] for z in particles.z])
    return torch.cat([torch.tensor([sizes, linear], dtype=F64).mT, numbers, f, f * (2 * y - 1)], -1)


def posterior_draws(state: SmcState, x: Tensor, generator: torch.Generator) -> tuple[Particles, Tensor]:
    """So many particles, and their latents (M, N') of rows that were not seen."""
    places = torch.multinomial(state.log_weights.exp(), N_DRAWS, replacement=True, generator=generator)
    mean, covariance = class_moments(state, x)
    difference = mean[:, 1] - mean[:, 0]
    spread = covariance[..., 0, 0] + covariance[..., 1, 1] - 2 * covariance[..., 0, 1]
    noise = torch.randn(N_DRAWS, len(x), generator=generator, dtype=F64)
    return state.particles.chosen(places.tolist()), difference[places] + spread[places].sqrt() * noise


def smallest_probability(n_data_sets: int = 64) -> float:
    """Chi-square probability of the counts of ranks: that of the worst quantity, times the number of quantities."""
    prior = KernelPrior(
        Grammar({"LINEAR": 1.0, "SQUARED-EXPONENTIAL": 1.0, "CONSTANT": 1.0}, max_depth=3, scale=1, mean_variance=1), 1
    )
    rows = torch.tensor([[-1.6], [-0.8], [-0.1], [0.5], [0.9], [1.7], [-0.4], [2.5]], dtype=F64)  # two are queries
    generator, ranks = seeded(0), []
    for _ in range(n_data_sets):
        truth, f, y = simulated(prior, rows, generator)
        beside = y[[2, 5]]  # of the rows next to the queries
        state = SmcState.start(prior, 24, 2, generator)
        for batch in (slice(0, 4), slice(4, 6)):
            state, _ = smc_step(state, rows[batch], y[batch], generator, SmcSettings())
        drawn = quantities(*posterior_draws(state, rows[6:], generator), beside)
        made = quantities(truth, f[6:].unsqueeze(0), beside)
        ties = (drawn == made).sum(0)
        lot = torch.rand(ties.shape, generator=generator, dtype=F64) * (ties + 1)
        ranks.append((drawn < made).sum(0) + lot.floor().long())
    counts = (torch.stack(ranks).unsqueeze(-1) == torch.arange(N_DRAWS + 1)).sum(0)
    expected = n_data_sets / (N_DRAWS + 1)
    statistic = ((counts - expected) ** 2 / expected).sum(-1)
    return float(chi2.sf(statistic.numpy(), N_DRAWS).min()) * len(statistic)


def test_ranks_are_uniform() -> None:
    assert smallest_probability() > 1e-3


def test_predictions_are_calibrated_means() -> None:
    """What is predicted is what happens, in the mean over data sets of the prior, also among confident predictions."""
    prior, generator = KernelPrior(Grammar(max_depth=3, scale=1, mean_variance=1), 1), seeded(1)
    rows = torch.linspace(-1.5, 1.5, 7, dtype=F64).unsqueeze(-1)
    p, y = [], []
    for _ in range(40):
        _, _, labels = simulated(prior, rows, generator)
        toy = Toy(prior, rows[[0, 2, 3, 5, 6]], labels[[0, 2, 3, 5, 6]], 2)
        p.append(
            probabilities(run(toy, [5], 24, int(torch.randint(10**6, (), generator=generator))), rows[[1, 4]])[:, 1]
        )
        y.append(labels[[1, 4]].to(F64))
    predicted, happened = torch.stack(p), torch.stack(y)
    confident = (predicted - 0.5).sign() * (happened - predicted)
    for values in ((happened - predicted).mean(-1), confident.mean(-1)):
        assert abs(float(values.mean())) < 4 * float(values.std()) / len(values) ** 0.5
    assert float((predicted - 0.5).abs().max()) > 0.3
