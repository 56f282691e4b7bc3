"""Relation networks: a network learns to say how alike two feature maps are.

The feature maps of a class's support rows are averaged and joined, along channels, to the map of a query. Two blocks of
convolution, batch normalisation, ReLU and pooling, then two linear layers, make of this a score between 0 and 1, whose
squared distance to 1 for the query's class and 0 for the others is the loss, averaged over classes and queries. The
probabilities are the scores, normalised over the classes; the loss does not see the normalisation.

It takes a backbone whose features are a map (`Backbone.map_shape`), such as Conv4; the papers leave out its last two
poolings (``n_poolings = 2``). Maps of one pixel are not pooled. Sung et al. sum the maps of several shots; means do not
grow with their number. In use batch normalisation has running statistics, so that a score depends on no other query; in
training the pairs of ``tasks_per_pass`` tasks share statistics.

References: Sung et al. (2018), Learning to compare: relation network for few-shot learning, section 3; Chen et al.
(2019), A closer look at few-shot classification.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from sureshot.meta.baselines.logits import LogitsPosterior, only_present
from sureshot.meta.baselines.prototypical import class_means
from sureshot.meta.learners.base import mean_over_rows
from sureshot.meta.learners.embedding import EmbeddingLearner
from sureshot.meta.tasks import TaskRows, Tasks
from sureshot.networks.backbones.base import Backbone
from sureshot.networks.backbones.conv4 import Conv4Block
from sureshot.networks.backbones.initialisation import dense, he_normal
from sureshot.networks.precision import Precision
from sureshot.ranges import check_counts

_PAIRS_AT_ONCE = 4096


class RelationNetwork(nn.Module):
    """Scores of pairs of maps."""

    def __init__(self, map_shape: tuple[int, int, int], hidden: int, seed: int) -> None:
        super().__init__()
        self.map_shape = map_shape
        channels, *size = map_shape
        generator, self.blocks = torch.Generator().manual_seed(seed), nn.ModuleList()
        for n_in in (2 * channels, channels):
            self.blocks.append(Conv4Block(n_in, channels, generator, pools=min(size) > 1))
            size = [side // 2 for side in size] if min(size) > 1 else size
        self.hidden = dense(he_normal(hidden, channels * math.prod(size), generator))
        self.score = dense(he_normal(1, hidden, generator))

    def forward(
        self,
        classes: Tensor,  # (T, C, D), flattened maps
        queries: Tensor,  # (T, Q, D)
        real: Tensor | None = None,  # (T, Q, C), False for pairs that there are not; their score is 0
    ) -> Tensor:
        """Before the sigmoid, (T, Q, C)."""
        first, second = cast(Iterable[Conv4Block], self.blocks)
        # convolutions are linear: of joined maps it is the sum over the two, each seen once and not in every pair
        halves = first.convolution.weight.chunk(2, 1)
        of_classes, of_queries = (self._convolved(*part) for part in zip((classes, queries), halves, strict=True))
        pairs = of_queries.unsqueeze(2) + of_classes.unsqueeze(1)
        shape = pairs.shape[:3]
        maps = second(first.after_convolution(pairs.flatten(0, 2) if real is None else pairs[real]))
        scores: Tensor = self.score(self.hidden(maps.flatten(1)).relu()).squeeze(-1)
        return scores.view(shape) if real is None else scores.new_zeros(shape).masked_scatter(real, scores)

    def _convolved(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Maps (T, N, D) by weights (F, F, 3, 3), (T, N, F, H, W)."""
        maps = functional.conv2d(rows.reshape(-1, *self.map_shape), weight, padding=1)
        return maps.view(*rows.shape[:2], *maps.shape[1:])


@dataclass(frozen=True)
class RelationPosterior(LogitsPosterior):
    """Mean maps of the classes, and what compares queries with them."""

    relation: RelationNetwork
    classes: Tensor  # (T, C, D)
    present: Tensor  # (T, C), False for classes without a support row

    def logits(self, query: Tensor) -> Tensor:
        """Logarithms of the scores: a softmax normalises these."""
        pairs = self.classes.shape[0] * self.classes.shape[1]
        parts = [self.relation(self.classes, part) for part in query.split(max(1, _PAIRS_AT_ONCE // pairs), 1)]
        return only_present(functional.logsigmoid(torch.cat(parts, 1)), self.present)


class RelationNet(EmbeddingLearner):
    """Relation networks (Sung et al. 2018) as compared by Chen et al. (2019)."""

    name = "relationnet"

    def __init__(
        self,
        backbone: Backbone,
        *,
        hidden: int = 8,  # width between the two linear layers
        seed: int = 0,  # of the relation network's initial weights
        precision: Precision = "float32",
        tasks_per_pass: int = 1,
    ) -> None:
        super().__init__(backbone, precision, tasks_per_pass)
        if backbone.map_shape is None:
            raise ValueError(
                f"relationnet compares feature maps, and backbone {backbone.config['name']!r} gives vectors: take "
                "conv4, with the option n_poolings = 2 as published, or another learner for vectors"
            )
        check_counts(1, hidden=hidden)
        self.relation = RelationNetwork(backbone.map_shape, hidden, seed)

    def task_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        """Mean squared error of the scores over classes and queries, (T,)."""
        classes, present = class_means(tasks.support)
        real = present.unsqueeze(1) & tasks.query.real.unsqueeze(-1)
        parts = (part.split(self.tasks_per_pass) for part in (classes, tasks.query_x, real))
        logits = torch.cat([self.relation(*part) for part in zip(*parts, strict=True)])
        errors = (logits.sigmoid() - tasks.query.one_hot()).square().masked_fill(~real, 0)
        return mean_over_rows(errors.sum(-1) / present.sum(-1, keepdim=True), tasks.query_mask)

    def condition_embedded(self, support: TaskRows, generator: torch.Generator) -> RelationPosterior:
        """Mean maps; the posterior keeps its own copy of the relation network, in evaluation mode."""
        return RelationPosterior(copy.deepcopy(self.relation).eval().requires_grad_(False), *class_means(support))
