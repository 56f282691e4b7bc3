"""The campaign of defaults: conditions, frames and verdicts by hand, a few cells to the end."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments.campaigns.cells import FAILED
from experiments.defaults import CONDITIONS, METHODS, DefaultsConfig, calibrated_extra_trees, campaign_cells, few, run
from experiments.defaults_report import OURS, SINGLE, by_condition, differences, run_frame, verdicts_of
from sureshot import GPClassifier


def table(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    y = np.array(["a", "b", "c"])[np.arange(n) % 3]
    x = generator.normal(size=(n, 4)) + 2.0 * (y == "b")[:, None]
    x[5, 1] = np.nan
    return x, y


@pytest.mark.parametrize("name", [name for name in CONDITIONS if name != "one in fifty"])
def test_conditions_part_the_rows(name: str) -> None:
    x, y = table()
    split, again, other = (CONDITIONS[name](x, y, seed) for seed in (1, 1, 2))
    assert split is not None
    assert again is not None
    assert other is not None
    np.testing.assert_array_equal(split.x, again.x)
    assert not np.array_equal(split.x, other.x)
    assert len(split.x) == len(split.y)
    assert len(split.x) + len(split.test_x) == 400
    assert set(split.test_y) == {"a", "b", "c"}
    assert split.x.shape[1] == split.test_x.shape[1] == (54 if name == "noise columns" else 4)


def test_dirt_is_what_it_says() -> None:
    x, y = table(3000)
    wild, wrong, tails = (CONDITIONS[name](x, y, 0) for name in ("wild cells", "wrong labels", "heavy tails"))
    clean = CONDITIONS["all rows"](x, y, 0)
    assert wild is not None
    assert wrong is not None
    assert tails is not None
    assert clean is not None
    assert len(clean.y) == 1000
    changed = (wild.x != clean.x) & ~np.isnan(clean.x)
    assert changed.mean() == pytest.approx(0.01, abs=0.005)
    np.testing.assert_allclose(wild.x[changed], 100 * clean.x[changed])
    assert (wrong.y != clean.y).mean() == pytest.approx(0.2, abs=0.04)
    np.testing.assert_array_equal(wrong.test_y, clean.test_y)
    assert np.nanmin(tails.x) > 0


def test_few_rows_and_rare_classes() -> None:
    x, y = table()
    split = few(5, x, y, 0)
    assert split is not None
    assert np.unique(split.y, return_counts=True)[1].tolist() == [5, 5, 5]
    assert few(140, x, y, 0) is None
    assert CONDITIONS["one in fifty"](x, y, 0) is None
    x, y = table(3000)
    rare = CONDITIONS["one in fifty"](x, y, 0)
    assert rare is not None
    counts = np.unique(np.concatenate([rare.y, rare.test_y]), return_counts=True)[1]
    assert sorted(counts.tolist()) == [20, 1000]


def record(data: str, method: str, nll: float, condition: str = "heavy tails") -> dict[str, Any]:
    runs = [
        {"condition": condition, "seed": seed, "nll": nll + shift, "brier": nll, "ece": 0.1, "accuracy": 0.9}
        | {"seconds": 1.0, "rows": 100}
        for seed, shift in ((0, -0.01), (1, 0.01))
    ]
    return {"key": data + method, "labels": {"data": data, "method": method}, "runs": runs}


def test_means_are_over_sets_that_all_have() -> None:
    records = [record("x", OURS, 0.2), record("x", "random forest", 0.3), record("y", OURS, 0.9)]
    frame = run_frame([*records, {FAILED: "diverged", "key": "z", "labels": {}}])
    row = by_condition(frame, "nll").iloc[0]
    assert (row["sets"], row[OURS], row["random forest"]) == (1, pytest.approx(0.2), pytest.approx(0.3))
    (difference,) = differences(frame, OURS).to_dict("records")
    assert difference["nll"] == pytest.approx(-0.1)
    assert (difference["sets"], difference["better"], difference["worse"]) == (1, 1, 0)


@pytest.mark.parametrize("forest", [0.3, 0.1])
def test_verdicts_follow_from_the_numbers(forest: float) -> None:
    records = [
        record(data, method, nll, condition)
        for data in ("x", "y")
        for condition in ("heavy tails", "all rows", "wrong labels")
        for method, nll in ((OURS, 0.2), (SINGLE, 0.25), ("random forest", forest), ("CatBoost", 0.3))
    ]
    runs = {}
    for each in records:  # a record holds all conditions of a set and method
        key = (each["labels"]["data"], each["labels"]["method"])
        runs.setdefault(key, {**each, "runs": []})["runs"] += each["runs"]
    found = {verdict.claim: verdict.holds for verdict in verdicts_of(run_frame(list(runs.values())))}
    assert found == {
        "no forest is ahead in mean NLL (heavy tails)": forest > 0.2,
        "ahead of CatBoost in mean nll (all rows)": True,
        "ahead of CatBoost in mean brier (all rows)": True,
        "as good as the best peer where labels are wrong (tables)": forest > 0.2,
        "averaging does not cost calibration on average over the conditions": True,
        "averaging does not cost calibration where it costs most (heavy tails)": True,
    }


@pytest.mark.real_data
def test_embeddings_have_a_table_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (OURS, SINGLE):  # whatever they are, they have columns
        monkeypatch.setitem(METHODS, name, partial(GPClassifier, "rbf", ensemble=False))
    options: dict[str, Any] = {
        "datasets": ("10 intents", "iris"),
        "conditions": ("5 rows a class", "noise columns"),
        "methods": (OURS, SINGLE, "logistic regression"),
        "seeds": (0,),
        "results": str(tmp_path / "cells"),
        "checkpoints": str(tmp_path / "campaigns"),
    }
    outcome = run(data_root=None, progress=lambda what, fraction: None, **options)
    by_name = {table.name: table.frame for table in outcome.tables}
    embeddings = by_name["embeddings"]
    assert embeddings["condition"].unique().tolist() == ["5 rows a class"]
    assert embeddings["score"].tolist() == ["nll", "ece", "accuracy"]
    assert embeddings.set_index("score").loc["accuracy", OURS] > 0.9
    assert by_name["nll"]["sets"].tolist() == [1, 1]
    alone = run(data_root=None, progress=lambda what, fraction: None, **{**options, "datasets": ("10 intents",)})
    assert [table.name for table in alone.tables] == ["embeddings"]
    one = run(data_root=None, progress=lambda what, fraction: None, **{**options, "methods": (OURS,)})
    assert not [table.name for table in one.tables if table.frame.empty]


@pytest.mark.real_data
def test_a_peer_that_cannot_be_fitted_has_no_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong labels leave too few rows of a class for calibration by three folds."""
    monkeypatch.setitem(METHODS, "extra trees", lambda: calibrated_extra_trees().set_params(estimator__n_estimators=5))
    options: dict[str, Any] = {
        "datasets": ("zoo",),
        "conditions": ("all rows", "wrong labels"),
        "methods": ("logistic regression", "extra trees"),
        "seeds": (1, 2),
        "results": str(tmp_path / "cells"),
        "checkpoints": str(tmp_path / "campaigns"),
    }
    outcome = run(data_root=None, progress=lambda what, fraction: None, **options)
    nll = next(table.frame for table in outcome.tables if table.name == "nll").set_index("condition")
    assert nll["sets"].to_dict() == {"all rows": 1, "wrong labels": 0}


