"""Problems in buckets are the problems one by one, within stated waste and memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.ragged import size_buckets
from sureshot.gaussian.sites import Sites
from sureshot.inference.mean_field import fit_mean_field
from sureshot.likelihoods.logistic import Logistic

F64 = torch.float64


@settings(max_examples=100)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=60),
    waste=st.floats(1, 4),
    numbers=st.sampled_from([1, 5_000, 200_000]),
    rank=st.sampled_from([None, 7]),
)
def test_every_problem_once_within_the_bounds(sizes: list[int], waste: float, numbers: int, rank: int | None) -> None:
    members = [torch.arange(k, k + size) for k, size in enumerate(sizes)]
    found = size_buckets(members, waste, numbers, rank)

    def entries(n: int) -> int:
        return n**2 if rank is None else n * rank

    assert sorted(p for bucket in found for p in bucket.problems.tolist()) == list(range(len(sizes)))
    for bucket in found:
        count, n = bucket.rows.shape
        own = [sizes[p] for p in bucket.problems.tolist()]
        assert max(own) == n
        assert count * entries(n) <= waste * sum(map(entries, own)) * (1 + 1e-12)
        assert count == 1 or count * entries(n) <= numbers
        for k, p in enumerate(bucket.problems.tolist()):
            torch.testing.assert_close(bucket.rows[k][bucket.present[k]], members[p])


def test_small_problems_go_by_matrices_in_buckets_of_their_own() -> None:
    sizes = [90, 40, 31, 30, 29, 12]
    found = size_buckets([torch.arange(s) for s in sizes], 100.0, rank=30, whole=30)
    assert [[sizes[p] for p in bucket.problems.tolist()] for bucket in found] == [[90, 40, 31], [30, 29, 12]]


def test_large_nodes_go_by_features() -> None:
    """10,000 rows and 50 features: half a million entries where the kernel matrix has a hundred million."""
    sizes = [10_000 // 2**level for level in range(10) for _ in range(2**level)]
    found = size_buckets([torch.arange(s) for s in sizes], at_once=2**20, rank=50)
    assert max(bucket.rows.numel() * 50 for bucket in found) <= 2**20
    features = torch.randn(10_000, 50, dtype=F64, generator=torch.Generator().manual_seed(0)) / 7
    y = (features[:, 0] > 0).long()
    for bucket in found[:2]:
        prior = FeaturePrior(bucket.features(features), torch.tensor(0.0, dtype=F64))
        weight = bucket.present.to(F64)
        together = fit_mean_field(prior, Logistic(), bucket.values(y), weight, 2, tolerance=1e-9)
        rows = torch.arange(sizes[int(bucket.problems[-1])])
        alone = FeaturePrior(features[rows].unsqueeze(0), torch.tensor(0.0, dtype=F64))
        expected = fit_mean_field(alone, Logistic(), y[rows], None, 2, tolerance=1e-9)
        torch.testing.assert_close(together.bound[-1], expected.bound, rtol=1e-9, atol=1e-6)


def test_a_tree_of_nodes_wastes_little() -> None:
    """Halving 10,000 rows down to ten: all at the largest size would hold hundreds of times as much."""
    sizes = [10_000 // 2**level for level in range(10) for _ in range(2**level)]
    own = sum(size**2 for size in sizes)
    held = sum(b.rows.shape[0] * b.rows.shape[1] ** 2 for b in size_buckets([torch.arange(s) for s in sizes]))
    assert held <= 1.5 * own
    assert len(sizes) * max(sizes) ** 2 > 100 * own


def test_posteriors_are_those_of_the_problems_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, dtype=F64, generator=generator)
    gram = 5 * torch.exp(-0.5 * torch.cdist(x, x) ** 2)
    y = (x[:, 0] + 0.3 * torch.randn(40, dtype=F64, generator=generator) > 0).long()
    members = [torch.randperm(40, generator=generator)[:size] for size in (40, 3, 17, 16, 12, 1, 5, 4)]
    mean = torch.tensor(0.4, dtype=F64)
    for bucket in size_buckets(members):
        labels, weight = bucket.values(y), bucket.present.to(F64)
        together = fit_mean_field(GramPrior(bucket.gram(gram), mean), Logistic(), labels, weight, 2, tolerance=1e-12)
        for k, p in enumerate(bucket.problems.tolist()):
            rows = members[p]
            alone = fit_mean_field(
                GramPrior(gram[rows][:, rows][None], mean), Logistic(), y[rows], None, 2, tolerance=1e-12
            )
            n = len(rows)
            torch.testing.assert_close(together.bound[k], alone.bound, rtol=1e-10, atol=1e-10)
            torch.testing.assert_close(together.posterior.mean[k, :, :n], alone.posterior.mean, rtol=1e-9, atol=1e-9)


def test_sites_of_padding_say_nothing() -> None:
    (bucket,) = size_buckets([torch.tensor([0, 1, 2]), torch.tensor([2, 0])], largest_waste=2.0)
    ones = torch.ones(2, 1, 3, dtype=F64)
    for part in bucket.sites(Sites(ones, ones)):
        torch.testing.assert_close(part[:, 0], bucket.present.to(F64))


def test_impossible_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="problem 1 has no rows"):
        size_buckets([torch.arange(2), torch.arange(0)])
    with pytest.raises(ValueError, match="largest_waste must be at least 1"):
        size_buckets([torch.arange(2)], largest_waste=0.5)
