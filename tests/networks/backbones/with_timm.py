"""Whether the backbones of timm can be tested here.

torchvision, which timm imports, is built for CUDA where it comes from PyPI. Beside a torch for processors it looks for
two operators on boxes that are not there, and does not import; no model of timm calls them, so they are declared here.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

_OPERATORS = ("nms", "qnms")
_INSTALLED = find_spec("timm") is not None and find_spec("torchvision") is not None

needs_timm = pytest.mark.skipif(
    not _INSTALLED,
    reason="needs timm and torchvision: python -m pip install -c constraints.txt timm torchvision",
)

if _INSTALLED and torch.version.cuda is None and not hasattr(torch.ops.torchvision, "nms"):
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
