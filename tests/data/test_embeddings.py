"""NPZ files of embeddings."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sureshot.data import DataError, load_table, read_npz

X = np.arange(12.0).reshape(4, 3)
Y = np.array([0, 0, 1, 1])


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(("x_name", "y_name"), [("X", "y"), ("embedding", "label"), ("X", "label")])
def test_both_names_of_both_arrays(tmp_path: Path, x_name: str, y_name: str) -> None:
    table = load_table(save(tmp_path / "e.npz", **{x_name: X, y_name: Y}))
    assert table.y is not None
    np.testing.assert_array_equal(np.asarray(table.X), X)
    np.testing.assert_array_equal(table.y, Y)
    assert table.feature_names is None
    assert table.row_ids.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("float16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("uint8", "float64"),
        ("bool", "float64"),
    ],
)
def test_dtypes(tmp_path: Path, given: str, read: str) -> None:
    assert np.asarray(load_table(save(tmp_path / "e.npz", X=X.astype(given))).X).dtype == read


def test_without_labels(tmp_path: Path) -> None:
    assert load_table(save(tmp_path / "e.npz", X=X)).y is None


def test_a_target_names_the_array_of_labels(tmp_path: Path) -> None:
    path = save(tmp_path / "e.npz", X=X, y=Y, species=np.array(["a", "a", "b", "b"]))
    labels = load_table(path, "species").y
    assert labels is not None
    assert labels.tolist() == ["a", "a", "b", "b"]
    with pytest.raises(DataError, match="did you mean 'species'"):
        load_table(path, "specie")


@pytest.mark.parametrize("labels", [Y, np.array([0.5, 1.5, 2.0, -1.0]), np.array(["a", "b", "a", "b"])])
def test_a_column_of_targets_is_one_for_each_row(tmp_path: Path, labels: np.ndarray) -> None:
    _, y, _ = read_npz(save(tmp_path / "e.npz", X=X, y=labels[:, None]))
    assert y is not None
    np.testing.assert_array_equal(y, labels)


def test_other_arrays_are_left_alone_and_said_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = save(tmp_path / "e.npz", X=X, y=Y, split=np.array(["train"] * 4))
    with caplog.at_level(logging.INFO, logger="sureshot"):
        load_table(path)
    assert "split" in caplog.text


def test_feature_names_make_a_table_that_can_be_reordered(tmp_path: Path) -> None:
    path = save(tmp_path / "e.npz", X=X, feature_names=np.array(["a", "b", "c"]))
    table = load_table(path, features=["c", "a", "b"])
    assert isinstance(table.X, pd.DataFrame)
    np.testing.assert_array_equal(table.X.to_numpy(), X[:, [2, 0, 1]])
    with pytest.raises(DataError, match="missing: d; unexpected: c"):
        load_table(path, features=["a", "b", "d"])


def test_bare_columns_are_taken_in_the_order_asked_for(tmp_path: Path) -> None:
    path = save(tmp_path / "e.npz", X=X)
    assert load_table(path, features=["a", "b", "c"]).feature_names == ("a", "b", "c")
    with pytest.raises(DataError, match="3 columns, expected 2"):
        load_table(path, features=["a", "b"])


OBJECTS = np.array([1, "a", None, 2.0], dtype=object)
BAD = {
    "no X": ({"x": X, "y": Y}, "no array X or embedding"),
    "both": ({"X": X, "embedding": X}, "both arrays X and embedding"),
    "one dimension": ({"X": X[:, 0], "y": Y}, r"shape \(4,\), expected two dimensions"),
    "three dimensions": ({"X": X.reshape(2, 2, 3)}, r"flatten with X\.reshape"),
    "no rows": ({"X": X[:0], "y": Y[:0]}, "no rows"),
    "no columns": ({"X": X[:, :0]}, "no columns"),
    "complex": ({"X": X * 1j}, "expected real numbers"),
    "text": ({"X": X.astype(str)}, "expected real numbers"),
    "objects": ({"X": X, "y": OBJECTS}, r"array 'y' holds Python objects.*refused"),
    "object rows": ({"X": X.astype(object)}, "array 'X' holds Python objects"),
    "nan": (
        {"X": np.where(X == 4, np.nan, X)},
        r"NaN or infinite numbers in 1 of 4 rows \(the first is row 1",
    ),
    "infinite": ({"X": np.where(X == 4, np.inf, X)}, "NaN or infinite"),
    "lengths": ({"X": X, "y": Y[:3]}, "4 rows but 3 labels in array y"),
    "two targets": ({"X": X, "y": np.eye(4)[:, :2]}, r"array y has shape \(4, 2\), expected \(4,\)"),
    "one-hot": ({"X": X, "y": np.eye(4)}, r"use \.argmax\(1\)"),
    "missing labels": ({"X": X, "y": np.array([0, np.nan, 1, 1])}, "no label in 1 of 4"),
    "fractions": ({"X": X, "y": np.array([0, 0.5, 1, 1])}, "numbers with fractions"),
    "dates": ({"X": X, "y": np.array(["2020-01-01"] * 4, dtype="M8[D]")}, "expected integers or text"),
    "names": ({"X": X, "feature_names": np.array(["a"])}, "expected 3 texts"),
    "same names": ({"X": X, "feature_names": np.array(["a", "a", "b"])}, "more than one column is called a"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arrays_give_one_clear_line(tmp_path: Path, case: str) -> None:
    arrays, message = BAD[case]
    path = save(tmp_path / "e.npz", **arrays)
    with pytest.raises(DataError, match=message) as caught:
        load_table(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_broken_archives(tmp_path: Path) -> None:
    whole = save(tmp_path / "e.npz", X=np.zeros((500, 20)), y=np.zeros(500)).read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    flipped = bytearray(whole)
    flipped[300] ^= 255
    (tmp_path / "flipped.npz").write_bytes(bytes(flipped))
    (tmp_path / "text.npz").write_text("hello")
    np.save(tmp_path / "bare.npy", X)
    (tmp_path / "bare.npy").rename(tmp_path / "bare.npz")
    for name in ("half", "flipped", "text"):
        with pytest.raises(DataError, match="cannot be read as NPZ"):
            load_table(tmp_path / f"{name}.npz")
    with pytest.raises(DataError, match="one bare array"):
        load_table(tmp_path / "bare.npz")


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "harm",))

    save(tmp_path / "e.npz", X=X, y=np.array([Harmful()] * 4, dtype=object))
    with pytest.raises(DataError, match="refused"):
        load_table(tmp_path / "e.npz")
    assert not (tmp_path / "harm").exists()


def test_labels_as_bytes_are_text(tmp_path: Path) -> None:
    table = load_table(save(tmp_path / "e.npz", X=X, y=np.array(["caf\u00e9".encode(), b"tea"] * 2)))
    assert table.y is not None
    assert table.y.tolist() == ["caf\u00e9", "tea"] * 2
    with pytest.raises(DataError, match="bytes that are no text"):
        load_table(save(tmp_path / "e.npz", X=X, y=np.array([b"\xff\xfe", b"tea"] * 2)))
