"""Checks of what a model file holds."""

import numpy as np
import pytest

from sureshot.persistence import Artifact, ArtifactError, require, require_header

ARTIFACT = Artifact(
    path="model.safetensors",
    kind="classifier",
    package_version="1",
    header={"scale": 2, "name": "rbf", "flag": True, "center": None, "big": 2**60},
    arrays={
        "x": np.zeros((5, 3)),
        "weights": np.zeros((2, 5)),
        "labels": np.zeros(5, dtype=np.int64),
        "broken": np.array([1.0, np.nan]),
        "endless": np.array([np.inf], dtype=np.float32),
    },
)


def test_what_is_right_is_returned() -> None:
    found = require(
        ARTIFACT,
        {"x": ("float64", ("N", 3)), "weights": ("float", ("C", "N")), "labels": ("int", 1)},
        sizes={"C": 2},
    )
    assert found.keys() == {"x", "weights", "labels"}
    assert found["x"] is ARTIFACT.arrays["x"]
    assert require(ARTIFACT, {"x": ("float", (None, None))})


@pytest.mark.parametrize(
    ("arrays", "sizes", "message"),
    [
        ({"y": ("float64", 1)}, {}, "lacks the array 'y'"),
        ({"x": ("float32", 2)}, {}, "must be float32, it is float64"),
        ({"x": ("int", 2)}, {}, "must be int, it is float64"),
        ({"labels": ("bool", 1)}, {}, "must be bool, it is int64"),
        ({"x": ("float64", 1)}, {}, r"shape \(any\), it has \(5, 3\)"),
        ({"x": ("float64", ("N", 4))}, {}, r"shape \(5, 4\), it has \(5, 3\)"),
        ({"x": ("float64", ("N", None)), "weights": ("float64", ("N", None))}, {}, r"shape \(5, any\)"),
        ({"weights": ("float64", ("C", None))}, {"C": 3}, r"shape \(3, any\), it has \(2, 5\)"),
        ({"broken": ("float64", 1)}, {}, "'broken' holds NaN or infinite values"),
        ({"endless": ("float", 1)}, {}, "'endless' holds NaN or infinite values"),
    ],
)
def test_what_is_wrong_is_named(arrays: dict, sizes: dict, message: str) -> None:
    with pytest.raises(ArtifactError, match=message) as caught:
        require(ARTIFACT, arrays, sizes)
    assert "model.safetensors" in str(caught.value)


def test_header_entries_have_their_types() -> None:
    found = require_header(
        ARTIFACT, {"scale": float, "name": str, "flag": bool, "center": (list, type(None)), "big": int}
    )
    assert found == {"scale": 2.0, "name": "rbf", "flag": True, "center": None, "big": 2**60}
    assert type(found["scale"]) is float


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"missing": int}, "lacks the header entry 'missing'"),
        ({"name": int}, "must be of type int, it is str"),
        ({"flag": int}, "must be of type int, it is bool"),
        ({"flag": float}, "must be of type float, it is bool"),
        ({"center": (str, list)}, "must be of type str or list, it is NoneType"),
        ({"big": float}, "must be of type float, it is int"),
    ],
)
def test_wrong_header_entries_are_named(entry: dict, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        require_header(ARTIFACT, entry)
