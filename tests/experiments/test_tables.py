import gzip
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from experiments import tables
from experiments.experiment import Outcome, Picture, Table, Verdict, plain_value


@dataclass(frozen=True)
class Settings:
    sizes: tuple[int, ...] = (1, 2)
    folder: Path = Path("somewhere")


def example(value: float = 0.123456789, figure: Figure | None = None) -> Outcome:
    measured = pd.DataFrame(
        {
            "method": ["ours", "other|one"],
            "accuracy": [value, float("nan")],
            "n": [3, 4],
            "best": [True, False],
        }
    )
    published = pd.DataFrame({"method": ["theirs"], "accuracy": [0.987]})
    return Outcome(
        title="An example",
        introduction="What is measured.",
        tables=(
            Table("main", "Measured numbers.", measured, digits=4),
            Table("paper", "Numbers of the paper.", published, published=True),
        ),
        pictures=(Picture("curve", "A curve.", figure or Figure(figsize=(2, 2))),),
        verdicts=(Verdict("up is up", "Paper, 1", f"{value:.3f}", True),),
        findings=("First paragraph.", "Second paragraph."),
        differences=("Everything.",),
        config=Settings(),
        seeds=(0, 7),
    )


def write(output: Path, outcome: Outcome, name: str = "example") -> tables.ExperimentResult:
    return tables.write_result(
        outcome, name=name, output=output, command="python -m experiments example", wall_seconds=1.25
    )


def test_round_trip(tmp_path):
    outcome = example()
    result = write(tmp_path / "new" / "folder", outcome)
    assert all(path.is_file() for path in result.files)
    assert {p.relative_to(tmp_path / "new/folder").as_posix() for p in result.files} == {
        "example.md",
        "example.json.gz",
        "figures/example-curve.png",
    }
    page, record = result.files[0], json.loads(gzip.decompress(result.files[1].read_bytes()))
    assert page.name == "example.md"
    first = record["tables"]["main"]["rows"][0]
    assert first["accuracy"] == outcome.tables[0].frame["accuracy"][0]  # full precision
    assert record["tables"]["main"]["rows"][1] == {
        "method": "other|one",
        "accuracy": None,
        "n": 4,
        "best": False,
    }
    assert record["config"] == {"sizes": [1, 2], "folder": "somewhere"}
    assert record["seeds"] == [0, 7]
    assert record["verdicts"][0]["holds"] is True
    assert record["tables"]["paper"]["published"] is True


def test_the_page_says_what_is_needed_to_repeat_it_and_keeps_published_numbers_apart(tmp_path):
    text = write(tmp_path, example()).files[0].read_text()
    for needed in (
        "`python -m experiments example`",
        "seeds: 0, 7",
        "1.2 s",
        "torch",
        "Second paragraph.",
        "Everything.",
    ):
        assert needed in text
    measured, published = text.split("## Published")
    assert "0.987" not in measured
    assert "0.987" in published
    assert "| ours | 0.1235 | 3 | yes |" in measured
    assert "| other\\|one |  | 4 | no |" in measured
    assert "(figures/example-curve.png)" in measured


def test_nothing_names_the_machine(tmp_path):
    import platform

    result = write(tmp_path, example())
    page, record = (path.read_bytes() for path in result.files[:2])
    for text in (page.decode(), gzip.decompress(record).decode()):
        assert platform.platform() not in text
        assert f'"{platform.node()}"' not in text


class BrokenFigure(Figure):
    """Fails when it is drawn, as a figure with an impossible formula does."""

    def draw(self, *args, **kwargs):
        raise ValueError("cannot draw")


def test_a_failed_write_leaves_the_earlier_result_as_it_was(tmp_path):
    write(tmp_path, example(0.5))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="cannot draw"):
        write(tmp_path, example(0.6, BrokenFigure()))
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    assert not list(tmp_path.glob(".*"))


def test_a_second_write_replaces_the_first_and_leaves_other_experiments(tmp_path):
    write(tmp_path, example(0.5), "other")
    write(tmp_path, example(0.5))
    write(tmp_path, example(0.75))
    assert "0.7500" in (tmp_path / "example.md").read_text()
    assert "0.5000" in (tmp_path / "other.md").read_text()
    assert not list(tmp_path.glob(".*"))


def test_equal_figures_are_equal_files(tmp_path):
    first = write(tmp_path / "a", example()).figures[0].read_bytes()
    second = write(tmp_path / "b", example()).figures[0].read_bytes()
    assert first == second


@given(
    st.lists(
        st.tuples(st.text(max_size=8), st.floats(width=64), st.integers(-(2**40), 2**40)),
        min_size=1,
        max_size=5,
    )
)
def test_every_row_of_a_markdown_table_has_every_cell(rows):
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    lines = tables.markdown_table(tables.Table("name", "caption", frame)).split("\n")
    assert len(lines) == len(rows) + 2
    assert {line.replace("\\|", "").count("|") for line in lines} == {4}


def test_digits_of_numbers_of_different_sizes():
    numbers = pd.DataFrame({"x": [45017.2, 2.2154, 0.0018912, 3e-05, np.nan]})
    table = tables.Table("name", "caption", numbers, significant=True)
    lines = tables.markdown_table(table).split("\n")[2:]
    assert [line.strip("| ") for line in lines] == ["45017", "2.22", "0.00189", "3e-05", ""]
    assert replace(table, significant=False).written(-0.0004) == "0.000"


def test_plain_values():
    found = plain_value({"a": (np.float64(1.5), np.int64(2), np.bool_(True), float("inf"), None), 3: Path("x/y")})
    assert found == {"a": [1.5, 2, True, None, None], "3": "x/y"}
    json.dumps(found, allow_nan=False)
