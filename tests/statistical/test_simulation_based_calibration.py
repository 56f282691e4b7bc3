"""Simulation-based calibration: latents that made the data rank uniformly among draws from their posterior.

Latents and labels are drawn together, many data sets at once, and every sampler is then asked for latents given the
labels. Those that made the labels are one posterior draw more, so their rank among L others is uniform on 0..L: of each
latent, and of any function of latents and labels. The sum of squares and the log likelihood see what single latents do
not.

Ranks need draws that are exchangeable with the truth. A sampler that alternates between auxiliary variables and latents
is a reversible chain in the latents. So the truth is put at a random place of a chain of L + 1 kept draws, and one arm
is run from it for those after it, another for those before it: ranks are then exactly uniform at any autocorrelation,
without a burn-in to doubt. What autocorrelation costs is power. Hence the thinning, and a gate: by its effective sample
size, the chain of a typical data set must be worth L independent draws.

References: Talts et al. 2018, Validating Bayesian inference algorithms with simulation-based calibration; Besag &
Clifford 1989, Generalized Monte Carlo significance tests (the random place). `conftest` makes the joint draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from tests.oracles.diagnostics import effective_sample_size

F64 = torch.float64
N_DRAWS = 15  # L
# Data sets and sweeps for each kept draw: where chains mix fast, many data sets.
FAST, SLOW = (1600, 3), (400, 15)
# Level of each test, shared by its quantities (at most 11: Bonferroni). The seeds are fixed.
LEVEL = 1e-3

MakeClassifier = Callable[..., Any]


def quantities(model: Any, f: Tensor, y: Tensor) -> Tensor:
    """What is ranked (..., T, Q): centred latents, the sum of their squares, and the log likelihood.

    For one-vs-each, differences of latents where there are observations.
    """
    latents = f - model.prior.mean
    if model.likelihood.name == "one_vs_each":
        latents = (latents[..., 1:, :] - latents[..., :1, :])[..., model.counts > 0]
    latents = latents.flatten(-2)
    level = (model.counts * model.likelihood.log_likelihood(f, y)).sum(-1, keepdim=True)
    return torch.cat([latents, latents.square().sum(-1, keepdim=True), level], -1)


def ranks(truth: Tensor, drawn: Tensor, generator: torch.Generator) -> Tensor:
    """Ranks 0..L (T, Q) of the truth (T, Q) in chains of which it has a random place; L draws in each of two arms.

    `drawn` is (L, 2, T, Q). Ties, of probabilities that round to one, are broken by lot.
    """
    n_drawn = len(drawn)
    place = torch.randint(n_drawn + 1, (len(truth),), generator=generator)
    ordinal = torch.arange(n_drawn).unsqueeze(-1)
    used = torch.stack([ordinal < place, ordinal < n_drawn - place], 1).unsqueeze(-1)  # (L, 2, T, 1)
    below = ((drawn < truth) & used).sum((0, 1))
    ties = ((drawn == truth) & used).sum((0, 1))
    lot = torch.rand(truth.shape, generator=generator, dtype=F64) * (ties + 1)
    return below + lot.floor().to(torch.int64)


def smallest_probability(model: Any) -> float:
    """Chi-square probability of the counts of ranks: that of the worst quantity, times the number of quantities."""
    generator = torch.Generator().manual_seed(0)
    n_data_sets, thin = FAST if float(model.prior.variance.max()) < 6 else SLOW
    f, y = model.joint(n_data_sets, generator)
    trace = quantities(model, model.run(f, y, 2, thin * N_DRAWS, generator), y)  # (sweeps, 2, T, Q)
    # Both arms are as long as the chain that ranks are taken in, so they are worth twice as much.
    size = 0.5 * float(effective_sample_size(trace).median(0).values.min())
    assert size > N_DRAWS, f"a typical chain is worth only {size:.1f} draws: the test would be blind"
    rank = ranks(quantities(model, f, y), trace[thin - 1 :: thin], generator)
    counts = (rank.unsqueeze(-1) == torch.arange(N_DRAWS + 1)).sum(0)  # (Q, L + 1)
    expected = n_data_sets / (N_DRAWS + 1)
    statistic = ((counts - expected) ** 2 / expected).sum(-1)
    return float(chi2.sf(statistic.numpy(), N_DRAWS).min()) * len(statistic)


def labelled(cases: list[tuple[str, float, list[float] | None]]) -> list[Any]:
    return [
        pytest.param(
            *case,
            id=f"{case[0]}, variance {case[1]:g}, weights {case[2]}",
            marks=[pytest.mark.slow] * ("softmax" in case[0]),
        )
        for case in cases
    ]


WEIGHTED, LARGE = (25.0, [2.0, 0, 3]), (100.0, None)


@pytest.mark.parametrize(
    ("name", "variance", "weight"),
    labelled(
        [
            ("logistic", 5.0, None),
            ("logistic", *WEIGHTED),
            ("logistic", *LARGE),
            ("logistic, features", *WEIGHTED),
            ("logistic, features", *LARGE),
            ("logistic-softmax", 5.0, None),
            ("logistic-softmax", *WEIGHTED),
            ("logistic-softmax", *LARGE),
            ("logistic-softmax, features", *WEIGHTED),
            ("logistic-softmax, features", *LARGE),
            ("logistic-softmax at temperature 0.5", *WEIGHTED),
            ("logistic-softmax at temperature 0.5, features", *LARGE),
            ("Gaussian labels", *WEIGHTED),
            ("Gaussian labels, features", *LARGE),
            ("one-vs-each, dense", 5.0, None),
            ("one-vs-each, dense", *LARGE),
            ("one-vs-each, star", *WEIGHTED),
        ]
    ),
)
def test_ranks_are_uniform(name: str, variance: float, weight: list[float] | None, classifier: MakeClassifier) -> None:
    assert smallest_probability(classifier(name, variance, weight)) > LEVEL
