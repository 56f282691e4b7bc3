"""`FewShotRegressor`: a learner of numbers under the estimators' interface."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sureshot import FewShotRegressor, GPRegressor, load
from sureshot.data.mixed_columns import ColumnEncoder
from sureshot.estimators.few_shot.number_fitted import FunctionInputs
from sureshot.meta.learners.functions import Moments, RegressionLearner
from sureshot.meta.processes import make_process
from sureshot.meta.training import FunctionTrainingConfig, train
from sureshot.meta.training.checkpoint import load_checkpoint, save_checkpoint
from sureshot.networks.seeds import generator_for
from sureshot.persistence import ArtifactError, load_artifact, save_artifact

RNG = np.random.default_rng(0)
X, QUERIES = RNG.uniform(-2, 2, (9, 2)), RNG.uniform(-2, 2, (5, 2))
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1], X.sum(1)])
OPTIONS: dict[str, dict[str, Any]] = {
    "cnp": {"width": 16, "layers": 2},
    "np": {"width": 16, "layers": 2, "latent": 4, "draws_prediction": 5},
    "dkt_regression": {"hidden": (8,), "kernels": 3},
}


def written(folder: Path, name: str) -> Path:
    """A checkpoint of a learner from two columns to three numbers."""
    learner = make_process(name, 2, 3, seed=1, **OPTIONS[name])
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator_for(2, name)))
    save_checkpoint(folder / f"{name}.safetensors", learner, {}, {"episodes": 0}, {})
    return folder / f"{name}.safetensors"


@pytest.fixture(scope="module", params=list(OPTIONS))
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("learner"), request.param)


def told(learner: RegressionLearner, x: np.ndarray, y: np.ndarray, queries: np.ndarray) -> Moments:
    with torch.no_grad():
        return learner.condition(*(torch.from_numpy(part)[None] for part in (x, y))).moments(
            torch.from_numpy(queries)[None]
        )


def test_answers_are_those_of_the_learner_given_all_rows(checkpoint: Path) -> None:
    model = FewShotRegressor(checkpoint).fit(X, Y)
    found = told(model.learner_, X, Y, QUERIES)
    mean, deviation = (part[0].numpy() for part in found.overall())
    predicted = model.predict(QUERIES, return_std=True)
    np.testing.assert_allclose(predicted[0], mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(predicted[1], deviation, rtol=1e-9)
    numbers, each = torch.from_numpy(Y[:5])[None], [slice(k, k + 1) for k in range(3)]
    of_each = [
        Moments(found.mean[..., k], found.deviation[..., k], found.log_weight).log_density(numbers[..., k])
        for k in each
    ]
    density = torch.cat(of_each).sum(0).numpy()
    np.testing.assert_allclose(model.log_density(QUERIES, Y[:5]), density, rtol=1e-9)


def test_left_out_rows_and_pulls_are_those_of_a_context_without_them(checkpoint: Path) -> None:
    model = FewShotRegressor(checkpoint).fit(X, Y, sample_weight=[2, *[1] * 8])
    rows = model._fitted.rows
    y, found = model.left_out_
    influence = model.influence(QUERIES, n=9, target=1)
    full = model.predict(QUERIES)[:, 1]
    for place in (0, int(rows.weight.argmax()), 8):
        repeats = rows.weight.astype(int) * (np.arange(9) != place)
        rest = rows.x.repeat(repeats, 0), rows.y.repeat(repeats, 0)
        (mean, deviation) = told(model.learner_, *rest, rows.x[place : place + 1]).overall()
        np.testing.assert_allclose(found.mean[place], mean[0, 0].numpy(), rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(found.deviation[place], deviation[0, 0].numpy(), rtol=1e-9)
        fall = full - told(model.learner_, *rest, QUERIES).overall()[0][0, :, 1].numpy()
        which = (influence.drivers.inputs == rows.x[place]).all(-1)
        np.testing.assert_allclose(influence.drivers.pulls[which], fall, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(y, rows.y)
    assert model.leave_one_out_score_ == pytest.approx(found.log_density(y).sum(1).mean())


def test_rows_come_and_go_and_files_keep_all_of_it(checkpoint: Path, tmp_path: Path) -> None:
    whole = FewShotRegressor(checkpoint).fit(X, Y)
    model = FewShotRegressor(checkpoint).partial_fit(X[:4], Y[:4]).partial_fit(X[4:], Y[4:], row_id=range(5))
    np.testing.assert_allclose(model.predict(QUERIES), whole.predict(QUERIES), rtol=1e-9, atol=1e-10)
    model.calibrate(QUERIES, Y[:5])
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, FewShotRegressor)
    ends = [asked.predict_interval(QUERIES, 0.5).upper for asked in (model, again)]
    np.testing.assert_array_equal(*ends)
    again.forget(range(5))
    few = FewShotRegressor(checkpoint).fit(X[:4], Y[:4])
    np.testing.assert_allclose(again.predict(QUERIES), few.predict(QUERIES), rtol=1e-9, atol=1e-10)
    assert clone(model).checkpoint == checkpoint


def test_a_single_number_comes_back_in_one_dimension(tmp_path: Path) -> None:
    learner = make_process("anp", 1, 1, width=16, layers=1, heads=2)
    save_checkpoint(tmp_path / "a.safetensors", learner, {}, {"episodes": 0}, {})
    model = FewShotRegressor(tmp_path / "a.safetensors").fit(X[:, :1], Y[:, 0])
    assert model.predict(QUERIES[:, :1]).shape == (5,)
    assert model.sample_y(QUERIES[:, :1], 3).shape == (5, 3)
    assert model.outlier_score([[30.0]])[0] > model.outlier_score(X[:, :1]).max()
    assert len(model.suggest(QUERIES[:, :1]).rows) == 5


def test_before_fit_it_says_the_prior_and_that_it_is_one(checkpoint: Path) -> None:
    model = FewShotRegressor(checkpoint)
    with pytest.warns(UserWarning, match="answers are the prior") as caught:
        mean, deviation = model.predict(pd.DataFrame(QUERIES, columns=["a", "b"]), return_std=True)
    assert [one.filename for one in caught] == [__file__]
    found = told(model.partial_fit(X, Y).learner_, X[:0], Y[:0], QUERIES)
    expected = [part[0].numpy() for part in found.overall()]
    np.testing.assert_allclose(mean, expected[0], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(deviation, expected[1], rtol=1e-9)
    assert not np.allclose(model.predict(QUERIES), mean)


@pytest.mark.filterwarnings("ignore:no row has been learnt")
def test_before_fit_all_that_needs_no_row_is_told(checkpoint: Path, tmp_path: Path) -> None:
    model = FewShotRegressor(checkpoint)
    with pytest.warns(UserWarning, match="0 left-out rows cannot vouch"):
        interval = model.predict_interval(QUERIES, 0.8)
    np.testing.assert_allclose(model.predict_quantile(QUERIES, 0.9), interval.upper)
    assert model.sample_y(QUERIES, 4).shape == (5, 3, 4)
    assert np.isfinite(model.log_density(QUERIES, Y[:5])).all()
    for call in (model.outlier_score, model.suggest, model.influence):
        with pytest.raises(NotFittedError):
            call(QUERIES)
    with pytest.raises(NotFittedError):
        model.save(tmp_path / "model")


@pytest.fixture(scope="module")
def of_shops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table whose numbers are nowhere near 0 and 1."""
    folder = tmp_path_factory.mktemp("shops")
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"shop": np.repeat(list("abcde"), 6), "day": rng.uniform(100, 900, 30)})
    frame["sold"] = 5000 + 2 * frame["day"] + rng.normal(0, 10, 30)
    frame.to_csv(folder / "shops.csv", index=False)
    config = {
        "data": {"name": "groups", "options": {"path": "shops.csv", "group": "shop", "target": "sold"}},
        "learner": {"name": "dkt_regression", "options": {"hidden": []}},
        "training": {"episodes": 2},
        "validation": {"every": 0},
    }
    train(FunctionTrainingConfig.from_dict(config), folder / "run", data_root=folder)
    return folder / "run"


