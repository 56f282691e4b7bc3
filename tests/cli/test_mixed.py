"""Files with text, dates and gaps, from fitting to predicting."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.cli.conftest import QUICK
from tests.cli.test_bad_input import assert_refused

Run = Callable[..., Any]
N = 40


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file as people have them, and a later one."""
    folder = tmp_path_factory.mktemp("orders")
    generator, late = np.random.default_rng(0), np.arange(N) % 2
    frame = pd.DataFrame(
        {
            "plz": np.where(late, "08001", "8001"),
            "country": np.where(generator.random(N) < 0.5, "CH", "DE"),
            "amount": [f"${1000 * value:,.2f}" for value in generator.normal(size=N) + 3 * late],
            "placed": pd.Timestamp("2025-01-01") + pd.to_timedelta(np.arange(N), unit="D"),
            "express": generator.random(N) < 0.5,
            "weight": np.where(np.arange(N) % 5 == 0, np.nan, generator.normal(size=N)),
            "late": np.where(late, "yes", "no"),
        }
    )
    frame.to_csv(folder / "old.csv", index=False)
    frame[:8].assign(country="FR", weight=np.nan).to_csv(folder / "new.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def model(orders: Path, run: Run) -> Path:
    result = run("fit", orders / "old.csv", "-t", "late", "--kind", "plz=category", "-o", orders / "m", *QUICK)
    assert result.exit_code == 0, result.stderr
    made = (
        "3 of 6 columns are numbers; categories: plz, country; dates: placed; gaps are the median, and marked: weight"
    )
    assert made in result.stderr
    assert "column plz says the label of every row: is it a copy of the labels" in result.stderr
    return orders / "m"


def test_predictions_and_scores(orders: Path, model: Path, run: Run) -> None:
    result = run("predict", model, orders / "new.csv", "--proba")
    assert result.exit_code == 0, result.stderr
    table = pd.read_csv(io.StringIO(result.stdout))
    assert table["prediction"].tolist() == ["no", "yes"] * 4  # 08001 and 8001 are two places
    assert run("evaluate", model, orders / "old.csv", "-t", "late", "--json").exit_code == 0
    result = run("update", model, orders / "new.csv", "-t", "late", "-o", orders / "n")
    assert result.exit_code == 0, result.stderr


def test_an_odd_cell_is_refused_before_anything_is_written(orders: Path, model: Path, tmp_path: Path, run: Run) -> None:
    frame = pd.read_csv(orders / "new.csv", dtype=str)
    frame.loc[7, "placed"] = "soon"
    frame.to_csv(tmp_path / "odd.csv", index=False)
    result = run("predict", model, tmp_path / "odd.csv", "--quiet")
    assert_refused(result, "column 'placed': 'soon' in row 7, counted from 0, is no date such as 2025-12-31")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("plzz=category", "no column 'plzz' (--kind) (did you mean 'plz'?)"),
        ("plz=categry", "got 'categry' (did you mean 'category'?)"),
        ("plz", "expected COLUMN=KIND"),
        ("late=category", "column 'late' has a kind (--kind), but is not learnt from"),
        ("country=number", "column 'country': 'CH' in row"),
    ],
)
def test_kinds_that_cannot_be(orders: Path, run: Run, tmp_path: Path, kind: str, message: str) -> None:
    result = run("fit", orders / "old.csv", "-t", "late", "--kind", kind, "-o", tmp_path / "m", "--quiet", *QUICK)
    assert result.exit_code == 1
    assert message in result.stderr or "'DE'" in result.stderr
    assert not list(tmp_path.iterdir())


def test_kinds_are_for_columns_with_names(tmp_path: Path, run: Run) -> None:
    np.savez(tmp_path / "d.npz", X=np.eye(4), y=[0, 1, 0, 1])
    result = run("fit", tmp_path / "d.npz", "--kind", "a=category", "-o", tmp_path / "m", "--quiet")
    assert_refused(result, "has no columns with names")
    result = run(
        "fit", tmp_path / "d.npz", "--kind", "a=category", "--checkpoint", "c", "-o", tmp_path / "m", "--quiet"
    )
    assert_refused(result, "--kind and --checkpoint exclude each other")


