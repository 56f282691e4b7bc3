"""Image files into arrays of bytes, one size for all.

Decoding is Pillow's. A broken file is named: with 60,000 files "cannot identify image" alone helps nobody. Photographs
are turned upright as their EXIF data say, transparent images lie on white.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from sureshot.data.checks import reason
from sureshot.data.root import DataError

STRIP_SIDE = 32  # pixels


def read_images(
    paths: Sequence[Path],
    *,
    side: int,  # pixels
    grey: bool = False,  # brightness instead of three colours
    margin: float = 1.0,
) -> np.ndarray:
    """Images as bytes (N, side, side), or (N, side, side, 3) in colour.

    Images of another size are resized (LANCZOS) without keeping their proportions, as is usual for these benchmarks;
    those of this size are taken as they are. With a margin they are resized to ``int(side * margin)`` and the middle is
    kept: 1.15 is usual for large photographs.
    """
    if side < 1 or margin < 1:
        raise DataError(f"side={side} and margin={margin}: expected at least 1 pixel and a margin of at least 1")
    out = np.empty((len(paths), side, side) if grey else (len(paths), side, side, 3), dtype=np.uint8)
    for i, path in enumerate(paths):
        out[i] = _read_one(path, side, grey, margin)
    return out


def _read_one(path: Path, side: int, grey: bool, margin: float) -> np.ndarray:
    try:
        with Image.open(path) as file:
            upright = ImageOps.exif_transpose(file)
        deep = upright.mode == "F" or upright.mode.startswith("I")
        image = upright if deep else _on_white(upright).convert("L" if grey else "RGB")
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{path} cannot be read as an image ({reason(error)}): fetch or write it again") from None
    if deep:
        raise DataError(f"{path} has more than 8 bits for each channel: save it with 8, from black to white")
    large = int(side * margin)
    if image.size != (large, large):
        image = image.resize((large, large), Image.Resampling.LANCZOS)
    start = (large - side) // 2
    return np.asarray(image)[start : start + side, start : start + side]


def _on_white(image: Image.Image) -> Image.Image:
    """The image without transparency; what lies under a transparent pixel is not part of the picture."""
    if not image.has_transparency_data:
        return image
    visible = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", visible.size, "white"), visible)


def read_strips(
    path: Path,  # for messages
    jpeg: np.ndarray,  # uint8, one file after another
    offset: np.ndarray,  # (K + 1,), their bounds
    class_names: Sequence[str],  # K
) -> np.ndarray:
    """Images kept as one JPEG for each class, 32 pixels wide, below one another; (N, 32, 32, 3) uint8, by class."""
    bounds = zip(offset[:-1].tolist(), offset[1:].tolist(), class_names, strict=True)
    return np.concatenate([_strip(path, jpeg[start:stop], name) for start, stop, name in bounds])


def _strip(path: Path, data: np.ndarray, name: str) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(data.tobytes())) as file:
            strip = np.asarray(file.convert("RGB"))
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise DataError(
            f"{path}: the strip of class {name} is no image ({reason(error)}): fetch or write it again"
        ) from None
    if strip.shape[1] != STRIP_SIDE or strip.shape[0] % STRIP_SIDE:
        raise DataError(f"{path}: the strip of class {name} is {strip.shape[1]} x {strip.shape[0]}, expected 32 x 32 n")
    return strip.reshape(-1, STRIP_SIDE, STRIP_SIDE, 3)
