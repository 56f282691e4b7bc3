"""Regression: what cells are, how answers are scored, and the page, on few rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from experiments import regression
from experiments.number_peers import INSTALLED, OURS, QUANTILES, Normal, Quantiles
from experiments.regression import MEASURES, PUBLISHED, SETS, RegressionConfig

RNG = np.random.default_rng(0)
MEAN, DEVIATION = RNG.normal(size=4000), RNG.uniform(0.5, 2, 4000)


def test_cells_are_published_splits_and_random_ones() -> None:
    cells = regression.campaign_cells(RegressionConfig(methods=(OURS,)))
    assert len({cell.key for cell in cells}) == len(cells) == 6 * 20 + 5 + 2 * (len(SETS) - len(PUBLISHED))
    with pytest.raises(ValueError, match="no data set 'concret'"):
        regression.campaign_cells(RegressionConfig(datasets=("concret",)))


def test_normal_answers_are_scored_by_known_formulas() -> None:
    y = MEAN + DEVIATION * RNG.normal(size=4000)
    found = regression.scored(Normal(MEAN, DEVIATION), y)
    z = (y - MEAN) / DEVIATION
    crps = DEVIATION * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert found["crps"] == pytest.approx(crps.mean(), rel=0.01)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((y - MEAN) ** 2)))
    assert found["log density"] == pytest.approx(stats.norm.logpdf(y, MEAN, DEVIATION).mean())
    assert found["coverage 90"] == pytest.approx((np.abs(z) <= stats.norm.ppf(0.95)).mean())


def test_quantiles_stand_for_a_normal_and_are_kept_in_order() -> None:
    levels = MEAN + DEVIATION * stats.norm.ppf(QUANTILES)[:, None]
    found = Quantiles(MEAN, levels[[1, 0, 2, 3, 4, 6, 5]])
    np.testing.assert_allclose(found.deviation, DEVIATION)
    np.testing.assert_allclose(found.quantiles(np.array(QUANTILES)), levels.T)


def test_the_page_is_made_of_what_is_there(tmp_path: Path) -> None:
    x = RNG.normal(size=(60, 2))
    test = np.zeros((20, 60), dtype=np.uint8)
    test[:, :15] = 1
    (tmp_path / "regression").mkdir()
    y = x[:, 0] + 0.1 * RNG.normal(size=60)
    np.savez(tmp_path / "regression" / "concrete.npz", X=x, y=y, test=np.packbits(test, axis=1))
    folders = {"results": str(tmp_path / "cells"), "checkpoints": str(tmp_path / "checkpoints")}
    methods = tuple(name for name in INSTALLED if name != "CatBoost")
    outcome = regression.run(
        data_root=tmp_path, progress=lambda *_: None, datasets=("concrete",), splits=1, methods=methods, **folders
    )
    assert {table.name for table in outcome.tables} == {*(name.replace(" ", "-") for name in MEASURES), "published"}
    rmse = outcome.tables[0].frame
    assert (rmse[[OURS, "Bayesian ridge"]].to_numpy() < 0.3).all()
    assert "concrete 1" in outcome.introduction
    with pytest.raises(ValueError, match="no split"):
        regression.outcome_of([], [], RegressionConfig())
