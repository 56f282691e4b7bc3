"""mini-ImageNet: 600 photographs of each of 100 classes (Vinyals et al. 2016).

The classes are split 64 / 16 / 20 as by Ravi & Larochelle (2017).

Two layouts:

- 84 x 84, the usual: a folder ``miniimagenet`` (or ``mini-imagenet``, ``mini_imagenet``) in the data root with
  ``images/`` (``n0153282900000005.jpg`` and so on, also inside a folder for each class) and Ravi & Larochelle's lists
  ``train.csv``, ``val.csv`` and ``test.csv`` with columns ``filename,label``;
- ``miniimagenet32.npz``, 32 x 32, a subset of about 300 images of a class (100 of some): JPEG strips, one for each
  class. Its numbers are lower than published ones, which are at 84 x 84 with all images.

The photographs are ImageNet's: for research and teaching, not to be passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from sureshot.data.archives import read_arrays
from sureshot.data.image_files import read_images, read_strips
from sureshot.data.image_folders import PARTS
from sureshot.data.images import labelled_images
from sureshot.data.labelled import LabelledSet
from sureshot.data.lists import read_columns
from sureshot.data.root import DataError, Root, data_file, data_root

MINIIMAGENET32_FILE = "miniimagenet32.npz"
_FOLDERS = ("miniimagenet", "mini-imagenet", "mini_imagenet")
_LAYOUT = (
    "expected a folder miniimagenet with images/*.jpg and train.csv, val.csv, test.csv (columns filename,label): the "
    "lists are in data/miniImagenet/splits/ravi of github.com/jakesnell/prototypical-networks, the images are made "
    "from ILSVRC 2012 (image-net.org) at 84 x 84"
)
_LAYOUT32 = (
    "expected an NPZ file with jpeg (uint8: one JPEG after another, for each class a strip of its images 32 pixels "
    "wide), offset (101,) of their bounds, label and is_test (N,) of the images, wnid and ravi_split (100,) of the "
    "classes, made from the photographs of miniimagenet (ILSVRC 2012, image-net.org) by the lists of "
    "github.com/jakesnell/prototypical-networks (data/miniImagenet/splits/ravi) and, for is_test, "
    "github.com/xyutao/fscil (data/index_list/mini_imagenet); or use miniimagenet, which reads the usual 84 x 84 files"
)


def load_miniimagenet(
    root: Root = None,
    side: int = 84,  # pixels; files of another size are resized
) -> list[LabelledSet]:
    """Training (64 classes), validation (16) and test (20) photographs from files."""
    place = _place(root)
    return [_photographs(place, _listed(place, (part,)), side, f"mini-ImageNet {part}") for part in PARTS]


def load_whole_miniimagenet(
    root: Root = None,
    side: int = 84,  # pixels; files of another size are resized
) -> LabelledSet:
    """Photographs of all 100 classes from files, as `miniimagenet_image_names` names them."""
    place = _place(root)
    return _photographs(place, _listed(place, PARTS), side, "mini-ImageNet")


def miniimagenet_image_names(root: Root = None) -> list[tuple[str, str]]:
    """Name of the file, without its ending, and class of each photograph of `load_whole_miniimagenet`, in its order."""
    return [(Path(filename).stem, label) for filename, label in _listed(_place(root), PARTS)]


def _place(root: Root) -> Path:
    folder = data_root(root, f"{_FOLDERS[0]}/train.csv", _LAYOUT)
    places = [folder / name for name in _FOLDERS if (folder / name).is_dir()]
    if not places:
        raise DataError(f"no folder {folder / _FOLDERS[0]}: {_LAYOUT}")
    return places[0]


def _listed(place: Path, parts: Sequence[str]) -> list[tuple[str, str]]:
    """Files and classes as the lists of some parts have them."""
    columns = [read_columns(place / f"{part}.csv", ("filename", "label"), _LAYOUT) for part in parts]
    return [row for filenames, labels in columns for row in zip(filenames, labels, strict=True)]


def _photographs(place: Path, listed: Sequence[tuple[str, str]], side: int, what: str) -> LabelledSet:
    names, y = np.unique(np.array([label for _, label in listed]), return_inverse=True)
    pixels = read_images([_find(place / "images", *row) for row in listed], side=side)
    return labelled_images(pixels, y, names.tolist(), what)


def _find(images: Path, filename: str, label: str) -> Path:
    for path in (images / filename, images / label / filename):
        if path.is_file():
            return path
    raise DataError(f"no image {images / filename} (nor in its folder {label}), which the lists name: {_LAYOUT}")


@dataclass(frozen=True, eq=False)
class MiniImageNet32:
    """All images of ``miniimagenet32.npz`` and what its few-shot split needs to know."""

    images: LabelledSet  # 100 classes, 32 x 32
    is_test: np.ndarray  # (N,) bool, 100 of each class
    ravi_split: np.ndarray  # (100,) "train", "val" or "test"

    def few_shot_split(self) -> list[LabelledSet]:
        """Ravi & Larochelle's classes; of validation and test classes the 100 test images each."""
        tested = self.images.select_rows(torch.from_numpy(self.is_test))
        return [
            (self.images if part == "train" else tested).select_classes(
                np.flatnonzero(self.ravi_split == part).tolist()
            )
            for part in PARTS
        ]


def load_miniimagenet32(root: Root = None) -> MiniImageNet32:
    """mini-ImageNet at 32 x 32 from ``miniimagenet32.npz``."""
    path = data_file(MINIIMAGENET32_FILE, root, _LAYOUT32)
    arrays = read_arrays(path, ("jpeg", "offset", "label", "is_test", "wnid", "ravi_split"))
    classes = tuple(str(wnid) for wnid in arrays["wnid"])
    pixels = read_strips(path, arrays["jpeg"], arrays["offset"], classes)
    images = labelled_images(pixels, arrays["label"], classes, "mini-ImageNet at 32 x 32")
    return MiniImageNet32(
        images=images, is_test=arrays["is_test"].astype(bool), ravi_split=arrays["ravi_split"].astype(str)
    )
