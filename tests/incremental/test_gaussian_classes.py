"""Latents, outliers and probabilities of Gaussian classes, by draws of the classes' means."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Normal

from sureshot.incremental.first_or_later import FirstOrLater
from sureshot.incremental.gaussian_classes import ROWS_KEPT, GaussianClasses, GaussianClassesModel
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
    assert torch.equal(strategy.groups(rows, None), y)
    first = strategy.first_session(rows, rows, 1).model
    again = strategy.later_session(first.shared, rows, 1, None)
    assert torch.equal(first.log_probabilities(x), again.log_probabilities(x))
    # Copies of rows say nothing of how rows spread; a class knows its mean the better for them.
    doubled = ClassRows(x, y, torch.full((15,), 2.0).double(), rows.sessions)
    twice = strategy.first_session(doubled, doubled, 1).model
    assert all(torch.equal(part, twice.shared[name]) for name, part in first.shared.items())
    assert bool((twice.densities.mean_variance < first.densities.mean_variance).all())


def of_network(n_later: int, shift: float = 1.0) -> ClassRows:
    """Four classes of the first session and two later ones that lie between these, not quite where they should be."""
    generator = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(6, 3, dtype=torch.float64, generator=generator)
    centres[4:] = (1 - 0.3 * shift) * centres[4:] + 0.3 * shift * centres[:2]
    y = torch.cat([torch.arange(4).repeat_interleave(5), torch.tensor([4, 5]).repeat_interleave(n_later)])
    x = centres[y] + torch.randn(len(y), 3, dtype=torch.float64, generator=generator)
    weight = torch.where((torch.arange(len(y)) % 5 == 0) & (y < 4), 20.0, 1.0).double()
    return ClassRows(x, y, weight, torch.tensor([0, 0, 0, 0, 1, 2]))


COVARIANCES = TwoCovariances(
    torch.zeros(3).double(),
    torch.eye(3).double(),
    torch.full((3,), 9.0).double(),
    torch.ones(3).double(),
    torch.tensor(1.5).double(),
)


def without(rows: ClassRows, row: int) -> ClassRows:
    stays = torch.arange(len(rows.y)) != row
    return ClassRows(rows.x[stays], rows.y[stays], rows.weight[stays], rows.sessions)


def test_rows_left_out_of_their_classes_decide_between_first_and_later_ones() -> None:
    rows = of_network(4)
    single = (rows.weight == 1).nonzero().flatten().tolist()
    said = [
        GaussianClassesModel.of(COVARIANCES, without(rows, row)).over_prior(rows.x[row : row + 1])[0] for row in single
    ]
    expected = FirstOrLater.learnt(torch.stack(said), rows.y[single], rows.sessions > 0)
    found = GaussianClassesModel.of(COVARIANCES, rows, of_network=True).kinds
    assert expected is not None
    assert found is not None
    assert found.intercept == pytest.approx(expected.intercept, abs=1e-9)
    assert (found.slope_later, found.slope_first) == pytest.approx((expected.slope_later, expected.slope_first))
    torch.testing.assert_close(found.sharpness, expected.sharpness)
    assert abs(found.intercept - math.log(2 / 4)) > 0.05


def test_the_decision_is_of_probabilities_not_of_outliers() -> None:
    rows = of_network(4)
    model, plain = (GaussianClassesModel.of(COVARIANCES, rows, of_network=flag) for flag in (True, False))
    assert plain.kinds is None
    assert model.kinds is not None
    expected = model.kinds.log_probabilities(plain.over_prior(rows.x))
    torch.testing.assert_close(model.log_probabilities(rows.x), expected)
    (mean, variance), (_, without_kinds) = model.class_latents(rows.x), plain.class_latents(rows.x)
    torch.testing.assert_close(mean.logsumexp(-1), torch.zeros(len(rows.x)).double(), rtol=0, atol=1e-12)
    assert float((mean.exp() - expected.exp()).abs().max()) < 0.1  # latents leave out how wide classes are
    torch.testing.assert_close(variance, model.kinds.sharpness.square() * without_kinds)
    assert torch.equal(model.outlier_scores(rows.x), plain.outlier_scores(rows.x))
    whole, beam = model.leading(rows.x, 3, None, 2.0), model.leading(rows.x, 3, 6, 2.0)
    assert torch.equal(whole.classes, beam.classes)
    torch.testing.assert_close(whole.log_probabilities, beam.log_probabilities)


@pytest.mark.parametrize("n_later", [1, 0])
def test_single_rows_and_none_decide_nothing(n_later: int) -> None:
    assert GaussianClassesModel.of(COVARIANCES, of_network(n_later), of_network=True).kinds is None


def test_a_network_lets_some_rows_stay_as_they_came() -> None:
    generator = torch.Generator().manual_seed(0)
    n = 2 * ROWS_KEPT
    y = torch.arange(2).repeat_interleave(n)
    x = torch.randn(len(y), 4, dtype=torch.float64, generator=generator)
    unseen = torch.arange(len(y)) % n >= 5
    ones, sessions = torch.ones(len(y)).double(), torch.zeros(2).long()

    def stay(rows: ClassRows, before: GaussianClassesModel | None) -> set[tuple[float, ...]]:
        groups = GaussianClasses().groups(rows, before)
        counts = torch.bincount(groups)[groups]
        assert len(groups.unique()) == 2 * ROWS_KEPT + 2  # and one for the others of each class
        return {tuple(row) for row in rows.x[counts == 1].tolist()}

    first = stay(ClassRows(x, y, ones, sessions, unseen), None)
    assert first <= {tuple(row) for row in x[unseen].tolist()}
    order = torch.randperm(len(y), generator=generator)
    assert stay(ClassRows(x[order], y[order], ones, sessions, unseen[order]), None) == first
    assert torch.equal(
        GaussianClasses().groups(ClassRows(x, y, ones, sessions), GaussianClassesModel.of(COVARIANCES, of_network(4))),
        y,
    )
