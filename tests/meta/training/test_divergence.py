"""Training that diverges ends with one error, which says where and names a checkpoint that is good."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sureshot.data.labelled import FewShotData
from sureshot.meta.learners import GP_LEARNER_NAMES, LEARNER_NAMES
from sureshot.meta.training import (
    DivergedError,
    EpisodicTraining,
    TrainingConfig,
    load_checkpoint,
    load_learner,
    train,
)
from sureshot.meta.training.episodic import build_learner
from sureshot.networks import processes
from sureshot.networks.checkpoint import load_checkpoint as load_any_checkpoint
from sureshot.networks.loop import Run
from sureshot.persistence import save_artifact

Configure = Callable[..., TrainingConfig]


def spoil(path: Path) -> None:
    """Weights that are about to overflow, as after a step that was far too long."""
    checkpoint = load_checkpoint(path)
    for block in range(2):
        checkpoint.artifact.arrays[f"model.backbone.blocks.{block}.normalisation.weight"][:] = 1e38
    save_artifact(path, "few_shot_learner", checkpoint.artifact.header, checkpoint.artifact.arrays)


@pytest.mark.parametrize("preset", ["recommended", "paper"])
@pytest.mark.parametrize("name", LEARNER_NAMES)
def test_a_far_too_large_rate_of_the_kernel(
    configure: Configure, data: FewShotData, tmp_path: Path, name: str, preset: str
) -> None:
    config = configure(
        episodes={"way": 5, "queries": 2},
        learner={"name": name, "preset": preset, "kernel": "rbf" if name in GP_LEARNER_NAMES else "cosine"},
        training={"episodes": 3, "episodes_per_step": 1, "checkpoint_every": 1, "learning_rate_kernel": 1e3},
        validation={"every": 1, "tasks": 2, "queries": 2},
    )
    message = None
    try:
        train(config, tmp_path, data=data)
    except DivergedError as error:
        message = str(error)
    if message is not None:
        assert f"training of {name!r} diverged at step " in message
        assert "checkpoint" in message
    for path in tmp_path.glob("*.safetensors"):
        load_learner(path)  # checks that everything is finite


@pytest.mark.parametrize("name", ["ove_gibbs_pl", "logistic_softmax_gibbs_pl", "cdkt_pl"])
@pytest.mark.parametrize(
    ("every", "where"), [(0, "the loss and its gradient"), (1, "the scores on validation classes")]
)
def test_a_matrix_that_cannot_be_factorised(
    configure: Configure, data: FewShotData, tmp_path: Path, name: str, every: int, where: str
) -> None:
    config = configure(
        learner={"name": name, "preset": "paper"},
        training={"episodes": 4, "episodes_per_step": 1, "checkpoint_every": 1, "learning_rate_kernel": 100.0},
        validation={"every": every, "tasks": 3, "queries": 2},
    )
    with pytest.raises(DivergedError, match=rf"diverged at step 1 \(after 1 episodes\): {where} could not") as caught:
        train(config, tmp_path, data=data)
    assert isinstance(caught.value.__cause__, torch.linalg.LinAlgError | ValueError)


def test_a_loss_beyond_any_use(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    rate = 1e5  # everything stays finite, and the loss of the second step is about 1e11
    config = configure(
        training={"checkpoint_every": 1, "episodes_per_step": 1, "learning_rate": rate}, validation={"every": 0}
    )
    with pytest.raises(DivergedError, match=r"diverged at step 1 .*the loss is \d\S* nats for each row; .*checkpoint"):
        train(config, tmp_path, data=data)


@pytest.mark.parametrize("rate", [1e36, 1e38])
def test_a_far_too_large_rate_of_the_network(
    configure: Configure, data: FewShotData, tmp_path: Path, rate: float
) -> None:
    config = configure(training={"checkpoint_every": 2, "learning_rate": rate}, validation={"every": 0})
    with pytest.raises(DivergedError, match="training of 'protonet' diverged at step"):
        train(config, tmp_path, data=data)


def test_settings_that_do_not_fit_are_no_divergence(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    few = FewShotData(data.train, data.val.select_classes([0, 1, 2]), data.test, "tiny", "")
    config = configure(
        episodes={"way": 5},
        learner={"name": "dkt", "preset": "paper"},  # a kernel for each of five classes
        training={"episodes": 2},
        validation={"every": 2, "tasks": 2},
    )
    with pytest.raises(ValueError, match="hyper-parameters for 5 classes, but the task has 3") as caught:
        train(config, tmp_path, data=few)
    assert not isinstance(caught.value, DivergedError)


def test_the_state_that_failed_is_not_called_good(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    train(configure(training={"episodes": 6}), tmp_path, data=data)
    last = tmp_path / "last.safetensors"
    spoil(last)
    with pytest.raises(DivergedError) as caught:
        train(configure(training={"episodes": 12}), tmp_path, data=data)
    message = str(caught.value)
    assert "training of 'protonet' diverged at step 3 (after 6 episodes)" in message
    assert f"the last checkpoint, {last}, is of the state that failed, so it may be affected already" in message


def test_an_older_best_checkpoint_is_called_good(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    # Nothing is learnt at this rate, so the first validation stays the best.
    rates = {"learning_rate": 1e-30, "learning_rate_kernel": 1e-30, "checkpoint_every": 8}
    result = train(
        configure(training=rates | {"episodes": 8}, validation={"every": 4, "select_by": "nll"}), tmp_path, data=data
    )
    assert result.best_episodes == 4
    spoil(tmp_path / "last.safetensors")
    with pytest.raises(DivergedError, match=r"diverged at step 4 \(after 8 episodes\)") as caught:
        train(
            configure(training=rates | {"episodes": 12}, validation={"every": 4, "select_by": "nll"}),
            tmp_path,
            data=data,
        )
    assert f"the last good checkpoint is {result.best} (after 4 episodes)" in str(caught.value)


@pytest.mark.parametrize("part", ["buffer", "moment"])
def test_what_is_not_finite_is_not_saved(configure: Configure, data: FewShotData, tmp_path: Path, part: str) -> None:
    config = configure(training={"episodes": 4, "checkpoint_every": 2}, validation={"every": 0})
    train(configure(training={"episodes": 2, "checkpoint_every": 2}, validation={"every": 0}), tmp_path, data=data)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.safetensors")}
    with processes("cpu") as group:
        trainee = EpisodicTraining(build_learner(config, data.train), config, data, group)
        run = Run(trainee, config.loop_settings(), tmp_path, group)
        run.start_from(load_any_checkpoint(run.last, trainee.kind))
        # Neither shows in the loss: training does not use running statistics, and Adam stands still.
        if part == "buffer":
            spoilt = "model.backbone.blocks.0.normalisation.running_var"
            run.module.get_buffer(spoilt.removeprefix("model."))[0] = math.inf
        else:
            spoilt = "optimiser.exp_avg_sq.backbone.blocks.0.normalisation.weight"
            parameter = run.module.get_parameter(spoilt.removeprefix("optimiser.exp_avg_sq."))
            run.optimiser.state[parameter]["exp_avg_sq"][0] = math.inf
        with pytest.raises(DivergedError) as caught:
            run.run(None)
        run.close()
    message = str(caught.value)
    assert f"diverged at step 2 (after 4 episodes): {spoilt} is not finite" in message
    assert f"the last good checkpoint is {run.last} (after 2 episodes)" in message
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.safetensors")} == before


def test_an_inner_rate_is_among_what_to_lower(configure: Configure, data: FewShotData, tmp_path: Path) -> None:
    """Where every step of the inner loop is finite, and the gradient through all of them is not."""
    config = configure(
        episodes={"way": 5, "queries": 2},
        learner={"name": "maml", "options": {"inner_rate": 1e20}},
        training={"episodes": 2, "episodes_per_step": 1},
    )
    with pytest.raises(DivergedError, match=r"diverged at step 0 .* try a lower .* inner_rate"):
        train(config, tmp_path, data=data)
