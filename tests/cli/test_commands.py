"""Fit, predict, evaluate and update, as a person would use them one after another."""

from __future__ import annotations

import html
import importlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from sureshot.estimators.classes.answers import Answers
from sureshot.estimators.gp.classifier import GPClassifier

Run = Callable[..., Any]
QUICK = ("--kernel", "rbf", "--likelihood", "softmax", "--objective", "none")


def test_fit_says_what_it_did(files: Path, tmp_path: Path, run: Run) -> None:
    result = run("fit", files / "iris.csv", "-t", "species", "-o", tmp_path / "m.safetensors", *QUICK, "--json")
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["rows"] == 75
    assert summary["features"] == 4
    assert summary["classes"] == ["setosa", "versicolor", "virginica"]
    assert summary["settings"]["likelihood"] == "softmax"
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]
    model = GPClassifier.load(tmp_path / "m.safetensors")
    left_out = {name: getattr(model, f"leave_one_out_{name}_") for name in ("accuracy", "balanced_accuracy", "nll")}
    assert summary["leave_one_out"] == left_out
    shown = run("fit", files / "iris.csv", "-t", "species", "-o", tmp_path / "m.safetensors", *QUICK).stdout
    assert f"{left_out['accuracy']:.4f}" in shown
    assert "leave-one-out NLL" in shown


def test_fit_lists_the_heaviest_of_many_settings(files: Path, tmp_path: Path, run: Run) -> None:
    pd.read_csv(files / "iris.csv")[::3].to_csv(tmp_path / "few.csv", index=False)
    result = run("fit", tmp_path / "few.csv", "-t", "species", "-o", tmp_path / "m.safetensors", "--json")
    assert result.exit_code == 0, result.stderr
    listed = json.loads(result.stdout)["settings"]["average of"].split("; ")
    members = GPClassifier.load(tmp_path / "m.safetensors").members_
    assert [part[:4] for part in listed[:5]] == [f"{member.weight:.2f}" for member in members[:5]]
    assert listed[5] == f"{sum(member.weight for member in members[5:]):.2f} {len(members) - 5} more together"
    assert len(listed) == 6


def test_fit_says_how_many_labels_look_random(tmp_path: Path, run: Run) -> None:
    x, y = load_digits(return_X_y=True)
    generator = np.random.default_rng(0)
    rows = generator.permutation(len(y))[:200]
    spoilt = np.where(generator.random(200) < 0.25, generator.integers(0, 10, 200), y[rows])
    frame = pd.DataFrame(x[rows]).add_prefix("pixel_").assign(digit=spoilt)
    frame.to_csv(tmp_path / "digits.csv", index=False)
    result = run("fit", tmp_path / "digits.csv", "-t", "digit", "-o", tmp_path / "m.safetensors", "--json")
    assert result.exit_code == 0, result.stderr
    noise = GPClassifier.load(tmp_path / "m.safetensors").label_noise_
    assert 0.1 < noise < 0.4
    assert json.loads(result.stdout)["settings"]["labels that look random"] == f"{noise:.1%}"


def test_fit_is_fixed_by_its_seed(files: Path, tmp_path: Path, run: Run) -> None:
    for name in ("a", "b"):
        run("fit", files / "iris.csv", "-t", "species", "-o", tmp_path / name, *QUICK, "--seed", "3")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("suffix", ["parquet", "npz", "csv.gz", "tsv", "txt"])
def test_every_format_gives_the_same_predictions(
    files: Path, iris: pd.DataFrame, tmp_path: Path, run: Run, suffix: str
) -> None:
    path = tmp_path / f"iris.{suffix}"
    if suffix == "parquet":
        iris.to_parquet(path, index=False)
    elif suffix == "npz":
        shutil.copy(files / "iris.npz", path)
    else:
        iris.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    expected = run("predict", files / "iris.safetensors", files / "iris.csv", "--proba")
    result = run("predict", files / "iris.safetensors", path, "--proba")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == expected.stdout


