"""CSV and Parquet tables: what is read, and one clear line for each thing that cannot be."""

from __future__ import annotations

import csv
import gzip
import logging
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris

import sureshot
from sureshot.data import DataError, column_names, load_table
from sureshot.data.cells import as_numbers
from sureshot.data.remembered import Remembered, folded
from sureshot.data.tables import cells_as_written, columns_of_classes


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


@pytest.fixture
def iris(tmp_path: Path) -> pd.DataFrame:
    bunch = load_iris(as_frame=True)
    frame = bunch.frame.drop(columns="target")
    frame["species"] = bunch.target_names[bunch.target]
    return frame


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_a_real_table_in_each_format(tmp_path: Path, iris: pd.DataFrame, suffix: str) -> None:
    path = tmp_path / f"iris{suffix}"
    if suffix == ".parquet":
        iris.to_parquet(path, index=False)
    else:
        iris.to_csv(path, index=False)
    table = load_table(path, "species")
    assert table.y is not None
    assert isinstance(table.X, pd.DataFrame)
    np.testing.assert_array_equal(table.X.to_numpy(), iris.drop(columns="species").to_numpy())
    np.testing.assert_array_equal(table.y, iris["species"].to_numpy(dtype=str))
    assert table.feature_names == tuple(iris.columns[:-1])
    np.testing.assert_array_equal(table.row_ids, np.arange(150))
    assert column_names(path) == list(iris.columns)


def test_without_a_target_every_column_is_a_feature(tmp_path: Path) -> None:
    table = load_table(write(tmp_path / "t.csv", "a,b\n1,2\n3,4\n"))
    assert table.y is None
    assert table.feature_names == ("a", "b")


def test_notes_are_left_out_and_said_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "t.csv", "meta_name,a,y\nx,1,0\nz,2,1\n")
    with caplog.at_level(logging.INFO, logger="sureshot"):
        table = load_table(path, "y")
    assert table.feature_names == ("a",)
    assert "meta_name" in caplog.text


def test_a_first_column_without_a_name_identifies_rows(tmp_path: Path, iris: pd.DataFrame) -> None:
    iris.index = pd.Index([f"flower {i}" for i in range(150)])
    iris.to_csv(tmp_path / "t.csv")
    table = load_table(tmp_path / "t.csv", "species")
    assert table.row_ids[3] == "flower 3"
    assert table.X.shape == (150, 4)
    iris.to_parquet(tmp_path / "t.parquet")
    assert load_table(tmp_path / "t.parquet", "species").row_ids[3] == "flower 3"


def test_a_named_index_is_a_column_where_it_is_asked_for(tmp_path: Path, iris: pd.DataFrame) -> None:
    """Never a feature: a table that was indexed by its ids has these for the names of its rows."""
    path = tmp_path / "t.parquet"
    iris.rename_axis("flower").to_parquet(path)
    assert load_table(path, "species", row_id="flower").row_ids[3] == 3
    assert load_table(path, "species").feature_names == tuple(iris.columns.drop("species"))
    names = ["flower", *iris.columns]
    assert column_names(path) == names
    assert list(cells_as_written(path)[0].columns) == names
    iris.rename_axis("species").to_parquet(path)  # a column has that name
    assert column_names(path) == list(iris.columns)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_column_that_says_which_rows_belong_together(tmp_path: Path, suffix: str) -> None:
    frame = pd.DataFrame({"x": [1.0, 2, 3, 4], "meta_day": ["01", "1 ", "NA", None], "y": list("abab")})
    path = tmp_path / f"t{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    table = load_table(path, "y", group="meta_day")
    assert table.groups is not None
    assert table.groups.tolist() == ["01", "1", "NA", None]
    assert table.feature_names == ("x",)
    assert load_table(path, "y").groups is None
    with pytest.raises(DataError, match="no column 'meta_dya'"):
        load_table(path, "y", group="meta_dya")
    np.savez(tmp_path / "t.npz", X=np.eye(2), y=[0, 1])
    with pytest.raises(DataError, match="no column 'day' that says which rows belong together"):
        load_table(tmp_path / "t.npz", group="day")


@pytest.mark.parametrize("codes", [["001", "010", "2"], ["00", "01", "10"], ["1", "007", "3"]])
def test_labels_with_leading_zeros_are_text(codes: list[str], tmp_path: Path) -> None:
    """As the file has them: 007 is not 7."""
    path = tmp_path / "codes.csv"
    path.write_text("y,a\n" + "".join(f"{code},{place}\n" for place, code in enumerate(codes)))
    table = load_table(path, "y")
    assert table.y is not None
    assert table.y.tolist() == codes
    whole = tmp_path / "whole.csv"
    whole.write_text("y;a\n0;1\n10;2\n-5;3\n")
    numbers = load_table(whole, "y").y
    assert numbers is not None
    assert numbers.tolist() == [0, 10, -5]


