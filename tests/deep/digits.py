"""Handwritten digits, a small backbone that a softmax stage has trained on them, and every network on it."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from sklearn.datasets import load_digits
from torch import Tensor

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
from sureshot.networks import Trained, processes, train
from sureshot.networks.backbones import make_backbone

SOFTMAX = ClassifierSettings(epochs=6, batch_size=64, learning_rate=0.1)
SETTINGS = {
    "softmax": replace(SOFTMAX, epochs=4, learning_rate=0.01),
    "class_tree": ClassifierSettings(epochs=4, batch_size=64, learning_rate=0.01),
    "robust_max": ClassifierSettings(
        epochs=4, batch_size=64, optimiser="adam", learning_rate=1e-3, own_learning_rate=0.03
    ),
    "grid_interpolation": ClassifierSettings(
        epochs=6, batch_size=64, optimiser="adam", learning_rate=1e-3, own_learning_rate=0.1
    ),
    "cosine_proxies": ClassifierSettings(epochs=4, batch_size=64, learning_rate=0.1),
    "triplet": ClassifierSettings(epochs=4, batch_size=64, learning_rate=0.01),
}
NAMES = tuple(SETTINGS)


@lru_cache(maxsize=1)
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training rows and labels, held-out rows and labels."""
    found = load_digits()
    x, y = torch.tensor(found.data / 16).float(), torch.tensor(found.target)
    held_out = held_out_rows(y, 0.3)
    return x[~held_out], y[~held_out], x[held_out], y[held_out]


def run(classifier: DeepClassifier, settings: ClassifierSettings, folder: Path) -> Trained:
    x, y, *validation = digits()
    with processes("cpu") as group:
        trainee = ClassifierTraining(classifier, x, y, settings, group, (validation[0], validation[1]))
        return train(trainee, trainee.loop_settings(), folder, group)


@lru_cache(maxsize=1)
def _pretrained() -> tuple[DeepClassifier, float]:
    backbone = make_backbone("mlp", (64,), hidden=(32,), n_features=8)
    with TemporaryDirectory() as folder:
        trained = run(SoftmaxNetwork(backbone, 10), SOFTMAX, Path(folder))
        return load_deep_classifier(trained.best), trained.scores["accuracy"]


def pretrained_accuracy() -> float:
    return _pretrained()[1]


def network(name: str) -> DeepClassifier:
    """A new one on the pretrained backbone."""
    return copy.deepcopy(_network(name))


@lru_cache
def _network(name: str) -> DeepClassifier:
    softmax = copy.deepcopy(_pretrained()[0])
    x, y, *_ = digits()
    if name == "softmax":
        return softmax
    if name == "grid_interpolation":
        return GridNetwork(softmax.backbone, 10, grid_size=16)
    if name == "triplet":
        return TripletNetwork.of_embeddings(softmax.backbone, softmax.embeddings(x), y, 10)
    kind = {"class_tree": TreeNetwork, "robust_max": RobustMaxNetwork, "cosine_proxies": ProxyNetwork}[name]
    return kind.of_embeddings(softmax.backbone, softmax.embeddings(x), y, 10, per_class=4)
