"""A network in front of `GPRegressor`: what it is for, what it reads, what files hold of it."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sureshot
from sureshot import GPRegressor
from sureshot.networks.backbones import make_backbone
from sureshot.persistence import ArtifactError

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(60, 3)) * [1.0, 100.0, 0.01] + [0.0, 5.0, 1.0]
WAVE = np.sin(2 * TABLE[:, 0]) + 0.1 * RNG.normal(size=60)
SEQUENCES = RNG.normal(size=(30, 7, 2))
IMAGES = RNG.integers(0, 256, size=(20, 16, 16), dtype=np.uint8)
SHORT: dict[str, Any] = {"kernel": "rbf", "noise": "gaussian", "target_transform": "none", "backbone_steps": 10}


def short(backbone: Any, **arguments: Any) -> GPRegressor:
    """One that fits in no time."""
    return GPRegressor(**{**SHORT, **arguments}, backbone=backbone)


def same_bits(one: GPRegressor, other: GPRegressor, rows: Any) -> None:
    """All that is said of rows."""
    for mine, theirs in zip(one.predict(rows, return_std=True), other.predict(rows, return_std=True), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(one.predict_interval(rows, 0.5).upper, other.predict_interval(rows, 0.5).upper)


@pytest.mark.parametrize("objective", ["leave_one_out", "evidence", "svgp"])
def test_it_finds_the_direction_that_distances_drown(objective: str) -> None:
    rng = np.random.default_rng(3)  # of other rows the network may stop at a poorer direction
    x = rng.normal(size=(450, 20))
    y = np.sin(1.5 * x[:, :10].sum(1) / math.sqrt(10)) + 0.1 * rng.normal(size=450)
    settings: dict[str, Any] = {"kernel": "rbf", "noise": "gaussian", "target_transform": "none"}
    plain = GPRegressor(**settings).fit(x[:150], y[:150])
    deep = GPRegressor(**settings, backbone="linear", backbone_objective=objective).fit(x[:150], y[:150])
    errors = [float(np.sqrt(np.mean((one.predict(x[150:]) - y[150:]) ** 2))) for one in (plain, deep)]
    densities = [float(one.log_density(x[150:], y[150:]).mean()) for one in (plain, deep)]
    assert errors[1] < 0.6 * errors[0]
    assert densities[1] > densities[0] + 0.5
    assert 0.8 < deep.predict_interval(x[150:], 0.9).contain(y[150:]).mean() < 0.98


def moments_of(fitted: Any, rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """Means and variances of the members."""
    kept = fitted.reader.keep(rows, fitting=False)
    return tuple(part.numpy() for part in fitted.predictor.moments(fitted.predictor.inputs(kept)))


def test_rows_kept_aside_say_how_far_off_new_ones_are() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(560, 10))
    y = np.sin(1.5 * x[:, :5].sum(1) / math.sqrt(5)) + 0.1 * rng.normal(size=560)
    x, new_x, y, new_y = x[:60], x[60:], y[:60], y[60:]
    settings: dict[str, Any] = {"noise": "gaussian", "target_transform": "none", "backbone_learning_rate": 0.01}
    model = GPRegressor("rbf", backbone="mlp", **settings).fit(x, y)
    fitted = model._fitted
    assert fitted.usual_errors.shape == (1, 12)
    assert fitted.reader.doubt > 0.01
    np.testing.assert_array_equal(model.feature_relevance_, np.ones(10))
    assert 0.7 < np.square(fitted.usual_errors).mean() < 1.4  # as of a normal that suits them best
    sure = replace(fitted, reader=replace(fitted.reader, doubt=0.0))
    mine, theirs = (one.prediction(*moments_of(one, x)).scaled.deviations ** 2 for one in (fitted, sure))
    np.testing.assert_allclose(mine, theirs + fitted.reader.doubt)
    assert np.abs(model.forecast(new_x).errors(new_y[:, None])[0]).mean() < 1.3
    before = model.predict_interval(new_x, 0.8)
    model.calibrate(new_x, new_y)  # deviations move, and what is conformal stays
    np.testing.assert_allclose(model.predict_interval(new_x, 0.8).upper, before.upper, rtol=1e-9)


@pytest.mark.parametrize(
    ("backbone", "rows", "others"),
    [
        ("mlp", TABLE, [TABLE.tolist(), torch.from_numpy(TABLE)]),
        ("lstm", SEQUENCES, [list(SEQUENCES), SEQUENCES.tolist()]),
        ("lstm", SEQUENCES[:, :, 0], [SEQUENCES[:, :, :1], SEQUENCES[:, :, 0].tolist()]),
        ({"name": "conv4", "n_filters": 4}, IMAGES, [IMAGES[..., None], IMAGES[:, None], IMAGES / 255.0]),
        (make_backbone("linear", (3,), n_features=2), TABLE, []),
        (nn.Sequential(nn.Flatten(), nn.Linear(14, 3)), SEQUENCES, []),
    ],
    ids=["table", "sequences", "one channel", "images", "backbone", "module"],
)
def test_what_it_reads(backbone: Any, rows: np.ndarray, others: list[Any], tmp_path: Path) -> None:
    y = RNG.normal(size=(len(rows), 2))
    names = np.arange(len(rows))
    given = copy.deepcopy(backbone)
    model = short(backbone, random_state=3).fit(rows, y, row_id=names)
    for form in (rows, *others):
        same_bits(model, short(given, random_state=3).fit(form, y), rows)
        np.testing.assert_allclose(model.predict(form), model.predict(rows), rtol=1e-5)
    if isinstance(backbone, nn.Module):
        for name, value in backbone.state_dict().items():
            assert torch.equal(value, given.state_dict()[name])
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        same_bits(model, other, rows)
    if isinstance(backbone, nn.Sequential):
        with pytest.raises(ArtifactError, match="code of a Sequential: pickle the model, or take a backbone of"):
            model.save(tmp_path / "model")
    else:
        model.save(tmp_path / "model")
        again = sureshot.load(tmp_path / "model")
        same_bits(model, again, rows)
        again.partial_fit(rows[:3], y[:3] + 1).forget([4, 5])
        again.fit(rows, y)
    before = model.predict(rows)
    model.partial_fit(rows[:3] if rows.dtype == np.uint8 else rows[:3] + 0.1, y[:3], row_id=names[:3] + 100)
    model.forget(names[:3] + 100)
    np.testing.assert_allclose(model.predict(rows), before, rtol=1e-7, atol=1e-9)
    network = model._fitted.reader.network
    assert model.partial_fit(rows[:3], y[:3], retune=True)._fitted.reader.network is network


def test_rows_of_weight_zero_and_their_order_change_nothing() -> None:
    model = short("mlp").fit(TABLE[:50], WAVE[:50])
    order = np.random.default_rng(2).permutation(60)
    weight = np.where(order < 50, 1.0, 0.0)
    other = short("mlp").fit(TABLE[order], WAVE[order], weight)
    same_bits(model, other, TABLE)


def test_a_random_state_moves_on_once() -> None:
    state = np.random.RandomState(0)
    model = short("mlp", random_state=state).fit(TABLE, WAVE)
    expected = np.random.RandomState(0)
    seed = expected.randint(2**31 - 1)
    assert state.randint(100) == expected.randint(100)
    same_bits(model, short("mlp", random_state=np.random.RandomState(0)).fit(TABLE, WAVE), TABLE)
    assert model._fitted.reader.network.config["seed"] == seed


class AsTheyAre(nn.Module):
    """Features that are columns, some of them no number."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 50, math.nan, x)