def test_a_learner_of_a_table_takes_and_answers_in_its_units(of_shops: Path, tmp_path: Path) -> None:
    x, y, query = np.array([[150.0], [400.0], [800.0]]), np.array([5300.0, 5800.0, 6600.0]), np.array([[300.0]])
    model = FewShotRegressor(of_shops).fit(x, y)
    units = load_checkpoint(of_shops).artifact.header["units"]
    (of_x, by_x), (of_y, by_y) = (np.array(units[part]).ravel() for part in ("inputs", "targets"))
    standard = (x - of_x) / by_x, (y[:, None] - of_y) / by_y
    mean, deviation = (part[0, 0].numpy() for part in told(model.learner_, *standard, (query - of_x) / by_x).overall())
    found = model.predict(query, return_std=True)
    np.testing.assert_allclose(found[0], of_y + by_y * mean, rtol=1e-9)
    np.testing.assert_allclose(found[1], by_y * deviation, rtol=1e-9)
    expected = norm(of_y + by_y * mean, by_y * deviation).logpdf(5500.0)
    np.testing.assert_allclose(model.log_density(query, [5500.0]), expected, rtol=1e-9)
    rest = told(model.learner_, standard[0][1:], standard[1][1:], standard[0][:1]).overall()[0][0, 0].numpy()
    known, left_out = model.left_out_
    np.testing.assert_allclose(left_out.mean[known[:, 0] == y[0], 0], of_y + by_y * rest, rtol=1e-9)
    without = told(model.learner_, standard[0][1:], standard[1][1:], (query - of_x) / by_x).overall()[0][0, 0].numpy()
    influence = model.influence(query, 3).drivers
    pull = influence.pulls[influence.y == y[0]]
    np.testing.assert_allclose(pull, by_y * (mean - without), rtol=1e-6)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(query), model.predict(query))
    np.testing.assert_array_equal(
        FewShotRegressor(of_shops).partial_fit(x[:2], y[:2]).partial_fit(x[2:], y[2:]).predict(query), found[0]
    )


