"""Fit, predict, evaluate and update where the target is a number."""

from __future__ import annotations

import html
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sureshot import GPRegressor, KernelSearchRegressor
from tests.cli.conftest import Run

QUICK = ("--kernel", "rbf", "--objective", "none")


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Path:
    """A folder with ``known.csv``, ``more.csv``, ``new.csv`` and a model of the first."""
    folder = tmp_path_factory.mktemp("houses")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"name": [f"h{k}" for k in range(120)], "size": rng.uniform(50, 200, 120)})
    frame["age"] = rng.integers(0, 80, 120)
    frame["price"] = 3.0 * frame["size"] - frame["age"] + rng.normal(0, 20, 120)
    for name, rows in (("known", slice(60)), ("more", slice(60, 80)), ("new", slice(80, None))):
        frame[rows].to_csv(folder / f"{name}.csv", index=False)
    result = run("fit", folder / "known.csv", "-t", "price", "--id", "name", "-o", folder / "m.safetensors", *QUICK)
    assert result.exit_code == 0, result.stderr
    assert "the target is learnt as numbers" in result.stderr
    return folder


def test_fit_says_what_it_learnt(houses: Path, tmp_path: Path, run: Run) -> None:
    command = ("fit", houses / "known.csv", "-t", "price", "--id", "name", "-o", tmp_path / "m.safetensors", *QUICK)
    summary = json.loads(run(*command, "--json").stdout)
    model = GPRegressor.load(tmp_path / "m.safetensors")
    assert (summary["task"], summary["rows"], summary["features"]) == ("numbers", 60, 2)
    y, found = model.left_out_
    assert summary["leave_one_out"]["rmse"] == pytest.approx(np.sqrt(np.mean((y - found.mean) ** 2)))
    assert summary["leave_one_out"]["log_density"] == pytest.approx(model.leave_one_out_score_)
    shown = run(*command).stdout
    for part in ("numbers", "scale of the target", "noise", "leave-one-out log density"):
        assert part in shown


def test_predictions_are_those_of_the_regressor(houses: Path, run: Run) -> None:
    new = pd.read_csv(houses / "new.csv")
    model, X = GPRegressor.load(houses / "m.safetensors"), new[["size", "age"]]
    command = (
        "predict",
        houses / "m.safetensors",
        houses / "new.csv",
        "--id",
        "name",
        "--outlier",
        "--coverage",
        "0.8",
    )
    result = run(*command)
    assert result.exit_code == 0, result.stderr
    printed = pd.read_csv(io.StringIO(result.stdout))
    assert list(printed.columns) == ["name", "prediction", "deviation", "lower", "upper", "outlier"]
    mean, deviation = model.predict(X, return_std=True)
    ends = model.predict_interval(X, 0.8)
    expected = np.stack([mean, deviation, ends.lower, ends.upper, model.outlier_score(X)], 1)
    np.testing.assert_allclose(printed.iloc[:, 1:], expected, rtol=1e-5)
    rows = json.loads(run(*command, "--json").stdout)["rows"]
    assert [row["row"] for row in rows] == new["name"].tolist()
    np.testing.assert_allclose([row["upper"] for row in rows], ends.upper, rtol=1e-12)
    joined = pd.read_csv(io.StringIO(run(*command, "--join").stdout))
    assert list(joined.columns) == [*new.columns, *printed.columns[1:]]


def test_reasons_are_rows_by_their_ids(houses: Path, run: Run) -> None:
    new = pd.read_csv(houses / "new.csv")
    command = ("predict", houses / "m.safetensors", houses / "new.csv", "--id", "name", "--why", "2")
    result = run(*command)
    assert result.exit_code == 0, result.stderr
    printed = pd.read_csv(io.StringIO(result.stdout))
    assert list(printed.columns[5:8]) == ["reason_1", "number_of_reason_1", "pull_of_reason_1"]
    found = GPRegressor.load(houses / "m.safetensors").influence(new[["size", "age"]], 2).drivers
    assert printed["reason_2"].tolist() == found.row_ids[:, 1].tolist()
    np.testing.assert_allclose(printed["pull_of_reason_1"], found.pulls[:, 0], rtol=1e-5)
    np.testing.assert_allclose(printed["number_of_reason_1"], found.y[:, 0], rtol=1e-5)
    first = json.loads(run(*command, "--json").stdout)["rows"][0]["why"][0]
    assert first == {"row": found.row_ids[0, 0], "number": found.y[0, 0], "pull": pytest.approx(found.pulls[0, 0])}


