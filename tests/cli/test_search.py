"""``sureshot search``: what it prints, writes and refuses, on tables and on streams."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_moons

from sureshot import KernelSearchClassifier
from sureshot.cli.reporting import held_out_share

Run = Callable[..., Any]
QUICK = ("--particles", 2, "--rejuvenation", 1)


@pytest.fixture(scope="module")
def moons(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``moons.csv``: two columns, a day, a time and names of classes, of which one comes first."""
    folder = tmp_path_factory.mktemp("moons")
    x, y = make_moons(60, noise=0.2, random_state=0)
    order = np.argsort(y[:20], kind="stable").tolist() + list(range(20, 60))
    frame = pd.DataFrame({"east": x[order, 0], "north": x[order, 1], "side": np.where(y[order], "up", "down")})
    frame["day"] = np.repeat(["tuesday", "monday", "friday"], 20)
    frame["time"] = np.arange(60) // 15 + 0.5
    frame.to_csv(folder / "moons.csv", index=False)
    frame.drop(columns=["day", "time"]).to_csv(folder / "plain.csv", index=False)
    return folder


@pytest.mark.slow
def test_it_says_which_kernels_and_how_good_they_are(moons: Path, tmp_path: Path, run: Run) -> None:
    arguments = ("search", moons / "plain.csv", "-t", "side", *QUICK, "-o", tmp_path / "m")
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    for words in ("as if each label had been given 0.", "mass", "kernel search", "class frequencies", "rows", "48"):
        assert words in result.stdout
    again = run(*arguments, "--report", tmp_path / "r", "--json", "--quiet")
    assert again.stderr == ""
    found = json.loads(again.stdout)
    assert (found["rows"], found["held_out"], found["features"]) == (48, 12, 2)
    assert found["classes"] == ["down", "up"]
    assert sum(one["mass"] for one in found["kernel_posterior"]) == pytest.approx(1)
    assert found["batches"][-1]["rows"] == 48
    assert found["baseline"]["nll"] == pytest.approx(np.log(2), abs=1e-3)
    assert found["scores"]["nll"] < found["baseline"]["nll"]
    model = KernelSearchClassifier.load(tmp_path / "m")
    assert model.callback is None
    assert model.log_evidence_ == found["log_evidence"]
    assert found["evidence_for_each_label"] == pytest.approx(np.exp(model.log_evidence_ / 48))
    assert model.kernel_posterior_[0] == tuple(found["kernel_posterior"][0].values())
    page = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    for heading in ("Reliability diagram", "Kernels, batch by batch", "Where particles come from", "What is predicted"):
        assert f"<h2>{heading}</h2>" in page
    assert "http" not in page.replace("http-equiv", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "r"]


