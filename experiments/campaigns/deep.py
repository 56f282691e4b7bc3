"""Cells of deep classifiers: a softmax stage that all methods of a data set and seed share, and what continues it.

A stage is a cell of its own: its result says where the branches begin, its best checkpoint is what they begin with. A
branch is run once its stage has a result.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.campaigns.cells import Cell, json_values
from experiments.experiment import Progress
from experiments.train_test import TrainTestData
from sureshot.deep import (
    ClassifierSettings,
    ClassifierTraining,
    DeepClassifier,
    GridNetwork,
    ProxyNetwork,
    RobustMaxNetwork,
    SoftmaxNetwork,
    TreeNetwork,
    TripletNetwork,
    held_out_rows,
    load_deep_classifier,
)
from sureshot.metrics import (
    accuracy,
    apply_temperature,
    expected_calibration_error,
    fit_temperature,
    negative_log_likelihood,
)
from sureshot.networks import Trained, processes, train
from sureshot.networks.backbones import make_backbone
from sureshot.networks.checkpoint import BEST_NAME, LAST_NAME, load_checkpoint

logger = logging.getLogger(__name__)

LoadTrainTest = Callable[[str], TrainTestData]
"""Data by name; a campaign keeps what it has loaded."""

STAGE = "softmax stage"
"""The method of the cells that the others continue."""


@dataclass(frozen=True)
class DeepCell(Cell):
    """A deep classifier trained on one data set from one seed."""

    key: str
    labels: dict[str, str | int]  # dataset, method, seed, budget
    data: str  # one of `experiments.train_test.TRAIN_TEST_NAMES`
    method: str  # `STAGE`, or the name of a deep classifier
    options: Mapping[str, Any]  # of the classifier, for a branch
    backbone: Mapping[str, Any]  # its name and options
    training: ClassifierSettings
    stage: DeepCell | None  # what a branch begins with
    validation: float  # share of the training rows of each class that is held out

    def settings(self) -> dict[str, Any]:
        """Everything that determines the result, as JSON values."""
        own = {
            "data": self.data,
            "method": self.method,
            "options": dict(self.options),
            "backbone": dict(self.backbone),
            "training": asdict(self.training),
            "validation": self.validation,
            "stage": None if self.stage is None else self.stage.settings(),
        }
        return json_values(own)


def run_deep(
    load: LoadTrainTest,
    device: str,
    cell: DeepCell,
    folder: Path,  # beside that of the cell's stage
    progress: Progress,
) -> dict[str, Any]:
    """Train (or resume training) and evaluate; the result for the record."""
    data = load(cell.data)
    kept = held_out_rows(data.train.y, cell.validation, cell.training.seed)
    x, y, validation = data.train.x[~kept], data.train.y[~kept], (data.train.x[kept], data.train.y[kept])
    with processes(device) as group:
        classifier = _classifier(cell, folder, x, y, data.train.n_classes, group.device)
        trainee = ClassifierTraining(classifier, x, y, cell.training, group, validation)
        last = folder / LAST_NAME
        resume = last.exists() and not trainee.differences(load_checkpoint(last, trainee.kind).header)
        started = time.perf_counter()
        trained = train(trainee, trainee.loop_settings(), folder, group, progress, resume)
        seconds = time.perf_counter() - started
        best = load_deep_classifier(trained.best).to(group.device)
        rows = trainee.rows_per_epoch
        on_validation, on_test = (_logs(best, part.to(group.device)) for part in (validation[0], data.test.x))
    temperature = fit_temperature(on_validation, validation[1].numpy())
    return {
        "training": _training(trained, rows, seconds, resume),
        "scores": scores(on_test, data.test.y.numpy()),
        "temperature": temperature,
        "scores_at_temperature": scores(apply_temperature(on_test, temperature), data.test.y.numpy()),
    }


def scores(
    logs: np.ndarray,  # (N, C), log probabilities
    y: np.ndarray,  # (N,)
) -> dict[str, float]:
    """Accuracy with its standard error, negative log-likelihood in nats and calibration error of test rows."""
    p = np.exp(logs)
    p = p / p.sum(axis=1, keepdims=True)
    right = accuracy(p, y)
    return {
        "accuracy": right,
        "accuracy_se": float((right * (1 - right) / len(y)) ** 0.5),
        "nll": negative_log_likelihood(p, y),
        "ece": expected_calibration_error(p, y),
    }


def _classifier(
    cell: DeepCell, folder: Path, x: torch.Tensor, y: torch.Tensor, n_classes: int, device: torch.device
) -> DeepClassifier:
    """The classifier before training: new, or on the backbone of its stage."""
    if cell.stage is None:
        options = dict(cell.backbone)
        backbone = make_backbone(options.pop("name"), tuple(x.shape[1:]), seed=cell.training.seed, **options)
        return SoftmaxNetwork(backbone, n_classes, seed=cell.training.seed)
    start = load_deep_classifier(folder.parent / cell.stage.key / BEST_NAME)
    if cell.method == SoftmaxNetwork.name:
        return start
    if cell.method == GridNetwork.name:
        return GridNetwork(start.backbone, n_classes, seed=cell.training.seed, **cell.options)
    embeddings = start.to(device).embeddings(x.to(device)).cpu()
    kinds = (TreeNetwork, RobustMaxNetwork, ProxyNetwork, TripletNetwork)
    build = {kind.name: kind.of_embeddings for kind in kinds}[cell.method]
    seed = cell.training.seed
    return build(start.cpu().backbone, embeddings, y, n_classes, seed=seed, **cell.options)


def _logs(classifier: DeepClassifier, x: torch.Tensor) -> np.ndarray:
    return classifier.log_probabilities(x).double().cpu().numpy()


def _training(trained: Trained, rows: int, seconds: float, resumed: bool) -> dict[str, Any]:
    epochs = trained.units // rows
    return {
        "epochs": epochs,
        "best_epoch": trained.best_units // rows,
        "validation": trained.scores,
        "large_gradients": trained.large_gradients,
        "seconds_of_last_run": seconds,
        "seconds_per_epoch": None if resumed else seconds / epochs,  # a resumed run made some of them only
    }
