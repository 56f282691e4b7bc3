"""How often an adaptation is repeated to time it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sureshot.data.labelled import LabelledSet
from sureshot.meta.baselines.prototypical import ProtoNet
from sureshot.meta.episodes import EpisodeProtocol, EpisodeSampler
from sureshot.meta.evaluation import timing
from sureshot.meta.evaluation.passes import Exam, draw_tasks
from sureshot.meta.tasks import TaskRows
from sureshot.networks.backbones import make_backbone


class Counting(ProtoNet):
    """Notes how many tasks it is conditioned on."""

    def __init__(self) -> None:
        super().__init__(make_backbone("identity", (4,)))
        self.adapted: list[int] = []

    def condition_embedded(self, support: TaskRows, generator: torch.Generator) -> Any:
        self.adapted.append(len(support.y))
        return super().condition_embedded(support, generator)


@pytest.mark.parametrize(("limit", "times"), [(0.0, 2), (1e6, 22)])
def test_a_slow_learner_is_not_repeated(
    limit: float, times: int, data: LabelledSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "_SECONDS", limit)
    sampler = EpisodeSampler(data, EpisodeProtocol(3, 1, 2))
    rows = draw_tasks(sampler, 4, torch.Generator().manual_seed(0))
    learner = Counting()
    found = timing.measure_adaptation(learner, Exam(sampler, rows, 4), data.x)
    assert learner.adapted == [1] * times + [4] * times
    assert found.single > 0
    assert found.batched > 0
