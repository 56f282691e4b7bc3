"""A trainee without episodes: a softmax network on rows of four clusters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sureshot.networks import (
    LoopSettings,
    Progress,
    Scores,
    Trainable,
    Trained,
    differing_settings,
    milestones,
    processes,
    train,
)
from sureshot.networks.backbones import make_backbone
from sureshot.networks.seeds import generator_for

N_CLASSES = 4


def rows(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % N_CLASSES
    return 2 * torch.eye(N_CLASSES)[y] + torch.randn(n, N_CLASSES, generator=generator), y


class SoftmaxTraining(Trainable):
    """Batches of 6 rows; noise on the inputs, so that the run's own generator matters."""

    name = "softmax"
    kind = "softmax_network"
    unit = "rows"
    units_per_step = 6

    def __init__(self, rate: float = 0.01) -> None:
        self.module = nn.Sequential(make_backbone("mlp", (N_CLASSES,), hidden=(8,)), nn.BatchNorm1d(N_CLASSES))
        self.config = {"training": {"rate": rate}}
        self.parts = {"network": {"hidden": 8}}
        self._x, self._y = rows(200, 0)

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [{"params": list(self.module.parameters()), "lr": self.config["training"]["rate"]}]

    def losses(self, step: int, share: slice, generator: torch.Generator) -> Tensor:
        chosen = torch.randperm(len(self._x), generator=generator_for(0, "rows", step))[: self.units_per_step][share]
        noise = 0.1 * torch.randn(len(chosen), N_CLASSES, generator=generator)
        return functional.cross_entropy(self.module(self._x[chosen] + noise), self._y[chosen], reduction="none")

    def differences(self, header: Mapping[str, Any]) -> list[str]:
        return differing_settings(header["config"], self.config)

    def validate(self) -> Scores:
        x, y = rows(100, 1)
        training = self.module.training
        self.module.eval()
        with torch.no_grad():
            nll = float(functional.cross_entropy(self.module(x), y))
        self.module.train(training)
        return Scores({"nll": nll}, by="nll", larger_is_better=False)


class SoftmaxByDescent(SoftmaxTraining):
    """The same by gradient descent with momentum, at rates that fall twice."""

    def optimiser(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameter_groups(), momentum=0.9, weight_decay=1e-3)

    def learning_rate_factor(self, units: int) -> float:
        return milestones(units, (60, 150))


SETTINGS = LoopSettings(length=240, checkpoint_every=90, log_every=30, validate_every=60)


def run(
    folder: Path,
    trainee: Trainable | None = None,
    settings: LoopSettings = SETTINGS,
    progress: Progress | None = None,
    resume: bool = True,
) -> Trained:
    with processes("cpu") as group:
        return train(trainee or SoftmaxTraining(), settings, folder, group, progress, resume)
