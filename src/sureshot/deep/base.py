"""What every deep classifier offers: losses of labelled rows to train by, and log probabilities of classes.

A deep classifier owns its backbone. It is trained on batches of rows in training mode, where batch normalisation takes
its statistics from the batch; whoever asks it for embeddings or probabilities gets them in evaluation mode, so that an
answer depends on its row alone.

To add one, write a module beside this one: derive from `DeepClassifier`, state the `name`, and write
`embedded_losses`, `predictor` and `from_config`; `tests/deep/test_contract.py` has a case for each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sureshot.networks.backbones import Backbone, as_inputs
from sureshot.networks.precision import Precision, encode
from sureshot.ranges import check_counts

Predictor = Callable[[Tensor], Tensor]
"""From embeddings (B, D) to log probabilities of the classes (B, C)."""


class DeepClassifier(nn.Module, ABC):
    """A backbone, and what makes probabilities of its embeddings."""

    name: ClassVar[str]
    """The public name; `load_deep_classifier` finds the class by it."""

    one_process: ClassVar[str | None] = None
    """Why it cannot be trained by several processes; None if it can."""

    precision: Precision = "float32"
    """Of the backbone's passes; whoever trains sets it, a loaded classifier is in float32."""

    config: dict[str, Any]
    """What `from_config` builds it again from, as JSON values; the name and the backbone's are among them."""

    def __init__(
        self,
        backbone: Backbone,
        n_classes: int,
        options: Mapping[str, Any],  # everything else of the config
    ) -> None:
        super().__init__()
        check_counts(2, n_classes=n_classes)
        self.backbone = backbone
        self.n_classes = n_classes
        self.config = {"name": self.name, "backbone": backbone.config, "n_classes": n_classes, **options}

    @classmethod
    @abstractmethod
    def from_config(cls, config: Mapping[str, Any]) -> DeepClassifier:
        """A classifier of the same architecture, whose state is to be loaded."""

    @abstractmethod
    def embedded_losses(
        self,
        embeddings: Tensor,  # (B, D), of a batch of rows, as `encoded` gives them
        y: Tensor,  # (B,) int64
        generator: torch.Generator,  # for what is sampled, on the module's device
        n_rows: int,  # N, how many rows are trained on in all
    ) -> Tensor:
        """Losses (B,), differentiable, whose mean is the loss of the step.

        What is not learnt along the gradient takes its own step here.
        """

    @abstractmethod
    def predictor(self) -> Predictor:
        """A function for many batches of embeddings, by the parameters as they are now."""

    def own_parameters(self) -> list[nn.Parameter]:
        """Those that are no weights of a network: of kernels, of Gaussians, inducing points.

        They have a learning rate of their own and no weight decay.
        """
        return []

    def losses(self, x: Tensor, y: Tensor, generator: torch.Generator, n_rows: int) -> Tensor:
        """`embedded_losses` of rows (B, ...), as the backbone takes them."""
        return self.embedded_losses(self.encoded(x), y, generator, n_rows)

    def encoded(self, x: Tensor) -> Tensor:
        """Embeddings (B, D) of a batch (B, ...), differentiable, in the classifier's mode and precision."""
        return encode(self.backbone, x, self.precision)

    @torch.no_grad()
    def embeddings(self, x: Tensor, at_once: int = 512) -> Tensor:
        """Embeddings (N, D) of rows (N, ...), bytes or floats, in evaluation mode."""
        with self._evaluating():
            return torch.cat([self.encoded(as_inputs(part)) for part in x.split(at_once)])

    @torch.no_grad()
    def log_probabilities(self, x: Tensor, at_once: int = 512) -> Tensor:
        """Log probabilities (N, C) of the classes at rows (N, ...), in evaluation mode."""
        with self._evaluating():
            predict = self.predictor()
            return torch.cat([predict(self.encoded(as_inputs(part))) for part in x.split(at_once)])

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(training)


def check_every_class(y: Tensor, classes: range) -> None:
    """Refuse labels (N,) that do not have each of the classes, or have some that are neither of them nor below."""
    wanted = torch.arange(classes.start, classes.stop, device=y.device)
    beyond = (y < 0) | (y >= classes.stop)
    if bool(beyond.any()) or not bool(torch.isin(wanted, y).all()):
        raise ValueError(f"y must hold each of the labels from {classes.start} to {classes.stop - 1}")
