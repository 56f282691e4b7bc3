"""The torch device that an estimator's argument ``device`` stands for."""

from __future__ import annotations

import math
from typing import Any

import torch

WORTH_CUDA = 2000
"""Rows from which on ``device="auto"`` takes CUDA.

A fit is hundreds of small steps, and with fewer rows each is started for longer than it computes: on an H200 that other
work shared, 100 to 1000 rows took ten to thirty times as long as on two cores, 750 rows of 150 classes four times, and
7500 of them half.
"""


def device_for(name: Any, n_rows: float = math.inf) -> torch.device:
    """The torch device; "auto" takes CUDA when it is there and the rows are worth it, a network always is.

    A ValueError refuses a device that this machine lacks, or that cannot hold numbers in double precision.
    """
    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if n_rows >= WORTH_CUDA and torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        float(torch.zeros((), dtype=torch.float64, device=device))
    except (RuntimeError, TypeError, AssertionError, ImportError) as error:
        there = ["cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]
        raise ValueError(
            f"device must be 'auto' or a torch device that is here and computes in double precision "
            f"({', '.join(map(repr, there))}); got {name!r}{_why_no_cuda(name)}."
        ) from error
    return device


def _why_no_cuda(name: Any) -> str:
    if not str(name).startswith("cuda") or torch.cuda.is_available():
        return ""
    built = torch.version.cuda is not None
    return (
        ", and torch sees no NVIDIA GPU: `nvidia-smi` says if the driver does"
        if built
        else ", and this torch was built without CUDA: install a build that has it (pytorch.org says how)"
    )