def test_what_to_measure_next(houses: Path, run: Run) -> None:
    new = pd.read_csv(houses / "new.csv")
    result = run("suggest", houses / "m.safetensors", houses / "new.csv", "--id", "name", "-n", "4")
    assert result.exit_code == 0, result.stderr
    printed = pd.read_csv(io.StringIO(result.stdout))
    model, X = GPRegressor.load(houses / "m.safetensors"), new[["size", "age"]]
    rows = model.suggest(X, 4).rows
    assert list(printed.columns) == ["name", "prediction", "deviation"]
    assert printed["name"].tolist() == new["name"].iloc[rows].tolist()
    np.testing.assert_allclose(printed["prediction"], model.predict(X.iloc[rows]), rtol=1e-5)


def test_evaluate_beside_one_mean_for_all(houses: Path, tmp_path: Path, run: Run) -> None:
    model, known, new = (
        GPRegressor.load(houses / "m.safetensors"),
        *(pd.read_csv(houses / f"{name}.csv") for name in ("known", "new")),
    )
    command = ("evaluate", houses / "m.safetensors", houses / "new.csv", "-t", "price")
    found = json.loads(run(*command, "--json", "--report", tmp_path / "report").stdout)
    X, y = new[["size", "age"]], new["price"].to_numpy()
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
    assert found["mae"] == pytest.approx(np.abs(model.predict(X) - y).mean())
    assert found["log_density"] == pytest.approx(model.log_density(X, y).mean())
    for coverage in (50, 90, 95):
        inside = model.predict_interval(X, coverage / 100).contain(y).mean()
        assert found[f"coverage_{coverage}"] == pytest.approx(inside)
    assert found["baseline"]["rmse"] == pytest.approx(np.sqrt(np.mean((known["price"].mean() - y) ** 2)))
    assert found["crps"] < found["baseline"]["crps"]
    page = html.unescape(Path(found["report"]).read_text(encoding="utf-8"))
    for part in ("Predicted against true", "Most surprising rows", "Are intervals right?", "one mean for all"):
        assert part in page
    assert "root mean squared error" in run(*command).stdout


def test_a_kernel_search_is_reported_as_what_it_found(tmp_path: Path, run: Run) -> None:
    x = np.arange(20.0)
    KernelSearchRegressor(n_particles=4, random_state=0).fit(x[:, None], x + np.sin(x)).save(tmp_path / "m")
    pd.DataFrame({"x": x + 0.5, "y": x}).to_csv(tmp_path / "new.csv", index=False)
    result = run("evaluate", tmp_path / "m", tmp_path / "new.csv", "-t", "y", "--report", tmp_path / "r", "--json")
    assert result.exit_code == 0, result.stderr
    assert "heaviest structure" in (tmp_path / "r" / "report.html").read_text(encoding="utf-8")


def test_fit_writes_a_report_of_rows_that_were_held_out(houses: Path, tmp_path: Path, run: Run) -> None:
    command = ("fit", houses / "known.csv", "-t", "price", "--id", "name", "-o", tmp_path / "m.safetensors", *QUICK)
    result = run(*command, "--report", tmp_path / "r", "--json")
    assert result.exit_code == 0, result.stderr
    scores = json.loads(result.stdout)["cross_validated"]
    assert scores["rows"] == 60
    assert scores["mae"] < scores["baseline"]["mae"]
    assert "each predicted by a model fitted without it" in (tmp_path / "r" / "report.html").read_text()
    assert "cross-validated" in run(*command, "--report", tmp_path / "r").stdout


