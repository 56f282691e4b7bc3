"""Images of one set of classes: CIFAR on small copies of its layout, the subset and Omniglot where they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.train_test import TRAIN_TEST_NAMES, TrainTestData, load_train_test
from sureshot.data import DataError


def _write(path: Path, labels: list[int], coarse: bool) -> np.ndarray:
    """Records with pixels by chance, whose first red one is the label."""
    pixels = np.random.default_rng(len(labels)).integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    pixels[:, 0] = labels
    columns = [np.zeros(len(labels), np.uint8)] if coarse else []
    path.parent.mkdir(exist_ok=True)
    np.column_stack([*columns, np.array(labels, np.uint8), pixels]).tofile(path)
    return pixels


def _cifar10(root: Path) -> np.ndarray:
    place = root / "cifar-10-batches-bin"
    pixels = [_write(place / f"data_batch_{k}.bin", [2 * k - 2, 2 * k - 1], coarse=False) for k in range(1, 6)]
    _write(place / "test_batch.bin", list(range(10))[::-1], coarse=False)
    (place / "batches.meta.txt").write_text("\n".join(f"thing{k}" for k in range(10)) + "\n\n")
    return np.concatenate(pixels)


def test_cifar10(tmp_path: Path) -> None:
    pixels = _cifar10(tmp_path)
    data = load_train_test("cifar10", tmp_path)
    assert data.train.class_names[3] == "thing3"
    assert data.train.y.tolist() == list(range(10))
    assert data.test.y.tolist() == list(range(10))[::-1]
    assert torch.equal(data.train.x, torch.from_numpy(pixels.reshape(10, 3, 32, 32)))
    assert data.test.x[:, 0, 0, 0].tolist() == data.test.y.tolist()


def test_cifar100_by_its_fine_labels(tmp_path: Path) -> None:
    place = tmp_path / "cifar-100-binary"
    _write(place / "train.bin", list(range(100)), coarse=True)
    _write(place / "test.bin", list(range(100)), coarse=True)
    (place / "fine_label_names.txt").write_text("\n".join(f"thing{k}" for k in range(100)))
    data = load_train_test("cifar100", tmp_path)
    assert data.train.n_classes == 100
    assert data.train.x[:, 0, 0, 0].tolist() == data.train.y.tolist() == list(range(100))


def test_cifar_missing_or_broken(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data_batch_1\.bin.*expected a folder cifar-10-batches-bin.*kriz/cifar"):
        load_train_test("cifar10", tmp_path)
    with pytest.raises(DataError, match=r"no file .*train\.bin: expected a folder cifar-100-binary"):
        load_train_test("cifar100", tmp_path)
    _cifar10(tmp_path)
    place = tmp_path / "cifar-10-batches-bin"
    (place / "batches.meta.txt").write_text("cat\n")
    with pytest.raises(DataError, match="names 1 classes, not 10"):
        load_train_test("cifar10", tmp_path)
    (place / "data_batch_2.bin").write_bytes(b"12345")
    (place / "batches.meta.txt").write_text("\n".join(f"thing{k}" for k in range(10)))
    with pytest.raises(DataError, match=r"data_batch_2\.bin has 5 bytes, expected a multiple of 3073"):
        load_train_test("cifar10", tmp_path)
    with pytest.raises(DataError, match=r"expected an NPZ file with jpeg"):
        load_train_test("cifar10-subset", tmp_path)
    with pytest.raises(DataError, match=r"no data called 'cifar'.*names: cifar10, cifar100"):
        load_train_test("cifar", tmp_path)


def test_both_sides_have_the_same_classes(tmp_path: Path) -> None:
    _cifar10(tmp_path)
    data = load_train_test("cifar10", tmp_path)
    with pytest.raises(DataError, match="must have the same classes"):
        TrainTestData(data.train, data.test.select_classes([0, 1]), "mine", "mine")


@pytest.mark.real_data
def test_real_sets() -> None:
    assert len(TRAIN_TEST_NAMES) == 7
    sizes = {
        "cifar10-subset": (10, 1000, 200),
        "omniglot-drawers": (100, 15, 5),
        "miniimagenet32-base": (60, 200, 100),
    }
    for name, (classes, of_train, of_test) in sizes.items():
        data = load_train_test(name)
        assert data.train.class_sizes.tolist() == [of_train] * classes
        assert data.test.class_sizes.tolist() == [of_test] * classes
        assert data.train.x.dtype == torch.uint8
