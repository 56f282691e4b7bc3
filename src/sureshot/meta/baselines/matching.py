"""Matching networks: a soft nearest neighbour in a learnt space.

The probability of a class is the attention that the query pays to the support rows of that class. Attention is a
softmax over the support rows of the cosine similarity, negative ones cut to 0, times 100: on the cosine itself the
softmax could never be far from uniform.

With ``full_context`` (the default, as in the published comparisons) two recurrent networks first embed the support and
the queries in the context of the whole support set (`full_context`), which they read sorted by class: another numbering
of the classes or order of the rows changes the result a little.

Probabilities are kept away from 0 by adding 1e-6 to each before renormalising; the loss is their mean cross-entropy.

References: Vinyals et al. (2016), Matching networks for one shot learning; details as in Chen et al. (2019), A closer
look at few-shot classification, which the published tables of Gaussian-process learners compare with.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sureshot.meta.baselines.full_context import QueryReader, SupportReader
from sureshot.meta.baselines.logits import LogitsPosterior, mean_cross_entropy, only_present
from sureshot.meta.learners.embedding import EmbeddingLearner
from sureshot.meta.tasks import TaskRows, Tasks
from sureshot.networks.backbones.base import Backbone
from sureshot.networks.precision import Precision

_FLOOR = 1e-6


@dataclass(frozen=True)
class MatchingPosterior(LogitsPosterior):
    """Support embeddings to attend to."""

    support: Tensor  # (T, S, D), in context if there is a reader; real rows first if there is padding
    labels: Tensor  # (T, S, C), one-hot, zero for padding
    lengths: Tensor | None  # (T,), numbers of real rows; None when there is no padding
    class_mask: Tensor | None  # (T, C)
    scale: float  # of the cosine
    reader: QueryReader | None  # puts queries into context
    attention_steps: int | None  # how often it reads

    def logits(self, query: Tensor) -> Tensor:
        """Log of 1e-6 plus the attention paid to each class, (T, Q, C)."""
        if self.reader is not None:
            query = self.reader(query, self.support, self.lengths, self.attention_steps)
        cosine = F.normalize(query, dim=-1) @ F.normalize(self.support, dim=-1).transpose(1, 2)
        scores = self.scale * cosine.relu()
        if self.lengths is not None:
            rows = torch.arange(scores.shape[-1], device=scores.device)
            scores = scores.masked_fill(rows >= self.lengths.clamp_min(1)[:, None, None], -torch.inf)
        return only_present((scores.softmax(-1) @ self.labels + _FLOOR).log(), self.class_mask)


class MatchingNet(EmbeddingLearner):
    """Matching networks (Vinyals et al. 2016) as compared by Chen et al. (2019)."""

    name = "matchingnet"

    def __init__(
        self,
        backbone: Backbone,
        *,
        full_context: bool = True,  # recurrent networks put the embeddings into the context of the support set
        scale: float = 100.0,  # of the cosine inside the attention's softmax
        # How often the recurrent network of the queries reads the support. By default as often as there are support
        # rows, as in the published comparisons; its cost then grows with the square of that number, so tasks with
        # hundreds of support rows want a fixed number here (Vinyals et al. fix it).
        attention_steps: int | None = None,
        seed: int = 0,  # of the initial values of the recurrent networks
        precision: Precision = "float32",
        tasks_per_pass: int = 1,
    ) -> None:
        super().__init__(backbone, precision, tasks_per_pass)
        if not scale > 0:
            raise ValueError(f"scale must be positive, got {scale}")
        if attention_steps is not None and attention_steps < 1:
            raise ValueError(
                f"attention_steps must be at least 1, or None for one step per support row, got {attention_steps}"
            )
        self.full_context = full_context
        self.scale = scale
        self.attention_steps = attention_steps
        self.seed = seed
        generator = torch.Generator().manual_seed(seed)
        self.support_reader = SupportReader(backbone.n_features, generator) if full_context else None
        self.query_reader = QueryReader(backbone.n_features, generator) if full_context else None

    def task_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        """Mean cross-entropy of the queries, (T,)."""
        posterior = self._attend(tasks.support, self.query_reader)
        return mean_cross_entropy(posterior.logits(tasks.query_x), tasks.query_y, tasks.query_mask)

    def condition_embedded(self, support: TaskRows, generator: torch.Generator) -> MatchingPosterior:
        """The support in context; the posterior keeps its own copy of the network that reads queries."""
        reader = copy.deepcopy(self.query_reader)
        if reader is not None:
            reader.requires_grad_(False)
        return self._attend(support, reader)

    def _attend(self, support: TaskRows, reader: QueryReader | None) -> MatchingPosterior:
        _, y, n_classes, mask, class_mask = support
        # Class by class, padding last: the order in which the recurrent networks read.
        order = y if mask is None else y.masked_fill(~mask, n_classes)
        order = order.argsort(dim=1, stable=True)[..., None]
        lengths = None if mask is None else mask.sum(1)
        rows, labels = (x.take_along_dim(order, 1) for x in (support.without_padding(), support.one_hot()))
        if self.support_reader is not None:
            rows = self.support_reader(rows, lengths)
        return MatchingPosterior(rows, labels, lengths, class_mask, self.scale, reader, self.attention_steps)