def test_labels_keep_their_kind(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a,whole,word,truth,na,code\n1,1,x,True,NA,01\n2,2,y,False,None,1\n")
    frame = {name: _labels_of(path, name) for name in ("whole", "word", "truth", "na")}
    assert frame["whole"].dtype.kind == "i"
    assert frame["word"].tolist() == ["x", "y"]
    assert frame["truth"].dtype.kind == "b"
    assert frame["na"].tolist() == ["NA", "None"]  # class names, not missing
    ignored = ("whole", "word", "truth", "na")
    codes = load_table(path, "code", ignore=ignored, text_labels=True).y
    assert codes is not None
    assert codes.tolist() == ["01", "1"]


def _labels_of(path: Path, name: str) -> np.ndarray:
    others = {"whole", "word", "truth", "na", "code"} - {name}
    y = load_table(path, name, ignore=others).y
    assert y is not None
    return y


def test_whole_numbers_written_as_floats_are_whole_numbers(tmp_path: Path) -> None:
    y = load_table(write(tmp_path / "t.csv", "a,y\n1,1.0\n2,2.0\n"), "y").y
    assert y is not None
    assert y.dtype.kind == "i"


def test_features_in_the_order_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "b,extra,a\n1,9,2\n")
    table = load_table(path, features=["a", "b"], ignore=["extra"])
    assert table.feature_names == ("a", "b")
    np.testing.assert_array_equal(np.asarray(table.X), [[2.0, 1.0]])
    with pytest.raises(DataError, match=r"missing: c; unexpected: b, extra"):
        load_table(path, features=["a", "c"])


def test_booleans_count_as_numbers_and_spaces_before_cells_do_not_matter(tmp_path: Path) -> None:
    table = load_table(write(tmp_path / "t.csv", "a , b,y\n True, 1,x\n False, 2 ,z\n"), "y")
    assert table.feature_names == ("a", "b")


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    table = load_table(write(tmp_path / "t.csv", "\ufeffa,y\r\n1,x\r\n2,z\r\n"), "y")
    assert table.feature_names == ("a",)
    assert table.y is not None
    assert table.y.tolist() == ["x", "z"]


def test_missing_cells_are_kept_if_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a,b,y\n1,?,x\n,2,z\n")
    X = np.asarray(load_table(path, "y", allow_missing=True).X)
    np.testing.assert_array_equal(np.isnan(X), [[False, True], [True, False]])


BAD_CSV = {
    "empty": ("", "is empty"),
    "blank": ("\n \n", "is empty"),
    "header only": ("a,b,y\n", "has a header but no rows"),
    "one cell of text": (
        "a,b,y\n1,2,x\n2,,z\n3,1e5,x\n4,12 mm,z\n5,?,x\n",
        r"\(for instance '12 mm' in row 3, .*'b'\)",
    ),
    "text column": ("a,b,y\n1,red,x\n2,blue,z\n", r"not numeric: column b \(for instance 'red'.*meta_"),
    "missing cells": ("a,b,y\n1,,x\n2,,z\n", r"missing cells in column b \(2\); fill them in"),
    "empty column": ("a,b,y\n1,,x\n2,,z\n", "missing cells"),
    "infinite": ("a,b,y\n1,inf,x\n2,1,z\n", "infinite numbers in column b"),
    "no such target": ("a,b,Y label\n1,2,x\n", r"no column 'y'.*columns: a, b, Y label"),
    "same name twice": ("a,a,y\n1,2,x\n", "more than one column is called a"),
    "long row": ("a,b,y\n1,2,x,7\n1,2,z\n", "same number of cells .row 0, counted from 0, has 4, the header 3"),
    "long row later": ("a,b,y\n1,2,x\n1,2,z,7\n", "same number of cells .row 1, counted from 0, .*--separator"),
    "infinite labels": ("a,y\n1,inf\n2,1\n", "column 'y' holds infinite numbers"),
    "missing label": ("a,y\n1,x\n2,\n", r"column 'y' has no label in 1 of 2 rows \(the first is row 1"),
    "fractions": ("a,y\n1,0.5\n2,1\n", "numbers with fractions"),
    "only the target": ("y\nx\nz\n", "no feature columns"),
    "binary": ("a,\0\0\0\n1,2\n", "not text"),
}


