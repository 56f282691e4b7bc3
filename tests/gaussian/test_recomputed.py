"""What posteriors in weight space leave out, and what they never may."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sureshot.gaussian.posterior import WithPriorClasses
from sureshot.gaussian.recomputed import (
    MANY_BLOCKS,
    MOST_IN_SINGLE,
    NEGLIGIBLE_INFORMATION,
    SiteWeightPosterior,
    training_moments,
    weight_precision_factor,
    without_negligible,
)
from sureshot.inference.laplace import fit_softmax_laplace
from sureshot.inference.one_vs_each.posterior import sample_one_vs_each

F64 = torch.float64


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("weight", [9e-4, 1e-5])
def test_many_weak_rows_count(weight: float) -> None:
    """20,000 rows that each say next to nothing say a lot together: 1 / (1 + 20,000 w)."""
    features = torch.ones(20_000, 1, dtype=F64)
    precision = torch.full((1, 1, 20_000), weight, dtype=F64)
    posterior = SiteWeightPosterior(features, features.new_zeros(1, 1, 1), features.new_zeros(1), precision)
    variance = posterior.query_variance(features[:1], features.new_ones(1))
    assert float(variance) == pytest.approx(1 / (1 + 20_000 * weight), rel=1e-10)


def test_the_factor_leaves_nothing_out() -> None:
    features, precision = normal(30, 4), torch.logspace(-12, 2, 30, dtype=F64)
    precision[::7] = 0
    expected = torch.eye(4, dtype=F64) + features.mT @ (precision[:, None] * features)
    factor = weight_precision_factor(features, precision)
    torch.testing.assert_close(factor @ factor.mT, expected, rtol=1e-13, atol=1e-13)


def test_what_is_negligible_is_bounded_in_all() -> None:
    features = normal(400, 5)
    precision = torch.logspace(-9, 0, 400, dtype=F64)[torch.randperm(400)].repeat(2, 1) * torch.tensor([[1.0], [1e-7]])
    kept = without_negligible(features, precision)
    left_out = ((precision - kept) * features.square().sum(-1)).sum(-1)
    assert bool((left_out < NEGLIGIBLE_INFORMATION).all())
    assert bool(((kept == precision) | (kept == 0)).all())
    assert 0 < int((kept[0] == 0).sum()) < 400
    for full, thin in zip(precision, kept, strict=True):
        variances = [
            torch.linalg.solve_triangular(weight_precision_factor(features, w), features.mT, upper=False)
            .square()
            .sum(0)
            for w in (full, thin)
        ]
        torch.testing.assert_close(variances[1], variances[0], rtol=NEGLIGIBLE_INFORMATION, atol=0)


def test_tiny_weights_of_softmax_rows_count() -> None:
    """Weights 1/n on n copies are one row of weight 1."""
    points, labels = normal(3, 2, seed=1), torch.tensor([0, 1, 2])
    once = fit_softmax_laplace(points, labels, 3, torch.ones(3, dtype=F64))
    n = 5000
    copies = points.repeat(n, 1)
    many = fit_softmax_laplace(copies, labels.repeat(n), 3, torch.full((3 * n,), 1 / n, dtype=F64), tolerance=1e-9)
    query = normal(4, 2, seed=2)
    prior = query.square().sum(-1)
    for expected, found in (
        (once.posterior.query_mean(query), many.posterior.query_mean(query)),
        (once.posterior.query_variance(query, prior), many.posterior.query_variance(query, prior)),
    ):
        torch.testing.assert_close(found, expected, rtol=2e-3, atol=1e-4)


def test_classes_without_rows_are_independent_of_those_with_rows() -> None:
    features, y = normal(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    generator = torch.Generator().manual_seed(0)
    inner = sample_one_vs_each(features, y, 3, torch.ones(6, dtype=F64), 0.5, 2, 3, generator)
    present = torch.tensor([0, 2, 3])
    whole = WithPriorClasses(inner, present, torch.full((5,), 0.5, dtype=F64))
    query, residual = normal(4, 3, seed=3), torch.tensor([0.0, 0.1, 0.2, 0.3], dtype=F64)
    prior = (query.square().sum(-1) + residual)[None]
    mean, spread = whole.query(query[None], prior)
    assert spread.shape == (2, 4, 5, 5)
    inner_mean, inner_spread = inner.query(query[None], prior)
    torch.testing.assert_close(spread[..., present[:, None], present], inner_spread)
    torch.testing.assert_close(mean[:, present], inner_mean)
    torch.testing.assert_close(mean, whole.query_mean(query[None]))
    for absent in (1, 4):
        row = torch.zeros(2, 4, 5, dtype=F64)
        row[..., absent] = prior
        torch.testing.assert_close(spread[..., absent, :], row)
        assert bool((mean[:, absent] == 0.5).all())
    variance = whole.query_variance(query[None], prior)
    torch.testing.assert_close(spread.diagonal(dim1=-2, dim2=-1).mT, variance, rtol=1e-12, atol=1e-12)
    chosen = torch.tensor([4, 0, 1, 2])
    torch.testing.assert_close(
        whole.query_variance(query[None], prior, chosen), variance[:, chosen, torch.arange(4)], rtol=1e-12, atol=1e-12
    )


def many_classes(scale: float) -> tuple[Tensor, Tensor]:
    """Features, and precisions of many classes of which the largest tells of rows `scale` in all."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 25, dtype=torch.float64, generator=generator)
    precision = torch.rand(MANY_BLOCKS, 40, dtype=torch.float64, generator=generator)
    information = (precision * features.square().sum(-1)).sum(-1).max()
    return features, scale * precision / information


def dense_moments(features: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    blocks = torch.eye(features.shape[1], dtype=features.dtype) + features.mT @ (precision[..., None] * features)
    return (features @ torch.linalg.inv(blocks) * features).sum(-1), torch.logdet(blocks).sum()


@pytest.mark.parametrize(("share", "tolerance"), [(0.9, 1e-4), (1.1, 1e-10)])
def test_single_precision_is_for_what_it_tells_to_four_digits(share: float, tolerance: float) -> None:
    features, precision = many_classes(share * MOST_IN_SINGLE)
    found, (variance, log_det) = (
        training_moments(features, precision, MANY_BLOCKS, True),
        dense_moments(features, precision),
    )
    assert found.variance.dtype == torch.float64
    known = precision * features.square().sum(-1) > NEGLIGIBLE_INFORMATION
    assert bool(known.any())
    torch.testing.assert_close(found.variance[known], variance[known], rtol=tolerance, atol=0)
    torch.testing.assert_close(found.log_det, log_det, rtol=tolerance, atol=0)


def test_few_classes_and_all_rows_are_told_in_double_precision() -> None:
    features, precision = many_classes(10.0)
    for part, only_informative in ((precision[:3], True), (precision, False)):
        found, (variance, _) = (
            training_moments(features, part, len(part), only_informative),
            dense_moments(features, part),
        )
        known = part * features.square().sum(-1) > (NEGLIGIBLE_INFORMATION if only_informative else 0)
        torch.testing.assert_close(found.variance[known], variance[known], rtol=1e-10, atol=0)
