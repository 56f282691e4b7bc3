"""Files of spreadsheets: what a cell means does not depend on columns and rows that it has nothing to do with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sureshot import GPClassifier
from sureshot.estimators.saved import load_estimator
from tests.cli.conftest import QUICK, Run

KILOS = ("0,697;a", "2,249;b", "0,512;a", "1,812;b", "0,833;a", "3,001;b")


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def taught(path: Path, run: Run, *options: str) -> Path:
    model = path.with_suffix(".safetensors")
    assert run("fit", path, "-t", "klasse", "-o", model, *QUICK, *options).exit_code == 0
    return model


def answers(model: Path, path: Path, run: Run, *options: str) -> list[str]:
    result = run("predict", model, path, *options)
    assert result.exit_code == 0, result.stderr
    return [line.split(",")[1] for line in result.stdout.splitlines()[1:]]


@pytest.mark.parametrize("colours", [False, True])
def test_columns_that_are_not_used_do_not_say_what_the_decimal_sign_is(colours: bool, tmp_path: Path, run: Run) -> None:
    rows = [f"{'rot' if colours else '1'};{row}" for row in KILOS]
    model = taught(write(tmp_path / "kilos.csv", "farbe;kg;klasse", *rows), run)
    queries = write(tmp_path / "q.csv", "farbe;kg;score", f"{rows[0][: rows[0].index(';')]};0,500;0.93", "1;2,500;0.1")
    assert answers(model, queries, run) == ["a", "b"]
    assert answers(model, queries, run, "--drop", "score") == ["a", "b"]
    more = write(tmp_path / "more.csv", "farbe;kg;score;klasse", "1;0,700;0.5;a", "1;2,100;0.25;b")
    assert run("update", model, more, "-t", "klasse", "-o", tmp_path / "updated").exit_code == 0


def test_points_between_thousands_where_the_comma_is_the_decimal_sign(tmp_path: Path, run: Run) -> None:
    """In any file: one cell alone says nothing of the sign, the column has it."""
    rows = ["0,1;320;a", "0,2;1.100;b", "0,3;450;a", "0,4;1.250;b", "0,5;380;a", "0,6;1.300;b"]
    model = taught(write(tmp_path / "sales.csv", "rate;umsatz;klasse", *rows), run)
    assert answers(model, write(tmp_path / "q.csv", "rate;umsatz", "0,5;1600", "0,5;1.600"), run) == ["b", "b"]
    assert answers(model, write(tmp_path / "q.csv", "rate;umsatz", "1;1.600"), run) == ["b"]
    assert answers(model, write(tmp_path / "q.csv", "rate;umsatz", "1;1.600", "1;300,50"), run) == ["b", "a"]
    plain = taught(write(tmp_path / "plain.csv", "rate;umsatz;klasse", *(row.replace(".", "") for row in rows)), run)
    assert answers(plain, write(tmp_path / "q.csv", "rate;umsatz", "0,5;1600", "0,5;1.600"), run) == ["b", "b"]


def test_points_that_may_group_digits_are_told(tmp_path: Path, run: Run) -> None:
    """The model may have learnt that they do, of another file, but who would know?"""
    model = taught(write(tmp_path / "a.csv", "kg;klasse", *KILOS), run)
    pool = write(tmp_path / "b.csv", "kg;x", "1.234;1", "900;2")
    assert "--decimal , says that points group digits" in run("predict", model, pool).stderr
    assert "group digits" not in run("predict", model, pool, "--decimal", ",").stderr
    assert "group digits" not in run("predict", model, write(tmp_path / "c.csv", "kg;x", "1.5;1", "1.234;2")).stderr


def test_an_empty_line_of_one_column_is_a_row(tmp_path: Path, run: Run) -> None:
    rows = pd.DataFrame({"a": [2.0, 1, 1.5, np.nan, -1, -2, -1.5, np.nan], "klasse": list("ppppqqqq")})
    rows.to_csv(tmp_path / "a.csv", index=False)
    model = taught(tmp_path / "a.csv", run)
    assert len(answers(model, write(tmp_path / "b.csv", "", "a", "1.5", "", "-1.5", "2", ""), run)) == 4


def test_a_group_of_thousands_does_not_begin_with_zero(tmp_path: Path, run: Run) -> None:
    rows = [f'"{kilos}",{label}' for kilos, label in (row.split(";") for row in KILOS)]
    model = taught(write(tmp_path / "kilos.csv", "kg,klasse", *rows, '"2",b', '"3",b'), run)
    result = run("predict", model, write(tmp_path / "q.csv", "kg", '"2"', '"2,000"', '"0,500"'), "--proba")
    two, also_two, half = (line.split(",")[1:] for line in result.stdout.splitlines()[1:])
    assert two == also_two
    assert (two[0], half[0]) == ("b", "a")


def test_codes_of_classes_are_no_numbers(tmp_path: Path, run: Run) -> None:
    model = taught(
        write(tmp_path / "parts.csv", "x,klasse", *(f"{i},{c}" for i in range(4) for c in ("1E2", "100"))), run
    )
    assert load_estimator(model).classes_.tolist() == ["100", "1E2"]


def test_a_file_whose_dates_are_all_missing(tmp_path: Path, run: Run) -> None:
    rows = [f"{i},2024-01-{i + 1:02d},{'ab'[i % 2]}" for i in range(10)]
    model = taught(write(tmp_path / "dates.csv", "x,day,klasse", *rows), run)
    assert len(answers(model, write(tmp_path / "q.csv", "x,day", "1,"), run)) == 1


def test_truth_values_with_a_gap(tmp_path: Path, run: Run) -> None:
    model = taught(
        write(tmp_path / "truths.csv", "x,ok,klasse", *(f"{i},{i > 4},{'ab'[i > 4]}" for i in range(10))), run
    )
    assert answers(model, write(tmp_path / "q.csv", "x,ok", "9,True", "1,"), run)[0] == "b"


def test_columns_that_nothing_is_learnt_from_may_be_missing_or_name_rows(tmp_path: Path, run: Run) -> None:
    path = write(tmp_path / "notes.csv", "x,note,klasse", *(f"{i},free text {i},{'ab'[i > 30]}" for i in range(60)))
    model = taught(path, run)
    assert answers(model, write(tmp_path / "q.csv", "x", "50"), run) == ["b"]
    updated = run("update", model, path, "-t", "klasse", "--id", "note", "-o", tmp_path / "updated.safetensors")
    assert updated.exit_code == 0, updated.stderr
    frame = pd.read_csv(path)
    with pytest.warns(UserWarning, match="nothing is learnt from note"):
        fitted = GPClassifier("rbf", objective=None).fit(frame[["x", "note"]], frame["klasse"])
    expected = fitted.predict_proba(frame[["x", "note"]])
    np.testing.assert_array_equal(fitted.predict_proba(frame[["x"]]), expected)
    with pytest.raises(ValueError, match="seen at fit time"):
        fitted.predict(frame[["note"]])


def test_a_column_whose_name_has_a_comma_is_dropped(tmp_path: Path, run: Run) -> None:
    path = write(tmp_path / "sizes.csv", 'x,"size, cm",y,klasse', *(f"{i},{-i},0,{'ab'[i % 2]}" for i in range(10)))
    model = taught(path, run, "--drop", "size, cm", "--drop", "y")
    assert load_estimator(model).feature_names_in_.tolist() == ["x"]
    assert len(answers(model, path, run)) == 10


def test_names_of_rows_in_the_first_column_stay_as_they_are(tmp_path: Path, run: Run) -> None:
    path = write(tmp_path / "names.csv", ",x,klasse", *(f"{i:03d},{i},{'ab'[i % 2]}" for i in range(10)))
    model = taught(path, run)
    named = write(tmp_path / "q.csv", ",x", "007,1", "7,2", ",3")
    assert [line.split(",")[0] for line in run("predict", model, named).stdout.splitlines()[1:]] == ["007", "7", ""]


def test_lists_in_cells_are_named(tmp_path: Path, run: Run) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"x": range(20), "tags": [["p", "q"]] * 20, "klasse": ["a", "b"] * 10})
    frame.to_parquet(tmp_path / "lists.parquet")
    result = run("fit", tmp_path / "lists.parquet", "-t", "klasse", "-o", tmp_path / "model.safetensors")
    assert result.exit_code == 1
    assert "column 'tags' holds ndarray in row 0" in result.stderr


def test_a_folder_is_no_table_and_notes_have_no_kind(tmp_path: Path, run: Run) -> None:
    path = write(tmp_path / "notes.csv", "x,meta_zip,klasse", *(f"{i},{i},{'ab'[i % 2]}" for i in range(10)))
    result = run("predict", taught(path, run), tmp_path)
    assert "the model was fitted on a table: name a file of rows" in result.stderr
    result = run("fit", path, "-t", "klasse", "-o", tmp_path / "m.safetensors", "--kind", "meta_zip=category")
    assert "meta_* is never learnt from" in result.stderr


@pytest.mark.parametrize("separator", [";", "\t", ","])
def test_commas_between_thousands_are_the_columns_for_later_files(separator: str, tmp_path: Path, run: Run) -> None:
    """Where a later file's cells could be fractions, and where they must be."""
    quoted = '"' if separator == "," else ""
    rows = [
        f"{quoted}{amount:,}{quoted}{separator}{'ab'[amount > 600_000]}" for amount in range(36_948, 1_400_000, 48_000)
    ]
    model = taught(write(tmp_path / "a.csv", f"amount{separator}klasse", *rows), run)
    later = write(tmp_path / "b.tsv", "amount\tx", "62,000\t1", "960,000\t2")
    assert answers(model, later, run) == ["a", "b"]
    assert "comma is taken for the decimal sign" not in run("predict", model, later).stderr
    assert answers(model, write(tmp_path / "c.csv", "amount;x", "62000,5;1", "960000,25;2"), run) == ["a", "b"]
    assert answers(model, write(tmp_path / "c.csv", "amount;x", "62.000;1", "960.000;2"), run) == ["a", "a"]
    more = write(tmp_path / "d.tsv", "amount\tklasse", "70,000\ta", "970,000\tb")
    assert run("update", model, more, "-t", "klasse", "-o", tmp_path / "u.safetensors").exit_code == 0
    assert answers(tmp_path / "u.safetensors", later, run) == ["a", "b"]


