"""Images in memory: as labelled sets, and turned."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sureshot.data import DataError, LabelledSet
from sureshot.data.images import labelled_images, with_rotations

CORNER = np.array([[9, 0], [0, 0]], dtype=np.uint8)  # bright at the top left
IMAGES = np.stack([CORNER, CORNER + 1, CORNER + 2, CORNER + 3])


def _set() -> LabelledSet:
    return labelled_images(IMAGES, np.array([0, 1, 1, 2]), ("a", "b", "c"), "small")


def test_classes_and_rows() -> None:
    chosen = _set().select_classes([1, 0])
    assert chosen.class_names == ("b", "a")
    assert chosen.y.tolist() == [1, 0, 0]
    assert chosen.x[:, 0, 0, 0].tolist() == [9, 10, 11]
    assert _set().select_rows(torch.tensor([True, False, True, True])).y.tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="no row of class a"):
        _set().select_rows(torch.tensor([False, True, True, True]))


def test_rotations_are_classes_of_their_own() -> None:
    turned = with_rotations(_set())
    assert turned.n_classes == 12
    assert turned.class_names[:4] == ("a", "b", "c", "a/90")
    assert turned.class_sizes.tolist() == [1, 2, 1] * 4
    # Counter-clockwise: top left, bottom left, bottom right, top right.
    for turns, (row, column) in enumerate([(0, 0), (1, 0), (1, 1), (0, 1)]):
        image = turned.x[turned.y == 3 * turns][0, 0]
        assert image[row, column] == 9
        assert image.sum() == 9


def test_only_squares_are_turned() -> None:
    oblong = labelled_images(np.zeros((1, 2, 3), np.uint8), np.array([0]), ("a",), "oblong")
    with pytest.raises(DataError, match="squares"):
        with_rotations(oblong)


def test_tensors_have_channels_first_and_their_own_memory() -> None:
    x = _set().x
    assert x.shape == (4, 1, 2, 2)
    assert x.dtype == torch.uint8
    x.zero_()
    assert IMAGES.max() == 12
    pixels = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    colour = labelled_images(pixels, np.array([0, 1]), ("a", "b"), "colour").x
    assert colour.shape == (2, 3, 4, 5)
    assert colour[1, 2, 3, 4] == pixels[1, 3, 4, 2]
    assert colour.is_contiguous()


@pytest.mark.parametrize(
    ("images", "y", "match"),
    [
        (np.zeros((2, 3, 3)), np.array([0, 1]), "expected uint8"),
        (np.zeros((2, 3, 3, 4), np.uint8), np.array([0, 1]), r"\(N, H, W, 3\)"),
        (np.zeros((2, 3, 3), np.uint8), np.array([0, 2]), "expected 0 to 1"),
        (np.zeros((2, 3, 3), np.uint8), np.array([0, 0]), "small: no row of class b"),
    ],
)
def test_what_is_no_set_of_images(images: np.ndarray, y: np.ndarray, match: str) -> None:
    with pytest.raises(DataError, match=match):
        labelled_images(images, y, ("a", "b"), "small")
