"""Text files as spreadsheets write them: what is found out about them, what is stated, what is refused."""

from __future__ import annotations

import contextlib
import csv
import io
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sureshot.data import DataError, load_table
from sureshot.data.delimited import TextFormat, read_text
from sureshot.data.tables import cells_as_written, names_rows

TEXT = "größe;art\n1,5;süß\n-2,25;sauer\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252"])
def test_encodings_separators_and_decimal_signs_are_found(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.csv").write_bytes(TEXT.encode(encoding))
    table = load_table(tmp_path / "t.csv", "art")
    assert table.feature_names == ("größe",)
    assert table.y is not None
    assert table.y.tolist() == ["süß", "sauer"]
    np.testing.assert_array_equal(np.asarray(table.X)[:, 0], [1.5, -2.25])


@pytest.mark.parametrize(
    ("text", "separator", "decimal"),
    [
        ("a,b\n1,2\n", ",", "."),
        ("a\tb\n1.5\t2\n", "\t", "."),
        ("a|b\n1|2\n", "|", "."),
        ("a;b\n1.5;2\n3;4,5\n", ";", "."),  # both signs: the comma cannot be trusted
        ("a;b\n1.234,5;2\n3;4\n", ";", ","),
        ("a;b\n1,234,567;2\n3;4\n", ";", "."),
        ('a;b\n"1;5";x, y\n2;"z, w"\n', ";", "."),
        ("a,b\n1,x;y\n2,z;w\n", ",", "."),
        ("a\n1\n2\n", ",", "."),
        ("a;b;c\n1;2\n", ";", "."),  # a short row is the reader's to refuse
    ],
)
def test_separator_and_decimal_sign(text: str, separator: str, decimal: str) -> None:
    _, found = read_text(text.encode(), "t.csv")
    assert (found.separator, found.decimal) == (separator, decimal)


@pytest.mark.parametrize(
    ("text", "usual", "separator"),
    [
        ("a,b|c\n1,2|3\n", "|", "|"),  # where the comma would do as well
        ("a:b\n1:2\n3\n", ":", ":"),  # a short row, and nothing that does better
        ("the a  b\n1 2  3\n", " ", " "),
        ("the a,b\n1,2\n", " ", ","),
        ("a;b\n1;2\n", ",", ";"),
        ("", "|", ","),
    ],
)
def test_the_usual_separator_is_taken_where_it_fits(text: str, usual: str, separator: str) -> None:
    _, found = read_text(text.encode(), "t.csv", TextFormat(usual_separator=usual))
    assert found.separator == separator


def test_what_is_stated_is_taken(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("a b\n1,5 2,5\n".encode("utf-16-le"))
    table = load_table(tmp_path / "t.csv", text=TextFormat.checked("utf-16-le", "space", ","))
    np.testing.assert_array_equal(np.asarray(table.X), [[1.5, 2.5]])
    assert TextFormat.checked(None, "\\t", None).separator == "\t"
    with pytest.raises(
        DataError, match=r"t.csv is not ascii text \(byte 4\): --encoding names another, or is left out"
    ):
        read_text(b"a,b\n\xff,2\n", "t.csv", TextFormat("ascii"))


@pytest.mark.parametrize(
    ("encoding", "separator", "decimal", "message"),
    [
        ("latin-2000", None, None, "there is no encoding 'latin-2000'"),
        ("utf-88", None, None, "did you mean 'utf-8'"),
        (None, ";;", None, "the separator must be one ASCII character"),
        ("rot13", None, None, "there is no encoding 'rot13'"),
        (None, "\u00a7", None, "the separator must be one ASCII character"),
        (None, "a", None, "the separator must be one ASCII character"),
        (None, None, "'", r"the decimal sign must be '\.' or ','; got"),
        (None, ",", ",", "they must differ"),
    ],
)
def test_formats_that_cannot_be(encoding: str | None, separator: str | None, decimal: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextFormat.checked(encoding, separator, decimal)


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a;y\n1;u\n2;v\n")))
    for _ in range(2):
        table = load_table("-", "y")
        assert len(table.row_ids) == 2
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(DataError, match="standard input is empty"):
        load_table("-", "y")


def test_names_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,a,y\n007,1,u\n008,2,v\n", encoding="utf-8")
    table = load_table(path, "y", row_id="id")
    assert table.feature_names == ("a",)
    assert table.row_ids.tolist() == ["007", "008"]
    assert cells_as_written(path)[0]["id"].tolist() == ["007", "008"]
    with pytest.raises(DataError, match="no column 'Id'"):
        load_table(path, "y", row_id="Id")
    path.write_text("id,a,y\nk,1,u\nm,2,v\nk,2,v\n", encoding="utf-8")
    with pytest.raises(DataError, match="names come again in 1 of its rows, the first is 'k' in row 2"):
        load_table(path, "y", row_id="id")
    path.write_text("id,a,y\nk,1,u\n,2,v\n", encoding="utf-8")
    with pytest.raises(DataError, match="'id' is to name rows and is empty in row 1"):
        load_table(path, "y", row_id="id")
    np.savez(tmp_path / "t.npz", X=np.eye(2))
    with pytest.raises(DataError, match="arrays have no column 'id'"):
        load_table(tmp_path / "t.npz", row_id="id")


def test_columns_that_look_like_numbers_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,customerId,row_nr,grid,nid\n5,1,1,1,1\n3,2,1,2,1.5\n", encoding="utf-8")
    X = load_table(path).X
    assert not isinstance(X, np.ndarray)
    assert [name for name in X.columns if names_rows(X[name])] == ["id", "customerId"]


cells = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=5).map(
    lambda text: unicodedata.normalize("NFC", text)
)


@given(st.data(), st.sampled_from(",;\t|"), st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
@settings(max_examples=80)
def test_numbers_survive_any_separator_and_encoding(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, separator: str, encoding: str
) -> None:
    """Whole numbers and labels of any letters, if no label holds a separator."""
    labels = data.draw(st.lists(cells.filter(lambda text: not set(text) & set(",;|\"'")), min_size=1, max_size=5))
    rows = [[data.draw(st.integers(-999, 999)) for _ in range(2)] for _ in labels]
    path = tmp_path_factory.mktemp("h") / "t.csv"
    with open(path, "w", newline="", encoding=encoding) as stream:
        writer = csv.writer(stream, delimiter=separator)
        writer.writerow(["a", "b", "y"])
        writer.writerows([*row, label] for row, label in zip(rows, labels, strict=True))
    table = load_table(path, "y", text_labels=True)
    assert table.y is not None
    assert table.y.tolist() == labels
    np.testing.assert_array_equal(np.asarray(table.X), rows)


@given(st.binary(max_size=300))
@settings(max_examples=200)
def test_any_bytes_are_text_or_refused(content: bytes) -> None:
    with contextlib.suppress(DataError):
        _, found = read_text(content, "t.csv")
        assert None not in (found.encoding, found.separator, found.decimal)


def test_long_cells_are_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"a,y\n{'x' * 200_000},u\n", encoding="utf-8")
    assert len(load_table(tmp_path / "t.csv", "y", mixed=True).X["a"][0]) == 200_000


@pytest.mark.parametrize("text", ["sep=;\r\na;y\r\n1,5;u\r\n", '"SEP=;"\na;y\n1,5;u\n', "a;y\r1,5;u\r"])
def test_lines_of_spreadsheets(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(text.encode())
    table = load_table(tmp_path / "t.csv", "y")
    assert table.feature_names == ("a",)
    assert table.X["a"].tolist() == [1.5]


def test_rows_far_down_decide_as_those_at_the_top() -> None:
    """Of two characters that cut the first lines alike only one cuts all; one number with a point is enough."""
    text, found = read_text(("x;y\n" + "1,5;p\n" * 1200 + "2;q\n").encode(), "t.csv")
    assert (found.separator, found.decimal) == (";", ",")
    text, found = read_text(("x;z;y\n" + "1,500;1;p\n" * 1200 + "1,500;2.5;q\n").encode(), "t.csv")
    assert (found.separator, found.decimal) == (";", ".")
    assert text.count("\n") == 1202
