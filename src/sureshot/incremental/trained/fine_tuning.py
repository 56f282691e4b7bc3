"""Fine-tuning: each session trains the whole network on what it brings, and nothing else.

The lower reference of class-incremental learning: nothing is kept, so what was known is overwritten. Probabilities are
those of softmax.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sureshot.deep import GrowingClassifier, SoftmaxNetwork
from sureshot.incremental.trained.base import GRADIENT_DESCENT, Known, NetworkMethod, Rows


@dataclass(kw_only=True, eq=False)
class FineTuning(NetworkMethod[None]):
    """Softmax, trained on each session in turn."""

    name = "fine_tuning"
    kind = SoftmaxNetwork
    later_defaults = GRADIENT_DESCENT

    def _begun(self, classifier: GrowingClassifier, base: Rows, aside: Rows) -> None:
        return None

    def _continued(self, known: Known[None], x: Tensor, y: Tensor, n_classes: int) -> tuple[GrowingClassifier, None]:
        classifier = self._larger(known, Rows(x, y, self._embedded(known.classifier, x)), n_classes)
        self._train(classifier, x, y, self._later_settings)
        return classifier, None

    def _scores(self, classifier: GrowingClassifier, kept: None, embeddings: Tensor) -> Tensor:
        return logits(classifier, embeddings)

    def _outlier(self, classifier: GrowingClassifier, kept: None, embeddings: Tensor) -> Tensor:
        return -logits(classifier, embeddings).amax(-1)

    def _memory(self, classifier: GrowingClassifier, kept: None) -> tuple[int, int]:
        return 0, head_numbers(classifier)


def logits(classifier: GrowingClassifier, embeddings: Tensor) -> Tensor:
    """Of a softmax network (Q, C)."""
    assert isinstance(classifier, SoftmaxNetwork)
    found: Tensor = classifier.linear(embeddings)
    return found


def head_numbers(classifier: GrowingClassifier) -> int:
    """Numbers of a network beside its backbone."""
    numbers = [value.numel() for name, value in classifier.state_dict().items() if not name.startswith("backbone.")]
    return sum(numbers)
