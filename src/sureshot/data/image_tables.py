"""Images from files as rows for an estimator, prepared as those that a checkpoint was trained on.

A folder with a sub-folder for each class is a table with labels; a folder of images, or one image, a table without.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sureshot.data.image_files import IMAGE_SUFFIXES, read_images
from sureshot.data.image_folders import PARTS, class_folders, has_split, image_files, images_in
from sureshot.data.root import DataError
from sureshot.data.tables import Table


def is_image_source(path: Path) -> bool:
    """Whether `load_image_table` is to read it, not `sureshot.data.load_table`: a folder, or an image by its name."""
    return path.is_dir() or path.suffix.lower() in IMAGE_SUFFIXES


def load_image_table(path: Path, shape: tuple[int, ...], *, with_labels: bool) -> Table:
    """Read images as rows.

    Parameters
    ----------
    path : Path
        With labels a folder ``path/CLASS/any-name.png`` (or .jpg and others). Without, a folder with images, in
        sub-folders of its own or not, or one image.
    shape : tuple of int
        Of a row: (channels, side, side), one channel or three. Images of other sizes are resized as
        `sureshot.data.image_files.read_images` does it.
    with_labels : bool
        Whether the names of the sub-folders are wanted as labels.

    Returns
    -------
    Table
        ``X`` uint8 (N, channels * side * side), channels first; ``y`` text or None; ``row_ids`` the files, from `path`
        on.

    Raises
    ------
    DataError
        If `path` is laid out otherwise, an image cannot be read, or `shape` is not that of a square image.
    """
    if len(shape) != 3:
        raise DataError(
            f"{path} has images, but the learner takes rows of {' x '.join(map(str, shape))} numbers: name a file of "
            "such rows, or use a learner that was trained on images"
        )
    channels, height, width = shape
    if height != width or channels not in (1, 3):
        raise DataError(
            f"{path}: image files can be prepared for square images of one or three channels, but the learner takes "
            f"{channels} channels of {height} x {width}: prepare them yourself and use it in Python"
        )
    files, labels = _labelled_files(path) if with_labels else (_files(path), None)
    pixels = read_images(files, side=height, grey=channels == 1)
    planes = pixels if channels == 1 else np.moveaxis(pixels, -1, 1)
    names = [file.name if path == file else file.relative_to(path).as_posix() for file in files]
    return Table(planes.reshape(len(files), -1), labels, None, np.array(names, dtype=object))


def _labelled_files(path: Path) -> tuple[list[Path], np.ndarray]:
    if path.is_file():
        raise DataError(f"{path} is one image without a class: name a folder with a sub-folder for each class")
    if has_split(path):
        raise DataError(f"{path} has {', '.join(PARTS)}: name one of them")
    names = class_folders(path)
    inside = [image_files(path / name) for name in names]
    labels = np.repeat(np.array(names, dtype=object), [len(files) for files in inside])
    return [file for files in inside for file in files], labels.astype(str)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.exists():
        raise DataError(f"{path} does not exist")
    folders = sorted(place for place in path.iterdir() if place.is_dir() and not place.name.startswith("."))
    files = [file for place in (path, *folders) for file in images_in(place)]
    if not files:
        raise DataError(f"no image in {path} or its sub-folders; expected files such as *.png or *.jpg")
    return files