@pytest.mark.parametrize("case", BAD_CSV)
def test_bad_csv_gives_one_clear_line(tmp_path: Path, case: str) -> None:
    text, message = BAD_CSV[case]
    path = write(tmp_path / "bad.csv", text)
    with pytest.raises(DataError, match=message) as caught:
        load_table(path, "y")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_without_a_name_are_called_by_their_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "trailing.csv", "a,,y,\n1,2,x,\n3,4,z,\n")
    with caplog.at_level(logging.INFO):
        table = load_table(path, "y", mixed=True)
    assert table.feature_names == ("a", "column 2", "column 4")
    assert "called by their place: column 2, column 4" in caplog.text
    assert column_names(path) == ["a", "column 2", "y", "column 4"]


def test_names_and_labels_are_text_in_one_way(tmp_path: Path) -> None:
    texts = (unicodedata.normalize(form, "größe,y\n1,süß\n2,x\n") for form in ("NFC", "NFD"))
    first, second = (load_table(write(tmp_path / f"{i}.csv", text), "y") for i, text in enumerate(texts))
    assert first.feature_names == second.feature_names
    assert first.y is not None
    assert second.y is not None
    assert first.y.tolist() == second.y.tolist()


def test_commas_of_a_single_column_are_decimal_signs(tmp_path: Path) -> None:
    table = load_table(write(tmp_path / "one.csv", "v\n1,5\n-2,25\n"))
    np.testing.assert_array_equal(table.X, [[1.5], [-2.25]])


def test_codes_beside_decimal_commas_stay_as_they_are_written(tmp_path: Path) -> None:
    path = write(tmp_path / "codes.csv", "code;v\n01;1,5\n02;2\n01;3,25\n")
    assert load_table(path, mixed=True).X["code"].tolist() == ["01", "02", "01"]
    stated = load_table(path, mixed=True, as_numbers=["code"]).X["code"]
    np.testing.assert_array_equal(as_numbers(stated, ","), [1, 2, 1])


@pytest.mark.parametrize("between", [".", " ", "\u202f", "'"])
def test_grouped_numbers_of_known_columns_are_numbers(tmp_path: Path, between: str) -> None:
    path = write(tmp_path / "grouped.csv", f"v;c\n3{between}575,44;r\n12,5;g\n")
    new = load_table(path, mixed=True).X
    assert new["v"].tolist() == [f"3{between}575,44", "12,5"]  # whose comma the column is yet to learn
    known = load_table(path, mixed=True, written={}).X
    assert known["v"].tolist() == [3575.44, 12.5]


