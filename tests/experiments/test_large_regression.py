"""Larger tables: what cells are, simulated rows, and the page, on few rows."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments import large_regression
from experiments.large_regression import SETS, LargeRegressionConfig
from experiments.number_peers import OURS, PROCESS

RIDGE = "Bayesian ridge"
CAN_MEASURE = pytest.mark.skipif(not os.access("/proc/self/statm", os.R_OK), reason="Linux counts the memory")


def test_cells_are_splits_and_sizes_that_a_method_is_given() -> None:
    cells = large_regression.campaign_cells(LargeRegressionConfig(methods=(OURS, PROCESS)))
    assert len({cell.key for cell in cells}) == len(cells) == 2 * 2 * len(SETS) + 3
    assert {cell.method for cell in cells if cell.data == "simulated"} == {OURS}
    with pytest.raises(ValueError, match="no method"):
        large_regression.campaign_cells(LargeRegressionConfig(methods=("ours",)))


def test_simulated_rows_are_friedmans_function_and_noise() -> None:
    rows = large_regression.simulated(100, 4000, 0)
    x = rows.test_x.to_numpy()
    function = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    assert x.shape == (4000, 10)
    assert len(rows.x) == len(rows.y) == 100
    np.testing.assert_allclose(rows.function, function)
    assert np.std(rows.test_y - function) == pytest.approx(1, abs=0.04)  # four standard errors


@CAN_MEASURE
def test_the_page_is_made_of_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "regression").mkdir()
    x = np.random.default_rng(0).normal(size=(80, 2))
    table = pd.DataFrame({"a": x[:, 0], "text": np.where(x[:, 1] > 0, "p", "q"), "target": x[:, 0] + (x[:, 1] > 0)})
    table.to_csv(tmp_path / "large" / "airfoil.csv.gz", index=False)
    np.savez(tmp_path / "regression" / "power_plant.npz", X=x, y=x[:, :1])
    settings = LargeRegressionConfig(
        datasets=("airfoil", "power_plant"),
        methods=(RIDGE,),
        seeds=(0,),
        simulated_rows=(300,),
        simulated_test_rows=200,
    )
    cells = large_regression.campaign_cells(settings)
    records = [{"key": one.key, "labels": one.labels, **large_regression.compute(tmp_path, one)} for one in cells]
    outcome = large_regression.outcome_of(records, cells, settings)
    tables = {table.name: table.frame for table in outcome.tables}
    assert tables["rmse"].set_index("data")[RIDGE].max() < 0.1
    assert tables["fit-mb"]["data"].tolist() == ["airfoil", "power_plant"]
    (drawn,) = tables["simulated"].to_dict("records")
    assert drawn["rmse / noise"] ** 2 == pytest.approx(1 + drawn["function error / noise"] ** 2, rel=0.3)
    with pytest.raises(ValueError, match="no cell"):
        large_regression.outcome_of([], [], LargeRegressionConfig())


@CAN_MEASURE
@pytest.mark.slow
def test_a_cell_is_run_in_a_process_of_its_own(tmp_path: Path) -> None:
    settings = LargeRegressionConfig(methods=(RIDGE,), simulated_rows=(300,), simulated_test_rows=200)
    cell = large_regression.campaign_cells(settings)[-1]
    found = large_regression.run_cell(None, cell, tmp_path, lambda *_: None)
    assert found["run"]["rmse"] == pytest.approx(large_regression.compute(None, cell)["run"]["rmse"])
