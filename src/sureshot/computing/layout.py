"""One layout in memory for everything that predictions are computed from.

Linear algebra libraries take another path, and round differently in the last digit, for a matrix that lies column by
column or does not begin on a boundary of 64 bytes. So arrays become tensors here and nowhere else: contiguous, in
memory that torch has aligned, on fitting as on loading. A loaded model then predicts the same bits as the one saved.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def aligned(values: np.ndarray | Tensor, device: torch.device | str | None = None) -> Tensor:
    """A contiguous copy in aligned memory, on `device` (by default where the values are)."""
    tensor = torch.from_numpy(np.asarray(values, order="C")) if isinstance(values, np.ndarray) else values.detach()
    return tensor.to(device, copy=True, memory_format=torch.contiguous_format)
