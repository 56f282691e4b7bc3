"""Structures of series: what is planted, what counts as found, and the page, on a made-up series."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments import co2, series_structures
from experiments.series_structures import OURS, PEERS, PLANTED, planted
from tests.experiments.test_co2 import weekly


@pytest.mark.parametrize("name", PLANTED)
def test_planted_series_have_what_they_are_called_for(name: str) -> None:
    x, y = planted(name, 100, 3)
    assert x.std() == pytest.approx(1, abs=0.02)
    again, other = planted(name, 100, 3)[1], planted(name, 100, 4)[1]
    np.testing.assert_array_equal(y, again)
    assert not np.allclose(y, other)
    slope = np.corrcoef(x[:, 0], y)[0, 1]
    assert (abs(slope) > 0.6) == name.startswith("LINEAR")


@pytest.mark.slow
def test_the_page_has_structures_forecasts_and_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weekly(tmp_path)
    monkeypatch.setattr(co2, "SHAPES", co2.SHAPES[:2])
    outcome = series_structures.run(
        data_root=tmp_path,
        progress=lambda *_: None,
        **{"seeds": (0,), "rows": 20, "particles": 2, "ends": (1985,), "years": 2, "searches": (0,)},
    )
    tables = {table.name: table.frame for table in outcome.tables}
    assert list(tables["recovery"]["planted"]) == list(PLANTED)
    assert set(tables["forecasts"]["method"]) == {OURS, *PEERS}
    assert ((tables["seeds"]["mass"] >= 0) & (tables["seeds"]["mass"] <= tables["seeds"]["leaves"] + 1e-9)).all()
    assert np.isfinite(tables["by-end"]["log density"]).all()
    (picture,) = outcome.pictures
    assert len(picture.figure.axes) >= 2
    assert len(outcome.verdicts) == len(PLANTED) + 3
