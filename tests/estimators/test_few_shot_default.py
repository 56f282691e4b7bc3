"""What `FewShotClassifier` does without a checkpoint: which columns it scales, and which temperature it takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.datasets import load_digits, load_iris

from sureshot import FewShotClassifier
from sureshot.estimators.few_shot_default import (
    COSINE_TEMPERATURE,
    RBF_TEMPERATURE,
    DefaultModel,
    default_model,
    usual_temperature,
)
from sureshot.estimators.temperature import TEMPERATURE_SPREAD

X, Y = load_iris(return_X_y=True)


def scale_of(x: np.ndarray) -> np.ndarray:
    return default_model(x, np.ones(len(x)))[1].scale


def test_pixels_keep_their_relative_sizes() -> None:
    pixels = load_digits().data[:40]
    scale = scale_of(pixels)
    np.testing.assert_allclose(scale, np.sqrt(pixels.var(0)[pixels.std(0) > 0].mean()))


def test_columns_of_several_units_are_standardised() -> None:
    """Few columns, and many of which a few would make up all distances."""
    np.testing.assert_allclose(scale_of(X), X.std(0))
    flags = np.random.default_rng(0).integers(0, 2, (30, 12)).astype(float)
    flags[:, :2] *= 20
    np.testing.assert_allclose(scale_of(flags), flags.std(0))
    assert np.ptp(scale_of(flags[:, 2:])) == 0


def test_one_label_has_the_usual_temperature() -> None:
    rows = [0, 50, 100]
    factor, power = RBF_TEMPERATURE
    assert FewShotClassifier().fit(X[rows], Y[rows]).temperature_ == pytest.approx(factor * 4**power)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    factor, power = COSINE_TEMPERATURE
    assert FewShotClassifier().fit(unit[rows], Y[rows]).temperature_ == pytest.approx(factor * 3**power)
    assert usual_temperature(DefaultModel("rbf", 10_000, 32.0), 2) == 1


def test_left_out_labels_choose_the_temperature() -> None:
    """By the latents without the row's own site, as if one label in all were drawn at random."""
    model = FewShotClassifier().fit(X[::10], Y[::10])
    fitted = model._fitted
    posterior = fitted.conditioned.posterior
    precision, shift, mean, variance = (
        part[0, 0].numpy() for part in (*posterior.sites, posterior.mean, posterior.variance)
    )
    left_out = (mean / variance - shift) / (1 / variance - precision)  # (C, N)
    usual = usual_temperature(fitted.default, 3)
    share = 1 / (1 + len(fitted.rows.y))

    def value(temperature: float) -> float:
        logs = log_softmax(left_out / temperature, axis=0)
        own = logs[fitted.rows.y, np.arange(len(fitted.rows.y))]
        beforehand = 0.5 * (np.log(temperature / usual) / TEMPERATURE_SPREAD) ** 2
        return float(((1 - share) * own + share * logs.mean(0)).sum()) - beforehand

    found = model.temperature_
    assert abs(np.log(found / usual)) > 0.1
    assert value(found) > max(value(found * 1.02), value(found / 1.02))


def test_the_temperature_is_that_of_all_rows(tmp_path: Path) -> None:
    """`partial_fit` chooses it anew, a file keeps it, and `calibrate` has the last word until `fit`."""
    whole = FewShotClassifier().fit(X[::5], Y[::5])
    model = FewShotClassifier().fit(X[::10], Y[::10])
    assert model.temperature_ != whole.temperature_
    model.partial_fit(X[5::10], Y[5::10])
    assert model.temperature_ == whole.temperature_
    model._fitted = replace(model._fitted, temperature=1.0)  # as files of before have it
    model.save(tmp_path / "model")
    assert FewShotClassifier.load(tmp_path / "model").temperature_ == 1
    calibrated = whole.calibrate(X[1::10], Y[1::10]).temperature_
    assert whole.partial_fit(X[2::10], Y[2::10]).temperature_ == calibrated
    announced = FewShotClassifier().fit(X[::10], Y[::10]).partial_fit(X[5::10], Y[5::10], classes=[7])
    assert announced.temperature_ == model.fit(X[::5], Y[::5]).temperature_
    assert FewShotClassifier().partial_fit(X[:9], Y[:9]).temperature_ == usual_temperature(whole._fitted.default, 1)
