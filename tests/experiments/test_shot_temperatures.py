"""How a temperature depends on the number of shots, on one split."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.shot_temperatures import EXPERIMENT, _scores
from sureshot.data import data_root
from sureshot.meta.evaluation.calibration import at_temperature


def quiet(what: str, fraction: float) -> None:
    """No progress."""


@pytest.mark.real_data
def test_a_small_run() -> None:
    outcome = EXPERIMENT.run(
        data_root=data_root(), progress=quiet, fitted_at=(1,), shots=(1, 5), tasks=40, n_validation=10, seeds=(0,)
    )
    frame = outcome.tables[0].frame.set_index("shots")
    assert np.isfinite(frame.to_numpy()).all()
    assert frame.loc[1, "temperature"] == 1
    assert frame.loc[1, "ece"] == pytest.approx(frame.loc[1, "ece, one for all"])
    assert 1 < frame.loc[5, "temperature"] <= 5**0.5
    assert frame.loc[5, "nll"] < frame.loc[5, "nll, one for all"]


def test_one_temperature_for_all_shots_undoes_the_growth() -> None:
    p = np.array([[0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
    y = np.array([0, 0, 1])
    tempered = at_temperature(p[None], 2.0)[0]
    scores, plain = _scores(tempered, y, growth=2.0), _scores(p, y, growth=1.0)
    assert scores["temperature"] == 2
    assert scores["nll, one for all"] == pytest.approx(plain["nll"])
    assert scores["ece, one for all"] == pytest.approx(plain["ece"])
    assert scores["best"] == pytest.approx(plain["best"], rel=1e-3)


def test_validation_classes_that_do_not_fit() -> None:
    for n_validation in (4, 75):
        with pytest.raises(ValueError, match="n_validation must be from the way"):
            EXPERIMENT.run(data_root=None, progress=quiet, n_validation=n_validation)
