"""CIFAR-FS: the 100 classes of CIFAR-100, split 64 / 16 / 20 (Bertinetto, Henriques, Torr & Vedaldi 2019).

Each class has 600 images of 32 x 32.

The authors' layout is read from ``cifar-fs`` (or ``cifarfs``, ``CIFAR-FS``, ``cifar100``) in the data root::

    cifar-fs/data/apple/apple_s_000022.png
    cifar-fs/splits/bertinetto/train.txt     one class on a line; val.txt and test.txt likewise
"""

from __future__ import annotations

from sureshot.data.image_folders import PARTS, read_class_folders
from sureshot.data.labelled import LabelledSet
from sureshot.data.lists import read_list
from sureshot.data.root import DataError, Root, data_root

_FOLDERS = ("cifar-fs", "cifarfs", "CIFAR-FS", "cifar100")
_LAYOUT = (
    "expected a folder cifar-fs with data/CLASS/*.png and splits/bertinetto/{train,val,test}.txt (one class on a "
    "line), as github.com/bertinetto/r2d2 gives it out; the images are those of CIFAR-100 "
    "(www.cs.toronto.edu/~kriz/cifar.html)"
)


def load_cifar_fs(
    root: Root = None,
    side: int = 32,  # pixels; other than 32 resizes
) -> list[LabelledSet]:
    """Training (64 classes), validation (16) and test (20) images."""
    folder = data_root(root, f"{_FOLDERS[0]}/data", _LAYOUT)
    places = [folder / name for name in _FOLDERS if (folder / name / "data").is_dir()]
    if not places:
        raise DataError(f"no folder {folder / _FOLDERS[0] / 'data'}: {_LAYOUT}")
    read = []
    for part in PARTS:
        path = places[0] / "splits" / "bertinetto" / f"{part}.txt"
        classes = read_list(path, _LAYOUT)
        read.append(read_class_folders(places[0] / "data", side=side, classes=classes, name=f"CIFAR-FS {part}"))
    return read