@pytest.fixture(scope="module")
def of_towns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a learner of a table with the columns "rain" and "age", in this order."""
    folder = tmp_path_factory.mktemp("towns")
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"town": np.repeat(list("abcde"), 6), "rain": rng.uniform(0, 9, 30), "age": range(30)})
    frame.assign(y=frame["rain"] - frame["age"]).to_csv(folder / "towns.csv", index=False)
    config = {
        "data": {"name": "groups", "options": {"path": "towns.csv", "group": "town", "target": "y"}},
        "learner": {"name": "cnp", "options": {"width": 8}},
        "training": {"episodes": 1},
        "validation": {"every": 0},
    }
    train(FunctionTrainingConfig.from_dict(config), folder / "run", data_root=folder)
    return folder / "run" / "best.safetensors"


TOWNS = pd.DataFrame(X[:, :2], columns=["rain", "age"])


def test_columns_of_a_table_go_by_name(of_towns: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:  # columns by their names before fit, too
        warnings.simplefilter("always")
        before = [FewShotRegressor(of_towns).predict(rows) for rows in (TOWNS[["age", "rain"]], TOWNS.to_numpy())]
    assert ["prior" in str(one.message) for one in caught] == [True, True]
    np.testing.assert_array_equal(*before)
    of_arrays = FewShotRegressor(of_towns).fit(TOWNS.to_numpy(), Y[:, 0])
    expected = of_arrays.predict(TOWNS.to_numpy())
    assert list(of_arrays.feature_names_in_) == ["rain", "age"]
    np.testing.assert_array_equal(of_arrays.predict(TOWNS[["age", "rain"]]), expected)
    model = FewShotRegressor(of_towns).fit(TOWNS[["age", "rain"]], Y[:, 0])
    assert list(model.feature_names_in_) == ["rain", "age"]
    model.save(tmp_path / "model")
    for asked in (model, load(tmp_path / "model")):
        np.testing.assert_array_equal(asked.predict(TOWNS), expected)
        np.testing.assert_array_equal(asked.predict(TOWNS.to_numpy()), expected)
        np.testing.assert_array_equal(asked.predict(TOWNS[["age", "rain"]]), expected)
        with pytest.raises(ValueError, match="trained on, rain, age; it has snow, age"):
            asked.predict(TOWNS.rename(columns={"rain": "snow"}))
    numbered = pd.DataFrame(TOWNS.to_numpy())
    np.testing.assert_array_equal(FewShotRegressor(of_towns).fit(numbered, Y[:, 0]).predict(numbered), expected)


SKIES = pd.DataFrame(
    {
        "code": ["01", "02", "01", "02", "01"],
        "day": pd.date_range("2024-03-01", periods=5).strftime("%Y-%m-%d"),
        "rain": [3.0, np.nan, 1.0, 0.0, 2.0],
        "note": [f"seen by {k}" for k in range(5)],
    }
)


@pytest.fixture(scope="module")
def of_skies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table with a code, a date, gaps, and notes that are other ones in every row."""
    folder = tmp_path_factory.mktemp("skies")
    frame = pd.concat([SKIES.assign(station=station, y=station + SKIES.index) for station in range(6)])
    frame["note"] = [f"seen by {k}" for k in range(len(frame))]
    frame.to_csv(folder / "skies.csv", index=False)
    config = {
        "data": {"name": "groups", "options": {"path": "skies.csv", "group": "station", "target": "y"}},
        "learner": {"name": "cnp", "options": {"width": 8}},
        "training": {"episodes": 1},
        "validation": {"every": 0},
    }
    with pytest.warns(UserWarning, match="nothing is learnt from note"):
        train(FunctionTrainingConfig.from_dict(config), folder / "run", data_root=folder)
    return folder / "run"