@pytest.mark.parametrize("numbers", [[3.5], [3.5, 4.5]])
def test_too_few_rows_to_hold_one_out_are_reported_without_scores(
    numbers: list[float], tmp_path: Path, run: Run
) -> None:
    pd.DataFrame({"a": range(len(numbers)), "y": numbers}).to_csv(tmp_path / "few.csv", index=False)
    command = (
        "fit",
        tmp_path / "few.csv",
        "--target",
        "y",
        "--task",
        "numbers",
        "--output",
        tmp_path / "m.safetensors",
    )
    result = run(*command, "--report", tmp_path / "r", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert found["cross_validated"] == {}
    assert "3 rows are needed to hold one out" in result.stderr
    page = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert "3 rows are needed to hold one out" in page
    assert "deviation of the noise" in page
    assert "cross-validated" not in run(*command, "--report", tmp_path / "r").stdout


def test_update_corrects_and_forgets(houses: Path, tmp_path: Path, run: Run) -> None:
    names = ("--id", "name", "-t", "price")
    first = run("update", houses / "m.safetensors", houses / "more.csv", *names, "-o", tmp_path / "a", "--json")
    assert {name: value for name, value in json.loads(first.stdout).items() if name.startswith("rows")} == {
        "rows_added": 20,
        "rows_replaced": 0,
        "rows_forgotten": 0,
        "rows": 80,
    }
    again = run("update", tmp_path / "a", houses / "more.csv", *names, "-o", tmp_path / "b", "--json")
    assert json.loads(again.stdout)["rows_replaced"] == 20
    gone = run(
        "update", tmp_path / "a", "--forget-rows", ",".join(f"h{k}" for k in range(60, 80)), "-o", tmp_path / "c"
    )
    assert gone.exit_code == 0, gone.stderr
    assert "rows forgotten" in gone.stdout
    X = pd.read_csv(houses / "new.csv")[["size", "age"]]
    known, back = (GPRegressor.load(path).predict(X) for path in (houses / "m.safetensors", tmp_path / "c"))
    np.testing.assert_allclose(back, known, rtol=1e-6)


def test_the_task_is_asked_or_stated(tmp_path: Path, run: Run) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=300), "age": rng.integers(18, 90, 300)})
    frame.to_csv(tmp_path / "a.csv", index=False)
    command = ("fit", tmp_path / "a.csv", "-t", "age", "-o", tmp_path / "m.safetensors", *QUICK)
    asked = run(*command)
    assert asked.exit_code == 2
    assert asked.stderr.strip().endswith("may be numbers or classes: state --task numbers or --task classes")
    stated = run(*command, "--task", "numbers", "--json")
    assert json.loads(stated.stdout)["task"] == "numbers"
    assert stated.stderr == ""


def test_a_constant_target_says_so(tmp_path: Path, run: Run) -> None:
    pd.DataFrame({"x": range(12), "y": [2.5] * 12}).to_csv(tmp_path / "a.csv", index=False)
    fitted = run("fit", tmp_path / "a.csv", "-t", "y", "-o", tmp_path / "m.safetensors", *QUICK)
    assert fitted.exit_code == 0, fitted.stderr
    assert "y does not vary" in fitted.stderr
    printed = pd.read_csv(io.StringIO(run("predict", tmp_path / "m.safetensors", tmp_path / "a.csv").stdout))
    np.testing.assert_allclose(printed["prediction"], 2.5, atol=1e-6)


REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "probabilities": (("predict", "--proba"), "--proba is for models of classes"),
    "sets": (("predict", "--set", "0.9"), "--set is for models of classes"),
    "no coverage": (("predict", "--coverage", "1.5"), "--coverage must lie between 0 and 1"),
    "text": (("evaluate", "-t", "name"), "holds text, 'h80'"),
    "no column": (("evaluate", "-t", "cost"), "no column 'cost'"),
    "classes to forget": (("update", "-t", "price", "--forget-classes", "a", "-o", "x"), "no --forget-classes"),
    "worse": (("update", "-t", "price", "--retune-if-worse", "-o", "x"), "--retune-if-worse is for the models of"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, houses: Path, run: Run) -> None:
    (command, *options), message = REFUSED[name]
    result = run(command, houses / "m.safetensors", houses / "new.csv", *options)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("error") == 1


def test_classes_are_refused_what_numbers_have(files: Path, houses: Path, tmp_path: Path, run: Run) -> None:
    refused = run("predict", files / "iris.safetensors", files / "iris.csv", "--coverage", "0.5")
    assert "--coverage is for models of numbers" in refused.stderr
    pd.read_csv(files / "iris.csv").assign(species=0.5).to_csv(tmp_path / "fractions.csv", index=False)
    fractions = run("evaluate", files / "iris.safetensors", tmp_path / "fractions.csv", "-t", "species")
    assert "the labels are numbers (for instance 0.5) but the model's classes are text" in fractions.stderr
    for option in (("--likelihood", "softmax"), ("--strategy", "rebuild")):
        fit = (
            "fit",
            houses / "known.csv",
            "-t",
            "price",
            "-o",
            tmp_path / "m.safetensors",
            "--task",
            "numbers",
            *option,
        )
        assert f"{option[0]} is for classes" in run(*fit).stderr
    learner = run(
        "fit", files / "iris.csv", "-t", "species", "-o", tmp_path / "x", "--checkpoint", houses / "m.safetensors"
    )
    assert "no meta-trained learner (it holds 'gp_regressor')" in learner.stderr


def test_several_numbers_a_row_are_left_to_python(tmp_path: Path, run: Run) -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    GPRegressor(kernel="rbf", objective=None).fit(X, X).save(tmp_path / "m.safetensors")
    pd.DataFrame(X).to_csv(tmp_path / "a.csv", index=False)
    assert (
        "predicts 2 numbers a row, as Python can"
        in run("predict", tmp_path / "m.safetensors", tmp_path / "a.csv").stderr
    )
