"""Latents, outliers and probabilities of Gaussian classes, by draws of the classes' means."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Normal

from sureshot.incremental.gaussian_classes import GaussianClasses, GaussianClassesModel
from sureshot.incremental.strategy import ClassRows
from sureshot.incremental.two_covariances import TwoCovariances

COUNTS = (1, 3, 20, 0)
TEMPERATURE = 3.0


@pytest.fixture(scope="module")
def model() -> GaussianClassesModel:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    y = torch.arange(4).repeat_interleave(torch.tensor(COUNTS))
    kept = ClassRows(2 * normal(4, 2)[y] + normal(len(y), 2), y, torch.ones(len(y)).double(), torch.zeros(4).long())
    between, within = torch.tensor([3.0, 0.5]).double(), torch.tensor([0.8, 1.5]).double()
    return GaussianClassesModel.of(
        TwoCovariances(normal(2), normal(2, 2), between, within, torch.tensor(TEMPERATURE).double()), kept
    )


@pytest.fixture(scope="module")
def queries() -> torch.Tensor:
    return torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_moments_of_latents_are_those_of_drawn_means(model: GaussianClassesModel, queries: torch.Tensor) -> None:
    n = 400_000
    z, within = model.covariances.coordinates(queries), model.covariances.within
    mean, variance = model.class_latents(queries)
    for label in range(4):
        spread = model.densities.mean_variance[label].sqrt()
        noise = torch.randn(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(label))
        drawn = model.densities.mean[label] + spread * noise
        logs = torch.stack([(Normal(drawn, within.sqrt()).log_prob(row)).sum(-1) for row in z], 1)
        around_centre = Normal(torch.zeros_like(within), within.sqrt()).log_prob(z).sum(-1)
        latents = (logs - around_centre) / TEMPERATURE
        error = latents.std(0) / n**0.5
        assert bool(((latents.mean(0) - mean[:, label]).abs() < 5 * error + 1e-9).all())
        torch.testing.assert_close(latents.var(0), variance[:, label], rtol=0.03, atol=1e-9)


def test_probabilities_are_densities_normalised(model: GaussianClassesModel, queries: torch.Tensor) -> None:
    z = model.covariances.coordinates(queries).unsqueeze(1)
    logs = Normal(model.densities.mean, model.densities.variance.sqrt()).log_prob(z).sum(-1)
    torch.testing.assert_close(model.log_probabilities(queries), torch.log_softmax(logs / TEMPERATURE, -1))
    # A class without rows is the prior: outliers are judged against it, and it is like nothing.
    expected = (logs[:, 3] - logs[:, :3].amax(-1)) / TEMPERATURE
    torch.testing.assert_close(model.outlier_scores(queries), expected, rtol=1e-9, atol=1e-9)
    assert float(expected.max()) > 0  # some are more like a class of which nothing is known


def test_a_first_session_says_what_later_ones_keep() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(3).repeat_interleave(5)
    x = 3 * torch.randn(3, 4, dtype=torch.float64, generator=generator)[y]
    x = x + torch.randn(15, 4, dtype=torch.float64, generator=generator)
    rows = ClassRows(x, y, torch.ones(15, dtype=torch.float64), torch.zeros(3, dtype=torch.int64))
    strategy = GaussianClasses()
    assert torch.equal(strategy.groups(rows), y)
    first = strategy.first_session(rows, rows, 1).model
    again = strategy.later_session(first.shared, rows, 1, None)
    assert torch.equal(first.log_probabilities(x), again.log_probabilities(x))
    # Copies of rows say nothing of how rows spread; a class knows its mean the better for them.
    doubled = ClassRows(x, y, torch.full((15,), 2.0).double(), rows.sessions)
    twice = strategy.first_session(doubled, doubled, 1).model
    assert all(torch.equal(part, twice.shared[name]) for name, part in first.shared.items())
    assert bool((twice.densities.mean_variance < first.densities.mean_variance).all())
