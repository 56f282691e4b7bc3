"""Options that say how a file is read, and what is written of its columns."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sureshot.cli import app
from tests.cli.test_bad_input import assert_refused

Run = Callable[..., Any]
QUICK = ("--kernel", "rbf", "--likelihood", "softmax", "--objective", "none")


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory, iris: pd.DataFrame, run: Run) -> Path:
    """A folder with a table as spreadsheets write it in Germany, new rows of it, and a model."""
    folder = tmp_path_factory.mktemp("german")
    frame = iris.assign(id=range(500, 500 + len(iris)), notiz="a, b")
    frame[:60].to_csv(folder / "alt.csv", sep=";", decimal=",", index=False, encoding="latin-1")
    frame[60:].to_csv(folder / "neu.csv", sep=";", decimal=",", index=False, encoding="utf-16")
    result = run(
        "fit", folder / "alt.csv", "-t", "species", "--drop", "notiz", "--id", "id", "-o", folder / "m", *QUICK
    )
    assert result.exit_code == 0, result.stderr
    assert result.stderr.count("separated by semicolons") == 1
    return folder


def test_names_of_rows_are_written_and_other_columns_ignored(german: Path, run: Run) -> None:
    result = run("predict", german / "m", german / "neu.csv", "--id", "id")
    written = pd.read_csv(io.StringIO(result.stdout))
    assert written.columns.tolist() == ["id", "prediction"]
    assert written["id"].tolist() == list(range(560, 575))
    assert "ignored columns that the model does not know: notiz" in result.stderr


def test_predictions_beside_the_columns(german: Path, run: Run) -> None:
    plain = pd.read_csv(io.StringIO(run("predict", german / "m", german / "neu.csv", "--proba", "--outlier").stdout))
    result = run("predict", german / "m", german / "neu.csv", "--join", "--proba", "--outlier")
    joined = pd.read_csv(io.StringIO(result.stdout), sep=";", dtype=str)
    before = pd.read_csv(german / "neu.csv", sep=";", dtype=str, encoding="utf-16")
    pd.testing.assert_frame_equal(joined[before.columns], before)
    assert joined["prediction"].tolist() == plain["prediction"].tolist()
    assert joined.columns.tolist() == [*before.columns, *plain.columns[1:]]


def test_standard_input(german: Path) -> None:
    text = (german / "neu.csv").read_bytes()
    arguments = ["predict", str(german / "m"), "-", "--id", "id"]
    result = CliRunner().invoke(app, arguments, input=text)
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) == 16
    result = CliRunner().invoke(app, [*arguments[:-1], "nr"], input=text)
    assert "error: standard input: no column 'nr'" in result.stderr


def test_what_looks_like_a_mistake_is_named(german: Path, tmp_path: Path, run: Run) -> None:
    result = run("fit", german / "alt.csv", "-t", "species", "--drop", "notiz", "-o", tmp_path / "m", *QUICK)
    assert result.exit_code == 0, result.stderr
    assert "column id has another whole number in every row" in result.stderr
    result = run("fit", german / "alt.csv", "-t", "id", "--drop", "notiz,species", "-o", tmp_path / "n", *QUICK)
    assert "every row has a label of its own" in result.stderr
    frame = pd.DataFrame({"Kunde ID": range(40), "a": np.arange(40) % 7, "weight": [*range(39), 0]})
    frame.to_csv(tmp_path / "w.csv", index=False)
    result = run("fit", tmp_path / "w.csv", "-t", "weight", "-o", tmp_path / "w", *QUICK)
    assert "39 labels in so few rows (0, 1, 2, ...): is this the column of classes?" in result.stderr
    assert "(--id 'Kunde ID' or --drop 'Kunde ID')" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--drop", "Notiz"), "no column 'Notiz' to drop (did you mean 'notiz'?)"),
        (("--drop", "notiz,species"), "column 'species' is to be dropped, and to be the labels (--target)"),
        (("--drop", "notiz", "--id", "species"), "'species' is to be the labels (--target), and the names of rows"),
        (("--drop", "notiz", "--id", "ID"), "no column 'ID' (did you mean 'id'?)"),
        (("--drop", "notiz", "--id", "sepal_length"), "is to name rows, but"),
        (("--separator", "semi"), "the separator must be one ASCII character"),
        (("--decimal", "comma"), "the decimal sign must be"),
        (("--encoding", "utf-8"), "is not utf-8 text"),
    ],
)
def test_options_that_do_not_fit_the_file(
    german: Path, tmp_path: Path, run: Run, options: tuple[str, ...], message: str
) -> None:
    path = german / "alt.csv"
    if "--encoding" in options:
        path = tmp_path / "umlaut.csv"
        path.write_bytes("größe;species\n1;a\n2;b\n".encode("latin-1"))
    assert_refused(run("fit", path, "-t", "species", "-o", tmp_path / "m", "--quiet", *options), message)
    assert not (tmp_path / "m").exists()


def test_joining_needs_columns_that_can_take_it(german: Path, files: Path, run: Run, tmp_path: Path) -> None:
    both = run("predict", german / "m", german / "neu.csv", "--quiet", "--join", "--json")
    assert both.exit_code == 1
    assert "--join writes columns, and --json none" in both.stderr
    result = run("predict", files / "iris.safetensors", files / "iris.npz", "--join", "--quiet")
    assert_refused(result, "holds arrays")
    frame = pd.read_csv(files / "iris.csv").assign(prediction=1)
    frame.to_csv(tmp_path / "p.csv", index=False)
    result = run("predict", files / "iris.safetensors", tmp_path / "p.csv", "--join", "--quiet")
    assert_refused(result, "has a column 'prediction' already")


@pytest.mark.parametrize("command", ["predict", "suggest"])
def test_a_file_called_tsv_has_tabs(files: Path, run: Run, tmp_path: Path, command: str) -> None:
    for name, options in (("plain.tsv", ()), ("joined.TSV", ("--join",)), ("plain.csv", ())):
        output = tmp_path / name
        result = run(command, files / "iris.safetensors", files / "iris.csv", *options, "-o", output)
        assert result.exit_code == 0, result.stderr
        separator = "," if name.endswith("csv") else "\t"
        assert len(output.read_text().splitlines()[0].split(separator)) > 1


def test_what_is_joined_is_written_as_the_file_is(german: Path, run: Run, tmp_path: Path) -> None:
    arguments = ("--id", "id", "--join", "--proba", "-q", "-o", tmp_path / "joined.csv")
    assert run("predict", german / "m", german / "neu.csv", *arguments).exit_code == 0
    old = pd.read_csv(german / "neu.csv", sep=";", decimal=",", encoding="utf-16")
    joined = pd.read_csv(tmp_path / "joined.csv", sep=";", decimal=",")
    pd.testing.assert_frame_equal(joined[old.columns], old)
    probabilities = joined.filter(like="probability_").to_numpy(dtype=float)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    asked = ("-n", 3, "--join", "--id", "id", "--drop", "notiz", "-q", "-o", tmp_path / "label.csv")
    assert run("suggest", german / "m", german / "neu.csv", *asked).exit_code == 0
    chosen = pd.read_csv(tmp_path / "label.csv", sep=";", decimal=",")
    assert chosen["probability"].between(0, 1).all()
    again = old[old["id"].isin(chosen["id"])].set_index("id").loc[chosen["id"]]
    np.testing.assert_array_equal(chosen["sepal_length"], again["sepal_length"])


def test_rows_that_end_early_and_labels_with_blanks_are_seen(files: Path, run: Run, tmp_path: Path) -> None:
    lines = (files / "two.csv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "blank.csv").write_text("\n".join([lines[0], *(f"{line} " for line in lines[1:])]), encoding="utf-8")
    result = run("evaluate", files / "two.safetensors", tmp_path / "blank.csv", "-t", "species", "--json")
    assert json.loads(result.stdout)["unknown_rows"] == 0
    cut = [line if place % 9 else line.rsplit(",", 1)[0] for place, line in enumerate(lines)]
    (tmp_path / "cut.csv").write_text("\n".join([lines[0], *cut[1:]]), encoding="utf-8")
    result = run("predict", files / "two.safetensors", tmp_path / "cut.csv")
    assert "rows have fewer cells than the header (the first is row 8, counted from 0)" in result.stderr


def test_labels_that_may_be_one_class_are_mentioned(tmp_path: Path, run: Run) -> None:
    rows = [f"{k},{label}" for k, label in enumerate(["no", "yes", "Yes", "NO"] * 6)]
    table, model = tmp_path / "t.csv", tmp_path / "m.st"
    table.write_text("a,cls\n" + "\n".join(rows) + "\n")
    fit = [table, "--target", "cls", "--kernel", "rbf", "--output"]
    assert "'no' and 'NO' are learnt as different classes" in run("fit", *fit, model).stderr
    table.write_text(table.read_text().lower())
    assert "different classes" not in run("fit", *fit, model).stderr
    table.write_text("a,cls\n1,No\n2,yes\n")
    update = run("update", model, table, "--target", "cls", "--output", tmp_path / "n.st").stderr
    assert "'no' and 'No' are learnt as different classes" in update
    again = run("update", tmp_path / "n.st", table, "--target", "cls", "--output", tmp_path / "o.st").stderr
    assert "different classes" not in again


def test_how_text_is_written_is_asked_of_text_only(tmp_path: Path, run: Run) -> None:
    np.savez(tmp_path / "d.npz", X=np.eye(4), y=np.array([0, 1, 0, 1]))
    for option in (("--encoding", "latin-1"), ("--decimal", ","), ("--separator", "tab")):
        result = run("fit", tmp_path / "d.npz", "--output", tmp_path / "m.st", *option)
        assert_refused(result, "d.npz is no text: leave --separator, --encoding and --decimal out")


@pytest.fixture(scope="module")
def horses(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Path:
    """A folder with a table whose gaps are called unknown and whose labels are written in several ways, and a model."""
    folder = tmp_path_factory.mktemp("horses")
    labels = ["Yes", "no", "YES", "no", "Yes", "NO"]
    rows = [f"{'unknown' if k % 9 == 4 else k * 7 % 41 + 40 * (k % 2)},{labels[k % 6]}" for k in range(60)]
    (folder / "old.csv").write_text("\n".join(["hp,cls", *rows]) + "\n")
    result = run(
        "fit", folder / "old.csv", "-t", "cls", "-o", folder / "m", "--missing", "unknown", "--fold-case", *QUICK
    )
    assert result.exit_code == 0, result.stderr
    assert "different classes" not in result.stderr
    return folder


def test_gaps_and_classes_of_a_model_are_those_of_later_files(horses: Path, run: Run) -> None:
    (horses / "new.csv").write_text("hp,cls\nunknown,yes\n3,NO\n70,Maybe\n")
    assert run("predict", horses / "m", horses / "new.csv", "-t", "cls", "-q").exit_code == 0
    result = run("evaluate", horses / "m", horses / "new.csv", "-t", "cls", "--json")
    assert json.loads(result.stdout)["unknown_rows"] == 1
    (horses / "more.csv").write_text("hp,cls\n5,yes\n3,NO\n70,Maybe\n")
    result = run("update", horses / "m", horses / "more.csv", "-t", "cls", "-o", horses / "n", "--json")
    assert set(json.loads(result.stdout)["classes"]) == {"Maybe", "Yes", "no"}
    (horses / "copy.csv").write_text("hp,answer\nunknown,YES\n3,No\n")
    assert "left out the column answer" in run("predict", horses / "m", horses / "copy.csv").stderr
    assert run("suggest", horses / "m", horses / "new.csv", "-t", "cls", "-n", "2", "--join").exit_code == 0


def test_cells_that_are_no_numbers_and_labels_in_two_cases_have_advice(horses: Path, run: Run, tmp_path: Path) -> None:
    result = run("fit", horses / "old.csv", "-t", "cls", "-o", tmp_path / "m", "-q", *QUICK)
    assert_refused(result, "'unknown' in row 4, counted from 0, and 6 more rows, is no number")
    assert "take it for a gap (--missing 'unknown'), or take the column as another kind (--kind 'hp=category')" in (
        result.stderr
    )
    result = run("fit", horses / "old.csv", "-t", "cls", "-o", tmp_path / "m", "--missing", "unknown", *QUICK)
    assert "are learnt as different classes: if they are one, write them alike, or give --fold-case" in result.stderr
    options = ("--missing", "unknown", "--fold-case", "--particles", "2", "--rejuvenation", "0", "--hold-out", "0.2")
    result = run("search", horses / "old.csv", "-t", "cls", "--json", *options)
    assert json.loads(result.stdout)["classes"] == ["Yes", "no"]


def test_files_without_names_go_on_without_names(files: Path, run: Run, tmp_path: Path) -> None:
    lines = (files / "two.csv").read_text(encoding="utf-8").splitlines()
    path = tmp_path / "plain.csv"
    path.write_text("\n".join(lines[1:]))
    last = f"column {len(lines[0].split(','))}"
    result = run("fit", path, "-t", "species", "-o", tmp_path / "m", "-q", *QUICK)
    assert_refused(result, "line 1 looks like data: --no-header")
    result = run("fit", path, "-t", last, "--no-header", "-o", tmp_path / "m", *QUICK)
    assert result.exit_code == 0, result.stderr
    result = run("predict", tmp_path / "m", path, "--join", "-q")
    assert len(result.stdout.splitlines()) == len(lines)
    assert result.stdout.startswith("column 1,")
    result = run("update", tmp_path / "m", path, "-t", last, "-o", tmp_path / "n", "--json")
    assert json.loads(result.stdout)["rows_added"] == len(lines) - 1
    result = run("predict", tmp_path / "m", files / "two.csv", "-q", "--header")
    assert_refused(result, "missing: column 1, column 2")


def test_a_separator_that_was_stated_is_that_of_later_files(run: Run, tmp_path: Path) -> None:
    """Where it takes their lines apart, and unless another is stated."""
    lines = ["hp class", *(f"{k * 7 % 41 + 40 * (k % 2)}  {'ab'[k % 2]} " for k in range(40))]
    (tmp_path / "old.txt").write_text("\n".join(lines))
    run("fit", tmp_path / "old.txt", "-t", "class", "-o", tmp_path / "m", "--separator", "space", *QUICK)
    evaluated = run("evaluate", tmp_path / "m", tmp_path / "old.txt", "-t", "class", "--json")
    assert json.loads(evaluated.stdout)["rows"] == 40
    (tmp_path / "new.csv").write_text("hp,the old class\n5,a\n50,b\n")
    joined = run("predict", tmp_path / "m", tmp_path / "new.csv", "--join", "-q")
    assert joined.stdout.splitlines()[0] == "hp,the old class,prediction"
    result = run("predict", tmp_path / "m", tmp_path / "old.txt", "--separator", ",")
    assert result.exit_code == 1
    assert "unexpected: hp class" in result.stderr


def test_a_spreadsheet_is_a_table(files: Path, run: Run, tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    frame = pd.read_csv(files / "two.csv")
    frame.to_excel(tmp_path / "two.xlsx", index=False)
    with pd.ExcelWriter(tmp_path / "sheets.xlsx") as writer:
        pd.DataFrame({"a": [1]}).to_excel(writer, sheet_name="notes", index=False)
        frame[:5].to_excel(writer, sheet_name="rows", index=False)
    assert run("fit", tmp_path / "two.xlsx", "-t", "species", "-o", tmp_path / "m", *QUICK).exit_code == 0
    found = run(
        "predict", tmp_path / "m", tmp_path / "sheets.xlsx", "--sheet", "rows", "--join", "--proba", "-q"
    ).stdout
    plain = run("predict", tmp_path / "m", files / "two.csv", "--join", "--proba", "-q").stdout
    expected = pd.read_csv(io.StringIO(plain))[:5]
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(found)), expected)
    result = run("predict", tmp_path / "m", tmp_path / "sheets.xlsx", "-q")
    assert_refused(result, "the columns differ from those that the model was trained on")
    assert_refused(
        run("predict", tmp_path / "m", files / "two.csv", "-q", "--sheet", "x"), "is no Excel file: leave --s"
    )
    run("fit", tmp_path / "sheets.xlsx", "-t", "species", "-o", tmp_path / "n", "--sheet", "rows", *QUICK)
    for path, rows in (("sheets.xlsx", 5), ("two.xlsx", len(frame))):  # the sheet of this name, and the only one
        assert len(run("predict", tmp_path / "n", tmp_path / path, "-q").stdout.splitlines()) == rows + 1
    assert run("predict", tmp_path / "n", tmp_path / "sheets.xlsx", "-q", "--sheet", "notes").exit_code == 1
    result = run("fit", tmp_path / "two.xlsx", "-t", "species", "-o", tmp_path / "n", "-q", "--decimal", ",")
    assert_refused(result, "is no text: leave --separator, --encoding and --decimal out")


def test_options_of_rows_need_rows(files: Path, run: Run) -> None:
    for option in (("--missing", "x"), ("--fold-case",), ("--no-header",), ("--sheet", "x")):
        result = run("update", files / "two.safetensors", "--in-place", "--forget-classes", "x", "-q", *option)
        assert_refused(result, "is about rows to add, and there are none")
