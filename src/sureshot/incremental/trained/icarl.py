"""iCaRL: exemplars, distillation of old outputs, and the nearest mean of exemplars.

A session trains on its rows and the exemplars: cross-entropy on all classes, and the divergence of the outputs on old
classes from what the network said before the session, at temperature 2. Then each class's exemplars are chosen by
herding, and a row belongs to the class whose exemplars' mean is nearest, embeddings scaled to unit length.

The published losses are a sigmoid for each class; softmax with a tempered divergence is what later work compares with
under this name. Probabilities are the softmax of cosines with the means, multiplied by a scale that is fitted once, to
base rows kept aside.

Reference: Rebuffi, Kolesnikov, Sperl & Lampert, "iCaRL: incremental classifier and representation learning" (2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.deep import GrowingClassifier, SoftmaxNetwork
from sureshot.deep.training import Penalty
from sureshot.incremental.trained.base import GRADIENT_DESCENT, Known, NetworkMethod, Rows
from sureshot.incremental.trained.distillation import output_divergence
from sureshot.incremental.trained.exemplars import Exemplars
from sureshot.incremental.trained.fine_tuning import head_numbers, logits
from sureshot.incremental.trained.mean_cosines import cosines, fitted_scale, mean_directions

_TEMPERATURE = 2.0


class ExemplarMeans(NamedTuple):
    """What is kept beside the network."""

    exemplars: Exemplars
    means: Tensor  # (C, D) float64, of the exemplars, by the network as it is
    scale: float  # of cosines


@dataclass(kw_only=True, eq=False)
class ICaRL(NetworkMethod[ExemplarMeans]):
    """See the module.

    Attributes
    ----------
    n_exemplars : int
        Of each class.
    """

    name = "icarl"
    kind = SoftmaxNetwork
    later_defaults = GRADIENT_DESCENT

    n_exemplars: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exemplars(self.n_exemplars)

    def _begun(self, classifier: GrowingClassifier, base: Rows, aside: Rows) -> ExemplarMeans:
        exemplars = Exemplars(base.x, base.y).herded(lambda x: base.embeddings, classifier.n_classes, self.n_exemplars)
        means = self._means(classifier, exemplars)
        return ExemplarMeans(exemplars, means, fitted_scale(cosines(aside.embeddings, means), aside.y))

    def _continued(
        self, known: Known[ExemplarMeans], x: Tensor, y: Tensor, n_classes: int
    ) -> tuple[GrowingClassifier, ExemplarMeans]:
        classifier = self._larger(known, Rows(x, y, self._embedded(known.classifier, x)), n_classes)
        shown = known.kept.exemplars.with_rows(x, y)
        self._train(classifier, *shown, self._later_settings, distillation(classifier, known.classifier))
        exemplars = shown.herded(lambda rows: self._embedded(classifier, rows), n_classes, self.n_exemplars)
        return classifier, ExemplarMeans(exemplars, self._means(classifier, exemplars), known.kept.scale)

    def _scores(self, classifier: GrowingClassifier, kept: ExemplarMeans, embeddings: Tensor) -> Tensor:
        return kept.scale * cosines(embeddings, kept.means)

    def _outlier(self, classifier: GrowingClassifier, kept: ExemplarMeans, embeddings: Tensor) -> Tensor:
        return 1 - cosines(embeddings, kept.means).amax(-1)

    def _memory(self, classifier: GrowingClassifier, kept: ExemplarMeans) -> tuple[int, int]:
        return 1, head_numbers(classifier) + kept.exemplars.numbers() + kept.means.numel()

    def _means(self, classifier: GrowingClassifier, exemplars: Exemplars) -> Tensor:
        return mean_directions(self._embedded(classifier, exemplars.x), exemplars.y, classifier.n_classes)[0]


def distillation(new: GrowingClassifier, old: GrowingClassifier) -> Penalty:
    """What a network says otherwise of the classes that it knew."""

    def penalty(x: Tensor, embeddings: Tensor) -> Tensor:
        with torch.no_grad():
            then = logits(old, old.encoded(x))
        return output_divergence(logits(new, embeddings)[:, : old.n_classes], then, _TEMPERATURE)

    return penalty


def check_exemplars(n_exemplars: int) -> None:
    """ValueError if there would be none."""
    if n_exemplars < 1:
        raise ValueError(f"n_exemplars must be at least 1, got {n_exemplars}")
