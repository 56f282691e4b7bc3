"""Images kept as one JPEG for each class: a strip as wide as an image, with the images below one another."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from sureshot.data.root import DataError

SIDE = 32


def read_strips(
    path: Path,  # for messages
    jpeg: np.ndarray,  # uint8, one file after another
    offset: np.ndarray,  # (K + 1,), their bounds
    class_names: Sequence[str],  # K
) -> np.ndarray:
    """The images of all classes, (N, 32, 32, 3) uint8, class by class."""
    bounds = zip(offset[:-1].tolist(), offset[1:].tolist(), class_names, strict=True)
    return np.concatenate([_strip(path, jpeg[start:stop], name) for start, stop, name in bounds])


def _strip(path: Path, data: np.ndarray, name: str) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(data.tobytes())) as file:
            strip = np.asarray(file.convert("RGB"))
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{path}: the strip of class {name} is no image ({error}): fetch or write it again") from None
    if strip.shape[1] != SIDE or strip.shape[0] % SIDE:
        raise DataError(f"{path}: the strip of class {name} is {strip.shape[1]} x {strip.shape[0]}, expected 32 x 32 n")
    return strip.reshape(-1, SIDE, SIDE, 3)