def test_predictions_are_those_of_the_estimator(files: Path, iris: pd.DataFrame, run: Run) -> None:
    result = run("predict", files / "iris.safetensors", files / "iris.csv", "--proba", "--outlier")
    assert result.exit_code == 0, result.stderr
    printed = pd.read_csv(io.StringIO(result.stdout))
    model = GPClassifier.load(files / "iris.safetensors")
    X = iris.drop(columns="species")
    assert list(printed.columns) == [
        "row",
        "prediction",
        "probability_setosa",
        "probability_versicolor",
        "probability_virginica",
        "outlier",
    ]
    assert printed["prediction"].tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(printed.iloc[:, 2:5], model.predict_proba(X), rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(printed["outlier"], model.outlier_score(X), rtol=1e-5)


@pytest.mark.parametrize("command", [("predict",), ("suggest", "-n", "5")])
def test_predictions_are_written_under_the_name_of_what_they_are(
    files: Path, tmp_path: Path, run: Run, command: tuple[str, ...]
) -> None:
    asked = (command[0], files / "iris.safetensors", files / "iris.csv", *command[1:])
    for name, advice in (("p.xlsx", "p.csv"), ("p.csv.gz", "p.csv"), ("p.json", "p.csv, or add --json")):
        refused = run(*asked, "-o", tmp_path / name)
        assert refused.exit_code == 1
        assert refused.stderr.strip().endswith(f"{name} would hold CSV: call it {advice}")
    assert "would hold JSON: call it p.json" in run(*asked, "--json", "-o", tmp_path / "p.npz").stderr
    assert "would hold JSON: call it p.json, or leave --json" in run(*asked, "--json", "-o", tmp_path / "p.csv").stderr
    assert run(*asked, "-o", "-").stdout == run(*asked).stdout
    assert run(*asked, "--json", "-o", tmp_path / "p.json").exit_code == 0
    assert not Path("-").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


def test_predictions_as_json_and_into_a_file(files: Path, tmp_path: Path, run: Run) -> None:
    arguments = ("predict", files / "iris.safetensors", files / "iris.csv", "--proba", "--outlier")
    printed = json.loads(run(*arguments, "--json").stdout)
    assert printed["classes"] == ["setosa", "versicolor", "virginica"]
    assert len(printed["rows"]) == 75
    first = printed["rows"][0]
    assert sum(first["probabilities"].values()) == pytest.approx(1.0)
    assert first["prediction"] == max(first["probabilities"], key=first["probabilities"].get)
    result = run(*arguments, "-o", tmp_path / "p.csv")
    assert result.stdout == ""
    assert (tmp_path / "p.csv").read_text() == run(*arguments).stdout
    run(*arguments, "-o", tmp_path / "p.json", "--json")
    assert json.loads((tmp_path / "p.json").read_text()) == printed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "p.json"]


def test_the_most_probable_classes(files: Path, iris: pd.DataFrame, run: Run) -> None:
    arguments = ("predict", files / "iris.safetensors", files / "iris.csv", "--top", "2")
    printed = pd.read_csv(io.StringIO(run(*arguments).stdout))
    leading = GPClassifier.load(files / "iris.safetensors").predict_topk(iris.drop(columns="species"), 2)
    classes, probabilities = ["class_1", "class_2"], ["probability_of_class_1", "probability_of_class_2"]
    assert set(printed.columns) == {"row", "prediction", *classes, *probabilities}
    assert printed[classes].to_numpy().tolist() == leading.labels.tolist()
    np.testing.assert_allclose(printed[probabilities], leading.probabilities, rtol=1e-5)
    rows = json.loads(run(*arguments[:-1], "9", "--json").stdout)["rows"]
    assert [len(row["top"]) for row in rows] == [3] * len(iris)
    assert rows[0]["top"][0]["class"] == printed["prediction"][0]


def test_columns_may_come_in_any_order_and_rows_keep_their_names(
    files: Path, iris: pd.DataFrame, tmp_path: Path, run: Run
) -> None:
    shuffled = iris.drop(columns="species").iloc[:, ::-1]
    shuffled.index = pd.Index([f"flower {i}" for i in range(len(iris))])
    shuffled.to_csv(tmp_path / "s.csv")
    printed = pd.read_csv(io.StringIO(run("predict", files / "iris.safetensors", tmp_path / "s.csv").stdout))
    expected = pd.read_csv(io.StringIO(run("predict", files / "iris.safetensors", files / "iris.csv").stdout))
    assert printed["prediction"].tolist() == expected["prediction"].tolist()
    assert printed["row"].tolist() == list(shuffled.index)


