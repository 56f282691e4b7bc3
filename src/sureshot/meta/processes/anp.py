"""Attentive neural process: pairs look at each other, and each query at the pairs whose inputs are like its own.

One more row that was learnt stands among the pairs, so that there is something to look at without any context. Only the
path without a latent: the answers are normals, comparable with those of a conditional process. Kim et al. 2019,
"Attentive neural processes".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from sureshot.meta.learners.functions import Context, Moments, RegressionLearner
from sureshot.meta.processes.layers import Waves, answering, check_sizes, mlp, normals
from sureshot.networks.backbones.initialisation import dense, orthogonal


class Attention(nn.Module):
    """Several heads of dot products, scaled.

    Queries and keys start with the same weights, so that rows look at first at rows like themselves: from weights apart
    it takes many steps until anything is looked at, of 300 pixels more than a thousand.
    """

    def __init__(self, width: int, heads: int, generator: torch.Generator) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (dense(orthogonal(width, width, generator)) for _ in range(4))
        self.key.load_state_dict(self.query.state_dict())

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """(T, Q, H) of queries (T, Q, H) and of keys and values (T, S, H), of which those in the mask (T, S)."""
        query, key, value = (
            part(rows).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part, rows in ((self.query, queries), (self.key, keys), (self.value, values))
        )
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None])
        answer: Tensor = self.out(found.transpose(1, 2).flatten(2))
        return answer


class ANP(RegressionLearner):
    """See the module."""

    name = "anp"

    def __init__(
        self,
        input_width: int,
        target_width: int,
        *,
        width: int = 128,
        layers: int = 2,  # of the networks of pairs, of inputs and of answers
        heads: int = 8,
        blocks: int = 2,  # of attention among the pairs
        waves: int = 5,  # sines and cosines beside each input; none as published
        floor: float = 0.01,  # of the deviation
        seed: int = 0,
    ) -> None:
        super().__init__(input_width, target_width)
        check_sizes(floor, width=width, layers=layers, heads=heads)
        if width % heads or blocks < 0:
            raise ValueError(f"width must be a multiple of heads and blocks at least 0, got {width}, {heads}, {blocks}")
        generator, hidden = torch.Generator().manual_seed(seed), [width] * layers
        self.floor = floor
        self.waves = Waves(input_width, waves)
        self.pairs = mlp([self.waves.width + target_width, *hidden], generator)
        self.places = mlp([self.waves.width, *hidden], generator)
        self.among = nn.ModuleList([Attention(width, heads, generator) for _ in range(blocks)])
        self.after = nn.ModuleList([mlp([width, width, width], generator) for _ in range(blocks)])
        self.norms = nn.ModuleList([nn.LayerNorm(width, dtype=torch.float32) for _ in range(2 * blocks)])
        self.across = Attention(width, heads, generator)
        self.no_pair = nn.Parameter(0.1 * torch.randn(2, width, generator=generator, dtype=torch.float32))
        self.decoder = answering([self.waves.width + width, *hidden, 2 * target_width], generator)

    def encode(self, context: Context, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Keys and values (T, S + 1, H), and which there are (T, S + 1)."""
        key, value = self.no_pair[:, None, None].expand(-1, len(context.x), 1, -1)
        seen = self.waves(context.x)
        keys = torch.cat([self.places(seen), key], 1)
        rows = torch.cat([self.pairs(torch.cat([seen, context.y], -1)), value], 1)
        mask = torch.cat([context.mask, torch.ones_like(context.mask[:, :1])], 1)
        for number, (attention, network) in enumerate(zip(self.among, self.after, strict=True)):
            even = self.norms[2 * number](rows)
            rows = rows + attention(even, even, even, mask)
            rows = rows + network(self.norms[2 * number + 1](rows))
        return keys, rows, mask

    def answer(self, encoded: tuple[Tensor, ...], query: Tensor) -> Moments:
        seen = self.waves(query)
        found = self.across(self.places(seen), *encoded)
        return normals(self.decoder(torch.cat([seen, found], -1)).unsqueeze(0), self.floor)