def test_search_of_a_mixed_table(orders: Path, run: Run, tmp_path: Path) -> None:
    options = ("--particles", "2", "--rejuvenation", "0", "--test", orders / "new.csv", "--drop", "plz")
    result = run("search", orders / "old.csv", "-t", "late", *options, "--report", tmp_path / "r", "--json")
    assert result.exit_code == 0, result.stderr
    assert "categories: country" in result.stderr


def test_a_fold_without_the_gap_is_read_as_the_whole(tmp_path: Path, files: Path, run: Run) -> None:
    frame = pd.read_csv(files / "two.csv").astype({"sepal_length": object})
    frame.loc[0, "sepal_length"] = ""
    frame.to_csv(tmp_path / "gap.csv", index=False)
    arguments = ("--kernel", "rbf", "--objective", "none", "-q", "--report", tmp_path / "report")
    result = run("fit", tmp_path / "gap.csv", "-t", "species", "-o", tmp_path / "m", *arguments)
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "report" / "report.html").exists()


@pytest.fixture(scope="module")
def amounts(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Path:
    """A model that was learnt with points between thousands."""
    folder = tmp_path_factory.mktemp("amounts")
    lines = [f"{1000 + 50 * i:,.2f};{i % 7};{'small' if i < 20 else 'large'}" for i in range(40)]
    swapped = "\n".join(lines).translate(str.maketrans(",.", ".,"))
    (folder / "old.csv").write_text(f"amount;other;y\n{swapped}\n")
    assert run("fit", folder / "old.csv", "-t", "y", "-o", folder / "m", *QUICK).exit_code == 0
    return folder / "m"


def test_a_column_of_gaps_has_no_decimal_sign(amounts: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "gaps.csv").write_text("amount,other\n,1\n,2\n")
    assert run("predict", amounts, tmp_path / "gaps.csv").exit_code == 0


@pytest.mark.parametrize(
    ("text", "stated", "as_learnt"),
    [
        ("amount;other\n1250;1\n2500;2\n", (), True),
        ("amount;other\n1.250;1\n2.500;2\n", (), True),  # nothing says otherwise, so as the column was
        ("amount;other\n1.250,00;1\n2.500,0;2\n", (), True),
        ('amount,other\n"1.250,00",1\n"2.500,0",2\n', (), True),
        ("amount,other\n1250.00,1\n2500.0,2\n", (), True),
        ("amount;other\n1250.0;1\n2500.0;2\n", (), True),
        ("amount;other\n$1,250.00;1\n$2,500.00;2\n", ("--decimal", "."), True),
        ("amount,other\n1.250,1\n2.500,2\n", (), True),  # as the column was, though commas separate cells
        ("amount;other\n1.250;1\n2.500;2\n", ("--decimal", "."), False),
        ("amount;other\n1.25;1\n2.5;2\n", (), False),
    ],
)
def test_each_file_has_its_own_decimal_sign(
    text: str, stated: tuple[str, ...], as_learnt: bool, amounts: Path, tmp_path: Path, run: Run
) -> None:
    """Later files may be written otherwise, a factor of a thousand apart."""
    (tmp_path / "new.csv").write_text(text)
    pd.DataFrame({"amount": np.array([1250.0, 2500.0]) / (1 if as_learnt else 1000), "other": [1, 2]}).to_parquet(
        tmp_path / "plain.parquet"
    )
    found, plain = (
        run("predict", amounts, tmp_path / name, "--proba", *options)
        for name, options in (("new.csv", stated), ("plain.parquet", ()))
    )
    assert found.exit_code == 0, found.stderr
    np.testing.assert_allclose(
        *(pd.read_csv(io.StringIO(result.stdout))["probability_small"] for result in (found, plain)), atol=1e-6
    )


def test_a_whole_number_beyond_all_others_is_refused(model: Path, orders: Path, tmp_path: Path, run: Run) -> None:
    pd.read_csv(orders / "new.csv", dtype=str)[:1].assign(weight="9" * 400).to_csv(tmp_path / "huge.csv", index=False)
    assert_refused(run("predict", model, tmp_path / "huge.csv", "-q"), "'weight' contains infinity in row 0")


def test_a_column_has_one_kind(orders: Path, tmp_path: Path, run: Run) -> None:
    arguments = ("fit", orders / "old.csv", "-t", "late", "--kind", "plz=category", "--kind", "plz=text")
    assert_refused(run(*arguments, "-o", tmp_path / "m"), "'plz' cannot be category and text: state one")
