"""The study of temperatures at one label: a formula is judged by sets that it has not seen, and it runs."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import one_shot_defaults
from experiments.one_shot_defaults import formula_tables
from experiments.one_shot_sets import LOGS, OneShotSet, fitted_formula


def test_the_formula_that_made_the_best_temperatures_is_found() -> None:
    sets = [
        OneShotSet(str(size), "tables", size, (LOGS - np.log(5.0) + 0.4 * np.log(size)) ** 2) for size in (4, 12, 40)
    ]
    factor, power = fitted_formula(sets)
    assert factor == pytest.approx(5.0, rel=0.05)
    assert power == pytest.approx(-0.4, abs=0.02)


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
