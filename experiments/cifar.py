"""CIFAR-10 and CIFAR-100: photographs of 32 x 32 pixels (Krizhevsky 2009), 50,000 to train on and 10,000 to test.

Their *binary version* is read, as www.cs.toronto.edu/~kriz/cifar.html gives it out and unpacks it in the data root::

    cifar-10-batches-bin/data_batch_1.bin ... data_batch_5.bin, test_batch.bin, batches.meta.txt
    cifar-100-binary/train.bin, test.bin, fine_label_names.txt

An image is its label in one byte (CIFAR-100: the coarse label, then the fine one, which is used) and 3072 bytes of
pixels, channel by channel. The Python version of the same pages consists of pickles, which run code when they are read,
and is not read here.

``cifar10_subset.npz`` holds 1000 training and 200 test images of each of the ten classes, once more compressed: numbers
from it are not those of CIFAR-10.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from sureshot.data.archives import read_arrays
from sureshot.data.image_files import read_strips
from sureshot.data.images import labelled_images
from sureshot.data.labelled import LabelledSet
from sureshot.data.root import DataError, Root, data_file, data_root

CIFAR10_SUBSET_FILE = "cifar10_subset.npz"
_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class _Version:
    """Where one of the two sets is, and how its files are laid out."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    names: str  # file of the classes' names, one on a line
    n_classes: int
    label_bytes: int  # before the pixels; the last is the label

    @property
    def layout(self) -> str:
        return (
            f"expected a folder {self.folder} with {', '.join((*self.train, *self.test))} (records of "
            f"{self.label_bytes + _PIXELS} bytes: {self.label_bytes} of labels, 3072 of pixels) and {self.names}: the "
            "binary version of www.cs.toronto.edu/~kriz/cifar.html, unpacked (the Python version consists of pickles, "
            "which are not read)"
        )


_CIFAR10 = _Version(
    "cifar-10-batches-bin",
    tuple(f"data_batch_{k}.bin" for k in range(1, 6)),
    ("test_batch.bin",),
    "batches.meta.txt",
    10,
    1,
)
_CIFAR100 = _Version("cifar-100-binary", ("train.bin",), ("test.bin",), "fine_label_names.txt", 100, 2)


def load_cifar10(root: Root = None) -> tuple[LabelledSet, LabelledSet]:
    """Training and test images of ten classes."""
    return _load(_CIFAR10, root)


def load_cifar100(root: Root = None) -> tuple[LabelledSet, LabelledSet]:
    """Training and test images of a hundred classes."""
    return _load(_CIFAR100, root)


def load_cifar10_subset(root: Root = None) -> tuple[LabelledSet, LabelledSet]:
    """Training and test images of ``cifar10_subset.npz``."""
    expected = (
        "expected an NPZ file with jpeg (uint8: one JPEG after another, for each class a strip of its images 32 pixels "
        "wide), offset (11,) of their bounds, label and is_test (N,) of the images, class_names (10,), made from "
        "CIFAR-10 (www.cs.toronto.edu/~kriz/cifar.html)"
    )
    path = data_file(CIFAR10_SUBSET_FILE, root, expected)
    arrays = read_arrays(path, ("jpeg", "offset", "label", "is_test", "class_names"))
    names = tuple(str(name) for name in arrays["class_names"])
    pixels = read_strips(path, arrays["jpeg"], arrays["offset"], names)
    images = labelled_images(pixels, arrays["label"], names, "CIFAR-10 subset")
    is_test = torch.from_numpy(arrays["is_test"].astype(bool))
    return images.select_rows(~is_test), images.select_rows(is_test)


def _load(version: _Version, root: Root) -> tuple[LabelledSet, LabelledSet]:
    folder = data_root(root, f"{version.folder}/{version.train[0]}", version.layout) / version.folder
    for name in (*version.train, *version.test, version.names):
        if not (folder / name).is_file():
            raise DataError(f"no file {folder / name}: {version.layout}")
    lines = (folder / version.names).read_text(encoding="utf-8").split()
    if len(lines) != version.n_classes:
        raise DataError(
            f"{folder / version.names} names {len(lines)} classes, not {version.n_classes}: {version.layout}"
        )
    train, test = ([_read(folder / name, version) for name in names] for names in (version.train, version.test))
    return _labelled(train, lines, version), _labelled(test, lines, version)


def _read(path: Path, version: _Version) -> np.ndarray:
    """Records (N, label bytes and pixels) uint8."""
    size = version.label_bytes + _PIXELS
    data = np.fromfile(path, dtype=np.uint8)
    if not len(data) or len(data) % size:
        raise DataError(f"{path} has {len(data)} bytes, expected a multiple of {size}: {version.layout}")
    return data.reshape(-1, size)


def _labelled(records: list[np.ndarray], class_names: list[str], version: _Version) -> LabelledSet:
    every = np.concatenate(records)
    images = every[:, version.label_bytes :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return labelled_images(images, every[:, version.label_bytes - 1], class_names, version.folder)
