"""Inducing inputs for any sizes of classes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sureshot.approximations.inducing_inputs import kmeans_inducing


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.filterwarnings("error")
@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    n_per_class=st.integers(1, 5),
    duplicates=st.booleans(),
)
def test_inducing_inputs_of_any_class_sizes(sizes, n_per_class, duplicates):
    y = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    x = normal(int(y.numel()), 3, seed=20)
    if duplicates:
        x[:] = x[0]
    inducing = kmeans_inducing(x, y, n_per_class, random_state=0)
    expected = sum(min(size, n_per_class, 1 if duplicates else size) for size in sizes)
    assert inducing.shape == (expected, 3)
    assert inducing.dtype == x.dtype
    assert bool(torch.isfinite(inducing).all())
    assert torch.equal(inducing, kmeans_inducing(x, y, n_per_class, random_state=0))


def test_inducing_inputs_sit_in_the_clusters():
    centres = torch.tensor([[0.0, 0.0], [9.0, 9.0], [-9.0, 9.0], [9.0, -9.0]], dtype=torch.float64)
    x = centres.repeat_interleave(20, 0) + 0.1 * normal(80, 2, seed=21)
    y = torch.tensor([0, 0, 1, 1]).repeat_interleave(20)
    inducing = kmeans_inducing(x, y, 2)
    distance = torch.cdist(inducing, centres)
    assert bool((distance.min(0).values < 0.2).all())
    assert torch.equal(distance.argmin(1).div(2, rounding_mode="floor"), torch.tensor([0, 0, 1, 1]))


def test_kmeans_needs_at_least_one_centre():
    with pytest.raises(ValueError, match="n_per_class must be at least 1"):
        kmeans_inducing(normal(4, 2, seed=24), torch.tensor([0, 1, 0, 1]), 0)
