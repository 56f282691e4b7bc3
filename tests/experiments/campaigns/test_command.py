"""``python -m experiments`` with campaigns: budgets, collecting, mistakes in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("iris", "--budget", "full"), ("unknown option 'budget'",)),
        (("iris", "--collect"), ("unknown option 'train'",)),
        (("cub", "--budget", "ful"), ("no budget 'ful'", "did you mean 'full'")),
        (("cub", "--budget", "full", "--set", "budget=standard"), ("budget is given twice",)),
        (("clinc150-transfer", "--set", "ways=[7]"), ("ways must be of [5, 75], got [7]",)),
        (
            ("clinc150-transfer", "--set", 'learners=["relationnet"]'),
            ("there is no learner for embeddings 'relationnet'",),
        ),
        (("cubs", "--budget", "full"), ("no experiment 'cubs'", "did you mean 'cub'")),
    ],
)
def test_mistakes(arguments: tuple[str, ...], words: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    result = run(*arguments, "--data", tmp_path, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert all(word in result.stderr for word in words)
    assert not (tmp_path / "out").exists()


def test_missing_data_is_named_when_a_cell_needs_it(run: Run, tmp_path: Path) -> None:
    folders = ("--set", f"results={tmp_path / 'results'}", "--set", f"checkpoints={tmp_path / 'checkpoints'}")
    arguments = ("cub", "--data", tmp_path, "-o", tmp_path / "out", *folders)
    quiet, told = run(*arguments, "--quiet"), run(*arguments)
    assert quiet.exit_code == told.exit_code == 1
    assert "CUB_200_2011" in quiet.stderr
    assert quiet.stderr.count("\n") == 1
    assert told.stderr.startswith("note: ")  # how many cells there are
    assert told.stderr.endswith(quiet.stderr)
    assert not (tmp_path / "out").exists()


def test_collecting_before_anything_was_run(run: Run, tmp_path: Path) -> None:
    result = run("cub", "--collect", "--data", tmp_path, "-o", tmp_path / "out", "--set", f"results={tmp_path}")
    assert result.exit_code == 1
    assert "no cell of this campaign has a result yet" in result.stderr
