"""Special cases: switches find what they replace, change fits and leave nothing behind; the campaign end to end."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments import special_cases
from experiments.special_case_switches import SWITCHES, Switch, facts_of
from sureshot.estimators.gp import fitting, options, plan
from sureshot.estimators.gp.classifier import GPClassifier


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
def test_a_switch_replaces_what_calls_read_and_puts_it_back(switch: Switch) -> None:
    owner, _, name = switch.target.rpartition(".")
    place = resolve_name(f"sureshot.{owner}")
    before = inspect.getattr_static(place, name)
    with pytest.raises(ZeroDivisionError), switch.on():
        assert 1 / (inspect.getattr_static(place, name) is not switch.value)
    assert inspect.getattr_static(place, name) is before
    assert before is not switch.value
    users = [plan, fitting, place] if place is options else [place]
    assert inspect.isclass(place) or any(name in _read_by_functions(user) for user in users)


def _read_by_functions(module: ModuleType) -> set[str]:
    """Names that functions of a module look up when they are called, which the values of their arguments are not."""
    functions = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.FunctionDef)]
    nodes = [node for function in functions for part in function.body for node in ast.walk(part)]
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    of_options = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    return names | {node.attr for node in of_options if ast.unparse(node.value) == "options"}


def test_switches_change_fits_while_they_are_on() -> None:
    generator = np.random.default_rng(0)
    y = np.arange(24) % 3
    table = np.exp(generator.normal(size=(24, 3)) + y[:, None])
    embeddings = generator.normal(size=(24, 8)) + 2 * np.eye(8)[y]
    embeddings, few = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True), np.r_[0:7, 9, 12, 15, 18, 21]
    for names, x, rows in (
        (("no untuned families", "no ranks"), table, np.arange(24)),
        (("intercept of variance 1", "prior of the rows", "embeddings as tables"), embeddings, few),
    ):
        facts = facts_of(x[rows], y[rows])

        def said(x: np.ndarray = x, rows: np.ndarray = rows) -> np.ndarray:
            return GPClassifier().fit(x[rows], y[rows]).predict_proba(x)

        before = said()
        for name in names:
            assert SWITCHES[name].can_change(facts)
            with SWITCHES[name].on():
                assert np.abs(said() - before).max() > 1e-6
        np.testing.assert_array_equal(said(), before)


def test_facts_are_those_of_the_rows() -> None:
    x = np.array([[0.0, 1, 5], [1, 0, 5], [1, 0, 5], [2, 2, 5], [3, 1, 5], [1, 0, 5]])
    facts = facts_of(x, np.array(["a", "a", "b", "b", "a", "a"]))
    assert (facts["rows"], facts["columns"], facts["classes"], facts["able"]) == (5, 2, 2, 5)
    assert facts["contradicted"]
    assert facts["uneven"]
    assert not any(facts[name] for name in ("unit", "part", "wild", "single"))
    ones = facts_of(np.eye(6)[[0, 1, 2, 3, 4]] * 0.6 + np.eye(6)[[1, 2, 3, 4, 5]] * 0.8, np.array([0, 0, 0, 0, 1]))
    assert ones["unit"]
    assert ones["single"]
    assert ones["covered"] == 0.5
    assert not ones["telling"]


def test_a_special_case_stays_for_the_mean_or_for_one_set() -> None:
    rows = [("mean", "x", 0.004), ("mean", "y", 0.003), ("one", "x", 0.04), ("one", "y", -0.04), ("neither", "x", 0.0)]
    gains = pd.DataFrame(rows, columns=["switch", "data", "nll"]).assign(
        panel="tables", condition="all rows", seed=0, accuracy=-0.1, seconds=0.5
    )
    table = special_cases.table_of(gains).set_index("without")
    assert table["verdict"].to_dict() == {"mean": "stays", "one": "stays", "neither": "is to be deleted"}
    assert list(table.loc["one", ["most", "on", "least", "of"]]) == [0.04, "tables x", -0.04, "tables y"]
    assert list(table.loc["mean", ["worth", "accuracy", "seconds"]]) == pytest.approx([0.0035, 0.1, -0.5])


def test_the_campaign_runs_what_can_change_and_goes_on(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    y = np.arange(60) % 3
    frame = pd.DataFrame(generator.normal(size=(60, 3)) + y[:, None]).add_prefix("column ").assign(label=y)
    (tmp_path / "uci").mkdir()
    frame.to_csv(tmp_path / "uci" / "iris.csv", index=False)
    given: dict[str, Any] = {
        "datasets": ["iris"],
        "conditions": ["5 rows a class", "1 rows a class"],
        "switches": ["untuned never alone", "all families climbed", "intercept of variance 1"],
        "seeds": [0],
        "results": str(tmp_path / "cells"),
        "checkpoints": str(tmp_path / "locks"),
    }
    told: list[str] = []
    first = special_cases.run(data_root=tmp_path, progress=lambda what, done: told.append(what), **given)
    assert first.findings == ("4 of 4 cells have a result.",)  # two of the defaults, and those of two switches
    assert ["defaults" in what for what in told] == [True, True, False, False]
    table = first.tables[0].frame.set_index("without")
    assert table["cells"].to_dict() == {"untuned never alone": "1 of 1", "all families climbed": "1 of 1"}
    again = special_cases.run(data_root=tmp_path, progress=lambda what, done: pytest.fail(what), **given)
    pd.testing.assert_frame_equal(again.tables[0].frame, first.tables[0].frame)
