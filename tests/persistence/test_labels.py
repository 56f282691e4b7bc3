"""Class labels survive a model file with their dtype; malformed ones are refused."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureshot.persistence import ArtifactError, decode_labels, encode_labels


def _through_json(labels: np.ndarray) -> np.ndarray:
    return decode_labels(json.loads(json.dumps(encode_labels(labels), allow_nan=False)))


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["a", "weiß nicht", ""]),
        np.array(["a", "b"], dtype="U20"),
        np.array(["a"], dtype=">U3"),
        np.array([-1, 2**62]),
        np.array([2**64 - 1], dtype=np.uint64),
        np.array([1, 2], dtype=np.int8),
        np.array([0.1, -0.0, 1e-300]),
        np.array([0.1, 2.5], dtype=np.float32),
        np.array([0.1], dtype=np.float16),
        np.array([False, True]),
        np.array(["x", 1, 2.5, True], dtype=object),
        np.array([np.str_("x"), np.int64(3)], dtype=object),
        np.array([], dtype=np.int64),
    ],
    ids=lambda labels: f"{labels.dtype}-{len(labels)}",
)
def test_labels_and_their_dtype_come_back(labels: np.ndarray) -> None:
    again = _through_json(labels)
    assert again.dtype == labels.dtype.newbyteorder("=")
    assert again.tolist() == labels.tolist()
    assert np.array_equal(again, labels)


@given(st.lists(st.one_of(st.text(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)), max_size=8))
def test_any_objects_come_back(values: list) -> None:
    labels = np.empty(len(values), dtype=object)
    labels[:] = values
    again = _through_json(labels)
    assert [(type(a), a) for a in again] == [(type(v), v) for v in values]


@pytest.mark.parametrize(
    "labels",
    [
        np.array([1j]),
        np.array([b"bytes"]),
        np.array(["2026-01-01"], dtype="M8[D]"),
        np.array([None, "a"], dtype=object),
        np.array([(1, 2), "a"], dtype=object),
        np.array([[1, 2]]),
        np.array([1.0, np.nan]),
        np.array([1.0, -np.inf]),
    ],
    ids=lambda labels: str(labels.dtype),
)
def test_other_labels_are_refused(labels: np.ndarray) -> None:
    with pytest.raises(ArtifactError, match="labels"):
        encode_labels(labels)


@pytest.mark.parametrize(
    "encoded",
    [
        None,
        [],
        {"dtype": "<i8"},
        {"dtype": "<i8", "values": [1], "more": 1},
        {"dtype": "<i8", "values": "ab"},
        {"dtype": "<i8", "values": [None]},
        {"dtype": "<i8", "values": [[1]]},
        {"dtype": "<i8", "values": [1.5]},
        {"dtype": "<i8", "values": ["a"]},
        {"dtype": "<i8", "values": [True]},
        {"dtype": "<i8", "values": [2**70]},
        {"dtype": "|i1", "values": [300]},
        {"dtype": "<U1", "values": ["abc"]},
        {"dtype": "<U999999999", "values": ["a"]},
        {"dtype": "|V8", "values": []},
        {"dtype": "<f16", "values": [1.0]},
        {"dtype": "i4,(1000000000)f8", "values": [1]},
        {"dtype": "<M8[D]", "values": [1]},
        {"dtype": 8, "values": [1]},
        {"dtype": ["<i8"], "values": [1]},
    ],
)
def test_malformed_labels_are_refused(encoded: object) -> None:
    with pytest.raises(ArtifactError, match="malformed labels"):
        decode_labels(encoded)
