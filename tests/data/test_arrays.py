"""Labelled sets of NumPy arrays and tensors with labels of any kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sureshot.data import DataError, LabelledSet

X = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    ("y", "numbers", "names"),
    [
        (np.array(["owl", "cat", "owl", "dog"]), [2, 0, 2, 1], ("cat", "dog", "owl")),
        (["owl", "cat", "owl", "dog"], [2, 0, 2, 1], ("cat", "dog", "owl")),
        (np.array([10, 2, -1, 10]), [2, 1, 0, 2], ("-1", "2", "10")),
        (np.array([10, 2, -1, 10], dtype=object), [2, 1, 0, 2], ("-1", "2", "10")),
        (np.array([10.0, 2.0, 2.0, 10.0]), [1, 0, 0, 1], ("2", "10")),
        (pd.Series([7, 7, 5, 5], index=[3, 1, 2, 0]), [1, 1, 0, 0], ("5", "7")),
        (torch.tensor([4, 4, 0, 4], dtype=torch.uint8), [1, 1, 0, 1], ("0", "4")),
        (np.array([True, False, False, True]), [1, 0, 0, 1], ("False", "True")),
    ],
)
def test_classes_come_in_the_sorted_order_of_the_labels(y: Any, numbers: list[int], names: tuple[str, ...]) -> None:
    data = LabelledSet.from_arrays(X, y)
    assert data.y.dtype == torch.int64
    assert data.y.tolist() == numbers
    assert data.class_names == names
    np.testing.assert_array_equal(data.x.numpy(), X)


@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (X, torch.float32),
        (X.astype(np.float16), torch.float32),
        (X.astype(">f8"), torch.float32),
        (X.astype(int), torch.float32),
        (X.tolist(), torch.float32),
        (X[::-1].reshape(4, 3, 1), torch.float32),
        (torch.from_numpy(X).requires_grad_(), torch.float32),
        (np.zeros((4, 1, 2, 2), np.uint8), torch.uint8),
        (torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.uint8),
        (np.ones((4, 1, 2, 2)), torch.float32),
    ],
)
def test_bytes_stay_bytes_and_other_numbers_become_float32(x: Any, dtype: torch.dtype) -> None:
    data = LabelledSet.from_arrays(x, [0, 1, 0, 1])
    assert data.x.dtype == dtype
    assert not data.x.requires_grad
    expected = x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)
    np.testing.assert_array_equal(data.x.numpy(), expected)


def test_arrays_are_copied() -> None:
    x = X.astype(np.float32)
    x.flags.writeable = False
    data = LabelledSet.from_arrays(x, [0, 1, 0, 1])
    data.x.zero_()
    assert x.max() == 11


def test_names_of_ones_own() -> None:
    data = LabelledSet.from_arrays(X, [3, 1, 3, 1], ["one", "three"])
    assert data.class_names == ("one", "three")
    assert data.y.tolist() == [1, 0, 1, 0]
    for wrong in (["one"], "ab", ["one", "two", "three"]):
        with pytest.raises(DataError, match=r"class_names=.* for the 2 labels 1, 3, expected a list"):
            LabelledSet.from_arrays(X, [3, 1, 3, 1], wrong)


@pytest.mark.parametrize(
    ("x", "y", "match"),
    [
        (X, [0, 1, 0], r"4 rows of x but y of shape \(3,\), expected one label for each row"),
        (X, np.eye(4), r"one-hot rows use y\.argmax\(1\)"),
        (X, [0, 1, None, 1], "y has no label in 1 of 4 rows"),
        (X, [0, 1, 0.5, 1], "y holds numbers with fractions"),
        (X, [[0], [1, 1]], "y of type list is no array"),
        (X[:0], [], r"x of shape \(0, 3\)"),
        (5, [0], r"x of shape \(\)"),
        (X * 1j, [0, 1, 0, 1], "dtype complex128, expected real numbers"),
        (torch.zeros(2, 3, dtype=torch.complex64), [0, 1], "complex64, expected real numbers"),
        (X.astype(str), [0, 1, 0, 1], "expected real numbers"),
        ([[1, 2], [3]], [0, 1], "x of type list is no array"),
        (np.zeros((2, 3), np.uint8), [0, 1], r"expected bytes \(N, channels, H, W\)"),
        (np.full((2, 1, 4, 4), 200), [0, 1], r"lie in \[0, 1\].*200 to 200: make them uint8"),
        (np.full((2, 3), 1e300), [0, 1], "NaN or infinite numbers in 2 of 2"),
    ],
)
def test_arrays_that_are_no_labelled_set(x: Any, y: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        LabelledSet.from_arrays(x, y)
