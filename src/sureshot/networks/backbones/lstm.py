"""A recurrent encoder: the kernel on sequences is a kernel on what a network made of them.

A long short-term memory network (Hochreiter & Schmidhuber 1997) reads a sequence step by step; its states, averaged
over time or only the last, are the features. Meta-trained over tasks this gives a deep kernel on sequences.

Sequences of one length L form a batch (B, L, D). Resample or cut others: padding would be read as data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sureshot.networks.backbones.base import Backbone
from sureshot.networks.backbones.initialisation import orthogonal


class LSTM(Backbone):
    """LSTM encoder of sequences (B, L, D).

    Initial weights are orthogonal for the recurrence, Glorot normal for the inputs, biases zero except those of the
    forget gates, which are 1 (Jozefowicz et al. 2015).
    """

    name = "lstm"

    def __init__(
        self,
        input_shape: Sequence[int],  # length L and number D of values at a step
        *,
        hidden: int = 64,  # width of the state; features are as many, or twice as many if bidirectional
        layers: int = 1,
        bidirectional: bool = False,  # a second network reads from the end
        # Average the states over time, so that few operations are between a step and the loss; or take the state after
        # the whole sequence has been read (in each direction).
        pooling: Literal["mean", "last"] = "mean",
        seed: int = 0,
    ) -> None:
        if len(input_shape) != 2:
            raise ValueError(
                f"lstm takes sequences, input_shape (length, values at a step), got {tuple(input_shape)}: "
                "use 'linear' or 'mlp' for vectors and 'conv4' or a resnet for images"
            )
        if pooling not in ("mean", "last"):
            raise ValueError(f"pooling must be 'mean' or 'last', got {pooling!r}")
        if hidden < 1 or layers < 1:
            raise ValueError(f"hidden and layers must be at least 1, got {hidden} and {layers}")
        super().__init__(
            input_shape,
            hidden * (2 if bidirectional else 1),
            {
                "hidden": hidden,
                "layers": layers,
                "bidirectional": bidirectional,
                "pooling": pooling,
                "seed": seed,
            },
        )
        self.pooling = pooling
        # allocated without values, so that no global generator is used
        nowhere: dict[str, Any] = {"device": "meta", "dtype": torch.float32}
        empty = nn.LSTM(input_shape[1], hidden, layers, batch_first=True, bidirectional=bidirectional, **nowhere)
        self.network = empty.to_empty(device="cpu")
        _fill(self.network, torch.Generator().manual_seed(seed))

    def encode(self, x: Tensor) -> Tensor:
        states, (last, _) = self.network(x)  # (B, L, F), (layers * directions, B, hidden)
        if self.pooling == "mean":
            return states.mean(1)
        directions = 2 if self.network.bidirectional else 1
        return last[-directions:].transpose(0, 1).flatten(1)


def _fill(network: nn.LSTM, generator: torch.Generator) -> None:
    """Initial values, gate by gate; torch stacks the gates input, forget, cell, output along the rows."""
    n = network.hidden_size
    with torch.no_grad():
        for name, value in network.named_parameters():
            if name.startswith("weight_hh"):
                value.copy_(torch.cat([orthogonal(n, n, generator) for _ in range(4)]))
            elif name.startswith("weight_ih"):
                value.normal_(0.0, (2 / (n + value.shape[1])) ** 0.5, generator=generator)
            else:
                value.zero_()
                if name.startswith("bias_ih"):
                    value[n : 2 * n] = 1.0
