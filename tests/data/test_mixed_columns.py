"""DataFrames of text, dates and gaps: what becomes of each column, in every estimator and in its model file."""

from __future__ import annotations

import datetime
import json
import pickle
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier
from sureshot.data.cells import CellError
from sureshot.data.column_kinds import median_of
from sureshot.data.mixed_columns import ColumnEncoder
from sureshot.persistence import ArtifactError, load_artifact, save_artifact

N = 60
QUICK = [
    GPClassifier("rbf", "softmax", objective=None),
    TreeGPClassifier(),
    KernelSearchClassifier(2, n_rejuvenation=0),
]


def mixed(n: int = N, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Labels that a category, a number with gaps and a date say in part."""
    generator = np.random.default_rng(seed)
    y = np.arange(n) % 2
    size = generator.normal(size=n) + y
    frame = pd.DataFrame(
        {
            "colour": np.where(y == 1, "red", np.where(generator.random(n) < 0.5, "blue", "green")).astype(object),
            "price": [f"${1000 * value:,.2f}" for value in size],
            "seen": pd.Timestamp("2025-01-01") + pd.to_timedelta(generator.integers(0, 60, n), unit="D"),
            "size": np.where(np.arange(n) % 7 == 0, np.nan, size),
            "new": generator.random(n) < 0.5,
        }
    )
    frame.loc[3, "colour"] = None
    return frame, np.array(["no", "yes"])[y]


def encoder(frame: pd.DataFrame, weight: Any = None, **kinds: str) -> ColumnEncoder:
    return ColumnEncoder.learnt(frame, kinds, np.ones(len(frame)) if weight is None else np.asarray(weight, float))


def test_each_kind_becomes_what_is_said() -> None:
    found = encoder(mixed()[0])
    assert found.names == (
        *("colour=blue", "colour=green", "colour=red", "colour is missing", "price"),
        *("seen in days", "seen, sine of the week", "seen, cosine of the week", "size", "size is missing", "new"),
    )
    assert found.sources.tolist() == [0, 0, 0, 0, 1, 2, 2, 2, 3, 3, 4]
    assert found.kinds == {"colour": "category", "price": "number", "seen": "date", "size": "number", "new": "number"}
    assert str(found) == (
        "3 of 5 columns are numbers; categories: colour; dates: seen; gaps are the median, and marked: size"
    )


def test_gaps_are_the_median_and_marked_where_they_were() -> None:
    found = encoder(pd.DataFrame({"a": [1.0, 2, 9, np.nan], "b": [1.0, 2, 9, 4], "c": list("xyxy")}))
    asked = pd.DataFrame({"a": [np.nan, 5], "b": [np.nan, 5], "c": ["x", None]})
    # Of the category an unseen level is what the average row is, as it has no level of its own.
    np.testing.assert_array_equal(found(asked), [[2, 1, 3, 0], [5, 0, 5, 0.5]])


@pytest.mark.parametrize("dtype", [object, "boolean", bool])
def test_truth_values_may_come_as_text_later(dtype: Any) -> None:
    """As from a file that was read as text, in which a gap or another word made objects of the column."""
    cells = [True, False, False, True if dtype is bool else None]
    found = encoder(pd.DataFrame({"paid": pd.Series(cells, dtype=dtype), "x": list("abab")}))
    assert found.kinds["paid"] == "number"
    asked = pd.DataFrame({"paid": pd.Series(["True", "false", " TRUE", "NA", True, 1, "0"], dtype=object), "x": "a"})
    gap = 0.5 if dtype is bool else 0
    np.testing.assert_array_equal(found(asked)[:, 0], [1, 0, 1, gap, 1, 1, 0])
    assert ColumnEncoder.from_json(json.loads(json.dumps(found.to_json()))) == found
    with pytest.raises(CellError, match="'paid': 'perhaps' in row 1"):
        found(asked.assign(paid=["True", "perhaps", *["False"] * 5]))
    numbers = encoder(pd.DataFrame({"age": [1.0, 0.0], "x": list("ab")}))
    with pytest.raises(CellError, match="'age': 'True' in row 0"):
        numbers(pd.DataFrame({"age": ["True"], "x": ["a"]}))


def test_rare_levels_are_one_which_unseen_ones_join() -> None:
    cells = ["a"] * 500 + ["b"] * 490 + ["c"] * 9 + ["d"]
    found = encoder(pd.DataFrame({"x": cells}))
    assert found.names == ("x=a", "x=b", "x: others")
    asked = pd.DataFrame({"x": ["a", "c", "d", "never", None]})
    np.testing.assert_array_equal(found(asked), [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 1]])
    few = encoder(pd.DataFrame({"x": ["a", "b", "c"]}))
    np.testing.assert_allclose(few(pd.DataFrame({"x": ["b", "never"]})), [[0, 1, 0], [1 / 3] * 3])


def test_a_rare_gap_is_not_marked() -> None:
    assert encoder(pd.DataFrame({"x": [np.nan, *range(1, 400)]})).names == ("x",)
    assert encoder(pd.DataFrame({"x": [np.nan] * 4 + list(range(396))})).names == ("x", "x is missing")


def test_very_many_names_are_left_out_with_a_warning() -> None:
    n = 20_000
    frame = pd.DataFrame({"name": np.char.add("n", np.arange(n).astype(str)), "x": np.arange(n) % 5})
    with pytest.warns(UserWarning, match="nothing is learnt from name"):
        assert encoder(frame).names == ("x",)


def test_empty_columns_are_left_out_and_constant_ones_kept() -> None:
    frame = pd.DataFrame({"gap": [None, None], "one": ["a", "a"], "x": [1, 2]})
    with pytest.warns(UserWarning, match=r"gap \(they are empty\)"):
        found = encoder(frame)
    assert found.names == ("one=a", "x")
    with pytest.raises(ValueError, match="no column is left to learn from: gap"):
        encoder(frame[["gap"]])


def test_cycles_where_the_rows_span_two() -> None:
    def cycles(start: str, hours: int, n: int = 50) -> tuple[str, ...]:
        moments = pd.Timestamp(start) + pd.to_timedelta(np.arange(n) * hours, unit="h")
        (column,) = encoder(pd.DataFrame({"t": moments})).columns
        return column.cycles  # type: ignore[attr-defined]

    assert cycles("2025-01-01", 1) == ("day",)
    assert cycles("2025-01-01", 24) == ("week",)
    assert cycles("2025-01-01", 7) == ("day", "week")
    assert cycles("2025-01-01", 24 * 20) == ("week", "year")
    times = encoder(pd.DataFrame({"t": ["06:00", "18:00", None]}))
    np.testing.assert_allclose(
        times(pd.DataFrame({"t": ["06:00", "18:00", None]})),
        [[0.25, 1, 0, 0], [0.75, -1, 0, 0], [0.5, 0, 0, 1]],
        atol=1e-12,
    )


def test_weights_are_repeats() -> None:
    frame, _ = mixed()
    weight = np.random.default_rng(0).integers(0, 3, N)
    repeated = frame.loc[np.repeat(frame.index, weight)]
    assert encoder(frame[weight > 0], weight[weight > 0]) == encoder(repeated)
    assert encoder(frame) == encoder(frame.sample(frac=1, random_state=0))
    values = np.random.default_rng(1).normal(size=N)
    assert median_of(values, weight.astype(float)) == np.median(np.repeat(values, weight))


def test_kinds_can_be_stated() -> None:
    frame = pd.DataFrame({"zip": [8001, 8002, 8001], "day": ["20250101", "20250102", "20250103"], "x": [1, 2, 3]})
    found = encoder(frame, zip="category", day="date", x="ignore")
    assert found.names == ("zip=8002", "day in days")
    with pytest.raises(ValueError, match=r"no column 'zap'.*did you mean 'zip'"):
        encoder(frame, zap="category")


def test_text_is_pieces_of_words() -> None:
    frame = pd.DataFrame({"car": ["ford torino", "ford galaxie", "toyota corona", None], "x": [1, 2, 3, 4]})
    found = encoder(frame, car="text")
    assert str(found) == "1 of 2 columns are numbers; pieces of words: car"
    ford, other, toyota, gap = found(frame)[:, :16]
    assert ford @ other > ford @ toyota
    np.testing.assert_allclose(np.linalg.norm([ford, other, toyota, gap], axis=1), [1, 1, 1, 0])
    # What hashing gives is part of model files: it must not change.
    np.testing.assert_allclose(
        ford / np.abs(ford[ford != 0]).min(), [0, 0, 1, -1, 0, 0, 0, 2, 1, 0, 1, 0, -1, -1, 3, -1], atol=1e-12
    )
    assert ColumnEncoder.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize("model", [*QUICK, FewShotClassifier()], ids=lambda model: type(model).__name__)
def test_every_estimator_takes_them(model: Any, tmp_path: Path) -> None:
    X, y = mixed()
    fitted = clone(model).fit(X, y)
    assert fitted.n_features_in_ == 5
    assert fitted.feature_names_in_.tolist() == X.columns.tolist()
    assert fitted.columns_["seen"] == "date"
    p = fitted.predict_proba(X)
    assert fitted.score(X, y) > 0.7
    np.testing.assert_allclose(p[:7], fitted.predict_proba(X[:7]), rtol=1e-12)
    fitted.save(tmp_path / "m.safetensors")
    loaded = type(model).load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(X), p)
    assert loaded.columns == "auto"
    fitted.partial_fit(X[:4], ["other"] * 4).forget(["other"])
    with pytest.raises(ValueError, match="must be a DataFrame"):
        loaded.predict(X.to_numpy())
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(X.rename(columns={"new": "old"}))
    with pytest.raises(ValueError, match="'price': 'dear' in row 2"):
        loaded.partial_fit(X.assign(price=["1", "2", "dear", *["3"] * (N - 3)]), y)
    np.testing.assert_array_equal(loaded.predict_proba(X), p)


@pytest.mark.parametrize("model", QUICK, ids=lambda model: type(model).__name__)
def test_tables_of_numbers_and_arrays_have_no_encoder(model: Any) -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["a", "b"])
    y = np.arange(20) % 2
    fitted = clone(model).fit(X, y)
    assert fitted._fitted.reader.encoder is None
    assert not hasattr(fitted, "columns_")
    np.testing.assert_array_equal(
        fitted.predict_proba(X), clone(model).fit(X.to_numpy(), y).predict_proba(X.to_numpy())
    )
    with pytest.raises(ValueError, match=r"non-numeric columns \[a\] where only numbers"):
        fitted.predict(X.assign(a="x"))
    with pytest.raises(ValueError, match="kinds of a DataFrame's columns, but X is a numpy ndarray: pass a DataFrame"):
        clone(model).set_params(columns={"a": "category"}).fit(X.to_numpy(), y)
    with pytest.raises(ValueError, match=r"'categry'.*did you mean 'category'"):
        clone(model).set_params(columns={"a": "categry"}).fit(X, y)
    with pytest.raises(ValueError, match=r"contains NaN in 1 rows, columns \[1\]"):
        clone(model).fit(X.to_numpy(), y).predict([[0.0, np.nan]])
    stated = clone(model).set_params(columns={"a": "number"}).fit(X, y)
    with pytest.warns(UserWarning, match="many cells are missing in columns a, where hardly any was"):
        assert np.isfinite(stated.predict_proba(X.assign(a=np.nan))).all()


@pytest.mark.filterwarnings("ignore:gaps in:UserWarning")
@pytest.mark.parametrize("model", QUICK, ids=lambda model: type(model).__name__)
def test_later_gaps_in_numbers_are_the_median(model: Any, tmp_path: Path) -> None:
    """Columns that had none when they were learnt from, as in a fold of a cross-validation."""
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(21, 2)), columns=["a", "b"])
    X["c"] = np.arange(21) % 3 == 0
    y = np.arange(21) % 2
    weight = np.where(np.arange(21) == 0, 0.0, 1.0)
    fitted = clone(model).fit(X, y, sample_weight=weight)
    gaps = X.astype(object)
    gaps.iloc[3, 0], gaps.iloc[5, 1], gaps.iloc[5, 2] = None, np.nan, pd.NA
    filled = X.astype(float)
    filled.iloc[3, 0], filled.iloc[5, 1], filled.iloc[5, 2] = X["a"][1:].median(), X["b"][1:].median(), 0.0
    fitted.save(tmp_path / "m.safetensors")
    loaded = type(model).load(tmp_path / "m.safetensors")
    for one in (fitted, loaded):
        with pytest.warns(UserWarning, match="gaps in 2 of 21 rows, columns a, b, c, which had none"):
            found = one.predict_proba(gaps)
        np.testing.assert_array_equal(found, fitted.predict_proba(filled))
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(X.assign(a=np.nan)[["b", "a", "c"]])
    wrong = gaps.copy()
    wrong.iloc[4, 0] = "dear"
    with pytest.raises(ValueError, match="'a': 'dear' in row 4"):
        fitted.predict(wrong)
    with pytest.warns(UserWarning, match="gaps in 2 of 21 rows"):
        loaded.partial_fit(gaps, y)
    assert np.isfinite(loaded.predict_proba(X)).all()
    empty, before = X.astype(object), loaded.predict_proba(X)
    empty.iloc[4:6] = None
    with pytest.raises(ValueError, match="2 of 21 labelled rows have no cell that is filled, the first is row 4"):
        loaded.partial_fit(empty, y)
    np.testing.assert_array_equal(loaded.predict_proba(X), before)
    loaded.partial_fit(empty, y, sample_weight=(~np.isin(np.arange(21), [4, 5])).astype(float))


def test_a_retuned_model_keeps_what_it_has_learnt_of_columns() -> None:
    """As docs/mixed-tables.md says: the cells of earlier rows are not kept, so that levels cannot be told anew."""
    X, y = mixed()
    model = GPClassifier("rbf", "softmax").fit(X, y)
    known, old = model._fitted.reader.encoder, model.kernel_
    with pytest.warns(UserWarning, match="no cell of column 'colour' is a level that was learnt, such as blue, green"):
        model.partial_fit(X.assign(colour="violet", size=99.0), y, retune=True)
    assert model._fitted.reader.encoder is known
    assert str(model.kernel_) != str(old)


@pytest.mark.parametrize("model", QUICK, ids=lambda model: type(model).__name__)
def test_columns_whose_names_are_no_text_are_told_apart(model: Any) -> None:
    X = pd.DataFrame({0: np.arange(20.0), 1: -np.arange(20.0), 2: ["u", "v"] * 10})
    fitted = clone(model).fit(X, np.arange(20) // 10)
    with pytest.raises(ValueError, match=r"in another order than .* expected 0, 1, 2, got 1, 0, 2"):
        fitted.predict(X[[1, 0, 2]])
    with pytest.raises(ValueError, match="of other names"):
        fitted.predict(X.set_axis([9, 8, 7], axis=1))
    assert len(fitted.predict(X)) == 20


def test_a_row_of_a_frame_is_numbers_still() -> None:
    """Taken as a row it has objects, as the frame has text beside the numbers."""
    X = pd.DataFrame({"a": np.arange(20.0), "b": -np.arange(20.0)})
    model = GPClassifier(kernel="rbf").fit(X, np.arange(20) // 10)
    row = X.assign(name="x").iloc[3].to_frame().T[["a", "b"]]
    assert row.dtypes.tolist() == [object, object]
    np.testing.assert_array_equal(model.predict_proba(row), model.predict_proba(X[3:4]))


def test_levels_are_the_same_however_a_file_writes_them() -> None:
    """One gap makes 8001 in a file 8001.0, and letters with accents are one character or two."""
    X = pd.DataFrame({"code": ["8001", "3011"] * 10, "town": ["Zu\u0308rich", "Bern"] * 10})
    model = GPClassifier(kernel="rbf", columns={"code": "category"}).fit(X, np.arange(20) % 2)
    again = pd.DataFrame({"code": ["8001.0", "3011.0"] * 10, "town": ["Z\u00fcrich", "Bern"] * 10})
    np.testing.assert_array_equal(model.predict_proba(again), model.predict_proba(X))


def test_malformed_medians_are_refused(tmp_path: Path) -> None:
    X = pd.DataFrame({"a": [1.0, 2.0], "b": [2.0, 1.0]})
    GPClassifier("rbf", "softmax", objective=None).fit(X, [0, 1]).save(tmp_path / "m.safetensors")
    artifact = load_artifact(tmp_path / "m.safetensors", "gp_classifier")
    for medians in ([1.5], [1.5, None], [1.5, True], "1.5", {"a": 1.5, "b": 1.5}):
        save_artifact(
            tmp_path / "n.safetensors",
            "gp_classifier",
            {**artifact.header, "reader": {**artifact.header["reader"], "medians": medians}},
            artifact.arrays,
        )
        with pytest.raises(ArtifactError, match="save the model again"):
            GPClassifier.load(tmp_path / "n.safetensors")


def test_sparse_columns_of_frames_are_as_dense_ones() -> None:
    X, y = mixed()
    numbers = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 2)).clip(0), columns=["size", "weight"])
    for dense in (numbers, pd.concat([X[["colour"]], numbers.iloc[:, :1]], axis=1)):
        sparse = dense.copy()
        for place in range(dense.shape[1]):
            if dense.dtypes.iloc[place] == np.float64:
                sparse.isetitem(place, dense.iloc[:, place].astype(pd.SparseDtype(np.float64, np.nan)))
        model = GPClassifier("rbf", "softmax", objective=None)
        expected = model.fit(dense, y).predict_proba(dense)
        np.testing.assert_array_equal(model.predict_proba(sparse), expected)
        np.testing.assert_array_equal(model.fit(sparse, y).predict_proba(dense), expected)


def test_columns_do_not_go_with_what_takes_no_columns(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="columns does not go with kernel='precomputed'"):
        GPClassifier("precomputed", columns={"a": "number"}).fit(np.eye(2), [0, 1])
    with pytest.raises(ValueError, match="columns does not go with a checkpoint"):
        FewShotClassifier(tmp_path, columns={"a": "number"}).fit(np.eye(2), [0, 1])
    with pytest.raises(ValueError, match="'auto' or a dict"):
        GPClassifier(columns="all").fit(np.eye(2), [0, 1])
    for rows in ([["x", 1], ["y", 2]], [[0.5, 1], [0.1, 2]]):
        with pytest.raises(ValueError, match="more than one column is called a"):
            GPClassifier().fit(pd.DataFrame(rows, columns=["a", "a"]), [0, 1])


def test_relevance_is_of_the_columns_that_were_given() -> None:
    X, y = mixed(200)
    model = GPClassifier("rbf", "softmax", relevance=True).fit(X, y)
    found = model.feature_relevance_
    assert found.shape == (5,)
    member = model._fitted.heaviest.plan.scaling
    assert member.relevance is not None
    each = np.zeros(len(model._fitted.reader.encoder.names))
    each[member.kept] = member.relevance
    sources = model._fitted.reader.encoder.sources
    np.testing.assert_allclose(found, [np.sqrt((each[sources == k] ** 2).mean()) for k in range(5)])


def test_names_of_columns_stay_what_they_are(tmp_path: Path) -> None:
    X, y = mixed()
    X = X[["colour", "size"]]
    for names in ([0, 1], [("a", 1), ("a", "1")], [2.5, 3.5], [True, False]):
        framed = X.set_axis(pd.Index(names, tupleize_cols=False), axis=1)
        model = GPClassifier("rbf", objective=None, columns={names[0]: "category"}).fit(framed, y)
        model.save(tmp_path / "m.safetensors")
        loaded = GPClassifier.load(tmp_path / "m.safetensors")
        for one in (model, loaded):
            assert list(one.columns_.items()) == list(zip(names, ["category", "number"], strict=True))
            assert list(map(type, one.columns_)) == list(map(type, names))
        assert loaded._fitted.reader.encoder == model._fitted.reader.encoder
        clone(loaded).set_params(columns=loaded.columns_).fit(framed, y)
    odd = X.assign(size=["dear", *map(str, range(N - 1))]).set_axis([7, 8], axis=1)
    with pytest.raises(CellError, match=r"columns=\{8: 'category'\}"):
        clone(QUICK[0]).fit(odd, y)


def test_names_that_json_cannot_say_are_text_in_files(tmp_path: Path) -> None:
    X, y = mixed()
    days = [pd.Timestamp("2025-01-01"), pd.Timestamp("2025-01-02")]
    framed = X[["colour", "size"]].set_axis(days, axis=1)
    model = FewShotClassifier(columns={days[1]: "number"}).fit(framed, y)
    assert list(model.columns_) == days
    model.save(tmp_path / "m.safetensors")
    loaded = FewShotClassifier.load(tmp_path / "m.safetensors")
    assert list(loaded.columns_) == list(map(str, days))
    np.testing.assert_array_equal(loaded.predict_proba(framed), model.predict_proba(framed))


def test_malformed_encoders_are_refused(tmp_path: Path) -> None:
    X, y = mixed()
    GPClassifier("rbf", "softmax", objective=None).fit(X, y).save(tmp_path / "m.safetensors")
    artifact = load_artifact(tmp_path / "m.safetensors", "gp_classifier")
    (number,) = [one for one in artifact.header["reader"]["encoder"] if one["name"] == "size"]
    for change in ({"median": None}, {"kind": "text"}, {"decimal": ";"}, {"marked": False}, {"more": 1}, {"name": {}}):
        header = json.loads(json.dumps(artifact.header))
        header["reader"]["encoder"][3] = number | change
        save_artifact(tmp_path / "n.safetensors", "gp_classifier", header, artifact.arrays)
        with pytest.raises(ArtifactError, match="save the model again"):
            GPClassifier.load(tmp_path / "n.safetensors")


CELLS = {
    "text": st.sampled_from(["a", "b", "c", " ", "NA", None]),
    "names": st.text(max_size=6),
    "number": st.one_of(st.none(), st.floats(-1e6, 1e6), st.integers(-9, 9)),
    "money": st.one_of(st.none(), st.integers(-9999, 9999).map("${:,}".format)),
    "day": st.one_of(st.none(), st.dates()),
    "moment": st.datetimes().map(str),
    "flag": st.sampled_from([True, False, None]),
    "any": st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.text(max_size=2)),
}


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    """Up to four columns of random types."""
    n, kinds = draw(st.integers(2, 12)), draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=4))
    columns = {f"{kind}{k}": draw(st.lists(CELLS[kind], min_size=n, max_size=n)) for k, kind in enumerate(kinds)}
    return pd.DataFrame(columns)


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(tables())
def test_any_table_is_learnt_or_refused_in_a_line(X: pd.DataFrame) -> None:
    y = np.arange(len(X)) % 2
    model, said = GPClassifier("rbf", objective=None), ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(X, y)
        except CellError as error:
            said = str(error)
    assert "\n" not in said
    if said:
        return
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1)
    found = model._fitted.reader.encoder
    if found is not None:
        again = ColumnEncoder.from_json(json.loads(json.dumps(found.to_json())))
        assert again == found
        np.testing.assert_array_equal(again(X), found(X))
        assert found(X).shape == (len(X), len(found.names))
        assert np.isfinite(found(X)).all()


def test_columns_of_arrow_are_those_of_numpy() -> None:
    n = 12
    hours = [datetime.time(hour) for hour in range(n)]
    plain = pd.DataFrame(
        {
            "x": np.random.default_rng(0).normal(size=n),
            "waited": pd.to_timedelta(np.arange(n), unit="h"),
            "at": hours,
            "kind": ["a", "b"] * (n // 2),
            "nothing": [None] * n,
        }
    )
    arrow = plain.assign(
        waited=plain["waited"].astype(pd.ArrowDtype(pa.duration("ns"))),
        at=pd.array(hours, dtype=pd.ArrowDtype(pa.time64("us"))),
        kind=pd.array(plain["kind"].tolist(), dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))),
        nothing=pd.array([None] * n, dtype=pd.ArrowDtype(pa.null())),
    )
    y = np.arange(n) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # nothing is learnt from nothing
        models = [GPClassifier("rbf", objective=None).fit(frame, y) for frame in (plain, arrow)]
    assert models[0].columns_ == models[1].columns_
    for frame in (plain, arrow):
        np.testing.assert_array_equal(models[0].predict_proba(frame), models[1].predict_proba(frame))


def test_decimals_of_arrow_are_numbers_as_decimals_are() -> None:
    values = [Decimal(k) / 4 for k in range(8)]
    arrow = pd.DataFrame({"a": pd.array(values, dtype=pd.ArrowDtype(pa.decimal128(10, 2)))})
    model = GPClassifier("rbf", objective=None).fit(arrow, [0, 1] * 4)
    expected = model.predict_proba(arrow)
    np.testing.assert_array_equal(model.predict_proba(pd.DataFrame({"a": values})), expected)


@pytest.mark.parametrize("weight", [1 / 60, 0.1, 0.5])
def test_weights_that_are_shares_make_rows_no_fewer(weight: float) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"colour": rng.choice(list("abc"), 60), "of many": [f"level {k % 20}" for k in range(60)]})
    gaps = pd.DataFrame({"number": np.where(np.arange(60) < 12, np.nan, 1.0)})
    for X in (frame, frame.join(gaps)):
        alike = ColumnEncoder.learnt(X, {}, np.full(60, weight))
        assert alike.to_json() == ColumnEncoder.learnt(X, {}, np.ones(60)).to_json()


def test_a_column_that_has_gone_missing_is_spoken_of() -> None:
    y = np.arange(40) % 2
    x = pd.DataFrame(
        {"a": np.arange(40.0) + 30 * y, "d": ["2025-01-02", "2025-03-04"] * 20, "t": ["u", "v", "w", "u"] * 10}
    )
    model = GPClassifier(kernel="rbf", ensemble=False).fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(x.assign(a=x["a"].where(x.index != 3)))  # one gap of forty
    with pytest.warns(UserWarning, match="many cells are missing in columns a, d, where hardly any was"):
        model.predict(x.assign(a=np.nan, d=""))


@pytest.mark.filterwarnings("ignore:nothing is learnt from name:UserWarning")
@pytest.mark.parametrize("n_rows", [7, 8, 28])
def test_a_text_of_its_own_in_each_of_few_rows_is_a_name(n_rows: int) -> None:
    frame = pd.DataFrame({"name": [f"N{k}" for k in range(n_rows)], "size": np.arange(n_rows) % 5})
    frame.loc[1, "name"] = None
    kinds = ColumnEncoder.learnt(frame, {}, np.ones(n_rows)).kinds
    assert (kinds["name"] == "ignore") == (n_rows > 8)
    assert ColumnEncoder.learnt(frame, {"name": "category"}, np.ones(n_rows)).kinds["name"] == "category"


@pytest.mark.parametrize("model", QUICK, ids=lambda model: type(model).__name__)
def test_numbers_in_columns_whose_names_are_no_text_are_told_apart(model: Any, tmp_path: Path) -> None:
    """A table of numbers only; arrays, and frames with the same names, go on working."""
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(24, 3)))
    fitted = clone(model).fit(X, (X[0] > 0).astype(int))
    fitted.save(tmp_path / "m.safetensors")
    for one in (fitted, type(fitted).load(tmp_path / "m.safetensors")):
        with pytest.raises(ValueError, match=r"in another order than .* expected 0, 1, 2, got 2, 1, 0"):
            one.predict(X[[2, 1, 0]])
        with pytest.raises(ValueError, match=r"in another order"):
            one.partial_fit(X[[2, 1, 0]], (X[0] > 0).astype(int))
        with pytest.raises(ValueError, match=r"of other names than .* expected 0, 1, 2, got 3, 1, 2"):
            one.predict(X.rename(columns={0: 3}))
        expected = one.predict_proba(X)
        np.testing.assert_array_equal(one.predict_proba(X.to_numpy()), expected)
        np.testing.assert_array_equal(one.predict_proba(X.set_axis(range(3), axis=1)), expected)
    assert not hasattr(fitted, "feature_names_in_")
    bare = clone(model).fit(X.to_numpy(), (X[0] > 0).astype(int))
    np.testing.assert_array_equal(bare.predict_proba(X), expected)


def test_dates_in_doubt_are_told_and_stated() -> None:
    cells = pd.DataFrame({"d": [f"{1 + k % 9:02d}/{1 + k % 8:02d}/2025" for k in range(72)]})
    with pytest.warns(UserWarning, match=r"month first \('02/01.*|month first .*columns=\{'d': 'day_first'\} takes"):
        found = encoder(cells)
    assert "dates: d (month first)" in str(found)
    assert "dates: d (day first)" in str(encoder(cells, d="day_first"))
    assert found.kinds == encoder(cells, d="month_first").kinds == {"d": "date"}
    assert "dates: d (day first)" in str(encoder(pd.concat([cells, pd.DataFrame({"d": ["25/12/2025"]})])))
    same = pd.DataFrame({"d": [f"{k:02d}/{k:02d}/2025" for k in range(1, 10)]})
    assert encoder(same).kinds == {"d": "date"}  # either order is the same day


def test_time_zones_that_come_or_go_are_told() -> None:
    days = [f"2025-01-{k:02d}T10:00" for k in range(1, 10)]
    plain, zoned = (pd.DataFrame({"t": [day + end for day in days]}) for end in ("", "+02:00"))
    with pytest.warns(UserWarning, match="'t' have a time zone, where those that were learnt had none"):
        encoder(plain)(zoned)
    with pytest.warns(UserWarning, match="'t' have no time zone, where those that were learnt had one"):
        encoder(zoned)(plain)
    with pytest.warns(UserWarning, match="some moments of column 't' have a time zone and some have none"):
        encoder(pd.concat([plain, zoned]))
    moments = zoned.assign(t=pd.to_datetime(zoned["t"]))
    np.testing.assert_array_equal(encoder(zoned)(moments), encoder(zoned)(zoned))


def test_cells_of_all_columns_that_cannot_be_read_are_one_error() -> None:
    numbers = [*map(str, range(40))]
    frame = pd.DataFrame({"hp": [*numbers, "unknown", "unknown"], "kg": ["unknown", *numbers, "unknown"]})
    with pytest.raises(ValueError, match=r"'hp': 'unknown' in row 40.*'kg': 'unknown' in row 0") as caught:
        encoder(frame)
    assert "take it for a gap (read_table(..., missing=['unknown']))" in str(caught.value)
    assert "(columns={'hp': 'category', 'kg': 'category'})" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # as a worker's errors come back
    many = pd.DataFrame({"hp": [*numbers, *(f"about {k % 6}" for k in range(12))]})
    with pytest.raises(ValueError, match="or take the column as another kind") as caught:
        encoder(many)
    assert "take it for a gap" not in str(caught.value)


def test_categories_that_are_numbers_but_for_one_text_are_told() -> None:
    frame = pd.DataFrame({"n": [*map(str, range(9)), "unknown"] * 3})
    with pytest.warns(UserWarning, match=r"as 'unknown' in 3 rows is no number.*missing=\['unknown'\]"):
        assert encoder(frame).kinds == {"n": "category"}
    assert encoder(frame, n="category").kinds == {"n": "category"}


def test_text_that_numbers_would_not_give_back_is_told() -> None:
    frame = pd.DataFrame({"version": ["3.1", "3.10", "3.2"]})
    with pytest.warns(UserWarning, match="in column 'version' '3.1' and '3.10' are read as one number; columns="):
        assert encoder(frame).kinds == {"version": "number"}
    assert encoder(frame, version="category")(frame).shape == (3, 3)
    assert encoder(pd.DataFrame({"code": ["007", "7", "07"]})).names == ("code=007", "code=07", "code=7")
