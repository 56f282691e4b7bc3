"""Convergence diagnostics against autoregressive chains of known correlation and plain loop arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from sureshot.inference.diagnostics import effective_sample_size, split_r_hat, standard_error


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
    torch.testing.assert_close(effective_sample_size(draws, rank_normalise=True), expected, rtol=0.1, atol=0)


def test_standard_error_covers_the_mean() -> None:
    rho = torch.full((400,), 0.7, dtype=torch.float64)
    draws = autoregressive(rho, 500, 4, 1)
    score = draws.mean((0, 1)) / standard_error(draws)
    # 400 independent quantities: the score's deviation is 1 up to 3.5 % (plus the ESS's own noise).
    assert float(score.std()) == pytest.approx(1.0, abs=0.15)


def test_r_hat_of_agreeing_and_disagreeing_chains() -> None:
    draws = autoregressive(torch.tensor([0.3, 0.3, 0.3], dtype=torch.float64), 1000, 4, 2)
    draws[:, 0, 1] += 1.0
    draws[:, 0, 2] *= 5.0
    classical, ranked = split_r_hat(draws), split_r_hat(draws, rank_normalise=True)
    assert abs(float(classical[0]) - 1) < 0.01
    assert abs(float(ranked[0]) - 1) < 0.01
    assert float(classical[1]) > 1.05
    assert float(classical[2]) < 1.02, "a difference in scale alone is invisible to the classical statistic"
    assert float(ranked[2]) > 1.05


def test_a_drifting_single_chain_is_caught_by_splitting() -> None:
    draws = autoregressive(torch.tensor(0.0, dtype=torch.float64), 400, 1, 3)
    drift = torch.linspace(0, 3, 400, dtype=torch.float64).unsqueeze(-1)
    assert float(split_r_hat(draws)) < 1.02
    assert float(split_r_hat(draws + drift)) > 1.3


def test_rank_normalisation_by_scipy_ranks() -> None:
    generator = torch.Generator().manual_seed(4)
    draws = torch.randint(0, 6, (40, 3), generator=generator).to(torch.float64)  # with ties
    halves = np.concatenate([draws[:20].numpy(), draws[20:].numpy()], axis=1)

    def scores(values: np.ndarray) -> np.ndarray:
        ranks = stats.rankdata(values, method="average").reshape(values.shape)
        return stats.norm.ppf((ranks - 0.375) / (values.size + 0.25))

    def r_hat(values: np.ndarray) -> float:
        within = values.var(0, ddof=1).mean()
        return float(np.sqrt((19 / 20 * within + values.mean(0).var(ddof=1)) / within))

    expected = max(r_hat(scores(halves)), r_hat(scores(np.abs(halves - np.median(halves)))))
    assert float(split_r_hat(draws, rank_normalise=True)) == pytest.approx(expected, rel=1e-10)


def test_invariance_to_shift_and_scale() -> None:
    draws = autoregressive(torch.tensor([0.2, 0.9], dtype=torch.float64), 200, 3, 6)
    for statistic in (split_r_hat, effective_sample_size):
        torch.testing.assert_close(statistic(5 - 3 * draws), statistic(draws), rtol=1e-9, atol=0)
    torch.testing.assert_close(
        effective_sample_size(draws.exp(), rank_normalise=True),
        effective_sample_size(draws, rank_normalise=True),
    )


def test_constant_quantities_are_nan_and_do_not_disturb_the_others() -> None:
    draws = autoregressive(torch.tensor([0.2, 0.2], dtype=torch.float64), 100, 2, 7)
    alone = effective_sample_size(draws[..., :1])
    draws[..., 1] = 2.0
    size = effective_sample_size(draws)
    assert bool(size[1].isnan())
    assert bool(split_r_hat(draws)[1].isnan())
    torch.testing.assert_close(size[:1], alone)


@pytest.mark.parametrize("shape", [(3, 4), (10,), (0, 2, 2)])
def test_too_few_draws_say_what_to_do(shape: tuple[int, ...]) -> None:
    for statistic in (split_r_hat, effective_sample_size):
        with pytest.raises(ValueError, match=r"\(sweeps, chains, \.\.\.\).*keep='all'"):
            statistic(torch.zeros(shape))


@pytest.mark.parametrize("value", [0.1, 1e6 + 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_constant_that_rounds_is_a_constant(value: float, dtype: torch.dtype) -> None:
    draws = torch.full((101, 3), value, dtype=dtype)
    assert split_r_hat(draws).isnan()
    assert effective_sample_size(draws).isnan()
    apart = draws.clone()
    apart[:, 1] += 1
    assert split_r_hat(apart) == math.inf


def test_whole_numbers_have_a_standard_error() -> None:
    draws = torch.randint(3, (100, 4), generator=torch.Generator().manual_seed(0))
    assert standard_error(draws) == standard_error(draws.double())
