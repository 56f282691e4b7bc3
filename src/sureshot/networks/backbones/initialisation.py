"""Layers whose initial weights come from an explicit generator.

Torch's layers draw from the global generator when they are made. The ones made here are allocated first and then
filled, so equal seeds give equal networks and nothing else in the process notices.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init


def convolution(
    n_in: int,
    n_out: int,
    kernel: int,
    generator: torch.Generator,
    stride: int = 1,
    gain: float = math.sqrt(2),
) -> nn.Conv2d:
    """A convolution that keeps the size (divided by the stride), without bias: batch normalisation follows.

    Weights are normal with variance gain^2 / (kernel^2 n_out) (He et al. 2015, by the outgoing connections). They are
    stored channels_last, which makes the whole network run so.
    """
    layer = skip_init(
        nn.Conv2d, n_in, n_out, kernel, stride=stride, padding=kernel // 2, bias=False, dtype=torch.float32
    )
    layer.weight = nn.Parameter(layer.weight.contiguous(memory_format=torch.channels_last))
    with torch.no_grad():
        layer.weight.normal_(0.0, gain / math.sqrt(kernel**2 * n_out), generator=generator)
    return layer


def dense(weight: Tensor, bias: bool = True) -> nn.Linear:
    """A linear layer with this initial weight (n_out, n_in) and bias zero."""
    layer = skip_init(nn.Linear, weight.shape[1], weight.shape[0], bias=bias, dtype=torch.float32)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if layer.bias is not None:
            layer.bias.zero_()
    return layer


def he_normal(n_out: int, n_in: int, generator: torch.Generator) -> Tensor:
    """Weights (n_out, n_in) that keep the mean square through a ReLU (He et al. 2015, by the incoming connections)."""
    return torch.randn(n_out, n_in, generator=generator, dtype=torch.float32) * math.sqrt(2 / n_in)


def orthogonal(n_out: int, n_in: int, generator: torch.Generator) -> Tensor:
    """A random matrix (n_out, n_in) with orthonormal rows or, if there are more rows than columns, columns.

    Uniform over such matrices: QR of a normal matrix, with the signs that make R's diagonal positive.
    """
    normal = torch.randn(max(n_out, n_in), min(n_out, n_in), generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(normal)
    q = q * r.diagonal().sign()
    return (q if n_out >= n_in else q.T).float().contiguous()
