"""How numbers are scored: known formulas of normal answers, and aims."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.number_peers import OURS, PROCESS, QUANTILES, Normal, Quantiles
from experiments.number_scores import MEASURES, Rows, aims_of, fit_and_score, scored, tables_of

RNG = np.random.default_rng(0)
MEAN, DEVIATION = RNG.normal(size=4000), RNG.uniform(0.5, 2, 4000)


def test_normal_answers_are_scored_by_known_formulas() -> None:
    y = MEAN + DEVIATION * RNG.normal(size=4000)
    found = scored(Normal(MEAN, DEVIATION), y)
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


def test_a_known_function_and_the_costs_are_scored_too() -> None:
    x = pd.DataFrame({"x": np.arange(20.0)})
    rows = Rows(x[:15], 2 * np.arange(15.0), x[15:], 2 * np.arange(15.0, 20) + 1, 2 * np.arange(15.0, 20))
    run = fit_and_score("Bayesian ridge", rows)["run"]
    assert run["function error"] == pytest.approx(0, abs=1e-3)
    assert run["rmse"] == pytest.approx(1, abs=1e-3)
    assert {"fit seconds", "fit MB", "prediction seconds", "prediction MB"} <= set(run)
    assert "1701 rows are too many" in fit_and_score(PROCESS, Rows(x.sample(1701, replace=True), *[x] * 3))["failed"]


def test_tables_and_aims_are_of_means_over_splits() -> None:
    """The process is ahead on one of two sets, which is one too many; of intervals half are right."""
    frame = pd.DataFrame({"data": ["a", "a", "b", "b"] * 2, "method": [OURS] * 4 + [PROCESS] * 4, "seed": [0, 1] * 4})
    for name in MEASURES:
        frame[name] = [1.0, 3, 2, 2, 1, 1, 3, 3]
    frame["coverage 90"] = [0.88, 0.92, 0.7, 0.8] * 2
    tables = {table.name: table.frame for table in tables_of(frame, MEASURES)}
    assert tables["rmse"][OURS].tolist() == [2, 2]
    assert tables["log-density"].loc[0, f"{OURS} s.e."] == pytest.approx(np.std([1, 3], ddof=1) / np.sqrt(2))
    densities, intervals = aims_of(frame)
    assert (densities.measured, densities.holds) == ("1 of 2", False)
    assert (intervals.measured, intervals.holds) == ("1 of 2", False)
    assert aims_of(frame[frame["method"] == PROCESS]) == []
