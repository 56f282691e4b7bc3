"""Which inputs are refused: those with a number that is not finite in a row that counts, and no others."""

from __future__ import annotations

import pytest
import torch

from sureshot.meta.learners.base import require_finite

LARGEST = torch.finfo(torch.float32).max


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("others", [0.0, 1.0, LARGEST])
def test_one_number_that_is_not_finite(broken: float, others: float) -> None:
    x = torch.full((2, 3, 4, 5), others)
    x[1, 2, 3, 0] = broken
    with pytest.raises(ValueError, match=r"support_x has NaN .* in 1 rows, the first is row 2 of task 1"):
        require_finite("support_x", x, None)
    counts = torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="row 2 of task 1"):
        require_finite("support_x", x, counts)
    counts[1, 2] = False
    require_finite("support_x", x, counts)


def test_infinities_that_cancel() -> None:
    x = torch.zeros(1, 2, 3)
    x[0, 0, 1], x[0, 1, 1] = torch.inf, -torch.inf
    with pytest.raises(ValueError, match="in 2 rows, the first is row 0 of task 0"):
        require_finite("query_x", x, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8, torch.int64])
def test_numbers_whose_sum_overflows_are_finite(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    require_finite("support_x", torch.full((2, 3, 4), info.max, dtype=dtype), None)
