"""CUB-200-2011: 11,788 photographs of 200 kinds of birds (Wah, Branson, Welinder, Perona & Belongie 2011).

The authors' layout is read from ``CUB_200_2011`` in the data root (data.caltech.edu, doi 10.22002/D1.20098)::

    CUB_200_2011/classes.txt               1 001.Black_footed_Albatross
    CUB_200_2011/images.txt                1 001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg
    CUB_200_2011/image_class_labels.txt    1 1
    CUB_200_2011/images/001.Black_footed_Albatross/...

The few-shot split is that of Hilliard et al. (2018) as made by Chen et al. (2019): counting classes from 0, those of
even number are for training (100), 1 modulo 4 for validation (50), 3 modulo 4 for testing (50). Photographs are
prepared as there at test time: resized to 1.15 times the side, the middle kept.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sureshot.data.image_files import read_images
from sureshot.data.images import labelled_images
from sureshot.data.labelled import LabelledSet
from sureshot.data.lists import read_list
from sureshot.data.root import DataError, Root, data_root

_FOLDER = "CUB_200_2011"
_LAYOUT = (
    f"expected the folder {_FOLDER} with classes.txt, images.txt, image_class_labels.txt and images/CLASS/*.jpg: "
    f"unpack {_FOLDER}.tgz of data.caltech.edu (doi 10.22002/D1.20098) there"
)


def load_cub(
    root: Root = None,
    side: int = 84,  # pixels
) -> LabelledSet:
    """All photographs, in the order of ``images.txt``; the root may be ``CUB_200_2011`` itself."""
    place = _place(root)
    classes = _numbered(place / "classes.txt")
    files = _numbered(place / "images.txt")
    labels = _numbered(place / "image_class_labels.txt")
    unknown = [key for key in files if labels.get(key) not in classes]
    if unknown:
        raise DataError(
            f"{place}: image {unknown[0]} has no class in image_class_labels.txt and classes.txt: {_LAYOUT}"
        )
    gone = [place / "images" / name for name in files.values() if not (place / "images" / name).is_file()]
    if gone:
        raise DataError(f"no image {gone[0]} and {len(gone) - 1} others that images.txt names: {_LAYOUT}")
    number = {key: k for k, key in enumerate(sorted(classes, key=int))}
    y = np.array([number[labels[key]] for key in files], dtype=np.int64)
    pixels = read_images([place / "images" / name for name in files.values()], side=side, margin=1.15)
    return labelled_images(pixels, y, [classes[key] for key in number], "CUB-200-2011")


def cub_image_names(root: Root = None) -> list[str]:
    """Paths of the photographs below ``images``, in the order of `load_cub`."""
    return list(_numbered(_place(root) / "images.txt").values())


def cub_split(images: LabelledSet) -> list[LabelledSet]:
    """Training, validation and test classes by their number, as Hilliard et al. (2018) and Chen et al. (2019)."""
    classes = range(images.n_classes)
    return [images.select_classes(chosen) for chosen in (classes[0::2], classes[1::4], classes[3::4])]


def _place(root: Root) -> Path:
    folder = data_root(root, f"{_FOLDER}/images.txt", _LAYOUT)
    places = [place for place in (folder / _FOLDER, folder) if (place / "images.txt").is_file()]
    if not places:
        raise DataError(f"no file {folder / _FOLDER / 'images.txt'}: {_LAYOUT}")
    return places[0]


def _numbered(path: Path) -> dict[str, str]:
    """Lines of a number, a space and a text, as a mapping in their order."""
    out = {}
    for line in read_list(path, _LAYOUT):
        key, _, text = line.partition(" ")
        if not key.isdigit() or not text:
            raise DataError(f"{path} has the line {line[:60]!r}, expected a number, a space and a text")
        out[key] = text
    return out
