"""SDC: an embedding that goes on learning, and prototypes that follow it by what its own rows say.

The embedding is trained by triplets; a session trains it on its rows only, with a penalty for forgetting: the squared
distance of embeddings from what they were (LwF), or the change of weights by their importance (MAS). Classes are
predicted by the nearest prototype, the mean of a class's embeddings of unit length. No row of an old class is kept, so
where an old prototype would be now is estimated: by the mean drift of the session's rows, weighted by how near to it
they were before,

    delta_c = sum_i w_i (z_i' - z_i) / sum_i w_i,    w_i = exp(-|z_i - p_c|^2 / (2 sigma^2)),

session after session. Probabilities are the softmax of cosines with the prototypes, multiplied by a scale that is
fitted once, to base rows kept aside.

MAS needs embeddings with a length: its importance is that of the embeddings as they are, everything else is on the unit
sphere.

Reference: Yu, Twardowski, Liu, Herranz, Wang, Cheng, Jui & van de Weijer, "Semantic drift compensation for
class-incremental learning" (2020), whose sigma and gamma are the defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from sureshot.deep import GrowingClassifier, TripletNetwork
from sureshot.deep.training import Penalty
from sureshot.incremental.trained.base import Known, NetworkMethod, Rows
from sureshot.incremental.trained.distillation import embedding_distance
from sureshot.incremental.trained.exemplars import unit_directions
from sureshot.incremental.trained.importance import distance_by_importance, importance
from sureshot.incremental.trained.mean_cosines import cosines, fitted_scale, mean_directions
from sureshot.networks.seeds import generator_for
from sureshot.ranges import check_counts, check_positive

GAMMA = {"lwf": 1.0, "mas": 1e6}
"""How much forgetting costs, as published."""

_ADAM: Mapping[str, Any] = {"epochs": 20, "batch_size": 128, "optimiser": "adam", "learning_rate": 1e-4}
"""A default for later sessions: the curvature of MAS differs by orders of magnitude between weights."""


class Prototypes(NamedTuple):
    """What is kept beside the network."""

    means: Tensor  # (C, D) float64
    counts: Tensor  # (C,), rows that each is a mean of
    scale: float  # of cosines
    weights: Mapping[str, Tensor]  # importance of the backbone's weights; empty for LwF
    n_rows: int  # that the importance is a mean over


@dataclass(kw_only=True, eq=False)
class SemanticDrift(NetworkMethod[Prototypes]):
    """See the module.

    Attributes
    ----------
    penalty : {"lwf", "mas"}
    gamma : float, optional
        What the penalty is multiplied by; 1 for LwF and 1e6 for MAS by default.
    sigma : float
        How near rows are that tell how a prototype drifts.
    importance_rows : int
        Rows of a session, drawn by seed, over which importance is averaged.
    """

    name = "sdc"
    kind = TripletNetwork
    later_defaults = _ADAM

    penalty: Literal["lwf", "mas"] = "lwf"
    gamma: float | None = None
    sigma: float = 0.3
    importance_rows: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma is not None and not 0 <= self.gamma < math.inf:
            raise ValueError(f"gamma must be finite and at least 0, got {self.gamma}")
        check_positive(sigma=self.sigma)
        check_counts(1, importance_rows=self.importance_rows)

    def _begun(self, classifier: GrowingClassifier, base: Rows, aside: Rows) -> Prototypes:
        means, counts = mean_directions(base.embeddings, base.y, classifier.n_classes)
        scale = fitted_scale(cosines(aside.embeddings, means), aside.y)
        return Prototypes(means, counts, scale, *self._importance(classifier, base.x, {}, 0))

    def _continued(
        self, known: Known[Prototypes], x: Tensor, y: Tensor, n_classes: int
    ) -> tuple[GrowingClassifier, Prototypes]:
        kept, before = known.kept, self._embedded(known.classifier, x)
        classifier = self._larger(known, Rows(x, y, before), n_classes)
        self._train(classifier, x, y, self._later_settings, self._penalty(classifier, known))
        after = self._embedded(classifier, x)
        old = kept.means + drift(unit_directions(before), unit_directions(after), kept.means, self.sigma)
        means, counts = mean_directions(after, y, n_classes)
        sums = means * counts.unsqueeze(1)
        sums[: len(old)] += old * kept.counts.unsqueeze(1)
        counts[: len(old)] += kept.counts
        weights = self._importance(classifier, x, kept.weights, kept.n_rows)
        return classifier, Prototypes(sums / counts.unsqueeze(1), counts, kept.scale, *weights)

    def _scores(self, classifier: GrowingClassifier, kept: Prototypes, embeddings: Tensor) -> Tensor:
        return kept.scale * cosines(embeddings, kept.means)

    def _outlier(self, classifier: GrowingClassifier, kept: Prototypes, embeddings: Tensor) -> Tensor:
        return 1 - cosines(embeddings, kept.means).amax(-1)

    def _memory(self, classifier: GrowingClassifier, kept: Prototypes) -> tuple[int, int]:
        weights = sum(value.numel() for value in kept.weights.values())
        return 1 + weights, kept.means.numel() + kept.counts.numel()

    def _penalty(self, new: GrowingClassifier, known: Known[Prototypes]) -> Penalty:
        gamma = GAMMA[self.penalty] if self.gamma is None else self.gamma
        old, weights = known.classifier, known.kept.weights
        before = {name: value.detach() for name, value in old.backbone.named_parameters()}

        def of_weights(x: Tensor, embeddings: Tensor) -> Tensor:
            return gamma * distance_by_importance(new.backbone, before, weights).expand(len(x))

        def of_embeddings(x: Tensor, embeddings: Tensor) -> Tensor:
            with torch.no_grad():
                then = old.encoded(x)
            return gamma * embedding_distance(embeddings, then)

        return of_weights if self.penalty == "mas" else of_embeddings

    def _importance(
        self, classifier: GrowingClassifier, x: Tensor, so_far: Mapping[str, Tensor], n_rows: int
    ) -> tuple[Mapping[str, Tensor], int]:
        """The mean over the rows of all sessions."""
        if self.penalty == "lwf":
            return {}, 0
        order = torch.randperm(len(x), generator=generator_for(self.seed, "importance"))[: self.importance_rows]
        found, n = importance(classifier.backbone, x[order].to(self.device)), len(order)
        if not n_rows:
            return found, n
        share = n / (n_rows + n)
        return {name: (1 - share) * so_far[name] + share * value for name, value in found.items()}, n_rows + n


def drift(
    before: Tensor,  # (N, D), embeddings of a session's rows as they were
    after: Tensor,  # (N, D), as they are
    prototypes: Tensor,  # (C, D), as they were
    sigma: float,
) -> Tensor:
    """How far each prototype is estimated to have moved (C, D)."""
    weights = torch.softmax(-torch.cdist(prototypes, before).square() / (2 * sigma**2), dim=-1)
    return weights @ (after - before)
