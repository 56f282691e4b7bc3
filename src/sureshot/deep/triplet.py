"""An embedding in which rows of a class are near each other: triplet loss, and the nearest class mean.

A triplet is an anchor, another row of its class and a row of another class; on embeddings of unit length its loss is

    max(0, |z_a - z_p|^2 - |z_a - z_n|^2 + margin)

Of a batch all triplets are formed. The loss of an anchor is the mean over those of its triplets that are not satisfied
yet ("batch all", Hermans et al. 2017), zero for one that is alone in its class. From random weights this may collapse
to a point, so it continues a softmax stage. A class is predicted by cosines with the class means, running averages over
the batches, times a fixed scale.

References: Schroff, Kalenichenko & Philbin, "FaceNet" (2015), for the loss; Yu et al., "Semantic drift compensation for
class-incremental learning" (2020), for its use with class means.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from sureshot.deep.base import Predictor, check_every_class
from sureshot.deep.growing import GrowingClassifier
from sureshot.networks.backbones import Backbone, backbone_from_config
from sureshot.ranges import check_positive

_KEPT = 0.9
"""What remains of a running mean when its class is in a batch."""


class TripletNetwork(GrowingClassifier):
    """Class means of embeddings that triplets have trained; `of_embeddings` begins with those of rows."""

    name = "triplet"

    def __init__(
        self,
        backbone: Backbone,
        means: Tensor,  # (C, D), of embeddings of unit length
        *,
        margin: float = 0.2,  # of squared distances
        scale: float = 16.0,  # of cosines with class means
    ) -> None:
        check_positive(margin=margin, scale=scale)
        super().__init__(backbone, len(means), {"margin": margin, "scale": scale})
        self.margin, self.scale = margin, scale
        self.means: Tensor
        self.register_buffer("means", means.detach().clone())

    @classmethod
    def of_embeddings(
        cls,
        backbone: Backbone,
        embeddings: Tensor,  # (N, D), of rows by this backbone
        y: Tensor,  # (N,) int64, every class at least once
        n_classes: int,
        *,
        seed: int = 0,  # changes nothing
        **options: Any,  # of the class, such as ``margin``
    ) -> TripletNetwork:
        """The class means of embeddings of unit length."""
        return cls(backbone, class_means(embeddings, y, range(n_classes)), **options)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> TripletNetwork:
        backbone = backbone_from_config(config["backbone"])
        means = torch.ones(config["n_classes"], backbone.n_features, dtype=torch.float32)
        return cls(backbone, means, margin=config["margin"], scale=config["scale"])

    def embedded_losses(self, embeddings: Tensor, y: Tensor, generator: torch.Generator, n_rows: int) -> Tensor:
        """Moves the running means."""
        unit = functional.normalize(embeddings, dim=-1)
        self._follow(unit.detach(), y)
        return triplet_losses(unit, y, self.margin)

    def predictor(self) -> Predictor:
        return lambda embeddings: torch.log_softmax(self.scale * self.cosines(embeddings), dim=-1)

    def cosines(
        self,
        embeddings: Tensor,  # (B, D)
    ) -> Tensor:
        """With the class means (B, C)."""
        return functional.normalize(embeddings, dim=-1) @ functional.normalize(self.means, dim=-1).mT

    def grown(self, embeddings: Tensor, y: Tensor, n_classes: int) -> TripletNetwork:
        """With the new classes' means."""
        added = class_means(embeddings, y, range(self.n_classes, n_classes)).to(self.means)
        made = TripletNetwork(
            copy.deepcopy(self.backbone), torch.cat([self.means, added]), margin=self.margin, scale=self.scale
        )
        made.precision = self.precision
        return made

    def _follow(self, unit: Tensor, y: Tensor) -> None:
        size = torch.bincount(y, minlength=self.n_classes).to(unit).unsqueeze(1)
        mean = torch.zeros_like(self.means).index_add(0, y, unit.to(self.means)) / size.clamp_min(1)
        self.means.copy_(torch.where(size > 0, _KEPT * self.means + (1 - _KEPT) * mean, self.means))


def triplet_losses(
    unit: Tensor,  # (B, D), of length one
    y: Tensor,  # (B,)
    margin: float,
) -> Tensor:
    """The mean loss (B,) of each anchor's triplets that are not satisfied; zero where there is none."""
    distances = 2 - 2 * unit @ unit.mT
    same = y.unsqueeze(1) == y
    anchors, positives = (same & ~torch.eye(len(y), dtype=torch.bool, device=y.device)).nonzero(as_tuple=True)
    losses = distances[anchors, positives].unsqueeze(1) - distances[anchors] + margin  # (pairs, B)
    losses = losses.relu().masked_fill(same[anchors], 0.0)
    none = unit.new_zeros(len(y))
    unsatisfied = none.index_add(0, anchors, (losses > 0).sum(1).to(unit))
    return none.index_add(0, anchors, losses.sum(1)) / unsatisfied.clamp_min(1)


def class_means(embeddings: Tensor, y: Tensor, classes: range) -> Tensor:
    """Means (C, D) of the rows of classes, scaled to unit length before."""
    unit = functional.normalize(embeddings.detach(), dim=-1)
    check_every_class(y, classes)
    size = torch.bincount(y)[classes.start :]
    sums = unit.new_zeros(classes.stop, unit.shape[1]).index_add(0, y, unit)[classes.start :]
    return sums / size.unsqueeze(1)
