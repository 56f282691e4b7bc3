"""Conditional neural process: the mean of what each pair says, and a network that answers from it.

The mean does not depend on the order of the pairs, and forgets how many there were; it is zero without any. Garnelo et
al. 2018, "Conditional neural processes".
"""

from __future__ import annotations

import torch
from torch import Tensor

from sureshot.meta.learners.functions import Context, Moments, RegressionLearner
from sureshot.meta.processes.layers import Waves, answering, check_sizes, mean_of_rows, mlp, normals


class CNP(RegressionLearner):
    """See the module."""

    name = "cnp"

    def __init__(
        self,
        input_width: int,
        target_width: int,
        *,
        width: int = 128,  # of all layers and of what is known of a function
        layers: int = 3,  # of encoder and decoder
        waves: int = 5,  # sines and cosines beside each input; none as published
        floor: float = 0.01,  # of the deviation
        seed: int = 0,
    ) -> None:
        super().__init__(input_width, target_width)
        check_sizes(floor, width=width, layers=layers)
        generator, hidden = torch.Generator().manual_seed(seed), [width] * layers
        self.floor = floor
        self.waves = Waves(input_width, waves)
        self.encoder = mlp([self.waves.width + target_width, *hidden], generator)
        self.decoder = answering([self.waves.width + width, *hidden, 2 * target_width], generator)

    def encode(self, context: Context, generator: torch.Generator) -> Tensor:
        """What is known, (T, H)."""
        return mean_of_rows(self.encoder(torch.cat([self.waves(context.x), context.y], -1)), context.mask)

    def answer(self, encoded: Tensor, query: Tensor) -> Moments:
        known = encoded.unsqueeze(1).expand(-1, query.shape[1], -1)
        return normals(self.decoder(torch.cat([self.waves(query), known], -1)).unsqueeze(0), self.floor)