@pytest.mark.slow
def test_the_seed_fixes_it_and_the_other_commands_take_its_model(moons: Path, tmp_path: Path, run: Run) -> None:
    for name, jobs in (("a", ()), ("b", ("--jobs", 2))):
        options = (*QUICK, "--particles", 5, *jobs)
        run("search", moons / "plain.csv", "-t", "side", *options, "--seed", 3, "-o", tmp_path / name, "-q")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    for command in (
        ("predict",),
        ("evaluate", "-t", "side", "--report", tmp_path / "r"),
        ("update", "-t", "side", "--in-place"),
    ):
        result = run(command[0], tmp_path / "a", moons / "plain.csv", *command[1:], "--json")
        assert result.exit_code == 0, result.stderr
    assert "heaviest structure" in (tmp_path / "r" / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_stream_by_a_column_and_by_numbers(moons: Path, tmp_path: Path, run: Run) -> None:
    frame = pd.read_csv(moons / "moons.csv").drop(columns="time")
    frame.to_csv(tmp_path / "d.csv", index=False)
    arguments = ("search", tmp_path / "d.csv", "-t", "side", *QUICK, "--schedule", "once", "--json", "-q")
    found = json.loads(run(*arguments, "--batches", "day", "--window", 25, "--report", tmp_path / "r").stdout)
    assert found["features"] == 2
    learnt = [found["batches"][0]["rows"], *(part["rows"] for part in found["stream"])]
    assert sum(learnt) == found["rows"] == 48
    assert all(15 <= rows <= 17 for rows in learnt)  # a fifth of each day is held out
    assert [batch["rows"] for batch in found["batches"][1:]] == [25, 25]
    assert found["kept"] == 25
    assert all(0 <= part["accuracy"] <= 1 for part in found["stream"])
    right = sum(part["accuracy"] * part["rows"] for part in found["stream"])
    assert found["stream_scores"]["accuracy"] == pytest.approx(right / sum(learnt[1:]))
    assert "before they were learnt" in run(*arguments[:-2], "--batches", "day").stdout
    page = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert "Predicted before it was learnt" in page
    assert "Reliability before rows were learnt" in page
    found = json.loads(run(*arguments[:2], "--batch-size", 5, "--hold-out", 0, *arguments[2:], "--batches", "").stdout)
    assert "exclude each other" in found["error"]
    ordered = ("search", moons / "plain.csv", "-t", "side", *QUICK, "--schedule", "once", "--json", "-q")
    found = json.loads(run(*ordered, "--batch-size", 8, "--hold-out", 0).stdout)
    assert [batch["rows"] for batch in found["batches"]] == [8, 16, 24, 32, 40, 48, 56, 60]
    assert found["held_out"] == 0
    assert "scores" not in found
    assert found["stream"][0]["new_classes"] == ["up"]  # the first eight rows are of one class
    timed = pd.read_csv(moons / "moons.csv").drop(columns="day")
    timed.to_csv(tmp_path / "t.csv", index=False)
    found = json.loads(run("search", tmp_path / "t.csv", *ordered[2:], "--batches", "time").stdout)
    assert len(found["stream"]) == 3


def test_columns_of_text_and_gaps_beside_batches(moons: Path, tmp_path: Path, run: Run) -> None:
    frame = pd.read_csv(moons / "moons.csv").drop(columns="time")
    frame["colour"] = np.where(frame["east"] > 0, "red", "blue")
    frame.loc[3, "north"] = np.nan
    frame.to_csv(tmp_path / "d.csv", index=False)
    arguments = ("search", tmp_path / "d.csv", "-t", "side", *QUICK, "--schedule", "once", "--batches", "day", "--json")
    result = run(*arguments, "-q")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["rows"] == 48


def test_a_stream_is_read_once(moons: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that batches are of the rows that are learnt, whatever becomes of the file meanwhile."""
    read, of_pandas = list[str](), pd.read_csv
    monkeypatch.setattr(pd, "read_csv", lambda *args, **options: read.append("") or of_pandas(*args, **options))
    arguments = (
        "search",
        moons / "moons.csv",
        "-t",
        "side",
        *QUICK,
        "--schedule",
        "once",
        "--batches",
        "day",
        "--json",
    )
    found = json.loads(run(*arguments, "-q", "--drop", "time", "--hold-out", 0).stdout)
    assert [batch["rows"] for batch in found["batches"]] == [20, 40, 60]
    assert len(read) == 1


def test_batches_of_arrays(moons: Path, tmp_path: Path, run: Run) -> None:
    frame = pd.read_csv(moons / "moons.csv")
    columns = {"X": frame[["east", "north"]], "y": frame["side"], "day": frame["day"]}
    np.savez(tmp_path / "d.npz", **{name: np.asarray(column.to_numpy().tolist()) for name, column in columns.items()})
    result = run("search", tmp_path / "d.npz", *QUICK, "--schedule", "once", "--batches", "day", "--json", "-q")
    assert result.exit_code == 0, result.stderr
    assert len(json.loads(result.stdout)["stream"]) == 2


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_row_of_no_batch_is_named(moons: Path, tmp_path: Path, run: Run, ending: str) -> None:
    frame = pd.read_csv(moons / "moons.csv").drop(columns="time")
    frame.loc[[5, 9], "day"] = None
    path = tmp_path / f"d.{ending}"
    if ending == "csv":
        frame.to_csv(path, index=False)
    else:
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    result = run("search", path, "-t", "side", *QUICK, "--batches", "day", "-q")
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: {path}: column 'day' (--batches) is empty in 2 of 60 rows (the first is row 5, counted from 0), so "
        "they are of no batch; fill it in, or drop them\n"
    )


def test_rows_of_another_file_are_judged(moons: Path, tmp_path: Path, run: Run) -> None:
    frame = pd.read_csv(moons / "plain.csv")
    frame.assign(side=np.where(np.arange(60) < 5, "left", frame["side"])).to_csv(tmp_path / "test.csv", index=False)
    result = run("search", moons / "plain.csv", "-t", "side", *QUICK, "--test", tmp_path / "test.csv", "--json")
    found = json.loads(result.stdout)
    assert (found["rows"], found["held_out"], found["scores"]["unknown_rows"]) == (60, 0, 5)
    assert "unknown_auroc" in found["scores"]
    assert "5 rows are of classes unknown" in result.stderr


def test_three_classes_of_many_columns(files: Path, tmp_path: Path, run: Run) -> None:
    result = run("search", files / "iris.npz", *QUICK, "--structure", "LINEAR", "--report", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "of comparisons of classes" in result.stdout
    assert "What is predicted" not in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--structure", "LINER"), "there is no leaf 'LINER' (did you mean 'LINEAR'?)"),
        (("--structure", "LINEAR +"), "ends where a kernel is expected"),
        (("--structure", "LINEAR" + " + LINEAR" * 1500), "the structure has 1501 leaves, and at most 128 are taken"),
        (("--jobs", "0"), "--jobs must be None, a positive number of jobs"),
        (("--schedule", "0"), "must be a positive integer; got 0"),
        (("--schedule", "log"), "--schedule must be logarithmic, linear, once"),
        (("--schedule", "5,x"), "--schedule must be logarithmic, linear, once, or sizes as in 50,100; got '5,x'"),
        (
            ("--grammar", "papre"),
            "--grammar: expected one of default, paper, series; got 'papre' (did you mean 'paper'?)",
        ),
        (("--batches", "days"), "no column 'days'"),
        (("--batches", "side"), "name the same column, side"),
        (("--batches", "north", "--batch-size", "3"), "exclude each other"),
        (("--test", "gone.csv"), "gone.csv does not exist"),
        (("--test", "gone.csv", "--hold-out", "0.1"), "--test and --hold-out exclude each other"),
        (("--test", "plain.csv"), "--test is the file of the rows to learn from"),
        (("-o", "-"), "a model is written to a file, not to standard output"),
        (("-o", "gone/model"), "the folder gone does not exist"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    moons: Path, tmp_path: Path, run: Run, options: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output = () if "-o" in options else ("-o", "model")
    options = tuple(str(moons / name) if name == "plain.csv" else name for name in options)
    result = run("search", moons / "plain.csv", "-t", "side", *options, *output, "--report", "report")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stdout == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("share", [0.4, 0.35, 0.15, 0.5, 0.01])
def test_as_many_rows_are_held_out_as_were_asked_for(share: float) -> None:
    rng = np.random.default_rng(0)
    y, parts = rng.choice(["a", "b", "c"], 200, p=[0.5, 0.45, 0.05]), np.arange(200) // 50
    y[:3] = "d", "e", "e"
    held = held_out_share(y, share, rng, parts)
    assert held.sum() == np.ceil(round(share * 199, 9))  # the only row of a class stays
    assert not held[0]
    for label in ("a", "b"):
        of_class = y == label
        assert abs(held[of_class].mean() - share) < 1 / of_class.sum() + 1e-9
        for part in range(4):
            both = of_class & (parts == part)
            assert abs(held[both].sum() - share * both.sum()) < 2
    assert all(not held[y == label].all() for label in "abce")


def test_one_class_is_named(moons: Path, tmp_path: Path, run: Run) -> None:
    pd.read_csv(moons / "plain.csv").assign(side="up").to_csv(tmp_path / "d.csv", index=False)
    for options in ((), ("--batch-size", 7)):
        result = run("search", tmp_path / "d.csv", "-t", "side", *options)
        assert result.exit_code == 1
        assert "d.csv: there is only one class, 'up'; at least two are needed" in result.stderr


def test_a_window_says_how_many_rows_are_drawn(moons: Path, run: Run) -> None:
    result = run("search", moons / "plain.csv", "-t", "side", *QUICK, "--window", 5)
    assert result.exit_code == 0
    assert "5 of 48 rows are drawn" in result.stderr


def test_rows_of_one_class_are_no_finding(moons: Path, tmp_path: Path, run: Run) -> None:
    """In the window at the end of a file that is sorted by class; rows asked about while one class is known."""
    pd.read_csv(moons / "plain.csv").sort_values("side").to_csv(tmp_path / "d.csv", index=False)
    stream = ("search", tmp_path / "d.csv", "-t", "side", *QUICK, "--hold-out", 0, "--batch-size", 10)
    result = run(*stream, "--window", 10, "--report", tmp_path / "r")
    assert result.exit_code == 0, result.stderr
    words = "all rows that are kept are of one class, so nothing is learnt"
    assert words in " ".join(result.stdout.replace("│", " ").split())
    assert "as if each label" not in result.stdout
    page = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert words in page
    found = json.loads(run(*stream, "--json").stdout)
    known = [batch["accuracy"] for batch in found["stream"]]
    assert known[0] is None
    assert known[-1] is not None
    assert found["log_evidence_error"] > 0


def test_kernels_are_seen_through_inducing_inputs(moons: Path, tmp_path: Path, run: Run) -> None:
    arguments = ("search", moons / "plain.csv", "-t", "side", *QUICK, "--inducing", 6, "-o", tmp_path / "m", "--json")
    found = json.loads(run(*arguments).stdout)
    assert found["kept"] == found["rows"]
    assert KernelSearchClassifier.load(tmp_path / "m")._fitted.state.inducing.shape == (6, 2)


def test_too_many_rows_are_refused_at_once(tmp_path: Path, run: Run) -> None:
    np.savez(tmp_path / "many.npz", X=np.random.default_rng(0).normal(size=(4000, 2)), y=np.arange(4000) % 2)
    result = run("search", tmp_path / "many.npz", "-o", tmp_path / "m")
    assert result.exit_code == 1
    assert "3200 rows and 32 particles would take about" in result.stderr
    assert "--window 1000" in result.stderr
    assert "--inducing 100" in result.stderr
    assert not (tmp_path / "m").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX systems")
def test_an_interrupt_in_the_middle_leaves_nothing(moons: Path, tmp_path: Path) -> None:
    pd.read_csv(moons / "plain.csv").assign(one=1).to_csv(tmp_path / "d.csv", index=False)
    start = (  # a shell that starts pytest in the background lets its children ignore interrupts
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\nfrom sureshot.cli import main; main()"
    )
    arguments = ["search", "d.csv", "-t", "side", "--rejuvenation", "500", "-o", "m", "--report", "r"]
    with subprocess.Popen(
        [sys.executable, "-c", start, *arguments], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "ignored 1 constant columns" in process.stderr.readline()  # the search has begun
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest.endswith("interrupted\n")
    assert "Traceback" not in rest
    assert [path.name for path in tmp_path.iterdir()] == ["d.csv"]


def test_a_report_that_cannot_be_written_loses_nothing(moons: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "report" / "report.html").mkdir(parents=True)
    (tmp_path / "report" / "report.html" / "in the way").touch()
    model = tmp_path / "model.safetensors"
    quick = ("--particles", "2", "--rejuvenation", "0", "-q")
    result = run("search", moons / "plain.csv", "-t", "side", *quick, "--report", tmp_path / "report", "-o", model)
    assert result.exit_code == 1
    assert "report.html: Is a directory" in result.stderr
    assert "log-evidence" in result.stdout
    assert len(KernelSearchClassifier.load(model).classes_) == 2


def test_a_refusal_of_its_size_says_what_to_try_once(tmp_path: Path, run: Run) -> None:
    draw = np.random.default_rng(0)
    pd.DataFrame({"a": draw.normal(size=2700), "y": np.arange(2700) % 2}).to_csv(tmp_path / "big.csv", index=False)
    found = run("search", tmp_path / "big.csv", "-t", "y", "--particles", 2, "-q")
    assert found.exit_code == 1
    assert found.stderr.startswith("error: a search over kernels with 2160 rows and 2 particles would take about")
    assert "not enough memory" not in found.stderr
    assert "(--window 1000)" in found.stderr
