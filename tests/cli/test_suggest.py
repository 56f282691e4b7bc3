"""``sureshot suggest``: rows of a pool to label, as people and machines read them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sureshot import GPClassifier

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def pool(files: Path, iris: pd.DataFrame) -> Path:
    """Rows like those that the model of ``two.csv`` has learnt, each with a name, and these rows again."""
    new = iris.drop(columns="species").sample(60, random_state=1) + 0.05
    frame = pd.concat([new, new.iloc[:5], pd.read_csv(files / "two.csv").drop(columns="species").iloc[:5]])
    frame.insert(0, "plant", [f"p{i}" for i in range(len(frame))])
    frame.to_csv(files / "pool.csv", index=False)
    return files / "pool.csv"


def test_rows_with_guess_and_runner_up(files: Path, pool: Path, run: Run) -> None:
    result = run("suggest", files / "iris.safetensors", pool, "-n", 7, "--id", "plant", "-q")
    assert result.exit_code == 0, result.stderr
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    frame = pd.read_csv(pool)
    model, X = GPClassifier.load(files / "iris.safetensors"), frame.drop(columns="plant")
    found = model.suggest(X, 7)
    assert [row["plant"] for row in rows] == frame["plant"].iloc[found.rows].tolist()
    top = model.predict_topk(X.iloc[found.rows], 2)
    assert [[row["prediction"], row["runner_up"]] for row in rows] == top.labels.tolist()
    shown = [[float(row["probability"]), float(row["probability_of_runner_up"])] for row in rows]
    np.testing.assert_allclose(shown, top.probabilities, rtol=1e-5)


def test_as_json_and_beside_the_columns(files: Path, pool: Path, tmp_path: Path, run: Run) -> None:
    command = ("suggest", files / "iris.safetensors", pool, "-n", 3)
    found = json.loads(run(*command, "--json").stdout)
    assert found["pool"] == 70
    assert len(found["rows"]) == 3
    assert set(found["rows"][0]) == {
        *("row", "prediction", "probability", "runner_up", "probability_of_runner_up", "score")
    }
    assert run(*command, "--join", "-o", tmp_path / "label.csv").exit_code == 0
    joined = pd.read_csv(tmp_path / "label.csv")
    assert joined["plant"].tolist() == [f"p{row['row']}" for row in found["rows"]]
    refused = run(*command, "--json", "--join")
    assert refused.exit_code == 1
    assert "leave one of them out" in refused.stderr


def test_a_pool_that_is_too_small_gives_what_it_has(files: Path, pool: Path, run: Run) -> None:
    result = run("suggest", files / "two.safetensors", pool, "-n", 500)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) < 1 + 65
    assert "500 rows were asked for" in result.stderr
    learnt = run("suggest", files / "two.safetensors", files / "two.csv", "--json")
    assert json.loads(learnt.stdout)["rows"] == []
    assert "there are 0" in learnt.stderr
    assert "from those that the model has learnt" in learnt.stderr


def test_trees_do_not_know_the_rows_that_they_have_learnt(files: Path, tmp_path: Path, run: Run) -> None:
    tree = tmp_path / "tree.safetensors"
    fitted = run("fit", files / "two.csv", "-t", "species", "--strategy", "recommended", "-o", tree)
    assert fitted.exit_code == 0, fitted.stderr
    found = run("suggest", tree, files / "two.csv", "-n", 500)
    assert "that differ from one another\n" in found.stderr
    assert "has learnt" not in found.stderr


def test_pools_that_are_none(files: Path, pool: Path, tmp_path: Path, run: Run) -> None:
    model = files / "iris.safetensors"
    (tmp_path / "empty.csv").write_text(pool.read_text().splitlines()[0] + "\n")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    for name, words in (("empty", "no rows"), ("other", "missing: sepal_length"), ("absent", "does not exist")):
        output = tmp_path / "out.csv"
        result = run("suggest", model, tmp_path / f"{name}.csv", "-o", output)
        assert result.exit_code == 1
        assert words in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert not output.exists()
    assert run("suggest", model, pool, "-n", 0).exit_code == 2


def test_columns_beside_keep_their_types(files: Path, pool: Path, tmp_path: Path, run: Run) -> None:
    frame = pd.read_csv(pool)[:5]
    keys = 2**60 + np.arange(5)
    days = pd.to_datetime(["2025-01-01", None, "2025-01-03", None, None])
    frame.assign(key=keys, day=days).to_parquet(tmp_path / "pool.parquet")
    for command in (("suggest", "-n", 5), ("predict",)):
        result = run(command[0], files / "iris.safetensors", tmp_path / "pool.parquet", "--join", *command[1:])
        assert result.exit_code == 0, result.stderr
        found = pd.read_csv(io.StringIO(result.stdout), dtype=str, keep_default_na=False)
        assert sorted(found["key"]) == list(map(str, keys))
        assert sorted(found["day"])[:3] == ["", "", ""]
