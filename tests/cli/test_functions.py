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
        (("meta-compare", "--shots", 3), "--shots: is about classes"),
        (("meta-compare", "--reference", "anp"), "--reference: expected one of cnp; got 'anp'"),
    ],
)
def test_what_is_for_classes(run: Run, trained: Path, arguments: tuple[Any, ...], said: str) -> None:
    found = run(arguments[0], trained, *arguments[1:])
    assert found.exit_code == 1
    assert said in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


def test_learners_are_compared_on_the_same_functions(run: Run, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(SETTINGS.replace("width = 8", "width = 4"))
    assert run("meta-train", tmp_path / "other.toml", "-o", tmp_path / "other").exit_code == 0
    arguments = ("meta-compare", trained, f"small={tmp_path / 'other'}", "--tasks", 4)
    found = run(*arguments, "--report", tmp_path / "page")
    assert found.exit_code == 0, found.stderr
    for text in ("Log density by rows of context, inside", "Differences of log density, beyond", "less cnp", "small"):
        assert text in found.stdout
    page = (tmp_path / "page" / "report.html").read_text()
    assert "2 learners of numbers" in page
    assert page.count("data:image/png") == 2
    values = json.loads(run(*arguments, "--json", "--reference", "small").stdout)
    assert values["reference"] == "small"
    alone = json.loads(run("meta-evaluate", trained, "--tasks", 4, "--json").stdout)
    assert values["evaluations"]["cnp"]["scores"] == alone["scores"]
    gap, *_ = values["differences"]["cnp"]
    ours, its = (values["evaluations"][name]["scores"][0]["log_density"]["mean"] for name in ("cnp", "small"))
    assert gap["log_density"]["mean"] == pytest.approx(ours - its, abs=1e-9)


def test_a_page_of_one_learner(run: Run, trained: Path, tmp_path: Path) -> None:
    found = run("meta-evaluate", trained, "--tasks", 4, "--report", tmp_path / "page")
    assert found.exit_code == 0, found.stderr
    assert "report: " in found.stdout
    assert "cnp, few-shot learner of numbers" in (tmp_path / "page" / "report.html").read_text()


def test_learners_of_other_functions_are_not_compared(run: Run, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(SETTINGS.replace("mixture", "rbf"))
    assert run("meta-train", tmp_path / "other.toml", "-o", tmp_path / "other").exit_code == 0
    found = run("meta-compare", trained, f"b={tmp_path / 'other'}")
    assert found.exit_code == 1
    assert "trained on different functions" in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


def test_functions_of_another_kind(run: Run, trained: Path, tmp_path: Path) -> None:
    """One that learnt another kind is compared with, where functions to test on are named."""
    (tmp_path / "other.toml").write_text(SETTINGS.replace("mixture", "rbf"))
    other = tmp_path / "other"
    assert run("meta-train", tmp_path / "other.toml", "-o", other).exit_code == 0
    own = json.loads(run("meta-evaluate", other, "--tasks", 4, "--json").stdout)
    on = ("--on", "functions", "--option", "family=rbf", "--tasks", 4)
    both = json.loads(run("meta-compare", trained, f"other={other}", *on, "--json").stdout)
    assert both["evaluations"]["other"]["scores"] == own["scores"]
    alone = json.loads(run("meta-evaluate", trained, *on, "--json").stdout)
    assert both["evaluations"]["cnp"]["scores"] == alone["scores"]
    waves = run("meta-evaluate", trained, "--on", "sinusoids", "--tasks", 4, "--json")
    assert waves.exit_code == 0, waves.stderr
    assert json.loads(waves.stdout)["data"] == "sinusoids"
    assert json.loads(waves.stdout)["scores"] != own["scores"]
    for asked, words in (
        (("--on", "clinc150"), "--on and --option are for functions that are drawn (functions, sinusoids)"),
        (("--on", "sines"), "--on: expected one of"),
        (("--option", "family=cubic"), "cubic"),
        (("--option", "inputs=[2, 1]"), "rising"),
    ):
        refused = run("meta-evaluate", trained, *asked, "--tasks", 4)
        assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
        assert words in refused.stderr


def test_a_table_that_has_changed_since_the_training_is_refused(run: Run, tmp_path: Path) -> None:
    """Groups are shared out anew, so that some of the training would be tested on."""
    rows = [f"{group},{x},{group + x}" for group in range(6) for x in range(4)]
    table, settings = tmp_path / "grown.csv", tmp_path / "small.toml"
    table.write_text("\n".join(["who,x,y", *rows]))
    named = f'name = "groups"\noptions = {{ path = "{table}", group = "who", target = "y" }}'
    settings.write_text(SETTINGS.replace('name = "functions"\noptions = { family = "mixture" }', named))
    assert run("meta-train", settings, "-o", tmp_path / "run").exit_code == 0
    assert run("meta-evaluate", tmp_path / "run", "--tasks", 2).exit_code == 0
    table.write_text("\n".join(["who,x,y", *rows, "6,0,1", "6,1,2"]))
    found = run("meta-evaluate", tmp_path / "run", "--tasks", 2)
    assert found.exit_code == 1
    assert "was trained on other functions than y of each who in grown.csv" in found.stderr
    elsewhere = run("meta-evaluate", tmp_path / "run", "--on", "functions", "--tasks", 2)
    assert elsewhere.exit_code == 1
    assert "give rows of a new table to `sureshot fit`" in elsewhere.stderr
