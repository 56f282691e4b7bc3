"""Tiny images of many classes, and a run on them that takes a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from sureshot.data.labelled import FewShotData, LabelledSet
from sureshot.meta.training import TrainingConfig


def tiny_images(n_classes: int, seed: int, n_rows: int = 10) -> LabelledSet:
    """16x16 images, a random pattern for each class under noise."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.rand(n_classes, 1, 1, 16, 16, generator=generator)
    noise = torch.rand(n_classes, n_rows, 1, 16, 16, generator=generator)
    x = (patterns + noise).mul(127).to(torch.uint8).flatten(0, 1)
    y = torch.arange(n_classes).repeat_interleave(n_rows)
    return LabelledSet(x, y, tuple(f"pattern {k}" for k in range(n_classes)))


def tiny_data() -> FewShotData:
    return FewShotData(tiny_images(12, 0), tiny_images(6, 1), tiny_images(6, 2), "tiny", "random patterns")


def tiny_config(**sections: dict[str, Any]) -> TrainingConfig:
    """ProtoNet with a Conv4 of 4 filters, 24 episodes of 3-way 1-shot; sections are merged in."""
    tables: dict[str, dict[str, Any]] = {
        "data": {"name": "tiny"},
        "episodes": {"way": 3, "shots": 1, "queries": 3},
        "backbone": {"name": "conv4", "options": {"n_filters": 4}},
        "learner": {"name": "protonet"},
        "training": {"episodes": 24, "episodes_per_step": 2, "checkpoint_every": 6, "log_every": 4},
        "validation": {"every": 8, "tasks": 20, "queries": 3},
    }
    for name, table in sections.items():
        tables[name] = tables.get(name, {}) | table
    return TrainingConfig.from_dict(tables)


Configure = Callable[..., TrainingConfig]


@pytest.fixture(scope="session")
def configure() -> Configure:
    return tiny_config


@pytest.fixture(scope="session")
def data() -> FewShotData:
    return tiny_data()
