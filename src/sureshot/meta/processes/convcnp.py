"""Convolutional conditional neural process: shifted contexts have shifted answers.

The pairs are spread onto a regular grid (a set convolution: their density d, and their values divided by it), a
convolutional network of residual blocks follows, and its features are read off at the queries (another set
convolution). Length-scales of both start at twice the spacing of the grid, and weights end at a window of so many
cells. The grid lies at multiples of its spacing and covers inputs with a margin as wide as the network sees, so that no
answer depends on where the grid ends, and hence on the tasks and queries beside it. It need not reach queries that are
too far to see any context: they all have the same answer. Inputs of one dimension, or of two, such as places in images.

The network sees d / (1 + d), unlike the paper's: with twice the context of its training a network that saw d became so
sure that 100 rows had 4.7 nats less each than 50.

Gordon et al. 2020, "Convolutional conditional neural processes".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from sureshot.meta.learners.functions import Context, Moments, RegressionLearner
from sureshot.meta.processes.layers import answering, check_sizes, normals

_WINDOW = 12  # cells: six of the first length-scales, where a weight is 1e-8
_MOST_CELLS = 2_000_000  # of tasks that pass together


class ConvCNP(RegressionLearner):
    """See the module."""

    name = "convcnp"

    def __init__(
        self,
        input_width: int,
        target_width: int,
        *,
        points_per_unit: float = 16.0,  # of the grid, in each dimension
        width: int = 64,  # channels
        kernel: int = 5,  # cells that a convolution sees, odd
        dilations: Sequence[int] = (1, 2, 4, 8),  # of the blocks: by default they see 30 cells to each side
        floor: float = 0.01,  # of the deviation
        seed: int = 0,
    ) -> None:
        super().__init__(input_width, target_width)
        check_sizes(floor, width=width, kernel=kernel, **{"each of dilations": min(dilations, default=1)})
        if input_width not in (1, 2) or kernel % 2 == 0 or not points_per_unit > 0:
            raise ValueError(
                f"convcnp takes inputs of one or two dimensions ('anp' and 'cnp' any), got {input_width}; kernel must "
                f"be odd and points_per_unit positive, got {kernel} and {points_per_unit}"
            )
        generator = torch.Generator().manual_seed(seed)
        self.floor, self.spacing = floor, 1 / points_per_unit
        self.margin = _WINDOW + sum(dilations) * (kernel // 2)
        size = (1, kernel) if input_width == 1 else (kernel, kernel)
        self.log_lengthscales = nn.Parameter(torch.full((2,), math.log(2 * self.spacing), dtype=torch.float32))
        self.first = _convolution(1 + target_width, width, (1, 1), 1, generator)
        self.blocks = nn.ModuleList([_convolution(width, width, size, each, generator) for each in dilations])
        self.head = answering([width, width, 2 * target_width], generator)

    def encode(self, context: Context, generator: torch.Generator) -> Context:
        return context

    def answer(self, encoded: Context, query: Tensor) -> Moments:
        query, axes = self._near(encoded, query)
        tasks = _MOST_CELLS // math.prod(map(len, axes))
        parts = zip(*(part.split(tasks) for part in (*encoded, query)), strict=True)
        found = torch.cat([self._on_grid(Context(*context), axes, asked) for *context, asked in parts])
        return normals(self.head(found).unsqueeze(0), self.floor)

    def _on_grid(self, context: Context, axes: Sequence[Tensor], query: Tensor) -> Tensor:
        """Features at queries, (T, Q, width)."""
        known = torch.cat([torch.ones_like(context.y[..., :1]), context.y], -1) * context.mask.unsqueeze(-1)
        spread = torch.einsum("tsc,tsh,tsw->tchw", known, *self._weights(context.x, axes, 0))
        density, signal = spread[:, :1], spread[:, 1:]
        features = self.first(torch.cat([density / (1 + density), signal / (density + 1e-5)], 1))
        for block in self.blocks:
            features = features + block(features.relu())
        weights = (part / part.sum(-1, keepdim=True) for part in self._weights(query, axes, 1))
        return torch.einsum("tchw,tqh,tqw->tqc", features, *weights)

    def _near(self, context: Context, query: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Queries, nearer if they see no context nearer either, and the places of the grid in each dimension."""
        known = context.x[context.mask] if context.mask.any() else context.x.new_zeros(1, self.input_width)
        reach = (self.margin + _WINDOW + 2) * self.spacing
        query = query.minimum(known.amax(0) + reach).maximum(known.amin(0) - reach)
        seen = torch.cat([known, query.flatten(0, 1)]).detach()
        low, high = seen.amin(0), seen.amax(0)
        first, last = (low / self.spacing).floor() - self.margin, (high / self.spacing).ceil() + self.margin
        cells = float((last - first + 1).prod())
        if cells > _MOST_CELLS:
            raise ValueError(
                f"inputs from {low.tolist()} to {high.tolist()} need a grid of {cells:.3g} cells, more than "
                f"{_MOST_CELLS}: scale the inputs, or lower points_per_unit"
            )
        ends = zip(first.tolist(), last.tolist(), strict=True)
        steps = [torch.arange(start, end + 1, dtype=low.dtype, device=low.device) for start, end in ends]
        return query, [self.spacing * each for each in steps]

    def _weights(self, x: Tensor, axes: Sequence[Tensor], which: int) -> tuple[Tensor, Tensor]:
        """Of places (T, N, D) and cells, (T, N, height) and (T, N, width)."""
        found = []
        for column, axis in zip(x.unbind(-1), axes, strict=True):
            distance = column.unsqueeze(-1) - axis
            near = distance.abs() <= (_WINDOW + 0.5) * self.spacing
            scaled = distance * (-self.log_lengthscales[which]).exp()
            found.append((-0.5 * scaled.square()).exp() * near)
        return (torch.ones_like(found[0][..., :1]), found[0]) if len(found) == 1 else (found[0], found[1])


def _convolution(n_in: int, n_out: int, size: tuple[int, int], dilation: int, generator: torch.Generator) -> nn.Conv2d:
    """One that keeps the size, with weights as for rectifiers and bias zero."""
    padding = (size[0] // 2 * dilation, size[1] // 2 * dilation)
    layer = skip_init(nn.Conv2d, n_in, n_out, size, padding=padding, dilation=dilation, dtype=torch.float32)
    with torch.no_grad():
        layer.weight.normal_(0.0, math.sqrt(2 / (n_in * size[0] * size[1])), generator=generator)
        assert layer.bias is not None
        layer.bias.zero_()
    return layer