def test_nothing_to_compare() -> None:
    assert run_frame([]).empty
    assert verdicts_of(run_frame([record("x", OURS, 0.2)])) == ()


def test_names_are_checked() -> None:
    for wrong, what in (({"datasets": ("iri",)}, "data set"), ({"conditions": ("dirt",)}, "condition")):
        with pytest.raises(ValueError, match=f"there is no {what}"):
            campaign_cells(DefaultsConfig(**wrong))  # type: ignore[arg-type]


@pytest.mark.real_data
def test_a_few_cells_to_the_end(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "datasets": ("iris",),
        "conditions": ("20 rows a class", "wild cells", "one in fifty"),
        "methods": (OURS, SINGLE, "logistic regression"),
        "seeds": (0,),
        "results": str(tmp_path / "cells"),
        "checkpoints": str(tmp_path / "campaigns"),
    }
    outcome = run(data_root=None, progress=lambda what, fraction: None, **options)
    nll = next(table.frame for table in outcome.tables if table.name == "nll")
    assert nll["condition"].tolist() == ["20 rows a class", "wild cells"]
    assert isinstance(nll, pd.DataFrame)
    assert (nll[[OURS, SINGLE]] < np.log(3)).all(axis=None)
    assert set(METHODS) > {OURS, SINGLE}