def test_decimal_commas_are_the_columns_for_later_files(tmp_path: Path, run: Run) -> None:
    """Of plain numbers, too: 2.250 is no two and a quarter where 2,25 is."""
    rows = [f"{k * 125},{k % 9}5;{'ab'[k > 10]}" for k in range(1, 21)]
    model = taught(write(tmp_path / "a.csv", "kg;klasse", *rows), run)
    assert not hasattr(load_estimator(model), "encoder_")
    assert answers(model, write(tmp_path / "b.csv", "kg;x", "2.250;1", "1.000;2"), run) == ["b", "a"]


def test_codes_are_categories_unless_they_are_stated_to_be_numbers(tmp_path: Path, run: Run) -> None:
    rows = [f"{('007', '7')[k % 2]},3.{(1, 10)[k % 2]},{'ab'[k % 2]}" for k in range(20)]
    path = write(tmp_path / "codes.csv", "code,version,klasse", *rows)
    result = run("fit", path, "-t", "klasse", "-o", tmp_path / "m.safetensors", *QUICK)
    assert result.exit_code == 0, result.stderr
    assert "categories: code" in result.stderr
    assert "in column version '3.1' and '3.10' are read as one number; --kind version=category" in result.stderr
    assert answers(tmp_path / "m.safetensors", write(tmp_path / "q.csv", "code,version", "7,3.1"), run) == ["b"]
    kinds = ("--kind", "code=number", "--kind", "version=category")
    result = run("fit", path, "-t", "klasse", "-o", tmp_path / "m.safetensors", *QUICK, *kinds)
    assert "1 of 2 columns are numbers; categories: version" in result.stderr
    assert "read as" not in result.stderr
    assert answers(tmp_path / "m.safetensors", write(tmp_path / "q.csv", "code,version", "07,3.10"), run) == ["b"]
