"""Rows that have ids are replaced and forgotten, and reports name those that drove an answer."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sureshot import GPClassifier
from sureshot.estimators.saved import load_estimator

Run = Callable[..., Any]
QUICK = ("--kernel", "rbf", "--likelihood", "softmax", "--objective", "none", "-q")


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory, iris: pd.DataFrame, run: Run) -> Path:
    """Two species whose rows are called f0, f1, ..., one of them with a wrong label, and a model of them."""
    folder = tmp_path_factory.mktemp("named")
    rows = iris[iris["species"] != "virginica"].reset_index(drop=True)
    rows.insert(0, "flower", [f"f{k}" for k in range(len(rows))])
    wrong = rows.copy()
    wrong.loc[5, "species"] = {"setosa": "versicolor", "versicolor": "setosa"}[str(rows.loc[5, "species"])]
    rows.to_csv(folder / "right.csv", index=False)
    rows.loc[[5]].to_csv(folder / "correction.csv", index=False)
    wrong.to_csv(folder / "wrong.csv", index=False)
    for name in ("right", "wrong"):
        fitted = run("fit", folder / f"{name}.csv", "-t", "species", "--id", "flower", "-o", folder / name, *QUICK)
        assert fitted.exit_code == 0, fitted.stderr
    return folder


def test_a_correction_sticks_and_is_the_same_the_second_time(named: Path, tmp_path: Path, run: Run) -> None:
    before = (named / "wrong").read_bytes()
    arguments = ("-t", "species", "--id", "flower", "--json")
    updated = run("update", named / "wrong", named / "correction.csv", *arguments, "-o", tmp_path / "new")
    summary = json.loads(updated.stdout)
    assert (summary["rows_added"], summary["rows_replaced"]) == (0, 1)
    assert updated.stderr == ""
    assert (named / "wrong").read_bytes() == before
    right, new = load_estimator(named / "right"), load_estimator(tmp_path / "new")
    assert isinstance(right, GPClassifier)
    X = pd.read_csv(named / "right.csv").drop(columns=["flower", "species"])
    np.testing.assert_allclose(new.predict_latent(X).mean, right.predict_latent(X).mean, atol=1e-8)
    again = run("update", tmp_path / "new", named / "right.csv", *arguments, "--in-place")
    assert json.loads(again.stdout)["rows_replaced"] == len(X)
    np.testing.assert_array_equal(load_estimator(tmp_path / "new").predict_proba(X), new.predict_proba(X))


def test_a_class_that_a_correction_empties_is_named(named: Path, tmp_path: Path, run: Run) -> None:
    """A label that was mistyped, and then corrected, leaves a class without rows."""
    row = pd.read_csv(named / "correction.csv")
    row.assign(species="setossa").to_csv(tmp_path / "typo.csv", index=False)
    arguments = ("-t", "species", "--id", "flower", "-o", tmp_path / "new")
    assert "is left" not in run("update", named / "right", tmp_path / "typo.csv", *arguments).stderr
    arguments = (*arguments[:-2], "--in-place")
    result = run("update", tmp_path / "new", named / "correction.csv", *arguments)
    assert "no row of setossa is left" in result.stderr
    assert "--forget-classes setossa takes it away" in result.stderr
    assert run("update", tmp_path / "new", "--forget-classes", "setossa", "--in-place").exit_code == 0
    assert load_estimator(tmp_path / "new").classes_.tolist() == ["setosa", "versicolor"]


def test_ids_that_a_gap_has_made_fractions_are_the_same(tmp_path: Path, run: Run) -> None:
    rows = pd.DataFrame(
        {"flower": range(10), "size": [0.0, 1, 2, 3, 4, -1, -2, -3, -4, -5], "kind": list("pppppqqqqq")}
    )
    rows.to_csv(tmp_path / "whole.csv", index=False)
    rows.astype({"flower": float}).to_csv(tmp_path / "fractions.csv", index=False)
    arguments = ("-t", "kind", "--id", "flower")
    assert run("fit", tmp_path / "whole.csv", *arguments, "-o", tmp_path / "m", *QUICK).exit_code == 0
    updated = run("update", tmp_path / "m", tmp_path / "fractions.csv", *arguments, "--json", "-o", tmp_path / "new")
    summary = json.loads(updated.stdout)
    assert (summary["rows_added"], summary["rows_replaced"]) == (0, 10)


def test_rows_without_ids_are_added_and_a_note_says_so(named: Path, tmp_path: Path, run: Run) -> None:
    arguments = ("-t", "species", "--drop", "flower", "-o", tmp_path / "new")
    updated = run("update", named / "right", named / "correction.csv", *arguments)
    assert "rows that are sent twice count twice" in updated.stderr
    assert "rows added" in updated.stdout
    assert load_estimator(tmp_path / "new")._fitted.rows.weight.max() == 2
    assert "twice" not in run("update", named / "right", named / "correction.csv", *arguments, "-q").stderr


def test_rows_and_classes_are_forgotten(named: Path, tmp_path: Path, run: Run) -> None:
    result = run("update", named / "wrong", "--forget-rows", "f5,f6", "--forget-rows", "f7", "-o", tmp_path / "a")
    assert result.exit_code == 0, result.stderr
    known = load_estimator(named / "wrong").row_ids_
    assert set(known) - set(load_estimator(tmp_path / "a").row_ids_) == {"f5", "f6", "f7"}
    result = run("update", named / "wrong", "--forget-classes", "setosa", "-o", tmp_path / "b", "--json")
    assert json.loads(result.stdout)["classes"] == ["versicolor"]
    arguments = ("--forget-classes", "setosa", "-t", "species", "--id", "flower", "-o", tmp_path / "c", "--json")
    result = run("update", named / "wrong", named / "right.csv", *arguments)
    assert sorted(json.loads(result.stdout)["classes"]) == ["setosa", "versicolor"]
    assert len(load_estimator(tmp_path / "c").row_ids_) == len(known)


def test_numbers_of_python_are_found_by_text(iris: pd.DataFrame, tmp_path: Path, run: Run) -> None:
    X, y = iris.drop(columns="species"), iris["species"].astype("category").cat.codes.to_numpy()
    GPClassifier(kernel="rbf", likelihood="least_squares").fit(X, y, row_id=np.arange(75)).save(tmp_path / "m")
    X.head(3).assign(label=y[:3], id=[0, 1, 90]).to_csv(tmp_path / "more.csv", index=False)
    options = ("-t", "label", "--id", "id", "--forget-rows", "70", "--forget-classes", "2", "-o", tmp_path / "n")
    result = run("update", tmp_path / "m", tmp_path / "more.csv", *options, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["rows_replaced"] >= 1
    names = load_estimator(tmp_path / "n").row_ids_
    assert names.dtype == np.int64
    assert 90 in names
    assert 70 not in names


def test_trees_are_told_to_keep_no_ids(named: Path, tmp_path: Path, run: Run) -> None:
    fit = ("fit", named / "right.csv", "-t", "species", "--id", "flower", "-o", tmp_path / "m")
    fitted = run(*fit, "--strategy", "recommended")
    assert "keeps no ids (--id)" in fitted.stderr
    updated = run("update", tmp_path / "m", named / "right.csv", "-t", "species", "--id", "flower", "--in-place")
    assert "keeps no ids (--id)" in updated.stderr
    plain = run("update", tmp_path / "m", named / "right.csv", "-t", "species", "--drop", "flower", "--in-place")
    assert "--id" not in plain.stderr
    refused = run("update", tmp_path / "m", "--forget-rows", "f1", "--in-place")
    assert "cannot forget rows: TreeGPClassifier keeps means" in refused.stderr


@pytest.mark.parametrize("stream", [(), ("--batch-size", 20)])
def test_a_search_keeps_ids_too(named: Path, tmp_path: Path, run: Run, stream: tuple[str, ...]) -> None:
    options = ("-t", "species", "--id", "flower", "--particles", 2, "--rejuvenation", 0, "--hold-out", 0)
    result = run("search", named / "wrong.csv", *options, *stream, "-o", tmp_path / "m", "-q")
    assert result.exit_code == 0, result.stderr
    arguments = ("-t", "species", "--id", "flower", "--in-place", "--json")
    updated = run("update", tmp_path / "m", named / "correction.csv", *arguments)
    assert json.loads(updated.stdout)["rows_replaced"] == 1
    assert len(load_estimator(tmp_path / "m").row_ids_) == len(pd.read_csv(named / "right.csv"))
    told = run("search", named / "wrong.csv", *options, *stream, "--window", 30)
    assert "keeps no ids" in told.stderr


def test_what_cannot_be_is_one_line(named: Path, tmp_path: Path, run: Run) -> None:
    frame = pd.read_csv(named / "right.csv")
    pd.concat([frame, frame.tail(2)]).to_csv(tmp_path / "twice.csv", index=False)
    frame["flower"] = frame["flower"].where(frame.index != 3)
    frame.to_csv(tmp_path / "hole.csv", index=False)
    before = (named / "right").read_bytes()
    every = ",".join(f"f{k}" for k in range(len(frame)))
    for arguments, words in [
        (("--forget-rows", "f5x"), "cannot forget rows that the model does not know: 'f5x' (did you mean"),
        (("--forget-rows", every), "cannot forget every row: at least one must stay"),
        (("--forget-classes", "setsa"), "cannot forget classes the model does not know: 'setsa'"),
        ((), "name a file of labelled rows to add, or what to forget"),
        (("--forget-rows", "f5", "-o", tmp_path / "x", "--in-place"), "exclude each other"),
        (
            (tmp_path / "twice.csv", "-t", "species", "--id", "flower"),
            "names come again in 2 of its rows",
        ),
        ((tmp_path / "hole.csv", "-t", "species", "--id", "flower"), "is to name rows and is empty in row 3"),
    ]:
        out = () if "--in-place" in arguments else ("-o", tmp_path / "new")
        result = run("update", named / "right", *arguments, *out)
        assert result.exit_code == 1
        assert words in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
        assert not (tmp_path / "new").exists()
    assert "name a file for the new model" in run("update", named / "right", "--forget-rows", "f5").stderr
    assert (named / "right").read_bytes() == before


def test_reports_name_the_rows_that_drove_an_answer(named: Path, tmp_path: Path, run: Run) -> None:
    for arguments in (
        ("fit", named / "wrong.csv", "-o", tmp_path / "m", *QUICK),
        ("evaluate", named / "wrong", named / "right.csv", "-q"),
    ):
        result = run(*arguments, "-t", "species", "--id", "flower", "--report", tmp_path / "report")
        assert result.exit_code == 0, result.stderr
        page = html.unescape((tmp_path / "report" / "report.html").read_text(encoding="utf-8"))
        assert "What drove wrong and unsure answers" in page
        assert "spoke for it" in page
        assert "f5 of" in page
        misleading = page.split("Labelled rows that mislead most")[1]
        assert re.search("<td[^>]*>([^<]*)</td>", misleading)[1] == "f5"
        assert "have no names" not in page
    bare = ("fit", named / "wrong.csv", "--drop", "flower", "-t", "species", "-o", tmp_path / "m", *QUICK)
    assert run(*bare).exit_code == 0
    run("evaluate", tmp_path / "m", named / "right.csv", "-t", "species", "--report", tmp_path / "report", "-q")
    assert "fit with --id to see which" in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")


def test_a_class_of_one_row_is_not_judged_and_the_report_says_so(named: Path, tmp_path: Path, run: Run) -> None:
    table = pd.read_csv(named / "right.csv")
    single = table.iloc[[0]].assign(flower="שם", species="רק אחד")
    pd.concat([table, single]).to_csv(tmp_path / "single.csv", index=False)
    arguments = ("-t", "species", "--id", "flower", "-o", tmp_path / "m", "--report", tmp_path, *QUICK)
    assert run("fit", tmp_path / "single.csv", *arguments).exit_code == 0
    page = html.unescape((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "1 class has one row, which is needed to know the class and so is not judged." in page
    assert "\N{FIRST STRONG ISOLATE}שם\N{POP DIRECTIONAL ISOLATE} of \N{FIRST STRONG ISOLATE}רק אחד" in page


def test_ids_may_have_commas(named: Path, tmp_path: Path, run: Run) -> None:
    table = pd.read_csv(named / "right.csv")
    table["flower"] = [f"{name}, dried" for name in table["flower"]]
    table.to_csv(tmp_path / "dried.csv", index=False)
    arguments = ("-t", "species", "--id", "flower", "-o", tmp_path / "m", *QUICK)
    assert run("fit", tmp_path / "dried.csv", *arguments).exit_code == 0
    ids = ("--forget-rows", "f5, dried", "--forget-rows", "f6, dried")
    summary = json.loads(run("update", tmp_path / "m", *ids, "--in-place", "--json").stdout)
    assert (summary["rows_forgotten"], summary["rows"]) == (2, len(table) - 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--forget-rows", "f5", "--retune"), "--retune is about rows to add, and there are none"),
        (("--forget-rows", "f5", "--encoding", "latin-1"), "--encoding is about rows to add, and there are none"),
        (("--forget-rows", " , "), "name nothing"),
    ],
)
def test_options_without_a_use_are_refused(named: Path, run: Run, arguments: tuple[str, ...], message: str) -> None:
    result = run("update", named / "right", *arguments, "--in-place")
    assert result.exit_code == 1
    assert message in result.stderr


def test_only_what_is_written_like_a_number_is_one(tmp_path: Path, run: Run) -> None:
    """0_2 and 02 are no ways to write the class 2."""
    (tmp_path / "d.csv").write_text("a,y\n" + "\n".join(f"{i},{i % 3}" for i in range(12)) + "\n")
    assert run("fit", tmp_path / "d.csv", "-t", "y", "-o", tmp_path / "m", *QUICK).exit_code == 0
    for name in ("0_2", "02", "+2", " 2.0"):
        refused = run("update", tmp_path / "m", "--forget-classes", name, "-o", tmp_path / "new")
        assert refused.exit_code == 1
        assert "does not know" in refused.stderr
        assert not (tmp_path / "new").exists()
    summary = json.loads(
        run("update", tmp_path / "m", "--forget-classes", "2", "-o", tmp_path / "new", "--json").stdout
    )
    assert (summary["classes"], summary["rows_forgotten"], summary["rows"]) == ([0, 1], 4, 8)
