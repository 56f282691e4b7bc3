"""Images in memory, as bytes, all of one size: labelled sets of them, and their turns.

Ink is high: handwriting has dark background and bright strokes, whatever the files have, so that sets of
different origin can be combined.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from sureshot.data.labelled import LabelledSet, check_class_numbers
from sureshot.data.root import DataError


def labelled_images(
    images: np.ndarray,  # uint8 (N, H, W) grey or (N, H, W, 3) colour
    y: np.ndarray,  # (N,) class numbers 0..K-1, every class at least once
    class_names: Sequence[str],  # K names
    name: str,  # of the set, for messages
) -> LabelledSet:
    """Images as a labelled set of their own memory, channels first."""
    if images.dtype != np.uint8 or not (images.ndim == 3 or (images.ndim == 4 and images.shape[3] == 3)):
        raise DataError(
            f"{name}: images of shape {images.shape} and dtype {images.dtype}, expected uint8 (N, H, W) or (N, H, W, 3)"
        )
    check_class_numbers(y, len(images), class_names, name)
    planes = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    return LabelledSet(
        torch.from_numpy(np.array(planes, order="C")), torch.from_numpy(y.astype(np.int64)), tuple(class_names)
    )


def with_rotations(images: LabelledSet) -> LabelledSet:
    """Each class four times: upright and turned by 90, 180 and 270 degrees, as classes of their own.

    Class k turned r times is number r K + k; its name says the angle (counter-clockwise). Split classes first and
    turn afterwards: the four must not be on two sides of a split.
    """
    x, names = images.x, images.class_names
    if x.shape[2] != x.shape[3]:
        raise DataError(f"images of {x.shape[2]} x {x.shape[3]} pixels, only squares can be turned by 90 degrees")
    return LabelledSet(
        torch.cat([x.rot90(turns, (2, 3)) for turns in range(4)]),
        torch.cat([images.y + turns * len(names) for turns in range(4)]),
        tuple(name if turns == 0 else f"{name}/{90 * turns}" for turns in range(4) for name in names),
    )
