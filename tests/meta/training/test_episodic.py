"""The loop: it learns, it resumes exactly, it says what goes wrong."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sureshot.data.labelled import FewShotData, LabelledSet, digest
from sureshot.meta.training import (
    TrainingConfig,
    TrainingResult,
    load_checkpoint,
    load_learner,
    read_log,
    train,
)
from sureshot.meta.training.episodic import build_learner
from sureshot.meta.training.task_training import parameter_groups
from sureshot.persistence import load_artifact, save_artifact

Configure = Callable[..., TrainingConfig]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def whole(configure: Configure, tmp_path_factory: pytest.TempPathFactory, data: FewShotData) -> TrainingResult:
    """A run that nothing disturbed."""
    return train(configure(), tmp_path_factory.mktemp("whole"), data=data)


def test_a_backbone_without_weights_leaves_the_kernel_to_learn(tmp_path: Path) -> None:
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    part = LabelledSet(x + torch.eye(4)[torch.arange(60) % 4] * 3, torch.arange(60) % 4, ("a", "b", "c", "d"))
    config = TrainingConfig.from_dict(
        {
            "data": {"name": "vectors"},
            "episodes": {"way": 3, "queries": 3},
            "backbone": {"name": "identity"},
            "learner": {"name": "ove_mean_field_pl"},
            "training": {"episodes": 4},
            "validation": {"every": 2, "tasks": 5, "queries": 3},
        }
    )
    result = train(config, tmp_path, data=FewShotData(part, part, part, "vectors", "four classes"))
    assert load_learner(result.best).embed(x[None]).shape == (1, 60, 4)


def test_a_run_and_its_files(whole: TrainingResult) -> None:
    assert whole.episodes == 24
    assert whole.scores is not None
    assert whole.best_episodes in (8, 16, 24)
    assert not whole.stopped_early
    assert json.loads(json.dumps(whole.as_dict()))["best"] == str(whole.best)
    records = read_log(whole.log.parent)
    training = [record for record in records if record["kind"] == "training"]
    validation = [record for record in records if record["kind"] == "validation"]
    assert [record["episodes"] for record in training] == [4, 8, 12, 16, 20, 24]
    assert [record["episodes"] for record in validation] == [8, 16, 24]
    best = next(record for record in validation if record["episodes"] == whole.best_episodes)
    assert best["best"] is True
    assert (best["accuracy"], best["nll"]) == (whole.scores.accuracy, whole.scores.nll)
    assert best["accuracy"] == max(record["accuracy"] for record in validation)


def test_training_improves_the_scores(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    config = configure(
        backbone={"options": {"n_filters": 16}},
        training={"episodes": 160, "episodes_per_step": 4, "learning_rate": 0.01, "log_every": 40},
        validation={"every": 40, "select_by": "nll", "queries": 5},
    )
    result = train(config, tmp_path, data=data)
    records = read_log(tmp_path)
    losses = [record["loss"] for record in records if record["kind"] == "training"]
    assert losses[-1] < 0.8 * losses[0]
    assert result.scores is not None
    assert result.scores.nll == min(record["nll"] for record in records if record["kind"] == "validation")
    # Better than chance on new classes. How much better is rounding's choice: a run of this size ends between 0.86 and
    # 1.04, by its seed or by the processor's order of additions.
    assert result.scores.nll < math.log(3)
    assert result.scores.accuracy > 0.45


def test_the_same_settings_give_the_same_files(
    configure: Configure, whole: TrainingResult, data: FewShotData, tmp_path: Path
) -> None:
    torch.rand(3)  # the state of the global generator is of no account
    train(configure(), tmp_path, data=data)
    assert contents(tmp_path) == contents(whole.best.parent)


@pytest.mark.parametrize("episodes", [6, 10, 18])
def test_stopping_and_resuming_changes_nothing(
    configure: Configure, whole: TrainingResult, data: FewShotData, tmp_path: Path, episodes: int
) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(what: str, fraction: float) -> None:
        if round(fraction * 24) == episodes:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(configure(), tmp_path, data=data, progress=interrupt)
    train(configure(), tmp_path, data=data)
    assert contents(tmp_path) == contents(whole.best.parent)


def test_a_warm_start_is_resumed_too(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    """What tasks carry over is part of the checkpoint; without it the rest of the run would be another."""

    class Interrupted(Exception):
        pass

    def interrupt(what: str, fraction: float) -> None:
        if round(fraction * 24) == 12:
            raise Interrupted

    warm = configure(learner={"name": "cdkt_ml", "preset": "paper"})
    train(warm, tmp_path / "whole", data=data)
    with pytest.raises(Interrupted):
        train(warm, tmp_path / "resumed", data=data, progress=interrupt)
    train(warm, tmp_path / "resumed", data=data)
    assert contents(tmp_path / "resumed") == contents(tmp_path / "whole")
    arrays = load_checkpoint(tmp_path / "whole" / "last.safetensors").artifact.arrays
    carried = {name for name in arrays if name.startswith("carried.")}
    assert carried == {f"carried.{name}" for name in ("y", "mean", "variance", "precision", "shape")}
    best = load_checkpoint(tmp_path / "whole" / "best.safetensors").artifact.arrays
    assert not any(name.startswith("carried.") for name in best)
    cold = configure(learner={"name": "cdkt_ml", "preset": "paper", "options": {"warm_start": False}})
    train(cold, tmp_path / "cold", data=data)
    assert read_log(tmp_path / "cold") != read_log(tmp_path / "whole")


def test_a_run_goes_on_with_its_rows_only(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    train(configure(training={"episodes": 4}), tmp_path, data=data)
    others = replace(data, train=replace(data.train, x=data.train.x.flip(-1)))
    with pytest.raises(ValueError, match="the rows of the training classes were others then: use another output"):
        train(configure(training={"episodes": 8}), tmp_path, data=others)
    others = replace(data, val=replace(data.val, x=data.val.x.flip(-1)))
    with pytest.raises(ValueError, match="the rows of the validation classes, which choose the best checkpoint, were"):
        train(configure(training={"episodes": 8}), tmp_path, data=others)
    before = load_checkpoint(tmp_path / "last.safetensors").artifact.header
    assert before["rows"] == digest((data.train.x, data.train.y))
    assert train(configure(training={"episodes": 8}), tmp_path, data=data).episodes == 8


def test_a_log_that_was_cut_in_the_middle_of_a_line(
    configure: Configure, whole: TrainingResult, data: FewShotData, tmp_path: Path
) -> None:
    train(configure(training={"episodes": 12}), tmp_path, data=data)
    with open(tmp_path / "metrics.jsonl", "a") as stream:
        stream.write('{"kind": "training", "epi')
    train(configure(training={"episodes": 12}), tmp_path, data=data)
    assert read_log(tmp_path)[-1]["episodes"] == 12


def test_a_finished_run_is_not_run_again(configure: Configure, whole: TrainingResult, data: FewShotData) -> None:
    before = contents(whole.best.parent)
    again = train(configure(), whole.best.parent, data=data, progress=lambda what, fraction: pytest.fail(what))
    assert again.scores == whole.scores
    assert contents(whole.best.parent) == before


def test_a_run_can_be_made_longer(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    train(configure(training={"episodes": 8}), tmp_path, data=data)
    assert train(configure(training={"episodes": 12}), tmp_path, data=data).episodes == 12


def test_other_settings_do_not_resume(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    train(configure(training={"episodes": 2}), tmp_path, data=data)
    other = configure(training={"episodes": 2, "learning_rate": 0.01})
    with pytest.raises(ValueError, match=r"training\.learning_rate = 0\.001 then, 0\.01 now"):
        train(other, tmp_path, data=data)
    train(other, tmp_path, data=data, resume=False)
    assert load_checkpoint(tmp_path / "last.safetensors").config["training"]["learning_rate"] == 0.01
    assert [record["episodes"] for record in read_log(tmp_path)] == [2, 2]


def test_a_run_that_cannot_start_leaves_the_older_one(
    configure: Configure, data: FewShotData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(configure(training={"episodes": 4}), tmp_path, data=data)
    before = contents(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    config = configure(training={"episodes": 4, "learning_rate": 0.01, "tensorboard": True})
    with pytest.raises(ImportError, match="needs TensorBoard"):
        train(config, tmp_path, data=data, resume=False)
    assert contents(tmp_path) == before


def test_early_stopping(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    # Nothing is learnt at this rate, so no validation is better than the first one by more than nothing.
    config = configure(
        training={"learning_rate": 1e-30, "learning_rate_kernel": 1e-30, "episodes": 100},
        backbone={"options": {"n_filters": 4}},
        validation={"every": 2, "patience": 2, "tasks": 5},
    )
    result = train(config, tmp_path, data=data)
    assert result.stopped_early
    validations = [record["best"] for record in read_log(tmp_path) if record["kind"] == "validation"]
    assert validations[-2:] == [False, False]
    assert result.episodes < 100
    assert train(config, tmp_path, data=data).episodes == result.episodes  # it stays stopped


def test_without_validation_the_last_is_the_best(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    result = train(configure(validation={"every": 0}, training={"episodes": 4}), tmp_path, data=data)
    assert result.scores is None
    assert result.best_episodes == 4
    best, last = load_learner(result.best).state_dict(), load_learner(result.last).state_dict()
    assert all(torch.equal(best[name], last[name]) for name in last)


@pytest.mark.parametrize("name", ["feature_transfer", "cdkt_pl"])
def test_learners_of_other_kinds(configure: Configure, data: FewShotData, tmp_path: Path, name: str) -> None:
    config = configure(
        learner={"name": name}, training={"episodes": 4}, validation={"tasks": 2, "every": 4, "queries": 2}
    )
    result = train(config, tmp_path, data=data)
    learner = load_learner(tmp_path)
    assert not learner.training
    x = data.test.x[::10][:3].float().unsqueeze(0) / 255
    probabilities = learner.condition(x, torch.arange(3).unsqueeze(0)).predict(x)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(1, 3))
    assert result.episodes == 4


def test_large_gradients_are_counted(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    result = train(configure(training={"episodes": 4, "gradient_bound": 1e-9}), tmp_path, data=data)
    assert result.large_gradients == 2
    warnings = [record for record in read_log(tmp_path) if record["kind"] == "warning"]
    assert [record["count"] for record in warnings] == [1, 2]
    assert warnings[0]["gradient_norm"] > 1e-9


def test_parameters_are_in_two_groups(configure: Configure, data: FewShotData) -> None:
    config = configure(learner={"name": "cdkt_pl"}, training={"learning_rate_kernel": 1e-4})
    learner = build_learner(config, data.train)
    network, others = parameter_groups(learner, config)
    assert {id(p) for p in network["params"]} == {id(p) for p in learner.backbone.parameters()}
    assert (network["lr"], others["lr"]) == (1e-3, 1e-4)
    trained = sum(p.requires_grad for p in learner.parameters())
    assert len(network["params"]) + len(others["params"]) == trained
    assert others["params"]


def test_rates_fall_at_milestones(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    """Twelve of them at once leave the second half of a run where the first ends."""
    runs: dict[str, dict[str, Any]] = {"half": {"episodes": 12}, "stopped": {"milestones": [12] * 12}, "whole": {}}
    ends = []
    for name, training in runs.items():
        last = train(configure(training=training), tmp_path / name, data=data).best.with_name("last.safetensors")
        ends.append(torch.cat([p.detach().flatten() for p in load_checkpoint(last).build().parameters()]))
    half, stopped, whole = ends
    torch.testing.assert_close(stopped, half, rtol=0, atol=1e-9)
    assert (whole - half).abs().max() > 1e-4


def test_data_too_small_for_the_episodes(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"training: class 'pattern 0' has 10 rows, fewer than 1 shots and 16 queries"):
        train(configure(episodes={"queries": 16}), tmp_path, data=data)
    with pytest.raises(ValueError, match=r"validation classes: class 'pattern 0' has 10 rows"):
        train(configure(validation={"queries": 10}), tmp_path, data=data)
    few = FewShotData(data.train.select_classes([0, 1]), data.val, data.test, "tiny", "")
    with pytest.raises(ValueError, match="training: 3-way tasks need at least 3 classes"):
        train(configure(), tmp_path, data=few)


def test_a_device_that_does_not_exist(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"training\.device: 'gpu' is no device"):
        train(configure(training={"device": "gpu"}), tmp_path, data=data)


def test_unbalanced_tasks_of_many_sizes(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    episodes = {"way": [2, 4], "shots": [1, 3], "queries": [2, 4], "unbalanced": True}
    assert train(configure(episodes=episodes, training={"episodes": 4}), tmp_path, data=data).episodes == 4


def test_another_meaning_of_a_preset_does_not_resume(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    config = configure(learner={"name": "cdkt_pl"}, training={"episodes": 4})
    train(config, tmp_path, data=data)
    last = tmp_path / "last.safetensors"
    artifact = load_artifact(last)
    artifact.header["learner"]["settings"]["n_steps"] = 9
    save_artifact(last, artifact.kind, artifact.header, artifact.arrays)
    with pytest.raises(ValueError, match=r"n_steps = 9 by the preset of the learner then, \d+ now"):
        train(config, tmp_path, data=data)


def test_classes_of_few_images_serve_a_learner_of_single_images(
    configure: Configure, data: FewShotData, tmp_path: Path
) -> None:
    few = data.train.x.view(12, 10, 1, 16, 16)[:, :3].flatten(0, 1)  # three images of each class; episodes need four
    scarce = replace(data, train=LabelledSet(few, torch.arange(12).repeat_interleave(3), data.train.class_names))
    settings = {"training": {"episodes": 2, "episodes_per_step": 1}}
    train(configure(learner={"name": "feature_transfer"}, **settings), tmp_path / "images", data=scarce)
    with pytest.raises(ValueError, match="'pattern 0' has 3 rows, fewer than 1 shots and 3 queries"):
        train(configure(**settings), tmp_path / "episodes", data=scarce)
