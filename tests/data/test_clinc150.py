"""CLINC150 as it is on disk, and files that are not it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sureshot.data import DataError, load_clinc150


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


def test_a_foreign_file_is_not_taken_for_clinc150(tmp_path: Path) -> None:
    np.savez(tmp_path / "clinc150_minilm.npz", X=np.zeros((3, 2)), y=np.zeros(3))
    with pytest.raises(DataError, match=r"no array embedding.*expected an NPZ file with embedding"):
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
