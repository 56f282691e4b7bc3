"""The small tables; tested where the data root is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.uci import load_uci
from sureshot.data import DataError


@pytest.mark.real_data
def test_small_sets_have_their_documented_counts() -> None:
    expected = {
        "ionosphere": ((351, 34), {"g": 225, "b": 126}),
        "heart_cleveland": ((303, 13), {0: 164, 1: 139}),
        "wine": ((178, 13), {1: 59, 2: 71, 3: 48}),
        "musk1": ((476, 166), {0: 269, 1: 207}),
    }
    for name, (shape, counts) in expected.items():
        table = load_uci(name)
        assert table.X.shape == shape
        assert table.y is not None
        labels, count = np.unique(table.y, return_counts=True)
        assert dict(zip(labels.tolist(), count.tolist(), strict=True)) == counts
    assert np.isnan(np.asarray(load_uci("heart_cleveland").X)).sum() == 6
    with pytest.raises(DataError, match="did you mean 'ionosphere'"):
        load_uci("ionospere")


def test_a_missing_table_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no iris\.csv.*column label.*archive\.ics\.uci\.edu"):
        load_uci("iris", tmp_path)