def test_a_near_name_is_suggested(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a,species\n1,x\n")
    with pytest.raises(DataError, match="did you mean 'species'"):
        load_table(path, "Specie")


def test_a_truncated_gzip_file_and_one_that_is_none(tmp_path: Path) -> None:
    whole = gzip.compress(b"a,y\n" + b"1,x\n" * 1000)
    (tmp_path / "half.csv.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "none.csv.gz").write_text("a,y\n1,x\n")
    for name in ("half.csv.gz", "none.csv.gz"):
        with pytest.raises(DataError, match="not a whole gzip file"):
            load_table(tmp_path / name, "y")


@pytest.mark.parametrize("error", ["#N/A", "#DIV/0!", "#REF!"])
def test_no_class_is_called_as_an_error_of_a_spreadsheet(tmp_path: Path, error: str) -> None:
    path = write(tmp_path / "t.csv", f"a,y\n1,x\n2,{error}\n3,NA\n")
    with pytest.raises(DataError, match=r"no label in 1 of 3 rows \(the first is row 1"):
        load_table(path, "y")
    pd.DataFrame({"a": [1, 2], "y": ["x", error]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"no label in 1 of 2 rows \(the first is row 1"):
        load_table(tmp_path / "t.parquet", "y")


@pytest.mark.parametrize("label", ["NA", "?", "null"])
def test_classes_that_may_be_gaps_are_told(tmp_path: Path, label: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        load_table(write(tmp_path / "t.csv", f"a,y\n1,x\n2,{label}\n"), "y")
    assert f"in column 'y' '{label}' is a class, of 1 rows" in caplog.text


def test_the_index_of_a_parquet_file_is_no_feature(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": [1, 2], "y": ["p", "q"]}, index=pd.Index([3, 4], name="patient"))
    frame.to_parquet(tmp_path / "t.parquet")
    with caplog.at_level(logging.INFO):
        load_table(tmp_path / "t.parquet", "y")
    assert "the index (patient) names rows and is not learnt from" in caplog.text


def test_a_table_is_read_as_estimators_take_it(tmp_path: Path) -> None:
    """And what holds for later files of it goes with the model."""
    path = write(tmp_path / "t.csv", "hp;when;kind\n90,5;05.04.2025;van\nunknown;06.04.2025;Van\n80,5;;car\n;;van\n")
    table = sureshot.read_table(path, "kind", missing="unknown", fold_case=True)
    assert isinstance(table.X, pd.DataFrame)
    np.testing.assert_array_equal(table.X["hp"], [90.5, np.nan, 80.5, np.nan])
    assert table.X["when"].tolist()[:2] == ["05.04.2025", "06.04.2025"]
    assert table.y is not None
    assert table.y.tolist() == ["van", "van", "car", "van"]
    found = Remembered.of(table.X[:2])
    assert found == Remembered(True, ("unknown",), ("hp",), True)
    table.X.to_parquet(tmp_path / "X.parquet")  # with what is remembered, as plain values
    assert Remembered.of(pd.read_parquet(tmp_path / "X.parquet")) == found
    assert sureshot.read_table(path, "kind", features=["hp"]).X["hp"].tolist()[1] == "unknown"
    pd.DataFrame({"hp": ["unknown", "a"]}).to_parquet(tmp_path / "t.parquet")
    assert sureshot.read_table(tmp_path / "t.parquet", missing=["unknown"]).X["hp"].isna().tolist() == [True, False]
    with pytest.raises(ValueError, match="missing must be text of cells that are gaps, such as 'unknown'; got -999"):
        sureshot.read_table(path, missing=[-999])


@pytest.mark.parametrize(
    "stored",
    [3, {}, {"header": 1, "missing": [], "comma": [], "fold_case": True}]
    + [{"header": True, "missing": [1], "comma": [], "fold_case": True}]
    + [{"header": True, "missing": [], "comma": [], "fold_case": True, "sheet": 1}],
)
def test_a_malformed_way_of_reading_is_refused(stored: Any) -> None:
    with pytest.raises(ValueError, match="malformed way of reading"):
        Remembered.from_json(stored)


def test_classes_are_called_as_most_of_their_labels() -> None:
    assert folded(np.array(["No", "NO", "no", "no", "a  b", "A b"])).tolist() == ["no"] * 4 + ["A b"] * 2
    assert folded(np.array(["YES", "New"]), ["yes", "no"]).tolist() == ["yes", "New"]
    assert folded(np.array([1, 2])).tolist() == [1, 2]


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder"):
        load_table(tmp_path)
    with pytest.raises(DataError, match=r"expected one of \.csv"):
        load_table(write(tmp_path / "t.xls", "x"))
    write(tmp_path / "table.csv", "a\n1\n")
    with pytest.raises(DataError, match=r"does not exist \(did you mean 'table.csv'\?\)"):
        load_table(tmp_path / "tabel.csv")
    with pytest.raises(DataError, match="is empty"):
        load_table(write(tmp_path / "t.parquet", ""))
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        load_table(write(tmp_path / "t.parquet", "not parquet at all"))


def test_a_truncated_parquet_file(tmp_path: Path, iris: pd.DataFrame) -> None:
    iris.to_parquet(tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        load_table(tmp_path / "t.parquet")


def test_parquet_columns_that_are_not_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"v": [[1.0, 2.0], [3.0, 4.0]], "c": pd.Categorical(["p", "q"]), "y": [0, 1]})
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="2 columns: v, c"):
        load_table(tmp_path / "t.parquet", "y")
    labels = load_table(tmp_path / "t.parquet", "c", ignore=["v"]).y
    assert labels is not None
    assert labels.tolist() == ["p", "q"]


def test_parquet_integers_with_gaps_are_missing_cells(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "y": [0, 1]})
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="missing cells in column a"):
        load_table(tmp_path / "t.parquet", "y")


def test_parquet_without_its_package_says_what_to_install(
    tmp_path: Path, iris: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    iris.to_parquet(tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"sureshot\[parquet\]"):
        load_table(tmp_path / "t.parquet", "species")


names = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=6).map(
    lambda name: unicodedata.normalize("NFC", name)
)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(data=st.data(), header=st.lists(names, min_size=1, max_size=4, unique=True))
@settings(max_examples=60)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, header: list[str]
) -> None:
    """Any finite numbers and any labels, whatever the columns are called."""
    rows = data.draw(st.lists(st.lists(numbers, min_size=len(header), max_size=len(header)), min_size=1, max_size=5))
    labels = data.draw(st.lists(names, min_size=len(rows), max_size=len(rows)))
    header = [unicodedata.normalize("NFC", f"x{name}") for name in header]  # never empty, meta_ or the target's name
    path = tmp_path_factory.mktemp("h") / "t.csv"
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow([*header, "target"])
        writer.writerows([*row, label] for row, label in zip(rows, labels, strict=True))
    table = load_table(path, "target", text_labels=True)
    assert table.y is not None
    assert table.y.tolist() == labels
    assert table.feature_names == tuple(header)
    np.testing.assert_array_equal(np.asarray(table.X), rows)


