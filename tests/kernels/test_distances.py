"""Squared distances keep their digits whatever the scale, offset and company of the rows; sums of differences do."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from torch import Tensor

from sureshot.kernels.distances import manhattan_distances, squared_distances

F64 = torch.float64


def normal(*shape: int, dtype: torch.dtype = F64, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def from_differences(x1: Tensor, x2: Tensor) -> Tensor:
    return (x1.unsqueeze(-2) - x2.unsqueeze(-3)).square().sum(-1)


@settings(max_examples=50)
@given(
    offset=st.sampled_from([0.0, 1.0, 1e6, -1e9]),
    scale=st.sampled_from([1e-9, 1.0, 1e12]),
    wild=st.sampled_from([0.0, 1e9, 1e15, 1e70]),
    seed=st.integers(0, 100),
)
def test_they_are_those_of_the_differences(offset: float, scale: float, wild: float, seed: int) -> None:
    x1, x2 = normal(7, 3, seed=seed) * scale + offset, normal(5, 3, seed=seed + 1) * scale + offset
    x2[0] = x1[2]
    x2[1, 0] += wild
    x1[4, 1] += wild
    torch.testing.assert_close(squared_distances(x1, x2), from_differences(x1, x2), rtol=1e-11, atol=0)
    torch.testing.assert_close(squared_distances(x1, x1), from_differences(x1, x1), rtol=1e-11, atol=0)


def test_single_precision() -> None:
    x1, x2 = normal(40, 200, dtype=torch.float32), normal(30, 200, dtype=torch.float32, seed=1) + 3
    x2[:5] = x1[:5] + 1e-3
    expected = from_differences(x1.double(), x2.double())
    torch.testing.assert_close(squared_distances(x1, x2).double(), expected, rtol=1e-4, atol=0)


def test_a_query_does_not_depend_on_those_beside_it() -> None:
    x, queries = normal(20, 4), normal(6, 4, seed=1)
    beside = torch.cat([queries, torch.full((1, 4), 1e200, dtype=F64)])
    torch.testing.assert_close(squared_distances(x, beside)[:, :6], squared_distances(x, queries), rtol=1e-13, atol=0)


def test_what_leaves_the_range_is_cut() -> None:
    x = torch.tensor([[0.0], [1e200], [-1e300], [1e200]], dtype=F64)
    found = squared_distances(x, x.clone())
    assert bool(found.isfinite().all())
    assert bool(found.square().isfinite().all())
    assert float(found[1, 3]) == 0
    assert float(found[0, 1]) > 1e150


def test_batches_broadcast() -> None:
    x1, x2 = normal(2, 1, 6, 3), normal(4, 5, 3, seed=1)
    torch.testing.assert_close(squared_distances(x1, x2), from_differences(x1, x2))


@pytest.mark.parametrize("same", [False, True])
def test_gradients(same: bool) -> None:
    x1 = normal(5, 3).requires_grad_()
    x2 = torch.cat([x1.detach()[:2], normal(3, 3, seed=2)]).requires_grad_()  # some pairs are computed again
    if same:
        assert torch.autograd.gradcheck(lambda x: squared_distances(x, x), x1)
    else:
        assert torch.autograd.gradcheck(squared_distances, (x1, x2))


def test_manhattan_distances_are_sums_of_differences() -> None:
    x1, x2 = normal(2, 1, 6, 3), normal(4, 5, 3, seed=1)
    for first, second in ((x1, x2), (x1, x1)):
        found = manhattan_distances(first, second)
        firsts, seconds = (x.expand(*found.shape[:-2], -1, -1).flatten(0, -3).numpy() for x in (first, second))
        expected = [torch.from_numpy(cdist(a, b, metric="cityblock")) for a, b in zip(firsts, seconds, strict=True)]
        torch.testing.assert_close(found.flatten(0, -3), torch.stack(expected), rtol=1e-14, atol=0)
    far = torch.tensor([[1e308], [-1e308]], dtype=F64).requires_grad_()
    values = (-manhattan_distances(far, far)).exp()
    assert torch.equal(values, torch.eye(2, dtype=F64))
    assert torch.equal(torch.autograd.grad(values.sum(), far)[0], torch.zeros(2, 1, dtype=F64))


@pytest.mark.parametrize("same", [False, True])
def test_gradients_of_manhattan_distances(same: bool) -> None:
    x1, x2 = normal(2, 1, 5, 3).requires_grad_(), normal(3, 4, 3, seed=1).requires_grad_()
    weight = normal(2, 3, 5, 4 + same, seed=2)  # not symmetric
    if same:
        assert torch.autograd.gradcheck(lambda x: weight * manhattan_distances(x, x).cos(), x1)
    else:
        assert torch.autograd.gradcheck(lambda a, b: weight * manhattan_distances(a, b).cos(), (x1, x2))


@pytest.mark.parametrize("same", [False, True])
def test_equal_columns_have_no_part_in_gradients_of_manhattan_distances(same: bool) -> None:
    x = torch.tensor([[0.5, 1.0], [0.5, 3.0]], dtype=F64).requires_grad_()
    z = x if same else x.detach().clone().requires_grad_()
    manhattan_distances(x, z)[0].sum().backward()
    assert x.grad.tolist() == [[0, -1], [0, 1 if same else 0]]
