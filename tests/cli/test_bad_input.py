"""Every mistake with files and values: exit status 1, one line, no traceback, nothing half-written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

Run = Callable[..., Any]
QUICK = ("--kernel", "rbf", "--likelihood", "softmax", "--objective", "none", "--quiet")

FIT = {
    "no date": (
        "a,b,y\n1,2025-01-01,x\n2,2025-01-02,x\n3,2025-13-01,z\n",
        "column 'b': '2025-13-01' in row 2, counted from 0, is no date",
    ),
    "inf": ("a,b,y\n1,inf,x\n2,3,z\n", "infinite numbers in column b"),
    "one class": ("a,b,y\n1,2,x\n2,3,x\n", "one class"),
    "no rows": ("a,b,y\n", "no rows"),
    "empty": ("", "is empty"),
    "nothing but gaps": ("a,y\n,x\n,z\n", "no column is left to learn from"),
    "missing label": ("a,b,y\n1,2,\n2,3,z\n", "no label in 1 of 2 rows"),
    "no such column": ("a,b,why\n1,2,x\n2,3,z\n", "no column 'y'"),
    "continuous labels": ("a,b,y\n1,2,0.5\n2,3,0.7\n", "numbers with fractions"),
    "same names": ("a,a,y\n1,2,x\n2,3,z\n", "more than one column is called a"),
    "ragged": ("a,b,y\n1,2,x\n2,3,z,4\n", "same number of cells"),
}


def assert_refused(result: Any, message: str) -> None:
    """One line on standard error, nothing on standard output, status 1."""
    assert result.exit_code == 1, result.output
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert result.stdout == ""


@pytest.mark.parametrize("case", FIT)
def test_tables_that_cannot_be_learnt(tmp_path: Path, run: Run, case: str) -> None:
    text, message = FIT[case]
    (tmp_path / "d.csv").write_text(text)
    assert_refused(run("fit", tmp_path / "d.csv", "-t", "y", "-o", tmp_path / "m", *QUICK), message)
    assert [path.name for path in tmp_path.iterdir()] == ["d.csv"]


def test_zero_vectors_on_the_unit_sphere_are_learnt(tmp_path: Path, run: Run) -> None:
    X = np.eye(4)
    X[2] = 0
    np.savez(tmp_path / "d.npz", X=X, y=[0, 0, 1, 1])
    result = run(
        "fit",
        *(tmp_path / "d.npz", "-o", tmp_path / "m", "--quiet"),
        *("--kernel", "unit_rbf", "--standardize", "false", "--objective", "none"),
    )
    assert result.exit_code == 0, result.stderr


def test_npz_mistakes(tmp_path: Path, run: Run) -> None:
    for name, arrays, message in [
        ("lengths", {"X": np.eye(3), "y": np.arange(2)}, "3 rows but 2 labels"),
        ("flat", {"X": np.arange(3.0), "y": np.arange(3)}, "expected two dimensions"),
        ("objects", {"X": np.eye(2), "y": np.array([1, None], dtype=object)}, "refused"),
        ("nan", {"X": np.full((2, 2), np.nan), "y": np.arange(2)}, "NaN or infinite"),
        ("unlabelled", {"X": np.eye(3)}, "no array y or label"),
    ]:
        np.savez(tmp_path / f"{name}.npz", **arrays)
        assert_refused(run("fit", tmp_path / f"{name}.npz", "-o", tmp_path / "m", *QUICK), message)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--kernel", "rbff"),
        ("--kernel", "precomputed"),
        ("--likelihood", "probit"),
        ("--inference", "magic"),
        ("--objective", "accuracy"),
        ("--standardize", "maybe"),
    ],
)
def test_settings_that_do_not_exist(files: Path, tmp_path: Path, run: Run, option: str, value: str) -> None:
    result = run("fit", files / "iris.csv", "-t", "species", "-o", tmp_path / "m", "-q", option, value)
    assert_refused(result, value)
    assert not (tmp_path / "m").exists()


def test_a_near_kernel_is_suggested(files: Path, tmp_path: Path, run: Run) -> None:
    result = run("fit", files / "iris.csv", "-t", "species", "-o", tmp_path / "m", "-q", "--kernel", "rfb")
    assert_refused(result, "got 'rfb' (did you mean 'rbf'")
    assert "precomputed" not in result.stderr


def test_places_that_cannot_be_written(files: Path, tmp_path: Path, run: Run) -> None:
    fit = ("fit", files / "iris.csv", "-t", "species", *QUICK)
    assert_refused(run(*fit, "-o", tmp_path / "no" / "m"), "does not exist")
    assert_refused(run(*fit, "-o", tmp_path), "is a folder")
    assert_refused(run(*fit, "-o", files / "iris.csv"), "is also the input")
    (tmp_path / "file").write_text("x")
    assert_refused(run(*fit, "-o", tmp_path / "m", "--report", tmp_path / "file"), "is a file")
    predict = ("predict", files / "iris.safetensors", files / "iris.csv", "-q", "-o")
    assert_refused(run(*predict, files / "iris.safetensors"), "is also the input")
    assert_refused(run(*predict, tmp_path / "no" / "p.csv"), "does not exist")


@pytest.mark.parametrize("command", ["predict", "evaluate", "update"])
def test_models_that_are_none(files: Path, tmp_path: Path, run: Run, command: str) -> None:
    whole = (files / "iris.safetensors").read_bytes()
    (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text").write_text("hello, I am no model")
    (tmp_path / "none").write_bytes(b"")
    (tmp_path / "pickle").write_bytes(b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94.")
    tail: tuple[object, ...] = () if command == "predict" else ("-t", "species")
    tail += ("-o", tmp_path / "new") if command == "update" else ()
    for name in ("half", "text", "none", "pickle"):
        before = (tmp_path / name).read_bytes()
        assert_refused(run(command, tmp_path / name, files / "iris.csv", *tail), name)
        assert (tmp_path / name).read_bytes() == before
    assert_refused(run(command, tmp_path / "gone", files / "iris.csv", *tail), "does not exist")
    assert_refused(run(command, tmp_path, files / "iris.csv", *tail), "is a folder")


def test_a_missing_file_is_named_and_a_near_one_suggested(files: Path, run: Run) -> None:
    result = run("predict", files / "iris.safetensors", files / "irsi.csv")
    assert_refused(result, "did you mean 'iris.csv'")
    result = run("predict", files / "irsi.safetensors", files / "iris.csv")
    assert_refused(result, "did you mean 'iris.safetensors'")


def test_columns_that_are_not_the_models(files: Path, iris: pd.DataFrame, tmp_path: Path, run: Run) -> None:
    renamed = iris.rename(columns={"petal_width": "width"})
    renamed.to_csv(tmp_path / "r.csv", index=False)
    result = run("predict", files / "iris.safetensors", tmp_path / "r.csv")
    assert_refused(result, "missing: petal_width (did you mean 'width'?); unexpected: width")
    assert "species" not in result.stderr
    for command, *output in (("evaluate",), ("update", "-o", tmp_path / "new")):
        result = run(command, files / "iris.safetensors", tmp_path / "r.csv", "-t", "species", *output)
        assert_refused(result, "missing: petal_width (did you mean 'width'?); unexpected: width")
    np.savez(tmp_path / "narrow.npz", X=np.ones((2, 3)))
    assert_refused(run("predict", files / "iris.safetensors", tmp_path / "narrow.npz"), "3 columns, expected 4")


def test_another_column_is_blamed_and_not_the_labels(files: Path, iris: pd.DataFrame, tmp_path: Path, run: Run) -> None:
    """The labels are known by what they hold, whatever is wrong beside them, and named if nothing is."""
    predict = ("predict", files / "iris.safetensors", tmp_path / "d.csv")
    iris.drop(columns="petal_width").to_csv(tmp_path / "d.csv", index=False)
    result = run(*predict)
    assert_refused(result, "missing: petal_width")
    assert "unexpected" not in result.stderr
    with_cell(iris, "petal_width", "wide").to_csv(tmp_path / "d.csv", index=False)
    assert_refused(run(*predict), "not numeric: column petal_width (for instance 'wide' in row 3")
    with_cell(iris, "petal_width", None).to_csv(tmp_path / "d.csv", index=False)
    result = run(*predict)
    assert result.exit_code == 0
    assert "rows, columns petal_width, which had none" in result.stderr
    iris.drop(columns="petal_width").assign(colour="red").to_csv(tmp_path / "d.csv", index=False)
    result = run(*predict)
    assert_refused(result, "missing: petal_width; unexpected: colour")
    assert "species" not in result.stderr
    with_cell(iris, "species", None).to_csv(tmp_path / "d.csv", index=False)
    result = run(*predict)  # labels that are known in part are labels still
    assert result.exit_code == 0
    assert "left out the column species" in result.stderr


def with_cell(table: pd.DataFrame, column: str, value: Any) -> pd.DataFrame:
    """A copy with another value in row 3."""
    changed = table.astype({column: object})
    changed.loc[3, column] = value
    return changed


def test_widths_that_are_not_the_models(files: Path, tmp_path: Path, run: Run) -> None:
    assert run("fit", files / "iris.npz", "-o", tmp_path / "m", *QUICK).exit_code == 0
    np.savez(tmp_path / "wide.npz", X=np.ones((2, 5)))
    assert_refused(run("predict", tmp_path / "m", tmp_path / "wide.npz"), "5 feature columns, the model wants 4")
    (tmp_path / "wide.csv").write_text("a,b,c,d,y\n1,2,3,4,5\n")
    assert_refused(run("predict", tmp_path / "m", tmp_path / "wide.csv"), "can be named with --target")


def test_labels_of_another_kind(files: Path, iris: pd.DataFrame, tmp_path: Path, run: Run) -> None:
    np.savez(tmp_path / "n.npz", X=iris.drop(columns="species").to_numpy(), y=np.arange(75) % 3)
    assert run("fit", tmp_path / "n.npz", "-o", tmp_path / "m", *QUICK).exit_code == 0
    before = (tmp_path / "m").read_bytes()
    for command, *output in (("evaluate",), ("update", "-o", tmp_path / "new")):
        result = run(command, tmp_path / "m", files / "iris.npz", "-q", *output)
        assert_refused(result, "the labels are text")
    assert (tmp_path / "m").read_bytes() == before
    result = run("update", files / "iris.safetensors", tmp_path / "n.npz", "-q", "-o", tmp_path / "new")
    assert_refused(result, "the labels are whole numbers")
    numbered = iris.assign(species=np.arange(len(iris)) % 3)
    numbered.to_csv(tmp_path / "n.csv", index=False)
    for command, *output in (("evaluate",), ("update", "-o", tmp_path / "new")):
        result = run(command, files / "iris.safetensors", tmp_path / "n.csv", "-t", "species", "-q", *output)
        assert_refused(result, "the labels are numbers")
    assert not (tmp_path / "new").exists()


def test_labels_not_named(files: Path, tmp_path: Path, run: Run) -> None:
    assert_refused(run("fit", files / "iris.csv", "-o", tmp_path / "m"), "--target; columns: sepal_length")
    for command, *output in (("evaluate",), ("update", "-o", tmp_path / "new")):
        assert_refused(run(command, files / "iris.safetensors", files / "iris.csv", *output), "--target")
    result = run("evaluate", files / "iris.safetensors", files / "iris.csv", "-t", "Species")
    assert_refused(result, "did you mean 'species'")


def test_errors_as_json(files: Path, run: Run) -> None:
    result = run("predict", files / "gone.safetensors", files / "iris.csv", "--json")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert json.loads(result.stdout)["error"] in result.stderr


@pytest.mark.parametrize(
    "arguments", [["fit"], ["fit", "a.csv"], ["predict", "m"], ["fit", "a", "-o", "b", "--foo"], ["nonsense"]]
)
def test_wrong_usage_has_status_2(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Usage" in result.stderr
    assert "Traceback" not in result.stderr


def test_rates_and_names_of_decisions(files: Path, run: Run) -> None:
    predict = ("predict", files / "iris.safetensors", files / "iris.csv")
    assert_refused(run(*predict, "--reject", "5"), "--reject must lie between 0 and 1")
    assert_refused(run(*predict, "--reject", "nan"), "--reject must lie between 0 and 1")
    assert_refused(run(*predict, "--set", "1"), "--set must lie between 0 and 1")
    assert_refused(run(*predict, "--unknown", "other"), "add --reject 0.05")
    named = (*predict, "--target", "species", "--reject", "0.05", "--unknown")
    assert_refused(run(*named, "setosa"), "'setosa' is a class of the model")


def test_a_model_is_not_written_under_the_ending_of_another_file(files: Path, run: Run, tmp_path: Path) -> None:
    result = run("fit", files / "iris.csv", "-t", "species", "-o", tmp_path / "m.csv")
    assert_refused(result, ".csv is the ending of other files")


def test_a_table_in_the_place_of_the_model(files: Path, run: Run) -> None:
    assert_refused(run("predict", files / "iris.csv", files / "iris.safetensors"), "the model comes first")


def test_labels_that_hold_the_separator_of_sets(tmp_path: Path, run: Run) -> None:
    rows = "".join(f"{k},{k % 5},{'a|b' if k % 2 else 'c'}\n" for k in range(20))
    (tmp_path / "d.csv").write_text("x,z,label\n" + rows)
    model = tmp_path / "m.safetensors"
    assert run("fit", tmp_path / "d.csv", "-t", "label", "-o", model).exit_code == 0
    assert_refused(run("predict", model, tmp_path / "d.csv", "--set", "0.9", "-q"), "'a|b' contains: use --json")
    assert run("predict", model, tmp_path / "d.csv", "--set", "0.9", "--json").exit_code == 0


def test_a_checkpoint_that_is_not_there_comes_before_the_data(files: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "text.csv").write_text("x,label\nred,a\nblue,b\n")
    gone = tmp_path / "gone"
    result = run("fit", tmp_path / "text.csv", "-t", "label", "--checkpoint", gone, "-o", tmp_path / "m.safetensors")
    assert_refused(result, str(gone))


def test_a_report_that_cannot_be_written_leaves_no_model(tmp_path: Path, run: Run) -> None:
    (tmp_path / "d.csv").write_text("a,y\n1,x\n2,x\n3,z\n4,z\n")
    (tmp_path / "file").write_text("mine")
    arguments = ("-t", "y", "-o", tmp_path / "m", "--report", tmp_path / "file" / "below" / "it", *QUICK)
    assert_refused(run("fit", tmp_path / "d.csv", *arguments), "file is a file: name a folder")
    assert not (tmp_path / "m").exists()


def test_a_misspelt_target_is_named_where_labels_are_not_wanted(tmp_path: Path, run: Run) -> None:
    (tmp_path / "d.csv").write_text("a,kind\n1,x\n2,x\n3,z\n4,z\n")
    assert run("fit", tmp_path / "d.csv", "-t", "kind", "-o", tmp_path / "m", *QUICK).exit_code == 0
    for command in (("predict",), ("suggest", "-n", 1)):
        refused = run(command[0], tmp_path / "m", tmp_path / "d.csv", "--target", "kid", *command[1:])
        assert_refused(refused, "no column 'kid' (did you mean 'kind'?)")
