"""Cells that train in a moment on random embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from experiments.campaigns.few_shot import Examination, FewShotCell
from sureshot.data.labelled import FewShotData, LabelledSet
from sureshot.meta.evaluation import timing
from sureshot.meta.protocols import EpisodeProtocol
from sureshot.meta.training import TrainingConfig

MakeCell = Callable[..., FewShotCell]


def _embeddings(n_classes: int, seed: int, n_rows: int = 8) -> LabelledSet:
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(n_classes, 1, 6, generator=generator)
    x = (means + 0.7 * torch.randn(n_classes, n_rows, 6, generator=generator)).flatten(0, 1)
    return LabelledSet(
        x, torch.arange(n_classes).repeat_interleave(n_rows), tuple(f"class {k}" for k in range(n_classes))
    )


@pytest.fixture(scope="module", autouse=True)
def _few_repetitions() -> Iterator[None]:
    """Of what is timed: times are no part of any result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "_REPETITIONS", 1)
        yield


@pytest.fixture(scope="session")
def data() -> FewShotData:
    return FewShotData(_embeddings(10, 0), _embeddings(6, 1), _embeddings(6, 2), "tiny", "random embeddings")


@pytest.fixture(scope="session")
def make_cell() -> MakeCell:
    def make(key: str = "cell", n_tasks: int = 10, learner: str = "protonet", **training: Any) -> FewShotCell:
        config = TrainingConfig.from_dict(
            {
                "data": {"name": "tiny"},
                "episodes": {"way": 3, "shots": 1, "queries": 3},
                "backbone": {"name": "linear"},
                "learner": {"name": learner, "preset": "paper"},
                "training": {"episodes": 8, "checkpoint_every": 2, **training},
                "validation": {"every": 4, "tasks": 5, "queries": 3},
            }
        )
        labels: dict[str, str | int] = {
            "learner": learner,
            "preset": "paper",
            "kernel": "cosine",
            "shots": 1,
            "seed": 0,
            "budget": "standard",
            "precision": "float32",
        }
        examination = Examination("3-way 1-shot", EpisodeProtocol(3, 1, 3), n_tasks, out_of_episode=5, robustness=0)
        return FewShotCell(key, labels, config, (examination,))

    return make
