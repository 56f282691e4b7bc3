"""``sureshot sessions``: files, page, JSON, and one line for whatever is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sureshot.deep import ClassifierSettings, ClassifierTraining, SoftmaxNetwork
from sureshot.networks import Processes, train
from sureshot.networks.backbones import make_backbone

Run = Callable[..., Any]

CONFIG = """
[data]
name = "digits"
options = { base_shots = 20, shots = 3 }

[[methods]]
name = "nearest_class_mean"

[[methods]]
name = "streaming_lda"
label = "LDA <shrunk>"
options = { shrinkage = 0.3 }

[run]
seeds = [0, 1]
"""

GP = '[[methods]]\nname = "gp"\noptions = { kernel = "zzz" }\n'
TREE = '[[methods]]\nname = "tree"\noptions = { n_representatives = -1 }\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "few.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_files_page_and_table(tmp_path: Path, run: Run) -> None:
    result = run("sessions", written(tmp_path, CONFIG), "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert "nearest_class_mean" in result.stdout
    assert "After the last session (3), 10 classes" in result.stdout
    assert "seed 0 (and 1 more)" in " ".join(result.stdout.split())
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        "curves.png",
        "matrices.png",
        "matrix.csv",
        "report.html",
        "runs",
        "sessions.csv",
        "sessions.json",
        "summary.csv",
    ]
    sessions = pd.read_csv(out / "sessions.csv")
    assert len(sessions) == 2 * 2 * 4
    assert set(sessions["method"]) == {"nearest_class_mean", "LDA <shrunk>"}
    matrix = pd.read_csv(out / "matrix.csv")
    assert len(matrix) == 2 * 2 * 10
    last = sessions[sessions["session"] == 3].set_index(["method", "seed"])
    summary = pd.read_csv(out / "summary.csv").set_index(["method", "seed"])
    np.testing.assert_allclose(summary["accuracy"], last["accuracy"])
    assert summary["accuracy"].min() > 0.6
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "LDA &lt;shrunk&gt;" in page
    assert "LDA <shrunk>" not in page
    assert "<p>Handwritten digits" in page
    assert "knows most after the last session" in page
    assert '<th class="number">drop</th>' in page
    assert "out-of-scope" not in page  # digits have no such rows
    record = json.loads((out / "sessions.json").read_text(encoding="utf-8"))
    assert record["config"]["run"]["seeds"] == [0, 1]
    assert len(record["evaluations"]["LDA <shrunk>"]["1"]["matrix"][3]) == 4


def test_json_and_a_report_where_it_is_wanted(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = written(tmp_path, CONFIG.replace("[0, 1]", "[2]"))
    result = run("sessions", "few.toml", "--report", "page", "--json", "--quiet")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    found = json.loads(result.stdout)
    assert {row["method"] for row in found["summary"]} == {"nearest_class_mean", "LDA <shrunk>"}
    assert found["summary"][0]["accuracy s.e."] is None
    assert Path(found["report"]) == Path("page/report.html")
    assert sorted(path.name for path in Path("page").iterdir()) == ["curves.png", "matrices.png", "report.html"]
    assert not Path("sessions/few/report.html").exists()
    assert Path("sessions/few/summary.csv").exists()
    refused = run("sessions", config, "-o", tmp_path / "out", "--report", config)
    assert refused.exit_code == 1
    assert "is a file: name a folder" in refused.stderr


def test_a_method_that_refuses_loses_nobody_elses_results(tmp_path: Path, run: Run) -> None:
    method = '[[methods]]\nname = "gp"\noptions = { likelihood = "logistic" }\n'
    result = run("sessions", written(tmp_path, CONFIG.replace("[0, 1]", "[0]") + method), "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert "error: gp is left out, seed 0: " in result.stderr
    assert "Traceback" not in result.stderr
    summary = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert set(summary["method"]) == {"nearest_class_mean", "LDA <shrunk>"}
    record = json.loads((tmp_path / "out" / "sessions.json").read_text(encoding="utf-8"))
    assert "likelihood='logistic' is for two classes" in record["failures"]["gp"]
    assert "gp is left out" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    alone = CONFIG[: CONFIG.index("[[methods]]")] + method
    result = run("sessions", written(tmp_path, alone), "-o", tmp_path / "none")
    assert result.exit_code == 1
    assert not (tmp_path / "none" / "summary.csv").exists()


def test_own_embeddings_with_queries_of_no_class(tmp_path: Path, run: Run) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c", "d", "none"], 12)
    means = 3 * np.eye(5)[np.unique(y, return_inverse=True)[1]]
    np.savez(tmp_path / "rows.npz", X=means + 0.3 * rng.normal(size=means.shape), y=y)
    text = """
    data = { name = "embeddings", options = { path = "rows.npz", base_classes = ["c", "a"], novel_classes = [["d"],
      ["b"]], shots = 4, out_of_scope_label = "none" } }
    methods = [{ name = "empirical_bayes" }]
    """.replace("\n      ", " ")
    result = run("sessions", written(tmp_path, text), "-o", tmp_path / "out", "--data", tmp_path)
    assert result.exit_code == 0, result.stderr
    summary = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert summary["out_of_scope_auroc"].iloc[0] > 0.95
    assert "of the test rows are right" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


ENCODED = """
[data]
name = "digits"
options = { base_shots = 20 }
encoder = "network.safetensors"

[[methods]]
name = "nearest_class_mean"