REFUSED: dict[str, tuple[dict[str, Any], Any]] = {
    "backbone must be one of 'conv4', .*; got 'cnn'": ({"backbone": "cnn"}, TABLE),
    "backbone must be one of .*; got 3": ({"backbone": 3}, TABLE),
    "has no option 'depth'": ({"backbone": {"name": "mlp", "depth": 3}}, TABLE),
    "different lengths: cut, pad or resample": ({"backbone": "lstm"}, [np.zeros((3, 2)), np.zeros((4, 2))]),
    "use 'linear' or 'mlp' for vectors": ({"backbone": "conv4"}, TABLE),
    r"cannot take rows of shape \(3,\)": ({"backbone": nn.Linear(4, 2)}, TABLE),
    "one line of features": ({"backbone": nn.Unflatten(1, (1, 3))}, TABLE),
    "backbone needs 10 different rows at least": ({"backbone": "mlp"}, np.ones((60, 3))),
    "backbone_objective must be one of": ({"backbone": "mlp", "backbone_objective": "loss"}, TABLE),
    "backbone_steps must be": ({"backbone": "mlp", "backbone_steps": 0}, TABLE),
    "backbone_learning_rate must lie": ({"backbone": "mlp", "backbone_learning_rate": -1}, TABLE),
    "goes with time=None": ({"backbone": "mlp", "time": "arrival"}, TABLE),
    "X has NaN|contains NaN": ({"backbone": "mlp"}, np.full((60, 3), np.nan)),
    "needs positive numbers": ({"backbone": "mlp", "target_transform": "log"}, TABLE),
    "diverged at step": ({"backbone": nn.Sequential(nn.Linear(3, 3), nn.Threshold(-9, math.nan))}, TABLE * [1, 1, 1]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused_fits_change_nothing(message: str) -> None:
    arguments, rows = REFUSED[message]
    model = short("mlp").fit(TABLE, WAVE)
    expected = model.predict(TABLE)
    number = 1.0 if message.startswith("backbone needs") else WAVE[: len(rows)]
    if message.startswith("diverged"):
        arguments = {**arguments, "backbone_learning_rate": 0.9, "backbone_steps": 200}
    model.set_params(**arguments)
    with pytest.raises(ValueError, match=message):
        model.fit(rows, np.broadcast_to(number, len(rows)))
    np.testing.assert_array_equal(model.predict(TABLE), expected)


def test_answers_that_are_no_number_are_errors() -> None:
    model = short(AsTheyAre()).fit(TABLE, WAVE)
    with pytest.raises(ValueError, match="the network gives NaN for 1 of 2 rows"):
        model.predict([TABLE[0], [0.0, 1e9, 0.0]])
