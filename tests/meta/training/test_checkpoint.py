"""Checkpoints: the same learner again, and plain words for every other file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sureshot.data.labelled import FewShotData
from sureshot.meta.training import TrainingConfig, load_checkpoint, load_learner, train
from sureshot.meta.training.episodic import build_learner
from sureshot.meta.training.task_training import parameter_groups
from sureshot.networks.checkpoint import restore, restore_optimiser
from sureshot.persistence import ArtifactError, save_artifact


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, configure: Callable[..., TrainingConfig], data: FewShotData) -> Path:
    """The folder of a short run of a learner with a kernel."""
    folder = tmp_path_factory.mktemp("run")
    config = configure(learner={"name": "cdkt_pl"}, training={"episodes": 4}, validation={"every": 4, "tasks": 4})
    train(config, folder, data=data)
    return folder


def test_what_a_checkpoint_tells(run: Path) -> None:
    checkpoint = load_checkpoint(run / "best.safetensors")
    assert checkpoint.episodes == 4
    assert checkpoint.learner["name"] == "cdkt_pl"
    assert checkpoint.backbone["input_shape"] == [1, 16, 16]
    assert set(checkpoint.metrics) == {"accuracy", "nll"}
    assert TrainingConfig.from_dict(checkpoint.config).learner.name == "cdkt_pl"


def test_a_folder_gives_its_best_learner_in_evaluation_mode(run: Path) -> None:
    learner, best = load_learner(run), load_learner(run / "best.safetensors")
    assert not learner.training
    assert all(
        torch.equal(a, b) for a, b in zip(learner.state_dict().values(), best.state_dict().values(), strict=True)
    )


def test_loading_leaves_the_global_generator_alone(run: Path) -> None:
    before = torch.random.get_rng_state()
    load_learner(run)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_optimiser_comes_back_in_the_format_of_its_parameters(
    run: Path, configure: Callable[..., TrainingConfig], data: FewShotData
) -> None:
    config = configure(learner={"name": "cdkt_pl"})
    learner = build_learner(config, data.train)
    optimiser = torch.optim.Adam(parameter_groups(learner, config))
    checkpoint = load_checkpoint(run / "last.safetensors")
    restore(checkpoint.artifact, learner)
    restore_optimiser(checkpoint.artifact, learner, optimiser)
    for name, parameter in learner.named_parameters():
        if parameter.requires_grad:
            state = optimiser.state[parameter]
            assert float(state["step"]) == 2
            assert state["exp_avg"].stride() == parameter.stride()
            saved = checkpoint.artifact.arrays[f"optimiser.exp_avg_sq.{name}"]
            np.testing.assert_array_equal(state["exp_avg_sq"].numpy(), saved)


def test_a_checkpoint_for_use_has_nothing_to_go_on_with(
    run: Path, configure: Callable[..., TrainingConfig], data: FewShotData
) -> None:
    config = configure(learner={"name": "cdkt_pl"})
    learner = build_learner(config, data.train)
    best, optimiser = load_checkpoint(run / "best.safetensors"), torch.optim.Adam(parameter_groups(learner, config))
    with pytest.raises(ArtifactError, match="has no state of an optimiser: resume from last"):
        restore_optimiser(best.artifact, learner, optimiser)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"backbone": {"options": {"n_filters": 8}}}, r"must have the shape \(8,\), it has \(4,\)"),
        ({"learner": {"name": "protonet"}}, "checkpoint of another architecture: it has 'centre'"),
    ],
)
def test_another_architecture(
    run: Path,
    configure: Callable[..., TrainingConfig],
    data: FewShotData,
    sections: dict[str, Any],
    message: str,
) -> None:
    learner = build_learner(configure(**({"learner": {"name": "cdkt_pl"}} | sections)), data.train)
    with pytest.raises(ArtifactError, match=message):
        restore(load_checkpoint(run / "best.safetensors").artifact, learner)


def test_a_learner_that_is_not_known(run: Path, tmp_path: Path) -> None:
    artifact = load_checkpoint(run / "best.safetensors").artifact
    header = artifact.header | {"learner": artifact.header["learner"] | {"name": "oracle"}}
    save_artifact(tmp_path / "x.safetensors", "few_shot_learner", header, artifact.arrays)
    with pytest.raises(ArtifactError, match=r"cannot build: unknown learner 'oracle'"):
        load_learner(tmp_path / "x.safetensors")


def test_arrays_that_are_missing_or_not_finite(run: Path, tmp_path: Path) -> None:
    artifact = load_checkpoint(run / "best.safetensors").artifact
    name = "model.backbone.blocks.0.convolution.weight"
    for arrays, message in (
        ({key: value for key, value in artifact.arrays.items() if key != name}, f"lacks the array '{name}'"),
        (artifact.arrays | {name: np.full_like(artifact.arrays[name], np.nan)}, "holds NaN or infinite values"),
    ):
        save_artifact(tmp_path / "x.safetensors", "few_shot_learner", artifact.header, arrays)
        with pytest.raises(ArtifactError, match=message):
            load_learner(tmp_path / "x.safetensors")


@pytest.mark.parametrize("progress", [{"episodes": -1}, {"episodes": 2.5}, {"episodes": True}, {"episodes": None}, {}])
def test_a_number_of_episodes_that_is_none(run: Path, tmp_path: Path, progress: dict[str, Any]) -> None:
    artifact = load_checkpoint(run / "best.safetensors").artifact
    header = artifact.header | {"progress": progress}
    save_artifact(tmp_path / "x.safetensors", "few_shot_learner", header, artifact.arrays)
    with pytest.raises(ArtifactError, match=r"'progress' must count episodes, it has"):
        load_checkpoint(tmp_path / "x.safetensors")


def test_files_of_other_kinds(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="there is no file"):
        load_learner(tmp_path / "missing.safetensors")
    with pytest.raises(
        ArtifactError, match=r"has no best\.safetensors: name a folder that `sureshot meta-train` wrote"
    ):
        load_learner(tmp_path)
    torch.save({"a": torch.ones(1)}, tmp_path / "x.pt")
    with pytest.raises(ArtifactError, match="zip archive"):
        load_learner(tmp_path / "x.pt")
    save_artifact(tmp_path / "gp.safetensors", "gp_classifier", {}, {"a": np.ones(1)})
    with pytest.raises(ArtifactError, match=r"is no meta-trained learner.*'gp_classifier'.*name a checkpoint"):
        load_learner(tmp_path / "gp.safetensors")
    save_artifact(tmp_path / "bare.safetensors", "few_shot_learner", {}, {"a": np.ones(1)})
    with pytest.raises(ArtifactError, match="lacks the header entry 'config'"):
        load_learner(tmp_path / "bare.safetensors")