@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
@settings(max_examples=150)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet", ".npz"])
def test_any_bytes_give_a_table_or_a_clear_line(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("h") / f"t{suffix}"
    path.write_bytes(content)
    message = ""
    try:
        X = np.asarray(load_table(path).X)
    except DataError as error:
        message, X = str(error), np.zeros((1, 1))
    assert "\n" not in message
    assert np.isfinite(X).all()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_of_classes_are_known_by_their_cells(tmp_path: Path, suffix: str) -> None:
    frame = pd.DataFrame(
        {"whole": [1, 0, 1], "part": [1, None, 0], "other": [0, 1, 2], "share": [0.5, 1, 0], "empty": [None] * 3}
    )
    path = tmp_path / f"t{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    whole = ["whole"] if suffix == ".csv" else ["whole", "part"]  # of a CSV file "1.0" is text that is no class
    assert columns_of_classes(path, list(frame), [0, 1]) == whole
    assert columns_of_classes(path, ["whole", "other"], [0, 1, 2]) == ["whole", "other"]


def test_days_as_labels_are_the_same_text_from_every_file(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "day": pd.to_datetime(["2024-01-01", "2024-01-02"])})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        y = load_table(tmp_path / name, "day").y
        assert y is not None
        assert y.tolist() == ["2024-01-01", "2024-01-02"]


INCHES = "id,x,size\n" + "".join(f"r{i},{i}.5,p\n" for i in range(4))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_quotation_mark_that_swallows_rows_is_named(tmp_path: Path, end: str) -> None:
    for place, rows in ((4, ['r4,1.0,"5 inch', "r5,2,p", 'r6,2.0,3 inch"']), (0, ['r4,1.0,"5 inch', 'r6,2.0,3 inch"'])):
        lines = INCHES.splitlines()
        text = end.join([*lines[: place + 1], *rows, *lines[place + 1 :]]) + end
        with pytest.raises(
            DataError, match=f"a cell in row {place}, counted from 0, holds {len(rows)} lines that look"
        ):
            load_table(write(tmp_path / "t.csv", text), mixed=True)


def test_text_of_several_lines_is_no_mistake(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "said,x\n" + "".join(f'"Dear {i},\nhello",{i}\n' for i in range(4))
    with caplog.at_level(logging.INFO):
        table = load_table(write(tmp_path / "t.csv", text), mixed=True)
        assert len(table.row_ids) == 4
        assert "look like rows" not in caplog.text
        table = load_table(write(tmp_path / "t.csv", text + '"about, 7\nor so",5\n'), mixed=True)
    assert len(table.row_ids) == 5
    assert "a cell in row 4, counted from 0, holds 2 lines that look like rows; if they are" in caplog.text


def test_a_quotation_mark_that_is_never_closed_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a quotation mark in row 1, counted from 0, is never closed"):
        load_table(write(tmp_path / "t.csv", 'a,cls\n1,x\n"2,y\n3,x\n'), "cls")


def test_rows_at_the_end_that_hold_nothing_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "t.csv", "a,cls\n1,x\n,\n2,y\n,\n , \n")
    with caplog.at_level(logging.INFO):
        table = load_table(path, mixed=True, allow_missing=True)
    assert len(table.row_ids) == 3
    assert "left out 2 rows at the end, which hold nothing" in caplog.text
    assert len(cells_as_written(path)[0]) == 3
    assert len(load_table(write(path, "a,b\n,\n,\n"), mixed=True, allow_missing=True).row_ids) == 1


def test_names_of_rows_that_come_again_are_mentioned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        load_table(write(tmp_path / "t.csv", ",a\n0,1\n1,2\n"))
        assert not caplog.text
        load_table(write(tmp_path / "t.csv", ",a\n0,1\n0,2\n"))
    assert "the first column has no name, so it names rows, though some names come again" in caplog.text


def test_a_column_of_the_model_that_is_left_out_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the model learns from column 'a', which is to be left out"):
        load_table(write(tmp_path / "t.csv", "a,b\n0,1\n1,2\n"), features=["a", "b"], ignore=["a"])
