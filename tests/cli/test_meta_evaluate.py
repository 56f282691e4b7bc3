"""Meta-trained checkpoints evaluated and compared from the command line, on embeddings written for it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sureshot.meta.evaluation import timing
from sureshot.meta.training.checkpoint import KIND
from sureshot.persistence import load_artifact, save_artifact

Run = Callable[..., Any]

CONFIG = """
[data]
name = "embeddings"
options = {{ path = "{path}", fractions = [0.2, 0.3, 0.5] }}
[backbone]
name = "linear"
[learner]
name = "{learner}"
[episodes]
way = 3
shots = 2
queries = 4
[training]
episodes = 2
[validation]
tasks = 5
queries = 4
"""
QUICK = ("--tasks", 30, "--queries", 4)


def write_embeddings(path: Path, width: int, seed: int = 0) -> Path:
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(20, width)).repeat(12, axis=0)
    X = (centres + 0.8 * generator.normal(size=centres.shape)).astype(np.float32)
    np.savez(path, X=X, y=np.array([f"class {k:02}" for k in range(20)]).repeat(12))
    return path


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Path:
    """A folder with ``vectors.npz``, ``wide.npz`` and the runs ``proto`` and ``matching``."""
    folder = tmp_path_factory.mktemp("runs")
    vectors = write_embeddings(folder / "vectors.npz", 8)
    write_embeddings(folder / "wide.npz", 9)
    for name, learner in (("proto", "protonet"), ("matching", "matchingnet")):
        config = folder / f"{name}.toml"
        config.write_text(CONFIG.format(path=vectors, learner=learner))
        result = run("meta-train", config, "-o", folder / name)
        assert result.exit_code == 0, result.stderr
    return folder


@pytest.fixture(scope="module", autouse=True)
def _few_repetitions() -> Iterator[None]:
    """Of what is timed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "_REPETITIONS", 1)
        yield


def failed(result: Any) -> str:
    """The one line that a command ended with."""
    assert result.exit_code == 1, result.stdout + result.stderr
    (line,) = [line for line in result.stderr.splitlines() if not line.startswith("note:")]
    return str(line)


