"""The settings files beside the experiments can be run."""

from __future__ import annotations

from pathlib import Path

import pytest

import experiments
from sureshot.data.settings_files import from_file
from sureshot.meta.processes import make_process
from sureshot.meta.training import TrainingConfig
from sureshot.meta.training.config import run_config
from sureshot.meta.training.episodic import check_names

FILES = sorted((Path(experiments.__file__).parent / "settings").glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_it_is_a_training(path: Path) -> None:
    config = from_file(path, run_config)
    if isinstance(config, TrainingConfig):
        check_names(config)
    else:
        make_process(config.learner.name, 1, 1, **config.learner.options)


def test_there_are_some() -> None:
    assert {path.stem for path in FILES} >= {"bicycle-days", "omniglot-maml", "omniglot-relationnet"}
