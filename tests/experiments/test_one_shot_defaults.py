"""The study of temperatures at one label: a formula is judged by sets that it has not seen, and it runs."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import one_shot_defaults
from experiments.one_shot_defaults import formula_tables
from experiments.one_shot_sets import LOGS, OneShotSet, fitted_formula, spread_of_similarities


def test_the_formula_that_made_the_best_temperatures_is_found() -> None:
    sets = [
        OneShotSet(str(size), "tables", size, (LOGS - np.log(5.0) + 0.4 * np.log(size)) ** 2) for size in (4, 12, 40)
    ]
    factor, power = fitted_formula(sets)
    assert factor == pytest.approx(5.0, rel=0.05)
    assert power == pytest.approx(-0.4, abs=0.02)


def test_what_else_is_known_has_slopes() -> None:
    sets = [
        OneShotSet(f"{size} {other}", "tables", size, (LOGS - 0.3 * np.log(size) + 2 * other) ** 2, (other,))
        for size in (4, 12, 40)
        for other in (0.1, 0.5, 0.9)
    ]
    _, power, slope = fitted_formula(sets, 1)
    assert (power, slope) == pytest.approx((0.3, -2.0), abs=0.05)
    assert max(part.loss(*fitted_formula(sets, 1)) for part in sets) < 0.01 < sets[0].loss(*fitted_formula(sets))


def test_similarities_of_rows() -> None:
    assert spread_of_similarities(np.eye(5)) == pytest.approx(0)
    line = np.array([[0.0, 7.0], [1.0, 7.0], [3.0, 7.0]])
    assert spread_of_similarities(line) == pytest.approx(np.std([1, 2, 3]) / 2)
    assert spread_of_similarities(np.eye(2)) == 0


def test_formulas_are_fitted_to_the_other_sets() -> None:
    sets = [OneShotSet(str(size), "tables", size, (LOGS + 0.5 * np.log(size)) ** 2) for size in (4, 9, 16, 25)]
    odd = OneShotSet("odd", "tables", 9, (LOGS - 2) ** 2)
    formulas, means, by_set = formula_tables([*sets, odd])
    assert formulas.frame["rows"].tolist() == means.frame["rows"].tolist() == ["tables"]
    unseen = by_set.frame.set_index("data")["by a formula of the other sets"]
    assert unseen["odd"] == pytest.approx((2 + 0.5 * np.log(9)) ** 2, rel=0.05)  # what the four agree on
    assert formula_tables(sets[:2]) == []


@pytest.mark.real_data
def test_it_runs_on_few_sets() -> None:
    outcome = one_shot_defaults.run(
        data_root=None,
        progress=lambda what, done: None,
        datasets=["iris", "wine"],
        kernels=["rbf"],
        tables=["iris", "wine", "zoo"],
        ways=[2],
        groups=[1],
        pairs=[1],
        shots=[1],
        seeds=[0],
        n_test=100,
    )
    found = {table.name: table.frame for table in outcome.tables}
    assert found["formula-sets"]["data"].tolist() == ["iris", "wine", "zoo"]
    assert set(found["scores"]["rows"]) == {"tables", "intents"}
    assert len(outcome.verdicts) == 2
    assert found["two-classes"]["default"].item() < found["two-classes"]["integral"].item()