def test_columns_of_a_table_may_be_text_dates_and_have_gaps(of_skies: Path, tmp_path: Path) -> None:
    """They become numbers as those of the table did: March 1 to 5, of which the gap's rain is the median, 1.5."""
    y = np.arange(5.0)
    model = FewShotRegressor(of_skies).fit(SKIES, y)
    days = np.arange(19783.0, 19788.0)
    by_hand = np.stack([[0, 1, 0, 1, 0], days, [3, 1.5, 1, 0, 2], [0, 1, 0, 0, 0]], 1)
    units = load_checkpoint(of_skies).artifact.header["units"]
    (of_x, by_x), (of_y, by_y) = (np.array(units[part]) for part in ("inputs", "targets"))
    inputs = (by_hand - of_x) / by_x
    expected = of_y + by_y * told(model.learner_, inputs, ((y - of_y) / by_y)[:, None], inputs).overall()[0][0].numpy()
    np.testing.assert_allclose(model.predict(SKIES), expected[:, 0], rtol=1e-9)
    model.save(tmp_path / "model")
    for asked in (model, load(tmp_path / "model")):
        for rows in (SKIES[["rain", "day", "code"]], SKIES.assign(day=pd.to_datetime(SKIES["day"]))):
            np.testing.assert_array_equal(asked.predict(rows), model.predict(SKIES))
        for rows, words in (
            (by_hand, "X must be a DataFrame with the columns code, day, rain, note, as not all"),
            (SKIES[["rain", "code"]], "trained on, code, day, rain, note; it has"),
            (SKIES.assign(day="soon"), "column 'day': 'soon' in row 0"),
        ):
            with pytest.raises(ValueError, match=words):
                asked.predict(rows)
    with pytest.warns(UserWarning, match="the prior"):
        assert FewShotRegressor(of_skies).predict(SKIES).shape == (5,)


def test_many_rows_are_left_out_at_once_or_are_few(of_shops: Path, of_towns: Path) -> None:
    """In closed form where there is one; else each takes a context of its own, and 20 of 2000 rows tell enough."""
    rng = np.random.default_rng(0)
    x = rng.uniform(100, 900, (2000, 2))
    y = 5000 + 2 * x[:, 0] + rng.normal(0, 10, len(x))
    known, _ = FewShotRegressor(of_shops).fit(x[:500, :1], y[:500]).left_out_
    assert len(known) == 500
    known, _ = FewShotRegressor(of_towns).fit(x, y).left_out_
    assert len(known) == 20
    some = FewShotRegressor(of_shops).fit(x[:6, :1], y[:6], [1, 2, 1, 1, 3, 1])
    known, left_out = some.left_out_
    for number, mean in zip(known[:, 0], left_out.mean[:, 0], strict=True):  # copies leave together
        others = np.flatnonzero(y[:6] != number)
        weight = np.array([1, 2, 1, 1, 3, 1])[others]
        without = FewShotRegressor(of_shops).fit(x[others, :1], y[others], weight)
        assert mean == pytest.approx(without.predict(x[:6, :1][y[:6] == number])[0], rel=1e-10)
    assert sorted(known[:, 0]) == sorted(y[:6])


def test_intervals_of_more_coverage_are_no_narrower(of_shops: Path) -> None:
    """Nine rows vouch for 90 %, which their odd one makes wide, and not for 95 %."""
    x = np.linspace(100, 900, 9)[:, None]
    model = FewShotRegressor(of_shops).fit(x, 5000 + 2 * x[:, 0] + 4000 * (np.arange(9) == 4))
    vouched = model.predict_interval(x, 0.9)
    with pytest.warns(UserWarning, match="9 left-out rows cannot vouch for a coverage of 0.95"):
        wide = model.predict_interval(x, 0.95)
    assert (wide.lower <= vouched.lower).all()
    assert (wide.upper >= vouched.upper).all()


@pytest.mark.parametrize("names", [["rain"], ["rain", "snow"], ["rain", "age", "town"], ["rain", "Age"]])
def test_columns_of_other_names_are_refused(of_towns: Path, names: list[str]) -> None:
    frame = pd.DataFrame(1.0, index=range(3), columns=names)
    with pytest.raises(ValueError, match="the learner was trained on, rain, age; it has") as error:
        FewShotRegressor(of_towns).fit(frame, [0.0, 1.0, 2.0])
    assert "pass X[['rain', 'age']]" in str(error.value)


