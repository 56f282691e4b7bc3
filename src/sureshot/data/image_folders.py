"""A folder of images with one sub-folder for each class.

Either the classes lie in sub-folders ``train``, ``val`` and ``test``, which then is the split, or they lie in the
folder itself and are shared out by seed (see `sureshot.data.class_splits`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sureshot.data.checks import listed
from sureshot.data.file_kinds import IMAGE_SUFFIXES
from sureshot.data.image_files import read_images
from sureshot.data.images import labelled_images
from sureshot.data.labelled import LabelledSet
from sureshot.data.root import DataError

PARTS = ("train", "val", "test")


def read_class_folders(
    folder: Path,  # with CLASS/any-name.png (or .jpg and others)
    *,
    side: int,
    grey: bool = False,
    classes: list[str] | None = None,  # folders to read, in this order; by default all, sorted by name
    name: str | None = None,  # of the set, for messages; by default the folder
) -> LabelledSet:
    """All images of the class folders in a folder, brought to one size by `sureshot.data.image_files.read_images`.

    Files beside the class folders, files that are no images by their name, and names that begin with a dot are left
    alone.
    """
    names = class_folders(folder) if classes is None else classes
    missing = [wanted for wanted in names if not (folder / wanted).is_dir()]
    if missing:
        raise DataError(f"{folder} has no folder for {listed(missing)}; expected {folder}/CLASS/*.png (or .jpg)")
    files = [image_files(folder / wanted) for wanted in names]
    pixels = read_images([path for inside in files for path in inside], side=side, grey=grey)
    y = np.repeat(np.arange(len(files), dtype=np.int64), [len(inside) for inside in files])
    return labelled_images(pixels, y, names, name or str(folder))


def class_folders(folder: Path) -> list[str]:
    """Names of the class folders in a folder, at least one, sorted."""
    if not folder.is_dir():
        raise DataError(f"no folder {folder}: expected one with a sub-folder of images for each class")
    names = [path.name for path in sub_folders(folder)]
    if not names:
        raise DataError(f"{folder} has no sub-folder: expected one for each class, {folder}/CLASS/*.png (or .jpg)")
    return names


def sub_folders(folder: Path) -> list[Path]:
    """Folders in a folder, sorted, without those whose names begin with a dot."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def has_split(folder: Path) -> bool:
    """Whether the folder has sub-folders ``train``, ``val`` and ``test``.

    Refused are ``train`` and ``test`` without ``val``: they would be taken for two classes.
    """
    present = [part for part in PARTS if (folder / part).is_dir()]
    if present == ["train", "test"]:
        raise DataError(
            f"{folder} has train and test but no val: move some classes of train to {folder / 'val'}, on which "
            "settings are chosen"
        )
    return len(present) == len(PARTS)


def read_split_folders(folder: Path, *, side: int, grey: bool = False) -> list[LabelledSet]:
    """Images of ``train``, ``val`` and ``test``, which must not share a class."""
    names = {part: class_folders(folder / part) for part in PARTS}
    for first, second in (("train", "val"), ("train", "test"), ("val", "test")):
        both = sorted(set(names[first]) & set(names[second]))
        if both:
            raise DataError(
                f"{folder}: {listed(both)} in both {first} and {second}; few-shot learning holds out whole classes, so "
                "each class belongs into one of them"
            )
    return [read_class_folders(folder / part, side=side, grey=grey) for part in PARTS]


def images_in(folder: Path) -> list[Path]:
    """The image files in a folder, by their names, sorted; names that begin with a dot are left alone."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")
    )


def image_files(folder: Path) -> list[Path]:
    """The same of a class, which has at least one (`DataError`)."""
    files = images_in(folder)
    if not files:
        raise DataError(f"no image of class {folder.name} in {folder}; expected files such as *.png or *.jpg")
    return files
