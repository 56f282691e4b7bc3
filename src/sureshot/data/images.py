"""Sets of images in memory, as bytes, all of one size.

Few-shot benchmarks are small enough to be held whole: mini-ImageNet at 84 x 84 is 1.3 GB of bytes, Omniglot at
28 x 28 is 25 MB. Reading once and slicing afterwards is far faster than opening files in every episode, and it finds
a corrupt file before training begins, not in its third hour.

Ink is high: handwriting has dark background and bright strokes, whatever the files have, so that sets of
different origin can be combined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sureshot.data.labelled import LabelledSet, check_class_numbers, renumber
from sureshot.data.root import DataError


@dataclass(frozen=True, eq=False)
class ImageSet:
    """N images of K classes."""

    images: np.ndarray  # uint8 (N, H, W) grey or (N, H, W, 3) colour
    y: np.ndarray  # (N,) int64, class numbers 0..K-1, every class at least once
    class_names: tuple[str, ...]  # K names
    name: str  # of the set, for messages

    def __post_init__(self) -> None:
        colour = self.images.ndim == 4 and self.images.shape[3] == 3
        if self.images.dtype != np.uint8 or not (self.images.ndim == 3 or colour):
            raise DataError(
                f"{self.name}: images of shape {self.images.shape} and dtype {self.images.dtype}, expected uint8 "
                "(N, H, W) or (N, H, W, 3)"
            )
        if self.y.dtype != np.int64:
            raise DataError(f"{self.name}: class numbers of dtype {self.y.dtype}, expected int64")
        check_class_numbers(self.y, len(self.images), self.class_names, self.name)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.class_names)

    def select_classes(self, classes: Sequence[int]) -> ImageSet:
        """Only these classes, numbered from 0 in the order given; images keep their order."""
        rows, y = renumber(self.y, classes, self.n_classes)
        return ImageSet(self.images[rows], y, tuple(self.class_names[c] for c in classes), self.name)

    def select_rows(self, keep: np.ndarray) -> ImageSet:
        """Only some images (a mask (N,) or row numbers), of the same classes.

        Raises
        ------
        DataError
            If a class loses all its images.
        """
        return ImageSet(self.images[keep], self.y[keep], self.class_names, self.name)

    def with_rotations(self) -> ImageSet:
        """Each class four times: upright and turned by 90, 180 and 270 degrees, as classes of their own.

        Class k turned r times is number r K + k; its name says the angle (counter-clockwise). Split classes first and
        turn afterwards: the four must not be on two sides of a split.
        """
        if self.images.shape[1] != self.images.shape[2]:
            raise DataError(f"{self.name}: images of {self.images.shape[1:3]} pixels, only squares can be turned by 90")
        turned = np.concatenate([np.rot90(self.images, turns, axes=(1, 2)) for turns in range(4)])
        y = np.concatenate([self.y + turns * self.n_classes for turns in range(4)])
        names = [name if turns == 0 else f"{name}/{90 * turns}" for turns in range(4) for name in self.class_names]
        return ImageSet(turned, y, tuple(names), self.name)

    def to_tensor(self) -> Tensor:
        """The images as a uint8 tensor (N, channels, H, W) of its own memory; one channel or three."""
        planes = self.images[:, None] if self.images.ndim == 3 else self.images.transpose(0, 3, 1, 2)
        return torch.from_numpy(np.array(planes, order="C"))

    def to_labelled(self) -> LabelledSet:
        """The same as a labelled set, for episodes."""
        return LabelledSet(self.to_tensor(), torch.from_numpy(self.y.copy()), self.class_names)
