"""PODNet: exemplars, distillation of pooled activations, and several proxies for each class.

A session trains on its rows and the exemplars: the loss of the proxies, whose new ones begin where the new rows are,
and the distances of pooled activations from what they were, of each stage of the network (POD-spatial, weight 3) and of
the embedding (POD-flat, weight 1), both times the root of how many classes there are for each of the session's. Then
exemplars are chosen by herding, as many of each class, and on these the proxies alone are trained once more.

Probabilities are the softmax of the proxies' scores with their learnt scale.

Reference: Douillard, Cord, Ollion, Robert & Valle, "PODNet: pooled outputs distillation for small-tasks incremental
learning" (2020); weights of its CIFAR experiments.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.deep import GrowingClassifier, ProxyNetwork
from sureshot.deep.training import Penalty
from sureshot.incremental.trained.base import GRADIENT_DESCENT, Known, NetworkMethod, Rows
from sureshot.incremental.trained.distillation import embedding_distance, pooled_maps_distance, recorded_stages
from sureshot.incremental.trained.exemplars import Exemplars
from sureshot.incremental.trained.fine_tuning import head_numbers
from sureshot.incremental.trained.icarl import check_exemplars

_BALANCED = {**GRADIENT_DESCENT, "learning_rate": 0.05}


@dataclass(kw_only=True, eq=False)
class PODNet(NetworkMethod[Exemplars]):
    """See the module.

    Attributes
    ----------
    n_exemplars : int
        Of each class.
    balanced : table, optional
        How the proxies are trained on exemplars after each session, as `later`.
    spatial, flat : float
        Weights of the distances.
    """

    name = "podnet"
    kind = ProxyNetwork
    later_defaults = GRADIENT_DESCENT

    n_exemplars: int = 5
    balanced: dict | None = None
    spatial: float = 3.0
    flat: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exemplars(self.n_exemplars)
        for name, value in (("spatial", self.spatial), ("flat", self.flat)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be finite and at least 0, got {value}")
        self._balanced_settings = self._session_settings("balanced", _BALANCED, self.balanced)

    def _begun(self, classifier: GrowingClassifier, base: Rows, aside: Rows) -> Exemplars:
        return Exemplars(base.x, base.y).herded(lambda x: base.embeddings, classifier.n_classes, self.n_exemplars)

    def _continued(
        self, known: Known[Exemplars], x: Tensor, y: Tensor, n_classes: int
    ) -> tuple[GrowingClassifier, Exemplars]:
        classifier = self._larger(known, Rows(x, y, self._embedded(known.classifier, x)), n_classes)
        shown = known.kept.with_rows(x, y)
        factor = (n_classes / len(y.unique())) ** 0.5
        with recorded_stages(classifier.backbone) as now, recorded_stages(known.classifier.backbone) as then:
            penalty = self._penalty(known.classifier, factor, now, then)
            self._train(classifier, *shown, self._later_settings, penalty)
        exemplars = shown.herded(lambda rows: self._embedded(classifier, rows), n_classes, self.n_exemplars)
        classifier.backbone.requires_grad_(False)
        self._train(classifier, *exemplars, self._balanced_settings)
        classifier.backbone.requires_grad_(True)
        return classifier, exemplars

    def _scores(self, classifier: GrowingClassifier, kept: Exemplars, embeddings: Tensor) -> Tensor:
        return classifier.predictor()(embeddings)

    def _outlier(self, classifier: GrowingClassifier, kept: Exemplars, embeddings: Tensor) -> Tensor:
        assert isinstance(classifier, ProxyNetwork)
        return -classifier.scores(embeddings).amax(-1)

    def _memory(self, classifier: GrowingClassifier, kept: Exemplars) -> tuple[int, int]:
        return 1, head_numbers(classifier) - 1 + kept.numbers()

    def _penalty(self, old: GrowingClassifier, factor: float, now: list[Tensor], then: list[Tensor]) -> Penalty:
        """`now` and `then` hold what the stages of the new and of the old network gave in their last pass."""

        def penalty(x: Tensor, embeddings: Tensor) -> Tensor:
            with torch.no_grad():
                target = old.encoded(x)
            distance = self.flat * embedding_distance(embeddings, target)
            if now:  # a backbone for vectors has no stages
                distance = distance + self.spatial * pooled_maps_distance(now, then)
            return factor * distance

        return penalty
