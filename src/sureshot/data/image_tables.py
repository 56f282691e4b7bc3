"""Images from files as rows for an estimator.

A folder with a sub-folder for each class is a table with labels; a folder of images, or one image, a table without.
Images are brought to the size and the number of channels that a learner takes. What else was done to the images that it
was trained on (margins cut off, dark ink on paper inverted) is up to the caller.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from sureshot.data.checks import check_exists, listed
from sureshot.data.image_files import read_images
from sureshot.data.image_folders import PARTS, class_folders, image_files, images_in, sub_folders
from sureshot.data.root import DataError
from sureshot.data.tables import DataTable

_log = logging.getLogger(__name__)


def find_images(path: Path, *, with_labels: bool) -> tuple[list[Path], np.ndarray | None]:
    """Image files, sorted, and the names of their folders if labels are wanted.

    With labels the path is a folder with ``CLASS/any-name.png`` (or .jpg and others); without, a folder with images in
    it or in its sub-folders, or one image. Names that begin with a dot are left alone; a note counts the files that are
    no images by their name or lie deeper.
    """
    check_exists(path)
    if path.is_file():
        if with_labels:
            raise DataError(f"{path} is one image without a class: name a folder with a sub-folder for each class")
        return [path], None
    parts = [part for part in PARTS if (path / part).is_dir()]
    if len(parts) > 1:
        raise DataError(f"{path} has {' and '.join(parts)}: name one of them, {path / parts[0]}")
    folders = sub_folders(path)
    if not any(images_in(place) for place in (path, *folders)):
        there = sorted(place.name for place in path.iterdir())
        raise DataError(
            f"no image in {path} or its sub-folders, which has {listed(there) or 'nothing'}; expected files such as "
            "*.png or *.jpg, or of a table *.parquet"
        )
    labels = None
    if with_labels:
        names = class_folders(path)
        inside = [image_files(path / name) for name in names]
        files = [file for found in inside for file in found]
        labels = np.repeat(np.array(names), [len(found) for found in inside])
    else:
        files = [file for place in (path, *folders) for file in images_in(place)]
    _note_others(path, files)
    return files, labels


def load_image_table(
    path: Path,
    shape: tuple[int, ...],  # (channels, side, side) of a row, one channel or three
    *,
    with_labels: bool,
) -> DataTable:
    """The images that `find_images` finds as rows uint8 (N, channels * side * side), channels first.

    Images of other sizes are resized as `sureshot.data.image_files.read_images` does it. ``row_ids`` are the files,
    from `path` on.
    """
    files, labels = find_images(path, with_labels=with_labels)
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
    pixels = read_images(files, side=height, grey=channels == 1)
    planes = pixels if channels == 1 else np.moveaxis(pixels, -1, 1)
    names = [file.name if path == file else file.relative_to(path).as_posix() for file in files]
    return DataTable(planes.reshape(len(files), -1), labels, None, np.array(names, dtype=object))


def _note_others(path: Path, files: list[Path]) -> None:
    used = set(files)
    others = [
        place
        for place in sorted(path.rglob("*"))
        if place not in used
        and not place.is_dir()
        and not any(part.startswith(".") for part in place.relative_to(path).parts)
    ]
    if others:
        first = others[0].relative_to(path).as_posix()
        _log.info("%s: left out %d files that are no images or lie elsewhere (%s)", path, len(others), first)
