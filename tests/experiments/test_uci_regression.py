"""Published splits: what cells are, and the page, on few rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments import uci_regression
from experiments.number_peers import OURS
from experiments.number_scores import MEASURES
from experiments.uci_regression import UciRegressionConfig

RNG = np.random.default_rng(0)


def test_cells_are_published_splits() -> None:
    cells = uci_regression.campaign_cells(UciRegressionConfig(methods=(OURS,)))
    assert len({cell.key for cell in cells}) == len(cells) == 6 * 20 + 5
    with pytest.raises(ValueError, match="no data set 'concret'"):
        uci_regression.campaign_cells(UciRegressionConfig(datasets=("concret",)))


def test_the_page_is_made_of_what_is_there(tmp_path: Path) -> None:
    x = RNG.normal(size=(60, 2))
    test = np.zeros((20, 60), dtype=np.uint8)
    test[:, :15] = 1
    (tmp_path / "regression").mkdir()
    y = x[:, 0] + 0.1 * RNG.normal(size=60)
    np.savez(tmp_path / "regression" / "concrete.npz", X=x, y=y, test=np.packbits(test, axis=1))
    folders = {"results": str(tmp_path / "cells"), "checkpoints": str(tmp_path / "checkpoints")}
    methods = (OURS, "scikit-learn's process", "Bayesian ridge")
    outcome = uci_regression.run(
        data_root=tmp_path, progress=lambda *_: None, datasets=("concrete",), splits=1, methods=methods, **folders
    )
    assert {table.name for table in outcome.tables} == {*(name.replace(" ", "-") for name in MEASURES), "published"}
    rmse = outcome.tables[0].frame
    assert (rmse[list(methods)].to_numpy() < 0.3).all()
    assert "concrete 1" in outcome.introduction
    assert outcome.seeds == (0,)
    with pytest.raises(ValueError, match="no split"):
        uci_regression.outcome_of([], [], UciRegressionConfig())


def test_errors_have_aims_on_some_sets() -> None:
    rmse = pd.DataFrame({OURS: [3.4, 2.0, 1.0]}, index=["protein", "power_plant", "boston"])
    assert [verdict.holds for verdict in uci_regression.aims_of_errors(rmse)] == [False, True]
    assert uci_regression.aims_of_errors(rmse.rename(columns={OURS: "another"})) == []
