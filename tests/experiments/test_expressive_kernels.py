"""Expressive kernels: what the sets are, and the page, on a few rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments import expressive_kernels
from experiments.expressive_kernels import Settings, drifting_season, inked, molecules, summary, texts


@pytest.fixture
def data_root() -> Path:
    """The data files, which are not in the repository."""
    if "SURESHOT_DATA" not in os.environ:
        pytest.skip("SURESHOT_DATA names no folder of data files")
    return Path(os.environ["SURESHOT_DATA"])


def test_a_season_drifts_around_its_period() -> None:
    x, y = drifting_season(0)
    np.testing.assert_array_equal(y, drifting_season(0)[1])
    assert len(x) == len(y) == 260
    power = np.abs(np.fft.rfft(y - y.mean()))
    assert abs(np.fft.rfftfreq(260, 1 / 20)[power.argmax()] - 1) < 0.1
    assert np.abs(y[20:40] - y[200:220]).max() > 0.3


def test_bags_and_texts(data_root: Path) -> None:
    settings = Settings(labels=14, test_rows=20)
    bags, digit = inked(settings, 0)
    assert len(bags) == len(digit) == 30
    assert len(set(digit[:10])) == 10
    assert all(bag.shape[1] == 2 and 5 < len(bag) < 40 for bag in bags)
    shapes, musk = molecules(data_root)
    assert len(shapes) == 92
    assert musk.sum() == 47
    assert sum(map(len, shapes)) == 476
    seen, label, new, _ = texts(data_root, 0, settings)
    assert set(pd.Series(label).value_counts()) == {2}
    assert len(new) == 20
    assert not set("".join(seen)) - set("abcdefghijklmnopqrstuvwxyz ")


def test_means_have_their_standard_errors() -> None:
    part = pd.DataFrame(
        {"set": "a", "draw": [0, 1, 0, 1], "method": ["m", "m", "n", "n"], "rmse": [1.0, 3.0, 2.0, 2.0], "seconds": 1.0}
    )
    found = summary(part.assign(accuracy=np.nan))
    assert found.to_dict("list") == {
        "method": ["m", "n"],
        "rmse": ["2.000 ± 1.000", "2.000 ± 0.000"],
        "seconds": ["1.0", "1.0"],
    }


@pytest.mark.slow
def test_the_page(data_root: Path) -> None:
    options: dict[str, Any] = {"ends": (1962,), "years": 1, "seeds": (0,), "labels": 21, "test_rows": 15}
    found = expressive_kernels.run(data_root=data_root, progress=lambda what, fraction: None, **options)
    names = ["co2", "season-ahead", "season-gaps", "texts", "digits", "molecules"]
    assert [table.name for table in found.tables] == names
    assert all(len(table.frame) >= 3 for table in found.tables)
    assert len(found.findings) == 5
    assert len(found.pictures[0].figure.axes) == 3
