import json
import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from torch import Tensor

from sureshot.persistence import ArtifactError, load_artifact, save_artifact
from sureshot.persistence.values import pack, unpack


@dataclass(frozen=True)
class Circle:
    radius: float

    def check_parts(self) -> None:
        if not self.radius > 0:
            raise ValueError("a circle needs a positive radius")


@dataclass(frozen=True)
class Square:
    side: float


@dataclass(frozen=True)
class Point:
    """As values that say themselves how they are written."""

    x: int

    def to_json(self) -> Any:
        return [self.x]

    @classmethod
    def from_json(cls, stored: Any) -> "Point":
        return cls(*stored)


@dataclass(frozen=True)
class Whole:
    count: int
    share: float
    name: str | None
    sure: bool
    way: Literal["near", "far"]
    anything: Any
    array: np.ndarray
    labels: np.ndarray
    tensor: Tensor | None
    pair: tuple[int, str]
    several: tuple[Circle, ...]
    by_name: dict[str, Tensor]
    form: Circle | Square
    point: Point
    follows: int = field(default=7, metadata={"stored": False})


def whole() -> Whole:
    return Whole(
        3,
        math.inf,
        None,
        True,
        "far",
        {"free": [1, "a"]},
        np.array([[0.1, 2.0]]),
        np.array(["b", 1, True], dtype=object),
        torch.tensor([1.0, 0.5], dtype=torch.float64),
        (2, "b"),
        (Circle(1.0), Circle(2.5)),
        {"a": torch.arange(300)},
        Square(2.0),
        Point(4),
    )


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, Whole):
        return all(same(getattr(one, name), getattr(other, name)) for name in Whole.__dataclass_fields__)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other) and type(one) is type(other)


def test_what_is_packed_comes_back(tmp_path) -> None:
    save_artifact(tmp_path / "file", "whole", *pack(whole()))
    artifact = load_artifact(tmp_path / "file", "whole")
    assert same(whole(), unpack(Whole, artifact.header, artifact.arrays, artifact.path))


@given(
    st.floats(),
    st.integers(-(2**53), 2**53),
    arrays_of.arrays(
        st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_]),
        arrays_of.array_shapes(min_dims=0, min_side=0, max_side=3),
        elements={"allow_nan": False, "allow_infinity": False},
    ),
)
def test_any_number_and_array_comes_back(share: float, count: int, array: np.ndarray) -> None:
    value = replace(whole(), share=share, count=count, array=array)
    header, arrays = pack(value)
    found = unpack(Whole, json.loads(json.dumps(header, allow_nan=False)), arrays, "it")
    assert same(array, found.array)
    assert found.count == count
    assert found.share == share or (math.isnan(share) and math.isnan(found.share))


def test_arrays_are_stored_in_the_smallest_type_that_holds_them() -> None:
    _, arrays = pack(whole())
    assert arrays["tensor"].dtype == np.float16
    assert arrays["array"].dtype == np.float64
    assert arrays["by_name.a"].dtype == np.uint16


def test_values_that_follow_from_others_are_not_stored() -> None:
    header, _ = pack(replace(whole(), follows=8))
    assert "follows" not in header


@pytest.mark.parametrize(
    ("entry", "wrong", "told"),
    [
        ("count", True, "count must be int"),
        ("count", 1.0, "count must be int"),
        ("share", "much", "share must be float"),
        ("name", 3, "name must be str"),
        ("sure", 1, "sure must be bool"),
        ("way", "beside", "way must be"),
        ("array", None, "the array array is missing"),
        ("array", "int8", "which is no int8"),
        ("array", "no type", "malformed"),
        ("labels", {"labels": 1}, "malformed labels"),
        ("pair", [1], "pair must be"),
        ("pair", [1, 2], "pair.1 must be str"),
        ("several", {}, "several must be"),
        ("several", [{"radius": -1.0}], "positive radius"),
        ("several", [{"side": 1.0}], "several.0 must have the entries radius"),
        ("by_name", [], "by_name must be"),
        ("form", {"is a": "Triangle", "side": 1.0}, "form is of a class that is not known"),
        ("form", {"is a": "Circle", "radius": 0}, "positive radius"),
        ("point", 3, "malformed"),
    ],
)
def test_malformed_entries_are_told_by_name(entry: str, wrong: Any, told: str) -> None:
    header, arrays = pack(whole())
    with pytest.raises(ArtifactError, match=told):
        unpack(Whole, {**header, entry: wrong}, arrays, "model.file")


def test_entries_that_lack_or_are_too_many_are_refused() -> None:
    header, arrays = pack(whole())
    for wrong in ({**header, "more": 1}, {key: header[key] for key in header if key != "pair"}):
        with pytest.raises(ArtifactError, match=r"model\.file is malformed: the header must have the entries count"):
            unpack(Whole, wrong, arrays, "model.file")
    with pytest.raises(ArtifactError, match="the array array holds NaN"):
        unpack(Whole, header, {**arrays, "array": np.array([np.nan])}, "model.file")
    with pytest.raises(ArtifactError, match=r"the array by_name\.a is missing"):
        unpack(Whole, header, {key: arrays[key] for key in arrays if key != "by_name.a"}, "model.file")


def test_labels_that_no_file_can_hold_are_refused() -> None:
    with pytest.raises(ArtifactError, match="labels can be saved when"):
        pack(replace(whole(), labels=np.array([object()], dtype=object)))
