"""Temperatures of other classes and of other shots, on a split or two."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.validation_classes import EXPERIMENT, _fitted, _with_power
from sureshot.data import data_root
from sureshot.meta.evaluation.calibration import at_temperature


def quiet(what: str, fraction: float) -> None:
    """No progress."""


@pytest.mark.real_data
def test_a_small_run() -> None:
    few = {"fitted_at": (1,), "used_at": (1, 5), "n_validation": 10, "shot_seeds": (0,)}
    outcome = EXPERIMENT.run(
        data_root=data_root(), progress=quiet, classes=(5, 75), way=5, tasks=40, seeds=(0, 1), **few
    )
    frame, shots = (table.frame for table in outcome.tables)
    assert frame["validation classes"].tolist() == [5, 75]
    assert np.isfinite(frame.to_numpy()).all()
    assert (frame["ece"] >= 0).all()
    shots = shots.set_index("shots")
    assert np.isfinite(shots.to_numpy()).all()
    assert shots.loc[1, "temperature"] == 1
    assert shots.loc[1, "ece"] == pytest.approx(shots.loc[1, "ece, one for all"])
    assert 1 < shots.loc[5, "temperature"] <= 5**0.5
    assert shots.loc[5, "nll"] < shots.loc[5, "nll, one for all"]


def test_the_best_temperature_has_the_ratio_one() -> None:
    p = np.array([[0.7, 0.3], [0.4, 0.6]])
    scores = _fitted(p, np.array([0, 1]), fitted=1.0, best=1.0)
    assert scores["log ratio"] == 0
    assert scores["confidence - accuracy"] == pytest.approx(0.65 - 1)
    assert scores["ece"] == scores["best ece"]
    assert _fitted(p, np.array([0, 1]), fitted=0.5, best=1.0)["log ratio"] == pytest.approx(math.log(2))


def test_classes_that_do_not_fit() -> None:
    for classes in ((5, 75), (10, 80)):
        with pytest.raises(ValueError, match="classes must be from the way"):
            EXPERIMENT.run(data_root=None, progress=quiet, classes=classes)


def test_one_temperature_for_all_shots_undoes_the_growth() -> None:
    p = np.array([[0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
    y = np.array([0, 0, 1])
    tempered = at_temperature(p[None], 2.0)[0]
    scores, plain = _with_power(tempered, y, growth=2.0), _with_power(p, y, growth=1.0)
    assert scores["temperature"] == 2
    assert scores["nll, one for all"] == pytest.approx(plain["nll"])
    assert scores["ece, one for all"] == pytest.approx(plain["ece"])
    assert scores["best"] == pytest.approx(plain["best"], rel=1e-3)


def test_validation_classes_that_do_not_fit() -> None:
    for n_validation in (4, 75):
        with pytest.raises(ValueError, match="n_validation must be from few_ways"):
            EXPERIMENT.run(data_root=None, progress=quiet, n_validation=n_validation)
