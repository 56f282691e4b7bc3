"""``sureshot meta-train``: a run from a file of settings, and one line for every mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

SETTINGS = """
[data]
name = "omniglot-choice"
[episodes]
way = 3
shots = 1
queries = 2
[backbone]
options = { n_filters = 4 }
[learner]
name = "protonet"
[training]
episodes = 4
checkpoint_every = 2
[validation]
every = 4
tasks = 5
queries = 2
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SETTINGS)
    return path


@pytest.mark.real_data
def test_a_run_and_going_on_with_it(run: Run, config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = run("meta-train", config, "-o", folder, "--json")
    assert first.exit_code == 0, first.stderr
    found = json.loads(first.stdout)
    assert found["episodes"] == 4
    assert 0 <= found["scores"]["accuracy"] <= 1
    assert Path(found["best"]).is_file()
    assert "note: protonet on omniglot-choice, 4 episodes" in first.stderr
    longer = run("meta-train", config, "-o", folder, "--set", "training.episodes=6")
    assert longer.exit_code == 0, longer.stderr
    assert "resuming" in longer.stderr
    assert "validation accuracy" in longer.stdout
    again = run("meta-train", config, "-o", folder, "--set", "training.episodes=6")
    assert "is complete after 6 episodes" in again.stderr
    other = run("meta-train", config, "-o", folder, "--set", "training.seed=1", "-q")
    assert other.exit_code == 1
    assert "training.seed = 0 then, 1 now" in other.stderr
    assert other.stderr.count("\n") == 1
    anew = run("meta-train", config, "-o", folder, "--set", "training.seed=1", "--no-resume", "-q")
    assert anew.exit_code == 0, anew.stderr
    assert anew.stderr == ""


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("trainig.seed=1", "unknown section [trainig] (did you mean 'training'?)"),
        ("training.seeds=1", "unknown key training.seeds (did you mean 'seed'"),
        ("training.episodes=many", "training.episodes must be a whole number, got 'many'"),
        ("training", "--set training: expected SECTION.KEY=VALUE"),
        ("data.name=omniglot-choise", "no few-shot data called 'omniglot-choise' (did you mean"),
        # Known to be wrong before the data, which are not there, are looked for.
        ("learner.name=protonets", "unknown learner 'protonets' (did you mean"),
        ("learner.kernel=rbf", "learner 'protonet' has no kernel"),
        ("backbone.name=conv5", "unknown backbone 'conv5'"),
        ("backbone.options.n_filter=3", "has no option 'n_filter'"),
    ],
)
def test_mistakes_in_settings_take_one_line(run: Run, config: Path, tmp_path: Path, setting: str, message: str) -> None:
    result = run("meta-train", config, "-o", tmp_path / "run", "--data", tmp_path, "--set", setting, "-q")
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("episodes.queries=30", "has 20 rows, fewer than 1 shots and 30 queries = 31"),
    ],
)
def test_mistakes_that_show_with_the_data(run: Run, config: Path, tmp_path: Path, setting: str, message: str) -> None:
    result = run("meta-train", config, "-o", tmp_path / "run", "--set", setting, "-q")
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_files_that_cannot_be_used(run: Run, config: Path, tmp_path: Path) -> None:
    missing = run("meta-train", tmp_path / "missing.toml", "--json")
    assert missing.exit_code == 1
    assert "missing.toml: No such file or directory" in json.loads(missing.stdout)["error"]
    in_the_way = run("meta-train", config, "-o", config)
    assert in_the_way.exit_code == 1
    assert "is a file" in in_the_way.stderr
    no_data = run("meta-train", config, "-o", tmp_path / "run", "--data", tmp_path / "nowhere", "-q")
    assert no_data.exit_code == 1
    assert "nowhere, which does not exist" in no_data.stderr
