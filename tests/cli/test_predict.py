"""Which labelled rows spoke for each answer."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sureshot import GPClassifier, TreeGPClassifier

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def models(files: Path, iris: pd.DataFrame) -> dict[str, GPClassifier]:
    """One that sees all rows, which are called f0, f1, ..., and one that sees a few near ones, which have no names."""
    X, y = iris.drop(columns="species"), iris["species"]
    found = {
        "named": GPClassifier(kernel="rbf", likelihood="softmax", objective=None).fit(
            X, y, row_id=[f"f{k}" for k in range(len(X))]
        ),
        "near": GPClassifier(approximation="nearest_neighbours").fit(X, y),
    }
    for name, model in found.items():
        model.save(files / f"{name}.safetensors")
    return found


@pytest.mark.parametrize(("words", "n"), [(("--why", 2), 2), (("--why=1",), 1)])
def test_reasons_are_the_rows_that_influence_names(
    files: Path,
    iris: pd.DataFrame,
    models: dict[str, GPClassifier],
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    n: int,
) -> None:
    monkeypatch.setattr(importlib.import_module("sureshot.cli.predict"), "CHUNK", 40)
    result = run("predict", *words, "--top", 1, files / "named.safetensors", files / "iris.csv")
    assert "no names" not in result.stderr
    printed = pd.read_csv(io.StringIO(result.stdout))
    columns = [f"{part}_{k}" for k in range(1, n + 1) for part in ("reason", "label_of_reason", "fall_of_reason")]
    assert list(printed.columns)[-3 * n :] == columns
    expected = models["named"].influence(iris.drop(columns="species"), n).proponents
    assert (expected.falls > 0).all()
    np.testing.assert_array_equal(printed[columns[0::3]], expected.row_ids)
    np.testing.assert_array_equal(printed[columns[1::3]], expected.labels)
    np.testing.assert_allclose(printed[columns[2::3]], expected.falls, rtol=1e-5)


def test_rows_without_names_are_told_by_their_labels_and_those_that_did_nothing_are_left_out(
    files: Path, iris: pd.DataFrame, models: dict[str, GPClassifier], run: Run
) -> None:
    model, X = models["near"], iris.drop(columns="species")
    n_rows, arguments = len(X.assign(y=iris["species"]).drop_duplicates()), ("near.safetensors", "iris.csv")
    result = run("predict", *(files / name for name in arguments), "--why", 1000)
    assert result.stderr.count("the labelled rows have no names: fit with --id to see which they are") == 1
    assert {len(line.split(",")) for line in result.stdout.splitlines()} == {2 + 3 * n_rows}
    falls = model.influence(X, n_rows).proponents.falls
    shown = pd.read_csv(io.StringIO(result.stdout)).filter(like="fall_of_reason").to_numpy()
    np.testing.assert_allclose(shown, np.where(falls > 0, falls, np.nan), rtol=1e-5)
    assert np.isnan(shown).any(1).all()
    for row, of_row in zip(
        json.loads(run("predict", *(files / name for name in arguments), "--why", 1000, "--json").stdout)["rows"],
        falls,
        strict=True,
    ):
        assert [one["fall"] for one in row["why"]] == of_row[of_row > 0].tolist()
        assert {one["row"] for one in row["why"]} == {None}
        assert {one["label"] for one in row["why"]} <= set(model.classes_)


def test_reasons_beside_a_rejection_are_of_the_most_probable_class(
    files: Path, iris: pd.DataFrame, models: dict[str, GPClassifier], run: Run
) -> None:
    far = iris.drop(columns="species").head(2) + 50
    far.to_csv(files / "far.csv", index=False)
    arguments = ("predict", files / "named.safetensors", files / "far.csv", "--reject", 0.05, "--set", 0.9)
    rows = json.loads(run(*arguments, "--why", 1, "--json").stdout)["rows"]
    assert {row["prediction"] for row in rows} == {"unknown"}
    found = models["named"].influence(far, 1).proponents
    spoke = found.falls[:, 0] > 0
    names = [[str(name)] if spoken else [] for name, spoken in zip(found.row_ids[:, 0], spoke, strict=True)]
    assert [[one["row"] for one in row["why"]] for row in rows] == names
    header, *lines = run(*arguments, "--why", 1).stdout.splitlines()
    assert header.endswith("p_value,set,reason_1,label_of_reason_1,fall_of_reason_1")
    assert all(line.count(",") == header.count(",") for line in lines)


def test_models_that_do_not_know_reasons_say_so_in_a_line(
    files: Path, tmp_path: Path, iris: pd.DataFrame, run: Run
) -> None:
    X, y = iris.drop(columns="species"), iris["species"]
    TreeGPClassifier().fit(X, y).save(tmp_path / "tree")
    GPClassifier().fit(X, y).forget(classes=["versicolor", "virginica"]).save(tmp_path / "alone")
    for name, words in (("tree", "keeps means of rows"), ("alone", "--why: influence compares two classes")):
        result = run("predict", tmp_path / name, files / "iris.csv", "--why", 3, "-q", "-o", tmp_path / "p.csv")
        assert result.exit_code == 1
        assert words in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert not (tmp_path / "p.csv").exists()
