"""A deep classifier on labelled rows, as the training loop takes it.

An epoch goes through the rows in an order that depends on the seed and the epoch alone, in batches of one size; what
does not fill a batch is left out of that epoch. Rows kept aside (`held_out_rows`) choose the checkpoint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from sureshot.data.labelled import digest, places_within_classes
from sureshot.deep.augmentation import random_crops, random_flips
from sureshot.deep.base import DeepClassifier
from sureshot.likelihoods.sites import check_labels
from sureshot.networks import LoopSettings, Processes, Scores, Trainable, differing_settings, milestones
from sureshot.networks.backbones import as_inputs
from sureshot.networks.precision import Precision, check_precision
from sureshot.networks.seeds import generator_for
from sureshot.ranges import check_counts, check_positive

Penalty = Callable[[Tensor, Tensor], Tensor]
"""Of inputs (B, ...) as the backbone takes them and their embeddings (B, D), differentiable: what is added (B,)."""

KIND = "deep_classifier"
_MAY_DIFFER = {("training", "epochs")}


@dataclass(frozen=True)
class ClassifierSettings:
    """How to train; the defaults are those of Achituve et al. (2021, appendix C.2) for softmax on CIFAR."""

    epochs: int = 200
    batch_size: int = 256
    optimiser: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 0.1
    own_learning_rate: float | None = None  # of `DeepClassifier.own_parameters`; by default that of the network
    momentum: float = 0.9  # of "sgd"
    weight_decay: float = 0.0  # of the network's weights
    milestones: tuple[int, ...] = (100, 150)  # epochs from which on the learning rates are a tenth
    crop: int = 0  # pixels by which training images are moved at most; 0 for none
    flip: bool = False  # training images also seen in a mirror
    validate_every: int = 1  # epochs; 0 for no validation
    select_by: Literal["accuracy", "nll"] = "accuracy"
    precision: Precision = "float32"  # of the backbone
    seed: int = 0  # of the order of rows and of the noise

    def __post_init__(self) -> None:
        check_counts(1, epochs=self.epochs, batch_size=self.batch_size)
        check_counts(0, crop=self.crop, validate_every=self.validate_every, seed=self.seed)
        check_positive(learning_rate=self.learning_rate, own_learning_rate=self.own_learning_rate)
        if self.optimiser not in ("sgd", "adam"):
            raise ValueError(f"optimiser must be 'sgd' or 'adam', got {self.optimiser!r}")
        if self.select_by not in ("accuracy", "nll"):
            raise ValueError(f"select_by must be 'accuracy' or 'nll', got {self.select_by!r}")
        check_precision(self.precision)


class ClassifierTraining(Trainable):
    """A deep classifier, the rows it is trained on, and those that choose its checkpoint."""

    kind = KIND
    unit = "rows"
    advice = "try a lower learning_rate or own_learning_rate"

    def __init__(
        self,
        classifier: DeepClassifier,
        x: Tensor,  # (N, ...), bytes of images or floats
        y: Tensor,  # (N,) int64
        settings: ClassifierSettings,
        group: Processes,
        validation: tuple[Tensor, Tensor] | None = None,  # rows and labels kept aside
        penalty: Penalty | None = None,  # added to the losses
        batch_statistics: bool = True,  # of batch normalisation; False for running ones, where rows are few
    ) -> None:
        if len(x) != len(y) or not len(x):
            raise ValueError(f"x and y must have the same number of rows, at least one, got {len(x)} and {len(y)}")
        check_labels(y, classifier.n_classes)
        if settings.validate_every and validation is None:
            raise ValueError("validation rows are missing: keep some aside (held_out_rows), or set validate_every to 0")
        if group.count > 1 and classifier.one_process:
            raise ValueError(
                f"{classifier.name} is trained by one process, not {group.count}: {classifier.one_process}"
            )
        self.name = classifier.name
        self.module = self.classifier = classifier.to(group.device)
        classifier.precision = settings.precision
        self.settings = settings
        self.units_per_step = min(settings.batch_size, len(x))
        self.config = {
            "training": {key: _plain(value) for key, value in dataclasses.asdict(settings).items()},
            "classifier": classifier.config,
            "data": {"rows": len(x), "validation_rows": 0 if validation is None else len(validation[0])},
        }
        parts = (x, y) if validation is None else (x, y, *validation)
        self.parts = {"classifier": classifier.config, "rows": digest(parts)}
        self._x, self._y = x.to(group.device), y.to(group.device)
        self._validation = None if validation is None else tuple(part.to(group.device) for part in validation)
        self._order = (-1, y)  # of the rows, and the epoch it is of
        self._penalty, self._batch_statistics = penalty, batch_statistics

    @property
    def rows_per_epoch(self) -> int:
        """Rows that an epoch trains on: whole batches."""
        return len(self._x) // self.units_per_step * self.units_per_step

    def loop_settings(self, **others: Any) -> LoopSettings:
        """The loop's settings for all epochs: a checkpoint after every one, unless `others` say otherwise."""
        epoch = self.rows_per_epoch
        chosen = {
            "length": self.settings.epochs * epoch,
            "seed": self.settings.seed,
            "checkpoint_every": epoch,
            "log_every": epoch,
            "validate_every": self.settings.validate_every * epoch,
        }
        return LoopSettings(**(chosen | others))

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The network's weights, with weight decay, and what the classifier has beside them, without."""
        settings, own = self.settings, self.classifier.own_parameters()
        others = {id(parameter) for parameter in own}
        network = [p for p in self.module.parameters() if id(p) not in others and p.requires_grad]
        groups = [
            {"params": network, "lr": settings.learning_rate, "weight_decay": settings.weight_decay},
            {"params": own, "lr": settings.own_learning_rate or settings.learning_rate, "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        if not groups:
            raise ValueError(f"{self.name} has no parameter to learn")
        return groups

    def optimiser(self) -> torch.optim.Optimizer:
        """Gradient descent with momentum, or Adam."""
        if self.settings.optimiser == "adam":
            return torch.optim.Adam(self.parameter_groups())
        return torch.optim.SGD(self.parameter_groups(), momentum=self.settings.momentum)

    def learning_rate_factor(self, units: int) -> float:
        """A tenth from each milestone on."""
        return milestones(units, [epoch * self.rows_per_epoch for epoch in self.settings.milestones])

    def losses(self, step: int, share: slice, generator: torch.Generator) -> Tensor:
        """Of one batch, augmented."""
        chosen = self._batch(step)[share].to(self._y.device)
        x = self._x[chosen]
        if self.settings.crop:
            x = random_crops(x, self.settings.crop, generator)
        if self.settings.flip:
            x = random_flips(x, generator)
        x = as_inputs(x)
        self.classifier.train(self._batch_statistics)
        embeddings = self.classifier.encoded(x)
        losses = self.classifier.embedded_losses(embeddings, self._y[chosen], generator, len(self._x))
        return losses if self._penalty is None else losses + self._penalty(x, embeddings)

    def differences(self, header: Mapping[str, Any]) -> list[str]:
        """Of settings, architecture and data; a run may be made longer."""
        found = differing_settings(header["config"], self.config, _MAY_DIFFER)
        if not found and header.get("rows", self.parts["rows"]) != self.parts["rows"]:
            found.append("the rows were others then")
        return found

    def validate(self) -> Scores:
        """Accuracy, and negative log-likelihood in nats, of the rows kept aside."""
        assert self._validation is not None
        x, y = self._validation
        logs = self.classifier.log_probabilities(x)
        nll = -logs.gather(1, y.unsqueeze(1)).mean()
        accuracy = (logs.argmax(1) == y).double().mean()
        by = self.settings.select_by
        return Scores({"accuracy": float(accuracy), "nll": float(nll)}, by, larger_is_better=by == "accuracy")

    def _batch(self, step: int) -> Tensor:
        epoch, place = divmod(step, self.rows_per_epoch // self.units_per_step)
        if self._order[0] != epoch:
            generator = generator_for(self.settings.seed, "rows", epoch)
            self._order = (epoch, torch.randperm(len(self._x), generator=generator))
        begin = place * self.units_per_step
        return self._order[1][begin : begin + self.units_per_step]


def held_out_rows(
    y: Tensor,  # (N,) int64
    fraction: float,  # of each class, rounded, of the classes with two rows or more at least one and never all
    seed: int = 0,
) -> Tensor:
    """Which rows to keep aside, (N,) bool: drawn class by class."""
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must lie between 0 and 1, got {fraction}")
    size = torch.bincount(y)
    wanted = (size * fraction).round().long().clamp_min(1).minimum((size - 1).clamp_min(0))
    order = torch.randperm(len(y), generator=generator_for(seed, "held out")).to(y.device)
    return places_within_classes(y, order) < wanted[y]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
