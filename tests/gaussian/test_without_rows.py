"""Queries without a row are what the posterior of all other rows says of them."""

from __future__ import annotations

import torch

from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.posterior import LatentMoments
from sureshot.gaussian.sites import Sites
from sureshot.gaussian.without_rows import RowSites, beside_prior_classes, moments_without

DRAW = torch.Generator().manual_seed(0)
N, R, Q, L = 7, 4, 3, 2
PHI, QUERIES = (torch.randn(size, R, generator=DRAW, dtype=torch.float64) for size in (N, Q))
PRECISION = torch.rand(L, N, generator=DRAW, dtype=torch.float64) + 0.1
SHIFT = torch.randn(L, N, generator=DRAW, dtype=torch.float64)
MEAN = torch.tensor([[0.3], [-0.2]], dtype=torch.float64)


def dense(precision: torch.Tensor, shift: torch.Tensor) -> LatentMoments:
    """By the covariance of weights, a matrix that is inverted for each class."""
    found = []
    for w, b, a in zip(precision, shift, MEAN, strict=True):
        covariance = torch.linalg.inv(torch.eye(R, dtype=torch.float64) + PHI.mT @ torch.diag(w) @ PHI)
        weights = covariance @ PHI.mT @ (b - w * a)
        found.append((a + QUERIES @ weights, (QUERIES @ covariance * QUERIES).sum(1), QUERIES @ covariance @ PHI.mT))
    means, variances, cross = (torch.stack(part) for part in zip(*found, strict=True))
    assert cross.shape == (L, Q, N)
    return LatentMoments(means, variances)


def without(place: torch.Tensor, share: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    posterior = FeaturePrior(PHI.unsqueeze(0), MEAN).condition(Sites(PRECISION, SHIFT))
    sites = RowSites(PRECISION, SHIFT - PRECISION * posterior.mean, posterior.variance)
    covariance = torch.linalg.inv(torch.eye(R, dtype=torch.float64) + PHI.mT @ (PRECISION.unsqueeze(-1) * PHI))
    return moments_without(*dense(PRECISION, SHIFT), QUERIES @ covariance @ PHI.mT, sites, place, share)


def test_rows_and_shares_of_rows_leave() -> None:
    place, share = torch.tensor([0, 4, 4, 6]), torch.tensor([1.0, 1.0, 0.25, 0.0], dtype=torch.float64)
    mean, variance = without(place, share)
    assert mean.shape == variance.shape == (L, Q, 4)
    for k, (row, part) in enumerate(zip(place.tolist(), share.tolist(), strict=True)):
        left = torch.ones(N, dtype=torch.float64)
        left[row] -= part
        expected = dense(left * PRECISION, left * SHIFT)
        torch.testing.assert_close(mean[..., k], expected.mean, rtol=0, atol=1e-12)
        torch.testing.assert_close(variance[..., k], expected.spread, rtol=0, atol=1e-12)


def test_classes_that_keep_their_prior_stand_beside() -> None:
    given = LatentMoments(torch.arange(9.0).view(3, 3), torch.full((3, 3), 2.0))
    own, variance = torch.ones(2, 3, 5), torch.full((1, 3), 2.0)
    found = beside_prior_classes(given, LatentMoments(own, 4 * own), torch.tensor([0, 2]), variance)
    assert (found.mean[[0, 2]] == 1).all()
    assert (found.mean[1] == given.mean[1].unsqueeze(-1)).all()
    assert (found.spread[[0, 2]] == 4).all()
    assert (found.spread[1] == 2).all()
    coupled = torch.full((3, 5, 2, 2), 0.5)
    whole = beside_prior_classes(given, LatentMoments(own, coupled), torch.tensor([0, 2]), variance).spread
    expected = torch.tensor([[0.5, 0.0, 0.5], [0.0, 2.0, 0.0], [0.5, 0.0, 0.5]])
    torch.testing.assert_close(whole, expected.expand(3, 5, 3, 3))
