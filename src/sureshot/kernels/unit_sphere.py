"""Rows on the unit sphere: only their direction matters.

Embeddings carry their meaning in their direction, so few-shot learners normalise rows to unit length before
comparing them. A fixed centre can be subtracted first: embeddings of one domain crowd round a common direction;
without it the angles between them are spread more evenly. A row of length zero has no direction, so it is refused.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def unit_rows(
    x: Tensor,  # (..., N, D)
    center: Tensor | None = None,  # (D,)
) -> Tensor:
    """Rows of `x`, less `center` where given, scaled to unit length.

    Where a length's square might be beyond the range of the dtype (1e-200, 1e200), rows are divided by their largest
    entry first, so that they are normalised as well as any other. A row of zero length (with a centre: equal to it up
    to rounding) is a ValueError that names the row.
    """
    floor = torch.zeros((), dtype=x.dtype, device=x.device)
    if center is not None:
        if center.shape[-1] != x.shape[-1]:
            raise ValueError(
                f"the kernel's center has {center.shape[-1]} features, the inputs have {x.shape[-1]}: "
                "pass inputs with the features that the center was computed from."
            )
        x = x - center
        floor = 4 * torch.finfo(x.dtype).eps * center.abs().max()
    largest = torch.linalg.vector_norm(x.detach(), ord=torch.inf, dim=-1, keepdim=True)
    zero = (largest <= floor).squeeze(-1)
    if bool(zero.any()):
        raise ValueError(_zero_message(zero, center is not None))
    limits = torch.finfo(x.dtype)
    extreme = (largest < limits.tiny**0.25) | (largest > limits.max**0.25)
    if bool(extreme.any()):
        x = x / torch.where(extreme, largest, 1)
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def _zero_message(zero: Tensor, centred: bool) -> str:
    """Say which rows of `zero` (..., N) are set."""
    where = zero.nonzero()
    first = where[0].tolist()
    place = f"row {first[-1]}" + (f" of batch member {tuple(first[:-1])}" if len(first) > 1 else "")
    more = f" (and {len(where) - 1} more)" if len(where) > 1 else ""
    what = "equals the kernel's center, so it has zero length once centred" if centred else "has zero length"
    return (
        f"{place}{more} {what}, and a kernel on the unit sphere compares directions, which such a row lacks. "
        'Remove the row, or use a kernel that does not normalise ("rbf", "linear").'
    )


def is_unit_norm(
    x: Tensor | np.ndarray,  # (..., N, D)
    tolerance: float = 2e-3,
) -> bool:
    """Whether every row has unit length, as embeddings usually do.

    The default tolerance of ``| |x| - 1 |`` accepts embeddings that were stored in half precision (each entry rounded
    by up to 2^-11 of itself) and refuses standardised tables. False for empty input, for rows with NaN, and for a
    single feature, where a column of signs would pass.
    """
    rows = torch.as_tensor(x)
    if rows.ndim < 2 or rows.numel() == 0 or rows.shape[-1] < 2:
        return False
    lengths = torch.linalg.vector_norm(rows.to(torch.promote_types(rows.dtype, torch.float32)), dim=-1)
    return bool(((lengths - 1).abs() <= tolerance).all())
