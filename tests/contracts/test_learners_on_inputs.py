"""A learner needs no embeddings that could be cached: one on inputs is trained, validated, evaluated and compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sureshot import networks
from sureshot.data.labelled import FewShotData, LabelledSet
from sureshot.meta.baselines import ProtoNet
from sureshot.meta.episodes import EpisodeProtocol, EpisodeSampler
from sureshot.meta.evaluation import Evaluation, compare, evaluate
from sureshot.meta.learners import ClassLearner, EmbeddingLearner, Latents, TaskPosterior
from sureshot.meta.tasks import TaskRows, Tasks
from sureshot.meta.training import EpisodicTraining, TrainingConfig, load_checkpoint, read_log
from sureshot.networks import Trained, processes
from sureshot.networks.backbones import make_backbone
from sureshot.networks.checkpoint import restore

WIDTH = 6


@dataclass(frozen=True)
class Heads(TaskPosterior):
    """A linear layer for each task."""

    weight: Tensor  # (T, D, C)
    class_mask: Tensor | None

    def _logits(self, query: Tensor) -> Tensor:
        logits = query.flatten(2) @ self.weight
        return logits if self.class_mask is None else logits.masked_fill(~self.class_mask.unsqueeze(1), -torch.inf)

    def predict(self, query: Tensor) -> Tensor:
        return self._logits(query).softmax(-1)

    def latents(self, query: Tensor) -> Latents:
        logits = self._logits(query)
        return Latents(logits, torch.zeros_like(logits))


class OneStep(ClassLearner):
    """One step down the gradient of a linear layer that starts at zero; the step's size in each input is learnt."""

    config = {"name": "one_step"}  # noqa: RUF012

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.full((width,), 0.1))

    @property
    def network(self) -> None:
        return None

    def input_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        heads = self._heads(tasks.support)
        chosen = heads.predict(tasks.query_x).gather(-1, tasks.query_y.unsqueeze(-1)).squeeze(-1)
        real = torch.ones_like(chosen) if tasks.query_mask is None else tasks.query_mask.to(chosen)
        return -(chosen.clamp_min(1e-9).log() * real).sum(-1) / real.sum(-1)

    def condition_inputs(self, support: TaskRows, generator: torch.Generator) -> Heads:
        return self._heads(support)

    def _heads(self, support: TaskRows) -> Heads:
        slope = functional.one_hot(support.y, support.n_classes) - 1 / support.n_classes  # minus that in the logits
        if support.mask is not None:
            slope = slope * support.mask.unsqueeze(-1)
        return Heads(self.rate.unsqueeze(-1) * (support.x.flatten(2).mT @ slope), support.class_mask)


