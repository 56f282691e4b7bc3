"""Image files as rows for an estimator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sureshot.data.file_kinds import is_image_source
from sureshot.data.image_tables import load_image_table
from sureshot.data.root import DataError


def draw(path: Path, value: int, mode: str = "L", side: int = 8) -> np.ndarray:
    """An image of one brightness but for a corner; its pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new(mode, (side, side), value if mode == "L" else (value, 0, 255 - value))
    image.putpixel((0, 0), 7 if mode == "L" else (7, 8, 9))
    image.save(path)
    return np.asarray(image)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw(tmp_path / "b" / "2.png", 20)
    draw(tmp_path / "b" / "1.png", 10)
    draw(tmp_path / "a" / "x.png", 30)
    (tmp_path / "a" / "notes.txt").write_text("no image")
    return tmp_path


def test_labels_are_the_folders_names(folder: Path) -> None:
    table = load_image_table(folder, (1, 8, 8), with_labels=True)
    assert table.row_ids.tolist() == ["a/x.png", "b/1.png", "b/2.png"]
    assert table.y is not None
    assert table.y.tolist() == ["a", "b", "b"]
    X = np.asarray(table.X)
    assert X.dtype == np.uint8
    assert X[:, 1].tolist() == [30, 10, 20]
    assert X[:, 0].tolist() == [7, 7, 7]


def test_without_labels_loose_images_count_too(folder: Path) -> None:
    draw(folder / "loose.png", 40)
    table = load_image_table(folder, (1, 8, 8), with_labels=False)
    assert table.y is None
    assert table.row_ids.tolist() == ["loose.png", "a/x.png", "b/1.png", "b/2.png"]


def test_one_image_has_its_channels_first_and_its_size_made_to_fit(tmp_path: Path) -> None:
    pixels = draw(tmp_path / "photo.png", 200, "RGB", 6)
    assert is_image_source(tmp_path / "photo.png")
    table = load_image_table(tmp_path / "photo.png", (3, 6, 6), with_labels=False)
    np.testing.assert_array_equal(np.asarray(table.X).reshape(3, 6, 6), pixels.transpose(2, 0, 1))
    assert table.row_ids.tolist() == ["photo.png"]
    assert load_image_table(tmp_path / "photo.png", (3, 4, 4), with_labels=False).X.shape == (1, 48)


def test_suffixes_of_any_case_and_what_is_left_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    draw(folder / "a" / "Y.PNG", 50)
    draw(folder / "a" / "more" / "z.png", 60)
    with caplog.at_level("INFO"):
        table = load_image_table(folder, (1, 8, 8), with_labels=True)
    assert table.row_ids.tolist() == ["a/Y.PNG", "a/x.png", "b/1.png", "b/2.png"]
    assert "left out 2 files" in caplog.text
    assert "a/more/z.png" in caplog.text


def test_what_cannot_be_read(folder: Path) -> None:
    with pytest.raises(DataError, match="takes rows of 384 numbers"):
        load_image_table(folder, (384,), with_labels=True)
    with pytest.raises(DataError, match="1 channels of 8 x 9"):
        load_image_table(folder, (1, 8, 9), with_labels=True)
    with pytest.raises(DataError, match="one image without a class"):
        load_image_table(folder / "a" / "x.png", (1, 8, 8), with_labels=True)
    with pytest.raises(DataError, match="no sub-folder"):
        load_image_table(folder / "a", (1, 8, 8), with_labels=True)
    for labels in (True, False):
        with pytest.raises(DataError, match=r"x.jpg does not exist \(did you mean 'x.png'"):
            load_image_table(folder / "a" / "x.jpg", (1, 8, 8), with_labels=labels)
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match="no image of class empty"):
        load_image_table(folder, (1, 8, 8), with_labels=True)
    with pytest.raises(DataError, match="has nothing; expected files"):
        load_image_table(folder / "empty", (1, 8, 8), with_labels=False)
    (folder / "tables" / "x.csv").parent.mkdir()
    (folder / "tables" / "x.csv").write_text("a,b")
    with pytest.raises(DataError, match=r"no image in .*, which has x\.csv"):
        load_image_table(folder / "tables", (4,), with_labels=False)


@pytest.mark.parametrize("parts", [("train", "test"), ("train", "val", "test")])
@pytest.mark.parametrize("with_labels", [True, False])
def test_of_a_split_one_part_is_wanted(tmp_path: Path, parts: tuple[str, ...], with_labels: bool) -> None:
    for part in parts:
        draw(tmp_path / part / "c" / "1.png", 1)
    with pytest.raises(DataError, match=r"name one of them, .*train"):
        load_image_table(tmp_path, (1, 8, 8), with_labels=with_labels)
