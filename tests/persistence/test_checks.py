"""Checks of what a model file holds."""

import numpy as np
import pytest

from sureshot.persistence import Artifact, ArtifactError, require, require_header

ARTIFACT = Artifact(
    path="model.safetensors",
    kind="classifier",
    package_version="1",
    header={"config": {"scale": 2}, "name": "rbf"},
    arrays={
        "x": np.zeros((5, 3)),
        "labels": np.zeros(5, dtype=np.int64),
        "broken": np.array([1.0, np.nan]),
        "endless": np.array([np.inf], dtype=np.float32),
    },
)


def test_what_is_right_is_returned() -> None:
    found = require(ARTIFACT, {"x": ("float", (5, 3)), "labels": ("int64", (5,))})
    assert found.keys() == {"x", "labels"}
    assert found["x"] is ARTIFACT.arrays["x"]
    assert require_header(ARTIFACT, "config") == {"config": {"scale": 2}}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": ("float64", (1,))}, "lacks the array 'y'"),
        ({"x": ("float32", (5, 3))}, "must be float32, it is float64"),
        ({"labels": ("float", (5,))}, "must be float, it is int64"),
        ({"x": ("float64", (5, 4))}, r"shape \(5, 4\), it has \(5, 3\)"),
        ({"broken": ("float64", (2,))}, "'broken' holds NaN or infinite values"),
        ({"endless": ("float", (1,))}, "'endless' holds NaN or infinite values"),
    ],
)
def test_what_is_wrong_is_named(arrays: dict, message: str) -> None:
    with pytest.raises(ArtifactError, match=message) as caught:
        require(ARTIFACT, arrays)
    assert "model.safetensors" in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "message"),
    [("missing", "lacks the header entry 'missing'"), ("name", "must be a mapping, it is a str")],
)
def test_wrong_header_entries_are_named(entry: str, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        require_header(ARTIFACT, entry)
