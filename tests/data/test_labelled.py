"""Labelled sets check themselves, and the three of few-shot data fit together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sureshot.data import DataError, FewShotData, LabelledSet
from sureshot.data.labelled import concatenate


def _set(n_classes: int = 3, width: int = 2) -> LabelledSet:
    y = torch.arange(2 * n_classes) % n_classes
    return LabelledSet(
        torch.arange(2.0 * n_classes * width).reshape(-1, width), y, tuple(f"c{k}" for k in range(n_classes))
    )


def test_chosen_classes_are_numbered_in_the_order_given() -> None:
    chosen = _set().select_classes([2, 0])
    assert chosen.class_names == ("c2", "c0")
    assert chosen.y.tolist() == [1, 0, 1, 0]
    assert chosen.x[:, 0].tolist() == [0.0, 4.0, 6.0, 10.0]  # rows 0, 2, 3, 5
    assert chosen.class_sizes.tolist() == [2, 2]
    assert len(chosen) == 4


@pytest.mark.parametrize(
    ("classes", "match"), [([0, 0], "more than once"), ([3], "0 to 2"), ([-1], "0 to 2"), ([], "none")]
)
def test_classes_that_cannot_be_chosen(classes: list[int], match: str) -> None:
    with pytest.raises(DataError, match=match):
        _set().select_classes(classes)


@pytest.mark.parametrize(
    ("x", "y", "names", "match"),
    [
        (torch.zeros(2, 3), torch.tensor([0, 1]), ("a", "b", "otter"), "no row of class otter"),
        (torch.zeros(2, 3), torch.tensor([0, 2]), ("a", "b"), "expected 0 to 1"),
        (torch.zeros(2, 3), torch.tensor([0, 1, 1]), ("a", "b"), "2 rows but class numbers"),
        (torch.zeros(2, 3), torch.tensor([0, 1], dtype=torch.int32), ("a", "b"), "expected torch.int64"),
        (torch.zeros(2, 3, dtype=torch.int64), torch.tensor([0, 1]), ("a", "b"), "dtype torch.int64, expected bytes"),
        (torch.zeros(2, 3, dtype=torch.uint8), torch.tensor([0, 1]), ("a", "b"), "expected bytes"),
        (torch.zeros(2), torch.tensor([0, 1]), ("a", "b"), r"shape \(2,\)"),
        (torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), (), "no rows"),
        (np.zeros((2, 3)), torch.tensor([0, 1]), ("a", "b"), r"inputs of type ndarray.*LabelledSet\.from_arrays"),
        (torch.zeros(2, 3), np.array([0, 1]), ("a", "b"), r"class numbers of type ndarray.*from_arrays"),
        (
            torch.full((2, 1, 4, 4), 255.0),
            torch.tensor([0, 1]),
            ("a", "b"),
            "float32 values from 255 to 255",
        ),
        (torch.full((2, 1, 4, 4), -0.01), torch.tensor([0, 1]), ("a", "b"), r"lie in \[0, 1\]"),
        (torch.full((2, 1, 4, 4), torch.nan), torch.tensor([0, 1]), ("a", "b"), "NaN or infinite"),
        (torch.tensor([[0.0], [float("nan")]]), torch.tensor([0, 1]), ("a", "b"), "row 1, counted from 0, of class b"),
    ],
)
def test_inputs_that_do_not_fit(x: torch.Tensor, y: torch.Tensor, names: tuple[str, ...], match: str) -> None:
    with pytest.raises(DataError, match=match):
        LabelledSet(x, y, names)


def test_sequences_and_byte_images_are_inputs() -> None:
    y = torch.tensor([0, 1])
    assert LabelledSet(torch.zeros(2, 5, 3), y, ("a", "b")).n_classes == 2
    assert LabelledSet(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), y, ("a", "b")).n_classes == 2
    assert LabelledSet(torch.full((2, 5, 3), 7.0), y, ("a", "b")).n_classes == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_images_of_floats_may_miss_the_range_by_rounding(dtype: torch.dtype) -> None:
    x = torch.tensor([-1e-6, 1 + 1e-6]).reshape(2, 1, 1, 1).to(dtype)
    assert LabelledSet(x, torch.tensor([0, 1]), ("a", "b")).n_classes == 2


def test_joined_sets_keep_their_classes_apart() -> None:
    both = concatenate([_set(2), _set(3)])
    assert both.y.tolist() == [0, 1, 0, 1, 2, 3, 4, 2, 3, 4]
    assert both.class_names == ("c0", "c1", "c0", "c1", "c2")
    with pytest.raises(DataError, match="different inputs"):
        concatenate([_set(width=2), _set(width=3)])


def test_parts_have_inputs_of_one_shape() -> None:
    data = FewShotData(_set(), _set(), _set(4), "own", "text")
    assert data.parts["test"].n_classes == 4
    with pytest.raises(DataError, match=r"val \(3,\)"):
        FewShotData(_set(), _set(width=3), _set(), "own", "text")
    with pytest.raises(DataError, match="out_of_scope"):
        FewShotData(_set(), _set(), _set(), "own", "text", out_of_scope=torch.zeros(4, 5))
