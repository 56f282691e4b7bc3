"""One cell a thousand or a million times as large as all others: a slip of the keyboard, a code for "unknown"."""

from __future__ import annotations

import logging
from copy import copy
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import load_digits, load_iris, load_wine

from sureshot import GPClassifier, KernelSearchClassifier, TreeGPClassifier
from sureshot.estimators.rows.preprocessing import fit_scaling, limits_of
from sureshot.persistence import ArtifactError, load_artifact, save_artifact

X, Y = load_iris(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(Y))
TRAIN, TEST = ORDER[:40], ORDER[40:]


def wild(cells: int, size: float) -> np.ndarray:
    row = X[TRAIN[:1]].copy()
    row[:, :cells] = size
    return row


@cache
def learnt(make: Any) -> Any:
    """What is fitted is never changed, so a copy costs nothing."""
    return make().fit(X[TRAIN], Y[TRAIN])


@pytest.mark.parametrize(
    ("make", "cells", "size"),
    [
        *((GPClassifier, cells, size) for cells, size in ((1, 30.0), (4, 999999.0), (1, 1e12))),
        *((TreeGPClassifier, cells, size) for cells in (1, 4) for size in (30.0, 1e3, 999999.0, 1e12)),
    ],
)
def test_a_wild_row_more_leaves_classes_where_they_are(make: Any, cells: int, size: float) -> None:
    model = copy(learnt(make))
    before = model.score(X[TEST], Y[TEST])
    model.partial_fit(wild(cells, size), Y[TRAIN[:1]])
    assert np.isfinite(model.predict_proba(X[TEST])).all()
    assert model.score(X[TEST], Y[TEST]) > before - (0.06 if make is TreeGPClassifier else 0.02)


@pytest.mark.parametrize("size", [1e3, 999999.0, 1e12, 1e300])
@pytest.mark.parametrize("cells", [1, 4])
def test_a_tree_that_begins_with_one(cells: int, size: float) -> None:
    model = TreeGPClassifier().fit(np.r_[X[TRAIN], wild(cells, size)], np.r_[Y[TRAIN], Y[TRAIN[:1]]])
    assert model.score(X[TEST], Y[TEST]) > 0.85
    far = wild(4, 1e6)
    assert model.outlier_score(far) > 10 * model.outlier_score(X[TEST]).max(), "what is far away is no less unknown"


@pytest.mark.parametrize("kernel", ["linear", "polynomial1", "polynomial2", "rbf", "cosine"])
def test_settings_that_cannot_suit_a_row_are_chosen_anew(kernel: str, caplog: pytest.LogCaptureFixture) -> None:
    model = GPClassifier(kernel=kernel).fit(X[TRAIN], Y[TRAIN])
    with caplog.at_level(logging.WARNING):
        model.partial_fit(wild(4, 999999.0), Y[TRAIN[:1]])
    assert np.isfinite(model.predict_proba(X[TEST])).all()
    stationary = kernel in ("rbf", "cosine")
    assert ("chosen anew" in caplog.text) != stationary
    whole = GPClassifier(kernel=kernel).fit(np.r_[X[TRAIN], wild(4, 999999.0)], np.r_[Y[TRAIN], Y[TRAIN[:1]]])
    if not stationary:
        np.testing.assert_allclose(model.predict_proba(X[TEST]), whole.predict_proba(X[TEST]), atol=1e-9)