def test_evaluate_for_machines(runs: Path, run: Run) -> None:
    result = run("meta-evaluate", runs / "proto", *QUICK, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["learner"] == "protonet"
    assert found["checkpoint"].endswith("best.safetensors")
    assert found["protocol"] == {"way": 3, "shots": 2, "queries": 4, "unbalanced": False}
    assert set(found["calibration"]) == {"none", "temperature"}
    assert found["accuracy"]["mean"] > 0.5
    assert found["out_of_episode"]["n_tasks"] == 30
    assert found["robustness"] is None
    again = json.loads(run("meta-evaluate", runs / "proto", *QUICK, "--json").stdout)
    assert {key: value for key, value in again.items() if key != "time"} == {
        key: value for key, value in found.items() if key != "time"
    }


def test_evaluate_for_people(runs: Path, run: Run, tmp_path: Path) -> None:
    result = run(
        "meta-evaluate", runs / "proto" / "last.safetensors", *QUICK, "--shots", 1, "--report", tmp_path / "page"
    )
    assert result.exit_code == 0, result.stderr
    assert "30 of 3 classes, 1 shots, 4 queries of each class" in result.stdout
    assert "ECE (temperature" in result.stdout
    assert "note: 10 test classes of" in result.stderr
    page = (tmp_path / "page" / "report.html").read_text()
    assert "Reliability, probabilities with temperature" in page
    assert "Out-of-episode detection" in page
    assert "360 queries are right" in page


def test_validation_classes_are_not_tempered_on_themselves(runs: Path, run: Run) -> None:
    found = json.loads(run("meta-evaluate", runs / "proto", *QUICK, "--split", "val", "--json").stdout)
    assert set(found["calibration"]) == {"none"}
    assert found["temperature"] is None


def test_compare(runs: Path, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    arguments = (runs / "proto", runs / "matching", f"again={runs / 'proto'}", *QUICK)
    result = run("meta-compare", *arguments, "--json", "--report", folder)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert list(found["evaluations"]) == ["protonet", "matchingnet", "again"]
    assert found["reference"] == "protonet"
    assert found["differences"]["again"]["nll"]["mean"] == 0
    alone = json.loads(run("meta-evaluate", runs / "matching", *QUICK, "--json").stdout)
    assert found["evaluations"]["matchingnet"]["accuracy"] == alone["accuracy"]
    page = (folder / "report.html").read_text()
    for heading in ("Accuracy and calibration", "Differences from protonet", "Reliability diagrams"):
        assert heading in page
    shown = run("meta-compare", *arguments, "--reference", "matchingnet")
    assert "Differences from matchingnet, paired task by task" in shown.stdout


def test_a_comparison_is_one_table_in_the_terminal_and_on_the_page(
    runs: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = run("meta-compare", runs / "proto", runs / "matching", *QUICK, "--report", tmp_path)
    assert result.exit_code == 0, result.stderr
    found = json.loads(run("meta-compare", runs / "proto", runs / "matching", *QUICK, "--json").stdout)
    page = html.unescape((tmp_path / "report.html").read_text(encoding="utf-8"))
    terminal = [[cell.strip() for cell in line.strip("│┃").split("│")] for line in result.stdout.splitlines()]
    heads = [
        [cell.strip() for cell in line.strip("┃").split("┃")] for line in result.stdout.splitlines() if "┃" in line
    ]
    tables = re.findall(r'<table class="results">(.*?)</table>', page, re.DOTALL)
    rows = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for table in tables for row in table.split("<tr>")[1:]]
    assert [row for row in rows if row[0] == "learner"] == heads
    assert len(heads) == 4
    for learner in ("protonet", "matchingnet"):
        shown, printed = ([row for row in every if row[0] == learner] for every in (rows, terminal))
        assert len(shown) == len(printed) >= 3
        for on_page, in_terminal in zip(shown, printed, strict=True):
            assert len(on_page) == len(in_terminal)
            for one, other in zip(on_page[1:], in_terminal[1:], strict=True):
                values = [[float(number) for number in cell.split(" ± ")] for cell in (one, other)]
                np.testing.assert_allclose(*values, atol=5.6e-4)  # three digits and four
        scores = found["evaluations"][learner]["out_of_episode"]["scores"]
        detection = dict(zip(heads[3], printed[-1], strict=True))
        for column, score in (("AUROC by logit", "negative_max_logit"), ("AUROC, own score", "outlier_score")):
            area = scores[score]["per_episode"]
            assert detection[column] == f"{area['mean']:.4f} ± {area['standard_error']:.4f}"
    (difference,) = [row for row in terminal if row[0] == "matchingnet" and len(row) == 5]
    both = [found["evaluations"][name]["out_of_episode"]["scores"] for name in ("matchingnet", "protonet")]
    own = both[0]["outlier_score"]["per_episode"]["mean"] - both[1]["outlier_score"]["per_episode"]["mean"]
    assert float(difference[4].split()[0]) == pytest.approx(own, abs=6e-5)


def test_classes_of_the_training_are_not_tested_on(runs: Path, run: Run) -> None:
    mixed = (*QUICK, "--option", "seed=5")
    for command in (("meta-evaluate", runs / "proto"), ("meta-compare", runs / "proto", runs / "matching")):
        message = failed(run(*command, *mixed))
        assert "was trained on" in message
        assert "the set is split in another way than in its training" in message
    other = run("meta-evaluate", runs / "proto", *QUICK, "--option", "seed=0")  # the split of the training, said aloud
    assert other.exit_code == 0, other.stderr


def test_mistakes_are_one_line(runs: Path, run: Run, tmp_path: Path) -> None:
    proto = runs / "proto"
    assert "--split: expected one of test, val; got 'tests' (did you mean 'test'?)" in failed(
        run("meta-evaluate", proto, *QUICK, "--split", "tests")
    )
    wide = ("--on", "embeddings", "--option", f"path={runs / 'wide.npz'}")
    assert "takes vectors of length 8, but embeddings has vectors of length 9" in failed(
        run("meta-evaluate", proto, *QUICK, *wide)
    )
    assert "--on: expected one of omniglot-lake" in failed(run("meta-evaluate", proto, *QUICK, "--on", "omniglot"))
    assert "expected KEY=VALUE" in failed(run("meta-evaluate", proto, *QUICK, "--option", "rotations"))
    assert "has 12 rows, fewer than 2 shots and 20 queries" in failed(run("meta-evaluate", proto, "--queries", 20))
    assert "--corrupted: expected one of both, query" in failed(
        run("meta-evaluate", proto, *QUICK, "--corrupted", "support")
    )
    assert "nothing.safetensors" in failed(run("meta-evaluate", tmp_path / "nothing.safetensors"))
    (tmp_path / "page").write_text("")
    assert "is a file" in failed(run("meta-evaluate", proto, "--report", tmp_path / "page"))


def test_comparison_mistakes_are_one_line(runs: Path, run: Run, tmp_path: Path) -> None:
    proto, matching = runs / "proto", runs / "matching"
    assert "two checkpoints are called 'proto'" in failed(run("meta-compare", proto, proto))
    assert "--reference: expected one of protonet, matchingnet; got 'dkt'" in failed(
        run("meta-compare", proto, matching, *QUICK, "--reference", "dkt")
    )
    config = tmp_path / "other.toml"
    config.write_text(CONFIG.format(path=runs / "wide.npz", learner="protonet").replace("shots = 2", "shots = 1"))
    assert run("meta-train", config, "-o", tmp_path / "other").exit_code == 0
    assert "trained with different shots (1, 2): give --shots" in failed(
        run("meta-compare", f"a={proto}", f"b={tmp_path / 'other'}")
    )
    assert "name the set to test on with --on" in failed(
        run("meta-compare", f"a={proto}", f"b={tmp_path / 'other'}", "--shots", 1)
    )


def test_a_checkpoint_of_another_architecture(runs: Path, run: Run, tmp_path: Path) -> None:
    """The header says vectors of length 5; the arrays are those of 8."""
    saved = load_artifact(runs / "proto" / "best.safetensors", KIND)
    header = dict(saved.header) | {"backbone": saved.header["backbone"] | {"input_shape": [5]}}
    save_artifact(tmp_path / "other.safetensors", KIND, header, saved.arrays)
    assert "does not fit the learner" in failed(run("meta-evaluate", tmp_path / "other.safetensors", *QUICK))
    with np.load(runs / "vectors.npz") as file, (tmp_path / "table.csv").open("w") as table:
        np.savetxt(table, file["X"][:36], delimiter=",", header="a,b,c,d,e,f,g,h", comments="")
    assert "table.csv" in failed(run("meta-evaluate", tmp_path / "table.csv", *QUICK))


def test_a_single_task_has_no_error(runs: Path, run: Run) -> None:
    result = run("meta-evaluate", runs / "proto", "--tasks", 1, "--queries", 4, "--report", runs / "report")
    assert result.exit_code == 0, result.stderr
    assert "nan" not in result.stdout.lower()
    assert "deviation of batches" not in result.stdout
    page = (runs / "report" / "report.html").read_text(encoding="utf-8")
    assert "of one task" in page
    assert "± nan" not in page
