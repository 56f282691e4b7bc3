"""``sureshot meta-train`` and ``meta-evaluate`` on functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

SETTINGS = """
[data]
name = "functions"
options = { family = "mixture" }
[episodes]
context = [1, 6]
targets = 5
[learner]
name = "cnp"
options = { width = 8 }
[training]
episodes = 8
episodes_per_step = 4
[validation]
every = 8
tasks = 5
"""


@pytest.fixture
def trained(run: Run, tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SETTINGS)
    folder = tmp_path / "run"
    found = run("meta-train", path, "-o", folder)
    assert found.exit_code == 0, found.stderr
    assert "validation RMSE" in found.stdout
    assert "cnp on functions, 8 episodes" in found.stderr
    return folder


def test_a_table_for_each_region(run: Run, trained: Path) -> None:
    found = run("meta-evaluate", trained, "--tasks", 4)
    assert found.exit_code == 0, found.stderr
    for text in ("log density", "CRPS", "within 90%", "inside the range", "beyond the range"):
        assert text in found.stdout
    values = json.loads(run("meta-evaluate", trained, "--tasks", 4, "--json").stdout)
    assert [one["context"] for one in values["scores"]][:3] == [1, 2, 5]
    assert values["learner"] == "cnp"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("meta-evaluate", "--way", 3), "--way: is about classes"),
        (("meta-evaluate", "--queries", 3), "--queries: is about classes"),
        (("meta-evaluate", "--corrupted", "query"), "--corrupted: is about classes"),
        (("meta-evaluate", "--report", "page"), "--report is for learners of classes"),
        (("meta-compare",), "is a learner of numbers: sureshot meta-evaluate scores it"),
    ],
)
def test_what_is_for_classes(run: Run, trained: Path, arguments: tuple[Any, ...], said: str) -> None:
    found = run(arguments[0], trained, *arguments[1:])
    assert found.exit_code == 1
    assert said in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1
