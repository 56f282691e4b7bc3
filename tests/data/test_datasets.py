"""The experiments' data sets; those on disk are tested where the data root is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sureshot.data import DataError, load_clinc150, load_digits, load_uci


def test_digits() -> None:
    digits = load_digits()
    assert digits.X.shape == (1797, 64)
    assert digits.images.shape == (1797, 8, 8)
    np.testing.assert_array_equal(np.unique(digits.y), np.arange(10))
    np.testing.assert_array_equal(digits.X.reshape(-1, 8, 8), digits.images)


@pytest.mark.real_data
def test_small_sets_have_their_documented_counts() -> None:
    expected = {
        "ionosphere": ((351, 34), {"g": 225, "b": 126}),
        "heart_cleveland": ((303, 13), {0: 164, 1: 139}),
        "wine": ((178, 13), {1: 59, 2: 71, 3: 48}),
        "musk1": ((476, 166), {0: 269, 1: 207}),
    }
    for name, (shape, counts) in expected.items():
        table = load_uci(name)
        assert table.X.shape == shape
        assert table.y is not None
        labels, count = np.unique(table.y, return_counts=True)
        assert dict(zip(labels.tolist(), count.tolist(), strict=True)) == counts
    assert np.isnan(np.asarray(load_uci("heart_cleveland").X)).sum() == 6
    with pytest.raises(DataError, match="did you mean 'ionosphere'"):
        load_uci("ionospere")


@pytest.mark.real_data
def test_clinc150() -> None:
    data = load_clinc150(dtype=np.float32)
    assert data.x_train.shape == (15000, 384)
    assert data.x_train.dtype == np.float32
    assert (np.bincount(data.y_train) == 100).all()
    assert (np.bincount(data.y_test) == 30).all()
    assert data.x_oos.shape == (1000, 384)
    np.testing.assert_allclose(np.linalg.norm(data.x_test, axis=1), 1.0, atol=2e-3)
    assert len(set(data.intent_names)) == 150


def test_a_missing_set_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file .*clinc150_minilm\.npz: .*intent_names.*github\.com/clinc/oos-eval"):
        load_clinc150(tmp_path)
    with pytest.raises(DataError, match=r"no iris\.csv.*column label.*archive\.ics\.uci\.edu"):
        load_uci("iris", tmp_path)


def test_a_foreign_file_is_not_taken_for_clinc150(tmp_path: Path) -> None:
    np.savez(tmp_path / "clinc150_minilm.npz", X=np.zeros((3, 2)), y=np.zeros(3))
    with pytest.raises(DataError, match=r"no array split.*expected an NPZ file with embedding"):
        load_clinc150(tmp_path)
    np.savez(
        tmp_path / "clinc150_minilm.npz",
        embedding=np.zeros((3, 2)),
        label=np.zeros(3),
        split=np.zeros(3, dtype=int),
        split_names=np.array(["train"]),
        intent_names=np.array(["a"]),
    )
    with pytest.raises(DataError, match=r"expected \(23700, 384\)"):
        load_clinc150(tmp_path)
