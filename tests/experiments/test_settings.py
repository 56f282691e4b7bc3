"""The settings files beside the experiments can be run."""

from __future__ import annotations

from pathlib import Path

import pytest

import experiments
from sureshot.meta.training import TrainingConfig
from sureshot.meta.training.episodic import check_names

FILES = sorted((Path(experiments.__file__).parent / "settings").glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_it_is_a_training(path: Path) -> None:
    check_names(TrainingConfig.from_toml(path))


def test_there_are_some() -> None:
    assert {path.stem for path in FILES} >= {"omniglot-maml", "omniglot-relationnet"}
