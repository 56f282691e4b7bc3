"""How many validation classes a temperature needs, on two splits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.validation_classes import EXPERIMENT, _scores
from sureshot.data import data_root


def quiet(what: str, fraction: float) -> None:
    """No progress."""


@pytest.mark.real_data
def test_a_small_run() -> None:
    outcome = EXPERIMENT.run(data_root=data_root(), progress=quiet, classes=(5, 75), way=5, tasks=20, seeds=(0, 1))
    frame = outcome.tables[0].frame
    assert frame["validation classes"].tolist() == [5, 75]
    assert np.isfinite(frame.to_numpy()).all()
    assert (frame["ece"] >= 0).all()


def test_the_best_temperature_has_the_ratio_one() -> None:
    p = np.array([[0.7, 0.3], [0.4, 0.6]])
    scores = _scores(p, np.array([0, 1]), fitted=1.0, best=1.0)
    assert scores["log ratio"] == 0
    assert scores["confidence - accuracy"] == pytest.approx(0.65 - 1)
    assert scores["ece"] == scores["best ece"]
    assert _scores(p, np.array([0, 1]), fitted=0.5, best=1.0)["log ratio"] == pytest.approx(math.log(2))


def test_classes_that_do_not_fit() -> None:
    for classes in ((5, 75), (10, 80)):
        with pytest.raises(ValueError, match="classes must be from the way"):
            EXPERIMENT.run(data_root=None, progress=quiet, classes=classes)