def test_sessions_with_one_cell_in_a_hundred_wild() -> None:
    """Half of the digits first: log loss 5.7 where means of classes took every cell as it was."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(1)
    x[rng.random(x.shape) < 0.01] *= 100
    rows = np.concatenate([rng.permutation(np.flatnonzero(y == k))[: 30 if k < 5 else 5] for k in range(10)])
    first, test = y[rows] < 5, np.setdiff1d(np.arange(len(y)), rows)
    model = TreeGPClassifier().fit(x[rows[first]], y[rows[first]]).partial_fit(x[rows[~first]], y[rows[~first]])
    p = model.predict_proba(x[test])
    assert -np.log(p[np.arange(len(test)), y[test]]).mean() < 0.7


def test_limits_are_in_the_model_file(tmp_path: Path) -> None:
    model = TreeGPClassifier().fit(np.r_[X[TRAIN], wild(2, 1e9)], np.r_[Y[TRAIN], Y[TRAIN[:1]]])
    model.save(tmp_path / "model.safetensors")
    again = TreeGPClassifier.load(tmp_path / "model.safetensors")
    queries = np.r_[X[TEST], wild(4, 1e9)]
    np.testing.assert_array_equal(again.predict_proba(queries), model.predict_proba(queries))
    np.testing.assert_array_equal(again.outlier_score(queries), model.outlier_score(queries))
    for each in (model, again):
        each.partial_fit(wild(4, 1e9), [7])
    np.testing.assert_array_equal(again.predict_proba(queries), model.predict_proba(queries))


@pytest.mark.parametrize("name", ["limits", "deviations"])
def test_malformed_columns_in_a_file_are_refused(name: str, tmp_path: Path) -> None:
    TreeGPClassifier().fit(X, Y).save(tmp_path / "model.safetensors")
    found = load_artifact(tmp_path / "model.safetensors")
    bad = {f"scaling.{name}": -found.arrays[f"scaling.{name}"]}
    save_artifact(tmp_path / "bad.safetensors", found.kind, found.header, {**found.arrays, **bad})
    with pytest.raises(ArtifactError, match="malformed"):
        TreeGPClassifier.load(tmp_path / "bad.safetensors")


def test_a_rare_value_far_away_is_unknown_where_tails_are_heavy() -> None:
    """A hundred deviations of a column that is mostly zero are a few of its ranges, and others have such tails."""
    rng = np.random.default_rng(0)
    x = np.c_[rng.standard_cauchy((400, 5)).clip(-300, 300), rng.random(400) < 0.01]
    model = TreeGPClassifier().partial_fit(x[:200], np.zeros(200))
    far = x[200:300].copy()
    far[:, 5] = 100 * x[:200, 5].std()
    assert np.mean(model.outlier_score(far) > np.quantile(model.outlier_score(x[300:]), 0.95)) == 1


@given(arrays(np.float64, (20, 2), elements=st.floats(-1e300, 1e300)))
def test_limits_never_lie_within_the_inner_rows(x: np.ndarray) -> None:
    limits = limits_of(x, np.ones(20))
    inner = np.sort(x, axis=0)[1:-1]
    assert (limits[0] <= inner).all()
    assert (inner <= limits[1]).all()
    twice = limits_of(np.r_[x, x], np.ones(40))
    np.testing.assert_array_equal(limits_of(x, np.full(20, 2.0)), twice)


def test_limits_of_ordinary_columns_touch_no_row() -> None:
    x = np.random.default_rng(0).standard_normal((200, 50))
    limits = limits_of(x, np.ones(200))
    assert (limits[0] < x).all()
    assert (x < limits[1]).all()
    assert np.isinf(limits_of(np.ones((20, 1)), np.ones(20))).all(), "of a constant column nothing is known"


@pytest.mark.parametrize(
    ("make", "code", "where"),
    [
        (GPClassifier, -3.4028235e38, "in one row"),
        (GPClassifier, 1e12, "one in each column"),
        (partial(KernelSearchClassifier, 8), 1e12, "one in each column"),
    ],
)
def test_codes_for_gaps_among_the_first_rows(
    make: Any, code: float, where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:60], order[60:]
    coded, columns = x[train].copy(), np.arange(x.shape[1])
    coded[0 if where == "in one row" else columns, columns] = code
    model = make().fit(coded, y[train])
    assert "cells of columns 0, 1, 2, 3, 4, 5, 6, 7 and 5 more (counted from 0) lie a million times" in caplog.text
    assert model.score(x[test], y[test]) > 0.9
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(x[test]), model.predict_proba(x[test]))


def test_weights_of_rows_with_wild_cells_are_copies() -> None:
    x, weight = X[TRAIN].copy(), np.arange(len(TRAIN)) % 3 + 1.0
    x[3, 1] = 1e30
    copies = weight.astype(int)
    one = fit_scaling(x, weight, True)
    other = fit_scaling(x.repeat(copies, 0), np.ones(copies.sum()), True)
    assert one.limits is not None
    np.testing.assert_array_equal(one.limits, other.limits)
    np.testing.assert_allclose(one(X), other(X))


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_heavy_tails_are_no_codes(size: float) -> None:
    tails = np.exp(3 * np.random.default_rng(0).standard_normal((500, 4)))
    assert fit_scaling(size * tails, np.ones(500), True).limits is None


@pytest.mark.parametrize("make", [GPClassifier, partial(KernelSearchClassifier, 2, n_rejuvenation=0)])
@pytest.mark.parametrize("mixed", [False, True])
def test_columns_are_named_that_have_names(make: Any, mixed: bool, caplog: pytest.LogCaptureFixture) -> None:
    rng, y = np.random.default_rng(0), np.arange(40) % 2
    frame = pd.DataFrame({"one": 1.0, "a": rng.normal(size=40) + y, "wild": rng.normal(size=40)})
    frame.loc[3, "wild"] = 1e12
    if mixed:
        frame.insert(0, "colour", rng.choice(["red", "green", "blue"], 40))
    with pytest.warns(UserWarning, match="ignored 1 constant columns of .*: one$"):
        make().fit(frame, y)
    assert "cells of columns wild lie a million times" in caplog.text


@pytest.mark.parametrize(
    "make", [partial(KernelSearchClassifier, 2, n_rejuvenation=0, structure="LINEAR"), GPClassifier]
)
def test_a_wild_labelled_row_does_not_make_far_rows_known(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    x, y = load_wine(return_X_y=True)
    model = make().fit(x[::3], y[::3])
    wild = x[1:2].copy()
    wild[0, 0] = 1e10
    model.partial_fit(wild, y[1:2])
    if isinstance(model, KernelSearchClassifier):  # whose columns stay as they were
        assert "cells of columns 0 (counted from 0) lie a million times" in caplog.text
    far = x[2::30] + 100 * x.std(0)
    assert (model.novelty_p_value(far) < 0.05).all()
    assert (model.predict_or_reject(far, unknown=-1) == -1).all()
