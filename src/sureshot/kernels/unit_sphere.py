"""Rows on the unit sphere: only their direction matters.

Embeddings carry their meaning in their direction, so few-shot learners normalise rows to unit length before
comparing them. A fixed centre can be subtracted first: embeddings of one domain crowd round a common direction;
without it the angles between them are spread more evenly. A row of zeros, such as a text without a word that is known,
has no direction, nor has one in the centre: it stays zero, equally far from all directions.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

FEWEST_FEATURES = 4
"""Of embeddings: two columns of unit length are sine and cosine of the hour in a table, three a direction in space."""


def unit_rows(
    x: Tensor,  # (..., N, D)
    center: Tensor | None = None,  # (D,)
) -> Tensor:
    """Rows of `x`, less `center` where given, scaled to unit length.

    Where a length's square might be beyond the range of the dtype (1e-200, 1e200), rows are divided by their largest
    entry first, so that they are normalised as well as any other. A row of zeros, with a centre too, and one that is
    equal to the centre up to rounding, has no direction: it is zero.
    """
    blank, floor = (x == 0).all(-1, keepdim=True), torch.zeros((), dtype=x.dtype, device=x.device)
    if center is not None:
        if center.shape[-1] != x.shape[-1]:
            raise ValueError(
                f"the kernel's center has {center.shape[-1]} features, the inputs have {x.shape[-1]}: "
                "pass inputs with the features that the center was computed from."
            )
        x = x - center
        floor = 4 * torch.finfo(x.dtype).eps * center.abs().max()
    largest = torch.linalg.vector_norm(x.detach(), ord=torch.inf, dim=-1, keepdim=True)
    blank = blank | (largest <= floor)
    x, largest = x.masked_fill(blank, 0), largest.masked_fill(blank, 1)
    limits = torch.finfo(x.dtype)
    extreme = (largest < limits.tiny**0.25) | (largest > limits.max**0.25)
    if bool(extreme.any()):
        x = x / torch.where(extreme, largest, 1)
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).masked_fill(blank, 1)


def is_unit_norm(
    x: Tensor | np.ndarray,  # (..., N, D)
    tolerance: float = 2e-3,
) -> bool:
    """Whether every row has unit length, as embeddings usually do; rows of zeros beside others do not matter.

    The default tolerance of ``| |x| - 1 |`` accepts embeddings that were stored in half precision (each entry rounded
    by up to 2^-11 of itself) and refuses standardised tables. False for empty input, for rows with NaN, for fewer than
    `FEWEST_FEATURES`, and where no row has two entries, as of a category's zeros and ones.
    """
    rows = torch.as_tensor(x)
    if rows.ndim < 2 or rows.numel() == 0 or rows.shape[-1] < FEWEST_FEATURES:
        return False
    for some in (rows[..., :1, :], rows):  # the first says no, as a rule
        lengths = torch.linalg.vector_norm(some.to(torch.promote_types(rows.dtype, torch.float32)), dim=-1)
        if not bool((((lengths - 1).abs() <= tolerance) | (lengths == 0)).all()):
            return False
    return bool(((rows != 0).sum(-1) > 1).any())
