"""In which precision a network computes embeddings.

bfloat16 is autocast: weights stay in float32, products are in bfloat16, and embeddings come out as float32 in any case.
On processors with matrix units for it (AMX, tensor cores) passes take about half as long.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

Precision = Literal["float32", "bfloat16"]


def check_precision(precision: str) -> None:
    """ValueError for any other name."""
    if precision not in get_args(Precision):
        raise ValueError(f"precision must be 'float32' or 'bfloat16', got {precision!r}")


def encode(
    network: nn.Module,
    rows: Tensor,  # (B, ...); images are passed with channels last
    precision: Precision = "float32",
) -> Tensor:
    """Embeddings (B, D)."""
    if rows.dim() == 4:
        rows = rows.contiguous(memory_format=torch.channels_last)
    with torch.autocast(rows.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        embedded: Tensor = network(rows)
    return embedded.float() if embedded.dtype == torch.bfloat16 else embedded