def labelled(n_classes: int, seed: int) -> LabelledSet:
    """Rows about class means that differ in the first three inputs; the others are large noise."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n_classes).repeat_interleave(12)
    means = torch.randn(n_classes, WIDTH, generator=generator) * torch.tensor([3.0, 3.0, 3.0, 0.0, 0.0, 0.0])
    noise = torch.randn(len(y), WIDTH, generator=generator) * torch.tensor([1.0, 1.0, 1.0, 6.0, 6.0, 6.0])
    return LabelledSet(means[y] + noise, y, tuple(f"class {k}" for k in range(n_classes)))


DATA = FewShotData(labelled(12, 0), labelled(8, 1), labelled(8, 2), "vectors", "three inputs that matter, three do not")
CONFIG = TrainingConfig.from_dict(
    {
        "data": {"name": "vectors"},
        "learner": {"name": "one_step"},
        "episodes": {"way": 3, "shots": 2, "queries": 5},
        "training": {"episodes": 120, "episodes_per_step": 4, "learning_rate_kernel": 0.01, "checkpoint_every": 40},
        "validation": {"every": 40, "tasks": 30, "queries": 5, "select_by": "nll"},
    }
)


def train(learner: ClassLearner, folder: Path, config: TrainingConfig = CONFIG) -> Trained:
    with processes("cpu") as group:
        return networks.train(EpisodicTraining(learner, config, DATA, group), config.loop_settings(), folder, group)


def short(learner: ClassLearner, **options: object) -> Evaluation:
    settings = {"n_tasks": 60, "out_of_episode": 20, "robustness": 0, "timing": False} | options
    return evaluate(learner, DATA.test, EpisodeProtocol(3, 2, 5), **settings)  # type: ignore[arg-type]


def test_it_is_trained_and_validated_by_the_loop(tmp_path: Path) -> None:
    learner = OneStep()
    before = short(learner)
    run = train(learner, tmp_path)
    validations = [record["nll"] for record in read_log(tmp_path) if record["kind"] == "validation"]
    assert (len(validations), run.scores["nll"]) == (3, min(validations))
    assert learner.rate[:3].min() > learner.rate[3:].max()  # noise is not stepped along
    assert short(learner).calibration["none"].nll.mean < before.calibration["none"].nll.mean


def test_its_checkpoints_resume_and_hold_it(tmp_path: Path) -> None:
    whole, parts = OneStep(), OneStep()
    train(whole, tmp_path / "whole")
    train(OneStep(), tmp_path / "parts", replace(CONFIG, training=replace(CONFIG.training, episodes=40)))
    run = train(parts, tmp_path / "parts")
    assert torch.equal(parts.rate, whole.rate)
    checkpoint = load_checkpoint(run.last)
    assert (checkpoint.learner, checkpoint.backbone, checkpoint.episodes) == ({"name": "one_step"}, {}, 120)
    restored = OneStep()
    restore(checkpoint.artifact, restored)
    assert torch.equal(restored.rate, whole.rate)


def test_it_is_evaluated_like_any_other() -> None:
    found = short(OneStep(), validation=DATA.val, validation_tasks=20, timing=True)
    assert set(found.calibration) == {"none", "temperature"}
    assert found.out_of_episode is not None
    assert found.time is not None
    assert 1 / 3 < found.accuracy.mean < 1
    assert [short(OneStep(), batch_size=n).accuracy.mean for n in (7, 60)] == [found.accuracy.mean] * 2


def test_tasks_are_adapted_to_alone() -> None:
    learner, sampler = OneStep(), EpisodeSampler(DATA.test, EpisodeProtocol(3, 2, 5))
    tasks = sampler.sample(5, torch.Generator().manual_seed(0))
    together = learner.condition(tasks.support_x, tasks.support_y).predict(tasks.query_x)
    for t in range(5):
        alone = learner.condition(tasks.support_x[t : t + 1], tasks.support_y[t : t + 1])
        torch.testing.assert_close(alone.predict(tasks.query_x[t : t + 1])[0], together[t])


def test_corrupted_images_reach_it() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(6).repeat_interleave(8)
    x = (torch.rand(6, 1, 16, 16, generator=generator)[y] + torch.rand(48, 1, 16, 16, generator=generator)) * 127
    images = LabelledSet(x.to(torch.uint8), y, tuple("abcdef"))
    found = evaluate(
        OneStep(256), images, EpisodeProtocol(3, 1, 4), n_tasks=20, out_of_episode=0, robustness=20, severities=(5,)
    ).robustness
    assert found is not None
    assert any(scores.accuracy_change.mean != 0 for scores in found.scores)


def test_it_is_compared_with_learners_on_embeddings() -> None:
    other = ProtoNet(make_backbone("identity", (WIDTH,)))
    assert isinstance(other, EmbeddingLearner)
    found = compare(
        {"one step": OneStep(), "prototypes": other}, DATA.test, EpisodeProtocol(3, 2, 5), n_tasks=20, robustness=0
    )
    assert found.differences["prototypes"].accuracy.standard_error > 0


def test_tasks_of_many_sizes() -> None:
    protocol = EpisodeProtocol((2, 4), (1, 3), 4, unbalanced=True)
    losses = OneStep()(EpisodeSampler(DATA.train, protocol).sample(4, torch.Generator().manual_seed(0)))
    assert losses.shape == (4,)
    assert bool(torch.isfinite(losses).all())


def test_mistakes_are_refused_as_for_any_other() -> None:
    learner, x, y = OneStep(), torch.zeros(1, 2, WIDTH), torch.tensor([[0, 1]])
    with pytest.raises(ValueError, match="one class only"):
        learner.condition(x, 0 * y)
    with pytest.raises(ValueError, match="support_x has NaN or infinite numbers"):
        learner.condition(x / 0, y)
    with pytest.raises(ValueError, match="OneStep has no temperature of its own"):
        learner.set_temperature(2.0)
