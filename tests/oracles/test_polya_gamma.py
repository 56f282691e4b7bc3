"""The density of Polya-Gamma variables: its mass, its moments, its tail and its two forms."""

from __future__ import annotations

import math

import pytest
import torch

from sureshot.likelihoods.polya_gamma import half_tanh_ratio, polya_gamma_variance
from tests.oracles.polya_gamma import inverted_log_density, log_density, series_log_density


@pytest.mark.parametrize("z", [0.0, 1.5, 12.0])
@pytest.mark.parametrize("h", [0.3, 1.0, 2.5, 4.0, 40.0, 300.0])
def test_mass_is_one_and_moments_are_known(h: float, z: float) -> None:
    log_x = torch.linspace(math.log(1e-7), math.log(2e3), 6001, dtype=torch.float64)  # Simpson's rule in log x
    weight = torch.full_like(log_x, 2.0)
    weight[1::2] = 4.0
    weight[0] = weight[-1] = 1.0
    x = log_x.exp()
    location = torch.tensor(z, dtype=torch.float64)
    density = log_density(x, h, z).exp() * weight * x * (log_x[1] - log_x[0]) / 3
    mean = float((density * x).sum())
    # The grid leaves out x < 1e-7, which matters to a draw of small h only, by less than the tolerance.
    assert float(density.sum()) == pytest.approx(1, abs=1e-8)
    assert mean == pytest.approx(h * float(half_tanh_ratio(location.square())), rel=1e-8)
    assert float((density * (x - mean).square()).sum()) == pytest.approx(
        h * float(polya_gamma_variance(location)), rel=1e-8
    )


def test_far_out_and_in_both_forms() -> None:
    x = torch.tensor([5.0, 20.0, 100.0], dtype=torch.float64)
    # The first pole of 1 / cosh alone decides here: the next is exp(-4 pi^2 x) smaller.
    torch.testing.assert_close(
        log_density(x, 1, 0.0), math.log(2 * math.pi) - math.pi**2 / 2 * x, rtol=1e-12, atol=1e-10
    )
    x, h = torch.meshgrid(
        torch.logspace(-2, 1, 30, dtype=torch.float64),
        torch.tensor([0.05, 0.5, 1, 2, 3.7, 15], dtype=torch.float64),
        indexing="ij",
    )
    series, reliable = series_log_density(x, h, 64)
    assert 0.5 < float(reliable.double().mean()) < 1
    torch.testing.assert_close(series[reliable], inverted_log_density(x, h)[reliable], rtol=1e-10, atol=1e-10)