[[methods]]
name = "icarl"
options = { backbone = { name = "linear" }, base = { epochs = 20, batch_size = 16, learning_rate = 0.03 } }
"""


def encoder(folder: Path, n_columns: int = 64) -> Path:
    """A network that halves its inputs' columns, and no classes to speak of."""
    x, y = torch.eye(n_columns), torch.arange(n_columns) % 2
    classifier = SoftmaxNetwork(make_backbone("linear", (n_columns,), n_features=n_columns // 2), 2)
    settings = ClassifierSettings(epochs=1, learning_rate=1e-6, validate_every=0)
    alone = Processes(0, 1, torch.device("cpu"))
    trainee = ClassifierTraining(classifier, x, y, settings, alone)
    best = train(trainee, trainee.loop_settings(), folder / "training", alone).best
    return best.rename(folder / "network.safetensors")


def test_an_encoder_for_methods_that_take_embeddings(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    encoder(tmp_path)
    result = run("sessions", written(tmp_path, ENCODED), "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    summary = pd.read_csv(tmp_path / "out" / "summary.csv").set_index("method")
    assert summary.loc["nearest_class_mean", "numbers_per_class"] == 32 + 1
    # A method that trains a network is shown the digits themselves: exemplars, means and weights have 64 columns.
    assert summary.loc["icarl", "numbers_per_class"] == 5 * (64 + 1) + 64 + 64 + 1
    assert summary["accuracy"].min() > 0.75


def test_encoders_that_do_not_fit(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, ENCODED)
    result = run("sessions", "few.toml")
    assert result.exit_code == 1
    assert "network.safetensors" in result.stderr
    assert "Traceback" not in result.stderr
    encoder(tmp_path, n_columns=10)
    result = run("sessions", "few.toml")
    assert result.exit_code == 1
    assert "takes vectors of length 10, but digits has vectors of length 64" in " ".join(result.stderr.split())
    assert not (tmp_path / "sessions" / "few" / "report.html").exists()


@pytest.mark.real_data
def test_images_need_an_encoder(tmp_path: Path, run: Run) -> None:
    text = """
    data = { name = "miniimagenet32" }
    methods = [{ name = "tree" }]
    """
    result = run("sessions", written(tmp_path, text), "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert "images of 3 channels 32x32, and tree takes embeddings: state encoder in [data]" in result.stderr


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("[data]", "[dat]", "few.toml: unknown section [dat] (did you mean 'data'?); sessions: "),
        ('name = "digits"', "", "few.toml: the key data.name is missing"),
        ('"digits"', '"digit"', "no sessions called 'digit' (did you mean 'digits'?)"),
        ("shots = 3", "shot = 3", "digits has no option 'shot' (did you mean 'shots'"),
        ("shots = 3", "shots = 'three'", "digits: shots must be a whole number, got 'three'"),
        ("shots = 3", "shots = 300", "training rows, but 300 shots are asked for"),
        ("shots = 3", "seed = 3", "few.toml: data.options has a seed: give run.seeds"),
        ('"streaming_lda"', '"lda"', "few.toml: no method called 'lda'"),
        ("shrinkage", "shrink", "few.toml: streaming_lda has no option 'shrink' (did you mean 'shrinkage'?)"),
        ("0.3", "0", "few.toml: shrinkage must be above 0 and at most 1, got 0"),
        ("LDA <shrunk>", "nearest_class_mean", "few.toml: two methods are called 'nearest_class_mean'"),
        ("label", "lable", "few.toml: unknown key methods.lable (did you mean 'label'?)"),
        ('"LDA <shrunk>"', '""', "few.toml: methods.label must not be empty, got ''"),
        ('"LDA <shrunk>"', '" "', "few.toml: methods.label must not be empty, got ' '"),
        ("[run]", f"{GP}[run]", "few.toml: kernel must be one of 'auto', "),
        ("[run]", f"{TREE}[run]", "few.toml: n_representatives must be a positive integer; got -1"),
        ("options = { base_shots = 20, shots = 3 }", "options = { n_base = 40 }", "n_base=40 asks for more classes"),
        ("[[methods]]", "[methods]", "few.toml is not a TOML file"),
        ("[0, 1]", "[0, 0]", "few.toml: run.seeds must be different whole numbers from 0 to 4294967295, got [0, 0]"),
        ("[0, 1]", "[4294967296]", "few.toml: run.seeds must be different whole numbers from 0 to 4294967295"),
        ("[0, 1]", '"0"', "few.toml: run.seeds must be a list of whole numbers, got '0'"),
        ("[0, 1]", "[]", "few.toml: run.seeds must be different whole numbers"),
        ("[run]", "[run", "few.toml is not a TOML file"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, run: Run, before: str, after: str, message: str) -> None:
    assert before in CONFIG
    result = run("sessions", written(tmp_path, CONFIG.replace(before, after)), "-o", tmp_path / "out", "--quiet")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert message.replace("sessions: ", "sections: ") in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_method_table_is_needed_and_the_folder_must_be_one(tmp_path: Path, run: Run) -> None:
    path = written(tmp_path, '[data]\nname = "digits"\n')
    assert "no methods: add at least one table [[methods]]" in run("sessions", path).stderr
    path = written(tmp_path, CONFIG.replace("[[methods]]", "[[method]]"))
    assert "unknown section [method] (did you mean 'methods'?)" in run("sessions", path).stderr
    path = written(tmp_path, CONFIG)
    result = run("sessions", path, "-o", path)
    assert result.exit_code == 1
    assert "is a file: name a folder" in result.stderr
    result = run("sessions", tmp_path / "gone.toml")
    assert result.exit_code == 1
    assert "gone.toml: No such file or directory" in result.stderr


def test_one_session_only_is_mentioned(tmp_path: Path, run: Run) -> None:
    text = '[data]\nname = "digits"\noptions = { way = 7 }\n[[methods]]\nname = "nearest_class_mean"\n'
    result = run("sessions", written(tmp_path, text), "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert "all classes came in one session: there were not as many left as a later one has" in result.stderr
