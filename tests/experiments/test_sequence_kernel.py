"""The simulated processes against dense algebra, and a small run."""

from __future__ import annotations

import pytest
import torch

from experiments import sequence_kernel as study
from sureshot.meta.protocols import EpisodeProtocol


def covariance(processes: study.Processes, k: int, length: int) -> torch.Tensor:
    """Dense covariance (length, length) from the Yule-Walker recursion of the autocorrelations."""
    first, second = processes.first[k].item(), processes.second[k].item()
    rho = [1.0, first / (1 - second)]
    while len(rho) < length:
        rho.append(first * rho[-1] + second * rho[-2])
    lags = (torch.arange(length).unsqueeze(0) - torch.arange(length).unsqueeze(1)).abs()
    return torch.tensor(rho, dtype=torch.float64)[lags]


def test_density_is_the_gaussian_with_the_stationary_covariance() -> None:
    generator = torch.Generator().manual_seed(0)
    processes = study.draw_processes(4, generator)
    x = torch.randn(6, 9, generator=generator, dtype=torch.float64)
    dense = [
        torch.distributions.MultivariateNormal(
            torch.zeros(9, dtype=torch.float64), covariance(processes, k, 9)
        ).log_prob(x)
        for k in range(4)
    ]
    torch.testing.assert_close(processes.log_density(x), torch.stack(dense, -1))


def test_samples_have_that_covariance() -> None:
    generator = torch.Generator().manual_seed(0)
    processes = study.draw_processes(3, generator)
    x = processes.sample(20_000, 6, generator)
    for k in range(3):
        # entries of a sample covariance of unit variances scatter by at most sqrt(2 / n) = 0.01
        torch.testing.assert_close(torch.cov(x[k].T), covariance(processes, k, 6), atol=0.05, rtol=0)


def test_the_ceiling_is_right_where_classes_are_far_apart() -> None:
    processes = study.Processes(
        torch.tensor([1.9, -1.9], dtype=torch.float64), torch.tensor([-0.95, -0.95], dtype=torch.float64)
    )
    data = study.labelled(processes, 20, 40, torch.Generator().manual_seed(0))
    best = study.true_density_scores(processes, data, EpisodeProtocol(2, 1, 5), 20, 0)
    assert best["accuracy"] == 100
    assert best["nll"] < 1e-6


def test_a_small_run() -> None:
    told: list[float] = []
    outcome = study.run(
        data_root=None,
        progress=lambda what, fraction: told.append(fraction),
        n_base=12,
        n_novel=8,
        n_rows=20,
        way=3,
        queries=5,
        n_steps=30,
        n_test_tasks=50,
        seeds=(0,),
    )
    scores = outcome.tables[0].frame.set_index("method")
    assert scores.accuracy[study.CEILING] == scores.accuracy.max()
    assert scores.nll[study.CEILING] == scores.nll.min()
    assert (scores.accuracy > 100 / 3).all()
    assert told == sorted(told)
    assert f"{scores.accuracy[study.RECURRENT]:.1f} %" in outcome.findings[0]
    with pytest.raises(ValueError, match="unknown option 'steps'"):
        study.run(data_root=None, progress=lambda what, fraction: None, steps=3)