def test_a_checkpoint_that_has_no_names_takes_columns_as_they_come(of_towns: Path, tmp_path: Path) -> None:
    """As those written before names were kept."""
    known = load_artifact(of_towns)
    units = {part: known.header["units"][part] for part in ("inputs", "targets")}
    save_artifact(tmp_path / "old.safetensors", known.kind, {**known.header, "units": units}, known.arrays)
    other = TOWNS.rename(columns={"rain": "snow"})
    model = FewShotRegressor(tmp_path / "old.safetensors").fit(other, Y[:, 0])
    expected = FewShotRegressor(of_towns).fit(TOWNS, Y[:, 0]).predict(TOWNS)
    np.testing.assert_array_equal(model.predict(other), expected)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(other), expected)


@pytest.mark.parametrize(
    "units",
    [
        3,
        {},
        {"inputs": [[0.0], [1.0]], "targets": [[0.0], [0.0]]},
        {"inputs": [[0, 0]], "targets": "a"},
        *({"inputs": [[0.0], [1.0]], "targets": [[0.0], [1.0]], "columns": names} for names in (3, [3], "a", [])),
    ],
)
def test_units_that_are_none(units: object) -> None:
    with pytest.raises(ValueError, match="malformed units"):
        FunctionInputs.of(make_process("cnp", 1, 1, width=4), units)


@pytest.mark.parametrize(("names", "encoded"), [(["a", "b"], "ab"), (["b"], "a"), (None, "a")])
def test_columns_that_are_not_those_of_their_encoder(names: list[str] | None, encoded: str) -> None:
    units = {"inputs": [[0.0], [1.0]], "targets": [[0.0], [1.0]], "columns": names}
    encoder = ColumnEncoder.from_json([{"kind": "text", "name": name, "width": 1} for name in encoded])
    with pytest.raises(ValueError, match="malformed units of columns"):
        FunctionInputs.of(make_process("cnp", 1, 1, width=4), units, encoder)


def test_an_encoder_that_is_none_names_the_checkpoint(of_towns: Path, tmp_path: Path) -> None:
    known = load_artifact(of_towns)
    units = {**known.header["units"], "encoder": 3}
    save_artifact(tmp_path / "odd.safetensors", known.kind, {**known.header, "units": units}, known.arrays)
    with pytest.raises(ArtifactError, match=r"odd.safetensors: malformed units of columns \(malformed columns\)"):
        FewShotRegressor(tmp_path / "odd.safetensors").fit(TOWNS, Y[:, 0])


WRONG: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "no checkpoint": (lambda path: FewShotRegressor().fit(X, Y), TypeError, "Without one use GPRegressor"),
    "no file": (lambda path: FewShotRegressor(path.parent / "none").fit(X, Y), ArtifactError, "check the path"),
    "columns": (lambda path: FewShotRegressor(path).fit(X[:, :1], Y), ValueError, "vectors of length 2"),
    "targets": (
        lambda path: FewShotRegressor(path).fit(X, Y[:, 0]),
        ValueError,
        "3 numbers a row, but y has 1",
    ),
    "text": (lambda path: FewShotRegressor(path).fit(X, np.full((9, 3), "a")), ValueError, "y must hold numbers"),
    "no rows": (
        lambda path: FewShotRegressor(path).fit(X[:0], Y[:0]),
        ValueError,
        "Before fit predictions are the prior",
    ),
    "weights": (lambda path: FewShotRegressor(path).fit(X, Y, np.full(9, 0.5)), ValueError, "Use GPRegressor for real"),
    "many rows": (lambda path: FewShotRegressor(path).fit(X, Y, np.full(9, 1e9)), MemoryError, "of 9,000,000,000 rows"),
    "covariance": (
        lambda path: FewShotRegressor(path).fit(X, Y).predict(X, return_cov=True),
        ValueError,
        "nothing of two rows together",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_it_refuses(case: str, tmp_path: Path) -> None:
    call, kind, message = WRONG[case]
    with pytest.raises(kind, match=message):
        call(written(tmp_path, "cnp"))


def test_a_learner_of_classes_is_refused_by_name(tmp_path: Path) -> None:
    GPRegressor().fit(X, Y[:, 0]).save(tmp_path / "other")
    with pytest.raises(ArtifactError, match="is no meta-trained learner"):
        FewShotRegressor(tmp_path / "other").fit(X, Y)
