"""Reading image files and folders of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sureshot.data import DataError
from sureshot.data.image_files import read_images
from sureshot.data.image_folders import has_split, read_class_folders, read_split_folders


def _write(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def test_pixels_come_back_as_they_were(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    grey, colour = rng.integers(0, 256, (6, 6), dtype=np.uint8), rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
    a, b = _write(tmp_path / "a.png", grey), _write(tmp_path / "b.png", colour)
    np.testing.assert_array_equal(read_images([a], side=6, grey=True)[0], grey)
    both = read_images([a, b], side=6)
    np.testing.assert_array_equal(both[0], np.repeat(grey[:, :, None], 3, axis=2))
    np.testing.assert_array_equal(both[1], colour)


def test_resizing_and_the_middle(tmp_path: Path) -> None:
    half = np.zeros((40, 80), np.uint8)
    half[:, 40:] = 200
    path = _write(tmp_path / "half.png", half)
    small = read_images([path], side=10, grey=True)[0]
    assert (small[:, :4] < 20).all()
    assert (small[:, 6:] > 180).all()
    # A ring one pixel wide at the rim of a 12 x 12 image is all that a margin of 1.2 cuts from it.
    ring = np.full((12, 12), 255, np.uint8)
    ring[1:-1, 1:-1] = 7
    middle = read_images([_write(tmp_path / "ring.png", ring)], side=10, grey=True, margin=1.2)
    np.testing.assert_array_equal(middle, np.full((1, 10, 10), 7))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    whole = _write(tmp_path / "whole.png", np.random.default_rng(1).integers(0, 256, (30, 30), dtype=np.uint8))
    cut = tmp_path / "cut.png"
    cut.write_bytes(whole.read_bytes()[:200])
    with pytest.raises(DataError, match=r"cut\.png cannot be read as an image"):
        read_images([whole, cut], side=30)
    text = tmp_path / "text.jpg"
    text.write_text("no picture")
    with pytest.raises(DataError, match=r"text\.jpg cannot be read as an image"):
        read_images([text], side=30)
    with pytest.raises(DataError, match="side=0"):
        read_images([whole], side=0)


def test_class_folders(tmp_path: Path) -> None:
    for name, count in {"cat": 2, "ant": 1}.items():
        for i in range(count):
            _write(tmp_path / name / f"{i}.png", np.full((4, 4), 10 * i + len(name), np.uint8))
    (tmp_path / "readme.txt").write_text("beside the classes")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    images = read_class_folders(tmp_path, side=4, grey=True)
    assert images.class_names == ("ant", "cat")
    assert images.y.tolist() == [0, 1, 1]
    assert images.x[:, 0, 0, 0].tolist() == [3, 3, 13]
    assert read_class_folders(tmp_path, side=4, classes=["cat"]).class_names == ("cat",)
    with pytest.raises(DataError, match="no folder for dog"):
        read_class_folders(tmp_path, side=4, classes=["dog"])
    (tmp_path / "bee").mkdir()
    with pytest.raises(DataError, match="no image of class bee"):
        read_class_folders(tmp_path, side=4)


def test_folders_that_are_no_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no sub-folder"):
        read_class_folders(tmp_path, side=4)
    with pytest.raises(DataError, match="no folder"):
        read_class_folders(tmp_path / "nowhere", side=4)
    (tmp_path / "train").mkdir()
    (tmp_path / "test").mkdir()
    with pytest.raises(DataError, match="no val"):
        has_split(tmp_path)


def test_a_class_belongs_to_one_part(tmp_path: Path) -> None:
    for place in ("train/a", "train/b", "val/c", "test/d"):
        _write(tmp_path / place / "1.png", np.zeros((4, 4), np.uint8))
    assert has_split(tmp_path)
    assert [part.class_names for part in read_split_folders(tmp_path, side=4)] == [("a", "b"), ("c",), ("d",)]
    _write(tmp_path / "test" / "a" / "1.png", np.zeros((4, 4), np.uint8))
    with pytest.raises(DataError, match="a in both train and test"):
        read_split_folders(tmp_path, side=4)


def test_what_a_person_sees_is_what_is_read(tmp_path: Path) -> None:
    """Transparent images lie on white, turned photographs stand upright, palettes are colours."""
    ink = np.zeros((4, 4, 4), np.uint8)
    ink[:, 0] = (0, 0, 0, 255)
    seen = np.full((4, 4), 255, np.uint8)
    seen[:, 0] = 0
    np.testing.assert_array_equal(read_images([_write(tmp_path / "ink.png", ink)], side=4, grey=True)[0], seen)
    palette = tmp_path / "ink.gif"
    Image.fromarray(seen).convert("P").save(palette)
    np.testing.assert_array_equal(read_images([palette], side=4, grey=True)[0], seen)
    turned, exif = tmp_path / "turned.png", Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    Image.fromarray(np.rot90(seen).copy()).save(turned, exif=exif)
    np.testing.assert_array_equal(read_images([turned], side=4, grey=True)[0], seen)


def test_deep_images_are_refused(tmp_path: Path) -> None:
    deep, real = tmp_path / "deep.png", tmp_path / "real.tiff"
    Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(deep)
    Image.fromarray(np.full((4, 4), 0.5, np.float32)).save(real)
    for path in (deep, real):
        with pytest.raises(DataError, match=f"{path.name} has more than 8 bits"):
            read_images([path], side=4)