def test_the_column_of_labels_is_left_out_when_predicting(
    files: Path, iris: pd.DataFrame, tmp_path: Path, run: Run
) -> None:
    guessed = run("predict", files / "iris.safetensors", files / "iris.csv")
    assert "left out the column species" in guessed.stderr
    iris.assign(species="not a class").to_csv(tmp_path / "n.csv", index=False)
    unknown = run("predict", files / "iris.safetensors", tmp_path / "n.csv")
    assert unknown.stdout == guessed.stdout
    assert "ignored columns that the model does not know: species" in unknown.stderr
    named = run("predict", files / "iris.safetensors", tmp_path / "n.csv", "--target", "species")
    assert named.stdout == guessed.stdout
    assert named.stderr == ""


def test_evaluate_on_known_classes(files: Path, iris: pd.DataFrame, run: Run) -> None:
    result = run("evaluate", files / "iris.safetensors", files / "iris.csv", "-t", "species", "--json")
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    model = GPClassifier.load(files / "iris.safetensors")
    accuracy = np.mean(model.predict(iris.drop(columns="species")) == iris["species"].to_numpy())
    assert summary["accuracy"] == pytest.approx(accuracy)
    assert summary["unknown_rows"] == 0
    assert "unknown_auroc" not in summary
    assert "mce" not in summary
    recalls = [of_class["recall"] for of_class in summary["classes"]]
    assert summary["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    assert [of_class["rows"] for of_class in summary["classes"]] == iris["species"].value_counts().sort_index().tolist()
    table = run("evaluate", files / "iris.safetensors", files / "iris.csv", "-t", "species")
    assert "balanced accuracy" in table.stdout
    assert "precision" in table.stdout
    assert f"{accuracy:.4f}" in table.stdout


def test_of_many_classes_the_worst_are_shown(tmp_path: Path, run: Run) -> None:
    generator = np.random.default_rng(0)
    y = np.repeat([f"c{k:02d}" for k in range(15)], 4)
    x = np.repeat(np.arange(15) * 9.0, 4) + generator.normal(size=60)
    pd.DataFrame({"x": x, "y": y}).to_csv(tmp_path / "a.csv", index=False)
    run("fit", tmp_path / "a.csv", "-t", "y", "-o", tmp_path / "m", *QUICK)
    result = run("evaluate", tmp_path / "m", tmp_path / "a.csv", "-t", "y")
    assert "the 12 classes of lowest recall are shown" in result.stderr
    assert sum(f"c{k:02d}" in result.stdout for k in range(15)) == 12


def test_evaluate_takes_classes_it_has_not_met_as_unknown(files: Path, iris: pd.DataFrame, run: Run) -> None:
    result = run("evaluate", files / "two.safetensors", files / "iris.csv", "-t", "species", "--json")
    summary = json.loads(result.stdout)
    unknown = int((iris["species"] == "virginica").sum())
    assert summary["unknown_rows"] == unknown
    assert 0.5 < summary["unknown_auroc"] <= 1.0
    assert f"{unknown} rows are of classes unknown to the model (virginica)" in result.stderr
    only = run("evaluate", files / "two.safetensors", files / "two.csv", "-t", "species", "--json")
    assert summary["accuracy"] == json.loads(only.stdout)["accuracy"]


def test_evaluate_on_unknown_classes_only(files: Path, run: Run) -> None:
    result = run("evaluate", files / "two.safetensors", files / "third.csv", "-t", "species", "--json")
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["unknown_rows"] == summary["rows"]
    assert "accuracy" not in summary


def test_update_adds_a_class(files: Path, tmp_path: Path, run: Run) -> None:
    new = tmp_path / "three.safetensors"
    before = (files / "two.safetensors").read_bytes()
    arguments = (files / "third.csv", "-t", "species")
    result = run("update", files / "two.safetensors", *arguments, "-o", new, "--json")
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["new_classes"] == ["virginica"]
    assert (files / "two.safetensors").read_bytes() == before
    scores = json.loads(run("evaluate", new, files / "iris.csv", "-t", "species", "--json").stdout)
    assert scores["unknown_rows"] == 0
    assert scores["accuracy"] > 0.85
    shutil.copy(files / "two.safetensors", tmp_path / "over.safetensors")
    refused = run("update", tmp_path / "over.safetensors", *arguments)
    assert refused.exit_code == 1
    assert "stays as it is: name a file for the new model (--output), or replace it (--in-place)" in refused.stderr
    assert (tmp_path / "over.safetensors").read_bytes() == before
    run("update", tmp_path / "over.safetensors", *arguments, "--in-place")
    assert (tmp_path / "over.safetensors").read_bytes() == new.read_bytes()


def test_numbered_classes_and_bare_columns(tmp_path: Path, iris: pd.DataFrame, run: Run) -> None:
    X, y = iris.drop(columns="species").to_numpy(), iris["species"].astype("category").cat.codes.to_numpy()
    np.savez(tmp_path / "d.npz", embedding=X.astype(np.float32), label=y)
    fitted = run("fit", tmp_path / "d.npz", "-o", tmp_path / "m", *QUICK, "--json")
    assert json.loads(fitted.stdout)["classes"] == [0, 1, 2]
    rows = json.loads(run("predict", tmp_path / "m", tmp_path / "d.npz", "--json").stdout)["rows"]
    assert {type(row["prediction"]) for row in rows} == {int}
    iris.drop(columns="species").to_csv(tmp_path / "d.csv", index=False)
    assert run("predict", tmp_path / "m", tmp_path / "d.csv").exit_code == 0


def test_labels_that_look_like_numbers_are_compared_as_the_model_knows_them(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,01\n2,01\n8,b\n9,b\n")
    (tmp_path / "b.csv").write_text("x,y\n1.5,01\n2.5,01\n")
    assert run("fit", tmp_path / "a.csv", "-t", "y", "-o", tmp_path / "m", *QUICK).exit_code == 0
    summary = json.loads(run("evaluate", tmp_path / "m", tmp_path / "b.csv", "-t", "y", "--json").stdout)
    assert summary["unknown_rows"] == 0


def test_reports(files: Path, tmp_path: Path, run: Run) -> None:
    fit = run("fit", files / "iris.csv", "-t", "species", "-o", tmp_path / "m", *QUICK, "--report", tmp_path / "fit")
    assert fit.exit_code == 0, fit.stderr
    page = (tmp_path / "fit" / "report.html").read_text()
    assert "each predicted by a classifier fitted without it" in page
    assert "deviations from the median of the row's fold" in html.unescape(page)
    assert "cross-validated balanced accuracy" in fit.stdout
    assert "precision" in fit.stdout
    assert "virginica" in fit.stdout
    evaluated = run(
        "evaluate",
        *(files / "two.safetensors", files / "iris.csv", "-t", "species"),
        *("--report", tmp_path / "evaluation", "--json"),
    )
    assert Path(json.loads(evaluated.stdout)["report"]) == tmp_path / "evaluation" / "report.html"
    assert "virginica" in (tmp_path / "evaluation" / "report.html").read_text()
    confusion = pd.read_csv(tmp_path / "evaluation" / "confusion.csv", index_col=0)
    assert confusion.index.tolist() == ["setosa", "versicolor", "virginica"]
    assert confusion.columns.tolist() == ["setosa", "versicolor"]
    assert confusion.to_numpy().sum() == 75


def test_a_report_of_one_row_a_class_has_no_scores(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,a\n9,b\n5,c\n")
    result = run("fit", tmp_path / "a.csv", "-t", "y", "-o", tmp_path / "m", *QUICK, "--report", tmp_path / "report")
    assert result.exit_code == 0, result.stderr
    assert "none can be held out" in result.stderr
    assert (tmp_path / "report" / "report.html").exists()


def test_doctor(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURESHOT_DATA", str(tmp_path))
    result = run("doctor", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["missing"] == []
    assert found["data"]["root"] == str(tmp_path)
    assert found["threads"]["torch"] >= 1
    monkeypatch.delenv("SURESHOT_DATA")
    assert "SURESHOT_DATA" in run("doctor").stdout


def test_help_and_version(run: Run) -> None:
    assert run("--version").stdout.startswith("sureshot ")
    for command in ("demo", "fit", "predict", "evaluate", "suggest", "update", "search", "doctor"):
        result = run(command, "--help")
        assert result.exit_code == 0
        assert "--json" in result.stdout


def test_classes_that_come_over_time(run: Run, files: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.safetensors"
    fitted = run("fit", files / "two.csv", "-t", "species", "-o", model, "--strategy", "recommended", "--json")
    assert fitted.exit_code == 0, fitted.stderr
    summary = json.loads(fitted.stdout)
    assert summary["settings"]["strategy"] == "recommended"
    assert "for 2 classes" in summary["settings"]["memory"]
    assert summary["log_evidence"] is None
    updated = run("update", model, files / "third.csv", "-t", "species", "--in-place", "--json")
    assert json.loads(updated.stdout)["new_classes"] == ["virginica"]
    evaluated = run("evaluate", model, files / "iris.csv", "-t", "species", "--json")
    assert json.loads(evaluated.stdout)["accuracy"] > 0.9
    for option, words in (("--kernel", "--kernel and --strategy exclude"), ("--checkpoint", "exclude each other")):
        refused = run("fit", files / "two.csv", "-t", "species", "-o", model, "--strategy", "session", option, "rbf")
        assert refused.exit_code != 0
        assert words in refused.stderr
    refused = run("update", model, files / "third.csv", "-t", "species", "--retune", "--in-place")
    assert "holds a TreeGPClassifier" in refused.stderr


def test_rejected_rows_and_sets(files: Path, tmp_path: Path, iris: pd.DataFrame, run: Run) -> None:
    arguments = ("predict", files / "two.safetensors", files / "iris.csv", "--reject", "0.05", "--set", "0.9")
    printed = pd.read_csv(io.StringIO(run(*arguments).stdout))
    assert list(printed.columns) == ["row", "prediction", "p_value", "set"]
    model, X = GPClassifier.load(files / "two.safetensors"), iris.drop(columns="species")
    np.testing.assert_array_equal(printed["prediction"] == "unknown", printed["p_value"] <= 0.05)
    assert printed["prediction"].tolist() == model.predict_or_reject(X, 0.05).tolist()
    assert [cell.split("|") for cell in printed["set"]] == model.predict_set(X, 0.9).tolist()
    rows = json.loads(run(*arguments, "--unknown", "other", "--json").stdout)["rows"]
    assert {row["prediction"] for row in rows} <= {"setosa", "versicolor", "other"}
    assert [row["set"] for row in rows] == model.predict_set(X, 0.9).tolist()
    np.testing.assert_allclose([row["p_value"] for row in rows], printed["p_value"], rtol=1e-5)


def test_outliers_are_scored_once_for_a_rejection(
    files: Path, iris: pd.DataFrame, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("predict", files / "two.safetensors", files / "iris.csv", "--reject", "0.001", "--outlier")
    scored = list[int]()
    of_rows = Answers._outlier_scores
    monkeypatch.setattr(
        Answers, "_outlier_scores", lambda self, fitted, kept: scored.append(len(kept)) or of_rows(self, fitted, kept)
    )
    monkeypatch.setattr(importlib.import_module("sureshot.cli.predict"), "CHUNK", 20)
    result = run(*arguments)
    assert scored == [20, 20, 20, 15]
    printed = pd.read_csv(io.StringIO(result.stdout))
    assert list(printed.columns) == ["row", "prediction", "outlier", "p_value"]
    model, X = GPClassifier.load(files / "two.safetensors"), iris.drop(columns="species")
    np.testing.assert_allclose(printed["outlier"], model.outlier_score(X), rtol=1e-5)
    np.testing.assert_allclose(printed["p_value"], model.novelty_p_value(X), rtol=1e-5)
    assert result.stderr.count("nothing is rejected") == 1


def test_no_seed_is_that_of_python(tmp_path: Path, run: Run, iris: pd.DataFrame) -> None:
    iris[::5].to_csv(tmp_path / "few.csv", index=False)
    sampled = ("--kernel", "rbf", "--likelihood", "one_vs_each", "--inference", "gibbs")
    result = run("fit", tmp_path / "few.csv", "--target", "species", "-o", tmp_path / "m", *sampled, "-q")
    assert result.exit_code == 0, result.stderr
    model = GPClassifier(kernel="rbf", likelihood="one_vs_each", inference="gibbs")
    features = iris[::5].drop(columns="species")
    expected = model.fit(features, iris["species"][::5]).predict_proba(features)
    np.testing.assert_array_equal(GPClassifier.load(tmp_path / "m").predict_proba(features), expected)
