"""Rows of unit length: normalisation over the whole range of a dtype, and its recognition."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sureshot.kernels import CosineKernel, UnitSphereKernel, evaluate, is_unit_norm, make_kernel, unit_rows


def _rows(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@given(
    st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=6).filter(lambda row: any(map(abs, row))),
)
def test_any_row_but_zero_gets_length_one(row: list[float]) -> None:
    x = torch.tensor([row], dtype=torch.float64)
    # Below the smallest normal number an entry has few digits, and so has the direction.
    if x.abs().max() < 1e-300:
        return
    assert torch.linalg.vector_norm(unit_rows(x)).item() == pytest.approx(1, abs=1e-14)


def test_rows_without_direction_stay_zero() -> None:
    center = _rows(6, seed=1) + 100
    x = _rows(4, 6) + 100
    x[1] = 0
    x[2] = center * (1 + 2e-16)
    found = unit_rows(x, center)
    assert not found[1:3].any()
    torch.testing.assert_close(found[[0, 3]], unit_rows(x[[0, 3]], center), rtol=0, atol=0)
    assert not unit_rows(torch.zeros(3, 2)).any()


def test_their_gradients_are_numbers() -> None:
    x = _rows(3, 4)
    x[1] = 0
    x.requires_grad_()
    unit_rows(x).square().sum().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())


def test_normalising_has_the_gradient_of_normalising() -> None:
    x = _rows(3, 4).requires_grad_()
    center = _rows(4, seed=1)
    assert torch.autograd.gradcheck(lambda x: unit_rows(x, center), x)
    torch.testing.assert_close(
        unit_rows(x, center), torch.nn.functional.normalize(x - center, dim=-1), rtol=1e-14, atol=1e-14
    )


def test_unit_norm_embeddings_are_recognised_after_half_precision() -> None:
    rows = unit_rows(_rows(200, 384))
    assert is_unit_norm(rows)
    assert is_unit_norm(rows.to(torch.float16))
    assert is_unit_norm(rows.to(torch.float16).double())
    assert is_unit_norm(rows.numpy().astype(np.float16))
    assert is_unit_norm(rows.reshape(2, 100, 384))
    assert not is_unit_norm(rows.to(torch.float16), tolerance=1e-9)


def test_other_rows_are_not_taken_for_embeddings() -> None:
    rows = unit_rows(_rows(50, 8))
    assert not is_unit_norm(_rows(50, 8))
    spoilt = rows.clone()
    spoilt[7] *= 1.01
    assert not is_unit_norm(spoilt)
    spoilt[7] = torch.nan
    assert not is_unit_norm(spoilt)
    assert not is_unit_norm(torch.zeros(0, 4))
    assert not is_unit_norm(torch.ones(5, 1)), "one column of signs is no embedding"
    assert not is_unit_norm(np.ones((3, 2), dtype=np.int64))
    assert not is_unit_norm(torch.ones(4) / 2)
    hours = torch.arange(24) * torch.pi / 12
    assert not is_unit_norm(torch.stack([hours.sin(), hours.cos()], 1)), "the hour as a cycle is no embedding"
    assert not is_unit_norm(torch.nn.functional.normalize(_rows(50, 3))), "nor is a direction in space"
    assert not is_unit_norm(torch.eye(4)[[0, 2, 1, 1]]), "zeros and ones of a category are no embedding"


def test_rows_of_zeros_beside_others_do_not_matter() -> None:
    rows = unit_rows(_rows(5, 8))
    assert is_unit_norm(torch.cat([rows, torch.zeros(2, 8)]))
    assert not is_unit_norm(torch.zeros(2, 8))


def test_features_cannot_be_a_batch() -> None:
    x = _rows(3, 4)
    for kernel in (CosineKernel(), UnitSphereKernel(CosineKernel())):
        with pytest.raises(ValueError, match="last_dim_is_batch"):
            kernel.forward(x, x, last_dim_is_batch=True)


def test_the_center_can_be_set_later_and_follows_the_dtype() -> None:
    kernel, x = make_kernel("cosine", 4), _rows(6, 4)
    cosine = kernel.base_kernel.kernels[0]
    cosine.center = x.mean(0)
    torch.testing.assert_close(evaluate(kernel, x), evaluate(make_kernel("cosine", 4, center=x.mean(0)), x))
    assert kernel.float().base_kernel.kernels[0].center.dtype == torch.float32
