"""First lines: names of columns, a row like all others, or names that leave the rows' names out."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from sureshot.data import DataError, column_names, load_table, read_table
from sureshot.data.checks import MISSING
from sureshot.data.delimited import TextFormat
from sureshot.data.headers import looks_like_data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n", True),
        ("6,148,72,1\n1,85,66,0\n", True),
        ("5.1,?,setosa\n4.9,3.0,setosa\n", True),
        ("p,x,s\np,y,s\ne,x,n\n", True),
        ("a,b,y\n1,2,x\n", False),
        ("0,1,2,y\n.5,.25,.125,x\n", False),  # places of pixels
        ("2019,2020,2021\n3,1,2\n", False),
        ("colour,size\nred,small\nblue,large\n", False),
        ("5.1,width,setosa\n4.9,3.0,setosa\n", False),
        ("5.1,3.5,setosa\n", False),  # there is nothing to compare it with
    ],
)
def test_rows_below_say_whether_the_first_line_is_one(text: str, expected: bool) -> None:
    first, *rows = (line.split(",") for line in text.splitlines())
    assert looks_like_data(first, rows, frozenset(MISSING)) is expected


def test_a_row_far_down_decides() -> None:
    rows = [["1.5", "?"]] * 2000
    assert looks_like_data(["2.5", "width"], [*rows, ["1.5", "x"]], frozenset(MISSING))
    assert not looks_like_data(["2.5", "width"], [*rows, ["1.5", "3"]], frozenset(MISSING))


def test_a_file_without_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("1,1,0.5,a\n2,4,1.5,b\n3,9,2.5,a\n")
    with pytest.raises(
        DataError, match="more than one column is called 1; rename them; line 1 looks like data: --no-h"
    ):
        column_names(path)
    path.write_text("1,1.5,0.5,a\n2,4,1.5,b\n3,9,2.5,a\n")
    with pytest.raises(DataError, match=r"no column 'y'.* line 1 looks like data: --no-header"):
        load_table(path, "y", mixed=True)
    with pytest.raises(DataError, match=r"missing: x; unexpected: 1, 1.5, 0.5.* line 1 looks like data"):
        load_table(path, features=["x"], mixed=True)
    with caplog.at_level(logging.WARNING):
        assert len(load_table(path, mixed=True).X) == 2
    assert "line 1 looks like data" in caplog.text
    table = read_table(path, "column 4", header=False)
    assert table.X.columns.tolist() == ["column 1", "column 2", "column 3"]
    assert table.X["column 2"].tolist() == [1.5, 4, 9]
    assert table.y is not None
    assert table.y.tolist() == ["a", "b", "a"]
    assert column_names(path, TextFormat(header=False)) == [f"column {place}" for place in (1, 2, 3, 4)]


@pytest.mark.parametrize("separator", [",", ";", "\t", " "])
def test_rows_whose_names_have_no_name(separator: str, tmp_path: Path) -> None:
    """As R's write.table writes them."""
    path = tmp_path / "r.txt"
    lines = [["a", "b", "y"], ["r1", "1", "2.5", "p"], ["r2", "3", "4.5", "q"]]
    path.write_text("\n".join(separator.join(f'"{cell}"' for cell in line) for line in lines))
    table = read_table(path, "y", separator=separator if separator == " " else None)
    assert table.row_ids.tolist() == ["r1", "r2"]
    assert table.X.to_numpy().tolist() == [[1, 2.5], [3, 4.5]]
    path.write_text(f"a{separator}y\n1{separator}p{separator}\n2{separator}q{separator}\n")
    if separator != " ":  # at the end of a line it is none
        with pytest.raises(DataError, match="same number of cells"):
            read_table(path, "y", separator=separator)


def test_blanks_between_cells_are_named(tmp_path: Path) -> None:
    path = tmp_path / "blanks.txt"
    path.write_text('18.0   8   307.0\t"chevrolet malibu"\n 15.5  4  97  "ford  pinto" \n')
    with pytest.raises(DataError, match="no column 'mpg'"):
        load_table(path, "mpg")
    path.write_text("mpg cyl kind\n18.0   8  a\n 15.5  4\tb \n")
    with pytest.raises(DataError, match="blanks part every line into 3 cells: --separator space"):
        load_table(path, "kind")
    table = read_table(path, "kind", separator="space")
    assert table.X.to_numpy().tolist() == [[18, 8], [15.5, 4]]
