"""Meta-training on functions: the same loop, tasks of numbers, checkpoints by density."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sureshot.data.settings_files import from_file
from sureshot.meta.functions import load_functions
from sureshot.meta.learners.functions import RegressionLearner
from sureshot.meta.processes.dkt_regression import DKTRegression
from sureshot.meta.training import load_checkpoint, load_learner, read_log, train
from sureshot.meta.training.config import FunctionTrainingConfig, TrainingConfig, run_config
from sureshot.meta.training.functions import FunctionScores, FunctionTraining, build_process
from sureshot.networks import processes
from sureshot.persistence import ArtifactError


def config_of(learner: str = "cnp", options: dict[str, Any] | None = None, **sections: Any) -> FunctionTrainingConfig:
    tables: dict[str, dict[str, Any]] = {
        "data": {"name": "functions"},
        "episodes": {"context": [0, 8], "targets": 6},
        "learner": {"name": learner, "options": {"width": 8} if options is None else options},
        "training": {"episodes": 24, "episodes_per_step": 4, "checkpoint_every": 8, "log_every": 8},
        "validation": {"every": 8, "tasks": 9},
    }
    for name, table in sections.items():
        tables[name] = tables.get(name, {}) | table
    found = run_config(tables)
    assert isinstance(found, FunctionTrainingConfig)
    return found


def test_a_run(tmp_path: Path) -> None:
    found = train(config_of(), tmp_path)
    assert found.episodes == 24
    assert isinstance(found.scores, FunctionScores)
    lines = [line for line in read_log(tmp_path) if line["kind"] == "validation"]
    assert [line["episodes"] for line in lines] == [8, 16, 24]
    assert found.scores.nll == min(line["nll"] for line in lines)
    learner = load_learner(tmp_path)
    assert isinstance(learner, RegressionLearner)
    assert learner.config["input_width"] == 1
    assert found.as_dict()["scores"] == {"nll": found.scores.nll, "rmse": found.scores.rmse}


@pytest.mark.parametrize(
    ("learner", "options"), [("np", {"width": 8, "latent": 3}), ("dkt_regression", {"hidden": [4]})]
)
def test_an_interrupted_run_ends_as_one_that_was_not(learner: str, options: dict[str, Any], tmp_path: Path) -> None:
    whole = train(config_of(learner, options), tmp_path / "whole")
    train(config_of(learner, options, training={"episodes": 16}), tmp_path / "parts")
    parts = train(config_of(learner, options), tmp_path / "parts")
    one, other = (load_learner(run.last).state_dict() for run in (whole, parts))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert whole.log.read_text() == parts.log.read_text()


def test_it_learns(tmp_path: Path) -> None:
    settings = {"episodes": 1600, "episodes_per_step": 8, "checkpoint_every": 1600, "learning_rate_kernel": 0.1}
    options = {"hidden": [], "lengthscale": 0.5}
    config = config_of("dkt_regression", options, training=settings, validation={"every": 1600, "tasks": 100})
    data = load_functions("functions", lengthscale=(1.0, 1.0), noise=0.1)
    found = train(config, tmp_path, data=data)
    learner = load_learner(found.best)
    assert isinstance(learner, DKTRegression)
    state = {name: float(value) for name, value in learner.state_dict().items() if value.numel() == 1}
    assert np.sqrt(1e-4 + np.exp(state["log_noise"])) == pytest.approx(0.1, rel=0.1)
    assert np.exp(state["kernel.base_kernel.raw_lengthscale"]) == pytest.approx(1, rel=0.1)


def test_validation_scores_by_hand() -> None:
    config = config_of()
    data = load_functions("functions")
    with processes("cpu") as group:
        trainee = FunctionTraining(build_process(config, data), config, data, group)
        scores = trainee.validate()
    exam = trainee._exam
    assert exam is not None
    mean, deviation = (part.numpy() for part in trainee.learner.adapt(exam).predict(exam.query_x))
    y = exam.query_y.numpy()
    nll = (0.5 * ((y - mean) / deviation) ** 2 + np.log(deviation) + 0.5 * np.log(2 * np.pi)).mean()
    assert scores.values["nll"] == pytest.approx(nll, rel=1e-5)
    assert scores.values["rmse"] == pytest.approx(np.sqrt(((y - mean) ** 2).mean()), rel=1e-5)
    assert not scores.larger_is_better


def test_rates_of_networks_and_of_kernels() -> None:
    rates = {"learning_rate": 0.25, "learning_rate_kernel": 0.5}
    data = load_functions("functions")
    sizes = {}
    for learner, options in (("cnp", {"width": 8}), ("dkt_regression", {"hidden": [4]})):
        config = config_of(learner, options, training=rates)
        with processes("cpu") as group:
            groups = FunctionTraining(build_process(config, data), config, data, group).parameter_groups()
        assert [part["lr"] for part in groups] == [0.25, 0.5]
        sizes[learner] = [len(part["params"]) for part in groups]
    assert sizes["cnp"][1] == 0
    assert sizes["dkt_regression"][1] == 3  # output scale, length-scale, noise


def test_a_run_goes_on_with_its_functions_only(tmp_path: Path) -> None:
    train(config_of(training={"episodes": 8}), tmp_path)
    with pytest.raises(ValueError, match="the rows of the training classes were others then"):
        train(config_of(), tmp_path, data=load_functions("functions", noise=0.5))
    with pytest.raises(ValueError, match=r"episodes\.targets = 6 then, 7 now"):
        train(config_of(episodes={"targets": 7}), tmp_path)


def test_a_learner_of_numbers_is_none_of_classes(tmp_path: Path) -> None:
    train(config_of(training={"episodes": 4}), tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.answers_with_numbers
    with pytest.raises(ArtifactError, match="is a learner of numbers"):
        checkpoint.build()


def test_settings_are_of_the_kind_that_the_data_are(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[data]\nname = "sinusoids"\n[learner]\nname = "cnp"\n[episodes]\ncontext = 5\n')
    found = from_file(path, run_config, ["training.seed=3"])
    assert isinstance(found, FunctionTrainingConfig)
    assert (found.episodes.context, found.episodes.targets, found.training.seed) == (5, 50, 3)
    assert FunctionTrainingConfig.from_dict(found.as_dict()) == found
    of_classes = run_config({"data": {"name": "cub"}, "learner": {"name": "protonet"}})
    assert isinstance(of_classes, TrainingConfig)
    misspelt = run_config({"data": {"name": "sinusiods"}, "learner": {"name": "cnp"}})
    assert isinstance(misspelt, FunctionTrainingConfig)
    with pytest.raises(ValueError, match=r"no functions called 'sinusiods' \(did you mean 'sinusoids'\?\)"):
        train(misspelt, tmp_path / "run")


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"episodes": {"way": 5}}, "unknown key episodes.way"),
        ({"backbone": {"name": "mlp"}}, r"unknown section \[backbone\]"),
        ({"validation": {"tasks": 0}}, "validation.tasks must be at least 1"),
        ({"validation": {"patience": 0}}, "validation.patience must be at least 1"),
    ],
)
def test_settings_that_are_none(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config_of(**sections)


@pytest.mark.parametrize(
    ("learner", "options", "said"),
    [
        ("protonet", {}, "unknown learner of numbers 'protonet'"),
        ("cnp", {"wdith": 3}, "no option 'wdith'"),
        ("cnp", {"width": 0}, "width must be at least 1"),
    ],
)
def test_learners_that_are_none_leave_no_run(learner: str, options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        train(config_of(learner, options), tmp_path / "run")
    assert not (tmp_path / "run").exists()
