"""EMNIST from small files in its two layouts."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from sureshot.data import DataError
from sureshot.data.emnist import EMNIST_CLASSES, emnist_split, load_emnist, read_idx


def _sample() -> tuple[np.ndarray, np.ndarray]:
    """Upright images, two of each class; the pixel at row 3, column 5 is the class."""
    labels = np.tile(np.arange(62, dtype=np.uint8), 2)
    upright = np.zeros((124, 28, 28), np.uint8)
    upright[:, 3, 5] = labels + 1
    return upright, labels


def _idx(array: np.ndarray) -> bytes:
    head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(np.uint8).tobytes()


def _write_idx(folder: Path, part: str, zipped: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    upright, labels = _sample()
    for kind, array in (("images-idx3", upright.transpose(0, 2, 1)), ("labels-idx1", labels)):
        path = folder / f"emnist-byclass-{part}-{kind}-ubyte{'.gz' if zipped else ''}"
        path.write_bytes(gzip.compress(_idx(array)) if zipped else _idx(array))


def _write_mat(folder: Path) -> None:
    upright, labels = _sample()
    columns = upright.transpose(0, 2, 1).reshape(124, 784)
    part = {"images": columns, "labels": labels[:, None].astype(float), "writers": labels[:, None].astype(float)}
    savemat(folder / "emnist-byclass.mat", {"dataset": {"train": part, "test": part, "mapping": np.zeros((62, 2))}})


@pytest.mark.parametrize("layout", ["idx", "idx.gz", "folder", "mat"])
def test_images_are_upright_in_every_layout(tmp_path: Path, layout: str) -> None:
    if layout == "mat":
        _write_mat(tmp_path)
    else:
        _write_idx(tmp_path / ("emnist" if layout == "folder" else ""), "test", layout == "idx.gz")
    upright, labels = _sample()
    found = load_emnist(tmp_path)
    np.testing.assert_array_equal(found.x[:, 0], upright)
    np.testing.assert_array_equal(found.y, labels)
    assert found.class_names == EMNIST_CLASSES
    val, test = emnist_split(found)
    assert "".join(val.class_names) == "02468ACEGIKMOQSUWYacegikmoqsuwy"
    assert "".join(test.class_names) == "13579BDFHJLNPRTVXZbdfhjlnprtvxz"


def test_both_parts(tmp_path: Path) -> None:
    _write_idx(tmp_path, "test", False)
    with pytest.raises(DataError, match=r"no file .*emnist-byclass-train-images-idx3-ubyte\.gz: .* www\.nist\.gov"):
        load_emnist(tmp_path, "train")
    _write_idx(tmp_path, "train", True)
    assert len(load_emnist(tmp_path, "both")) == 248
    with pytest.raises(DataError, match="did you mean 'train'"):
        load_emnist(tmp_path, "trian")


def test_broken_files(tmp_path: Path) -> None:
    path = tmp_path / "x-ubyte"
    path.write_bytes(_idx(np.zeros((2, 3)))[:-1])
    with pytest.raises(DataError, match="has 5 values, expected 2 x 3"):
        read_idx(path, 2)
    with pytest.raises(DataError, match="no IDX file of bytes with 3 dimensions"):
        read_idx(path, 3)
    zipped = tmp_path / "x-ubyte.gz"
    zipped.write_bytes(gzip.compress(_idx(np.zeros(50)))[:-9])
    with pytest.raises(DataError, match="not a whole gzip file"):
        read_idx(zipped, 1)
    (tmp_path / "emnist-byclass.mat").write_bytes(b"MATLAB" * 40)
    with pytest.raises(DataError, match="cannot be read as EMNIST's MAT file"):
        load_emnist(tmp_path)
    _write_idx(tmp_path, "test", False)
    (tmp_path / "emnist-byclass-test-labels-idx1-ubyte").write_bytes(_idx(np.zeros(7)))
    with pytest.raises(DataError, match=r"124 images but .* 7 labels"):
        load_emnist(tmp_path)
