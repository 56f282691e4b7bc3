"""Carbon dioxide: months, the kernel, naive forecasts, and the page, on a series that is made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from experiments import co2
from experiments.co2 import BOOK, DRIFT, NAIVE, OURS, Monthly

YEARS = (np.arange(12 * 16) + 0.5) / 12 + 1980
SERIES = Monthly(YEARS, 300 + 1.5 * (YEARS - 1980) + 3 * np.sin(2 * np.pi * YEARS))


def weekly(root: Path) -> None:
    """Of the series, a week of each month without a value."""
    dates = pd.date_range("1980-01-03", "1995-12-31", freq="7D")
    value = np.interp(dates.year + (dates.day_of_year - 1) / 365.25, SERIES.year, SERIES.value)
    gaps = pd.Series(value).where(dates.day > 7)
    pd.DataFrame({"date": dates.strftime("%Y%m%d"), "co2": gaps}).to_csv(root / "co2.csv", index=False)


def test_months_are_means_of_weeks_that_have_a_value(tmp_path: Path) -> None:
    lines = ["date,co2", "19800105,300", "19800112,302", "19800119,", "19800202,", "19800301,304"]
    (tmp_path / "co2.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = co2.read(tmp_path)
    np.testing.assert_allclose(found.year, [1980 + 0.5 / 12, 1980 + 2.5 / 12])
    np.testing.assert_allclose(found.value, [301, 304])
    assert found.between(1980.1, 1981).value.tolist() == [304]


def test_the_kernel_is_the_books() -> None:
    x = torch.tensor([[0.0], [0.3]], dtype=torch.float64)
    seasons = 2.4**2 * np.exp(-0.5 * (0.3 / 90) ** 2 - 2 * np.sin(0.3 * np.pi) ** 2 / 1.3**2)
    wiggles = 0.66**2 * (1 + 0.3**2 / (2 * 0.78 * 1.2**2)) ** -0.78 + 0.18**2 * np.exp(-0.5 * (0.3 / 0.134) ** 2)
    expected = 66**2 * np.exp(-0.5 * (0.3 / 67) ** 2) + seasons + wiggles
    assert float(co2.trend_and_seasons(67.0, 90.0, 1.3).to(x)(x)[0, 1]) == pytest.approx(expected, rel=1e-6)


def test_naive_forecasts_repeat_the_last_year() -> None:
    seen, ahead = SERIES.between(0, 1990), SERIES.between(1990, 1993)
    for method, growth in ((NAIVE, 0.0), (DRIFT, 1.5)):
        found = co2.METHODS[method](seen, ahead.year)
        years = np.repeat([1, 2, 3], 12)
        np.testing.assert_allclose(found.mean, np.tile(seen.value[-12:], 3) + growth * years)
        np.testing.assert_allclose(found.deviation, abs(1.5 - growth) * np.sqrt(years), atol=1e-9)


def test_a_month_without_a_value_is_filled_in() -> None:
    seen = SERIES.between(0, 1990)
    gap = Monthly(np.delete(seen.year, -6), np.delete(seen.value, -6))
    found = co2.naive(gap, np.array([1990 + 6.5 / 12]))
    assert found.mean[0] == pytest.approx((seen.value[-7] + seen.value[-5]) / 2)


def test_the_page_has_every_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weekly(tmp_path)
    monkeypatch.setattr(co2, "SHAPES", co2.SHAPES[:2])
    outcome = co2.run(data_root=tmp_path, progress=lambda *_: None, ends=(1991,), years=2)
    means = outcome.tables[0].frame.set_index("method")
    assert set(means.index) == set(co2.METHODS)
    assert (means.loc[[OURS, BOOK, DRIFT], "rmse"] < 1).all()
    assert means.loc[NAIVE, "rmse"] > 1.5
    assert len(outcome.verdicts) == 4
    assert outcome.pictures[0].name == "forecast"
