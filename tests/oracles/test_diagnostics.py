"""Convergence diagnostics against autoregressive chains of known correlation and plain loop arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.oracles.diagnostics import effective_sample_size, split_r_hat


def autoregressive(rho: Tensor, n_sweeps: int, n_chains: int, seed: int) -> Tensor:
    """Stationary AR(1) chains (sweeps, chains, *rho.shape) of unit variance."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(n_sweeps, n_chains, *rho.shape, generator=generator, dtype=torch.float64)
    draws = [noise[0]]
    for step in noise[1:]:
        draws.append(rho * draws[-1] + (1 - rho**2).sqrt() * step)
    return torch.stack(draws)


def by_hand_r_hat(draws: np.ndarray) -> float:
    half = len(draws) // 2
    chains = [draws[:half, c] for c in range(draws.shape[1])] + [
        draws[half : 2 * half, c] for c in range(draws.shape[1])
    ]
    within = np.mean([np.var(chain, ddof=1) for chain in chains])
    between = np.var([np.mean(chain) for chain in chains], ddof=1)
    return float(np.sqrt(((half - 1) / half * within + between) / within))


def by_hand_ess(draws: np.ndarray) -> float:
    half = len(draws) // 2
    chains = [draws[:half, c] for c in range(draws.shape[1])] + [
        draws[half : 2 * half, c] for c in range(draws.shape[1])
    ]

    def lagged(chain: np.ndarray, lag: int) -> float:
        centred = chain - chain.mean()
        return float(np.dot(centred[: half - lag], centred[lag:]) / half)

    within = np.mean([np.var(chain, ddof=1) for chain in chains])
    total = (half - 1) / half * within + np.var([chain.mean() for chain in chains], ddof=1)

    def correlation(lag: int) -> float:
        if lag == 0:
            return 1.0
        return 1 - (within - np.mean([lagged(c, lag) for c in chains]) * half / (half - 1)) / total

    time, smallest = -1.0, math.inf
    for k in range(half // 2):
        pair = correlation(2 * k) + correlation(2 * k + 1)
        if pair <= 0:
            break
        smallest = min(smallest, pair)
        time += 2 * smallest
    count = half * len(chains)
    return count / max(time, 1 / math.log10(count))


@pytest.mark.parametrize("n_sweeps", [4, 5, 30, 101])
def test_both_equal_plain_loops(n_sweeps: int) -> None:
    draws = autoregressive(torch.tensor([[-0.4, 0.0], [0.6, 0.95]], dtype=torch.float64), n_sweeps, 3, 5)
    r_hat, size = split_r_hat(draws), effective_sample_size(draws)
    assert r_hat.shape == size.shape == (2, 2)
    for i in range(2):
        for j in range(2):
            series = draws[:, :, i, j].numpy()
            assert float(r_hat[i, j]) == pytest.approx(by_hand_r_hat(series), rel=1e-12)
            assert float(size[i, j]) == pytest.approx(by_hand_ess(series), rel=1e-9)


def test_effective_sample_size_of_autoregressive_chains() -> None:
    rho = torch.tensor([-0.3, 0.0, 0.5, 0.8, 0.9], dtype=torch.float64)
    draws = autoregressive(rho, 20_000, 8, 0)
    expected = 160_000 * (1 - rho) / (1 + rho)
    # The estimate's own relative error at these lengths is about 2-3 %.
    torch.testing.assert_close(effective_sample_size(draws), expected, rtol=0.1, atol=0)


def test_r_hat_of_agreeing_and_disagreeing_chains() -> None:
    draws = autoregressive(torch.tensor([0.3, 0.3], dtype=torch.float64), 1000, 4, 2)
    draws[:, 0, 1] += 1.0
    found = split_r_hat(draws)
    assert abs(float(found[0]) - 1) < 0.01
    assert float(found[1]) > 1.05


def test_a_drifting_single_chain_is_caught_by_splitting() -> None:
    draws = autoregressive(torch.tensor(0.0, dtype=torch.float64), 400, 1, 3)
    drift = torch.linspace(0, 3, 400, dtype=torch.float64).unsqueeze(-1)
    assert float(split_r_hat(draws)) < 1.02
    assert float(split_r_hat(draws + drift)) > 1.3


def test_invariance_to_shift_and_scale() -> None:
    draws = autoregressive(torch.tensor([0.2, 0.9], dtype=torch.float64), 200, 3, 6)
    for statistic in (split_r_hat, effective_sample_size):
        torch.testing.assert_close(statistic(5 - 3 * draws), statistic(draws), rtol=1e-9, atol=0)


def test_constant_quantities_are_nan_and_do_not_disturb_the_others() -> None:
    draws = autoregressive(torch.tensor([0.2, 0.2], dtype=torch.float64), 100, 2, 7)
    alone = effective_sample_size(draws[..., :1])
    draws[..., 1] = 2.0
    size = effective_sample_size(draws)
    assert bool(size[1].isnan())
    assert bool(split_r_hat(draws)[1].isnan())
    torch.testing.assert_close(size[:1], alone)


@pytest.mark.parametrize("value", [0.1, 1e6 + 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_constant_that_rounds_is_a_constant(value: float, dtype: torch.dtype) -> None:
    draws = torch.full((101, 3), value, dtype=dtype)
    assert split_r_hat(draws).isnan()
    assert effective_sample_size(draws).isnan()
    apart = draws.clone()
    apart[:, 1] += 1
    assert split_r_hat(apart) == math.inf
