"""Beam search beside all classes, on few classes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiments.beam_search import EXPERIMENT, growth
from sureshot.data import data_root


def quiet(what: str, fraction: float) -> None:
    """No progress."""


def test_a_small_run() -> None:
    outcome = EXPERIMENT.run(
        data_root=None,
        progress=quiet,
        sets=("synthetic-20", "synthetic-60"),
        base_classes=12,
        queries=40,
        beams=(3, 60),
        columns=8,
    )
    own, frame = (table.frame for table in outcome.tables[:2])
    assert (own["beam"] == "all").all()
    assert (own["in common"] == 1).all()
    assert len(frame) == 8
    assert np.isfinite(frame.select_dtypes("number").to_numpy()).all()
    wide = frame[frame["beam"] == 60]
    assert (wide["same first"] == 1).all()
    assert (wide["in common"] == 1).all()
    assert (wide["accuracy, all"] == wide["accuracy, beam"]).all()
    assert len(outcome.findings) == 6


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["clinc150", "omniglot"])
def test_real_data(name: str) -> None:
    from experiments.beam_search import BeamSearchConfig, many_classes

    data = many_classes(name, BeamSearchConfig(columns=16), data_root())
    assert int(data.y.max()) + 1 == {"clinc150": 150, "omniglot": 6492}[name]
    assert data.place.max() == 19
    assert np.bincount(data.y).tolist() == [20] * (int(data.y.max()) + 1)


def test_growth() -> None:
    frame = pd.DataFrame({"classes": [1000, 10, 100], "ms": [10.0, 1.0, 7.0]})
    assert growth(frame, "ms") == pytest.approx(0.5)


def test_unknown_sets() -> None:
    with pytest.raises(ValueError, match="sets must name"):
        EXPERIMENT.run(data_root=None, progress=quiet, sets=("synthetic-15",))
