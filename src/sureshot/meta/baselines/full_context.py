"""Full context embeddings: recurrent networks that let the whole support set change every embedding.

A bidirectional LSTM reads the support set as a sequence and adds its two outputs to each support embedding. An LSTM
cell then reads the support set for each query: it attends to the support rows, is fed the query and what it attended
to, and adds the query to its state, several times over.

The result depends on the order of the sequence, which is why `MatchingNet` sorts the support rows by class. Tasks of
different sizes share a batch: the sequence of a task ends, and its reading stops, where its padding begins.

References: Vinyals, Blundell, Lillicrap, Kavukcuoglu and Wierstra (2016), Matching networks for one shot learning,
section 2.1 and appendix A; number of reading steps, sums and normalisation as in Chen et al. (2019).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

_NOWHERE: dict[str, Any] = {"device": "meta", "dtype": torch.float32}


def _start(module: nn.Module, width: int, generator: torch.Generator) -> None:
    """Room and initial values, uniform in +-1/sqrt(width), for a recurrent network made without either."""
    module.to_empty(device="cpu")
    bound = 1.0 / math.sqrt(width)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-bound, bound, generator=generator)


class SupportReader(nn.Module):
    """Adds the outputs of a bidirectional LSTM to the support embeddings; initial values are drawn."""

    def __init__(self, n_features: int, generator: torch.Generator) -> None:
        super().__init__()
        self.lstm = nn.LSTM(n_features, n_features, batch_first=True, bidirectional=True, **_NOWHERE)
        _start(self.lstm, n_features, generator)

    def forward(
        self,
        support: Tensor,  # (T, S, D); padding, zeros, at the end
        lengths: Tensor | None,  # (T,), numbers of real rows; all S without it
    ) -> Tensor:
        """Embeddings in context, (T, S, D)."""
        if lengths is None:
            outputs, _ = self.lstm(support)
        else:
            packed = pack_padded_sequence(support, lengths.clamp_min(1).cpu(), batch_first=True, enforce_sorted=False)
            outputs, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=support.shape[1])
        forward, backward = outputs.chunk(2, -1)
        return support + forward + backward


class QueryReader(nn.Module):
    """Reads the support set for each query by attention; initial values are drawn."""

    def __init__(self, n_features: int, generator: torch.Generator) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(2 * n_features, n_features, **_NOWHERE)
        _start(self.cell, n_features, generator)

    def forward(
        self,
        query: Tensor,  # (T, Q, D)
        support: Tensor,  # (T, S, D), in context, padding at the end
        lengths: Tensor | None,  # (T,), numbers of real rows
        steps: int | None,  # how often to read; as often as the task has support rows without it
    ) -> Tensor:
        """Embeddings of the queries in context, (T, Q, D)."""
        n_rows = support.shape[1]
        total = n_rows if steps is None else steps
        stops = lengths[:, None, None] if lengths is not None and steps is None else None
        padding = None
        if lengths is not None:
            padding = torch.arange(n_rows, device=support.device) >= lengths.clamp_min(1)[:, None, None]
        state, memory = query, torch.zeros_like(query)
        for step in range(total):
            attention = state @ support.transpose(1, 2)
            if padding is not None:
                attention = attention.masked_fill(padding, -torch.inf)
            inputs = torch.cat([query, attention.softmax(-1) @ support], -1)
            hidden, carried = self.cell(inputs.flatten(0, 1), (state.flatten(0, 1), memory.flatten(0, 1)))
            read, carried = query + hidden.view_as(query), carried.view_as(query)
            if stops is None:
                state, memory = read, carried
            else:
                state, memory = torch.where(step < stops, read, state), torch.where(step < stops, carried, memory)
        return state
