"""EMNIST by class: 814,255 handwritten digits and letters in 62 classes (Cohen, Afshar, Tapson & van Schaik 2017).

Read from either layout that NIST gives out (www.nist.gov/itl/products-and-services/emnist-dataset), in the data root or
in its folder ``emnist``:

- ``emnist-byclass-{train,test}-{images-idx3,labels-idx1}-ubyte``, with or without ``.gz`` (``gzip.zip``);
- ``emnist-byclass.mat`` (``matlab.zip``).

Both store each image column by column, so read as rows they are mirrored at the diagonal; that is undone here. Classes
are digits, upper case, lower case. As a target of transfer from Omniglot, classes of even number are for validation and
those of odd number for testing (Chen et al. 2019).
"""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np

from sureshot.data.checks import near
from sureshot.data.images import labelled_images
from sureshot.data.labelled import LabelledSet
from sureshot.data.root import DataError, Root, data_root

EMNIST_CLASSES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_STEM = "emnist-byclass"
_PARTS = {"train": ("train",), "test": ("test",), "both": ("train", "test")}


def load_emnist(root: Root = None, part: str = "test") -> LabelledSet:
    """EMNIST by class, upright, 28 x 28, bright ink.

    ``part`` is "test" (its own 116,323 test images), "train" (697,932) or "both" (640 MB). The default has hundreds of
    images of most classes, enough for episodes of a few dozen.
    """
    if part not in _PARTS:
        raise DataError(f"part={part!r}, expected one of {', '.join(_PARTS)}{near(part, _PARTS)}")
    first = f"{_STEM}-{_PARTS[part][0]}-images-idx3-ubyte.gz"
    stems = " and ".join(f"{_STEM}-{which}-{{images-idx3,labels-idx1}}-ubyte" for which in _PARTS[part])
    layout = (
        f"expected {stems} (.gz or not), or {_STEM}.mat, in it or in its folder emnist: unpack gzip.zip or matlab.zip "
        "of www.nist.gov/itl/products-and-services/emnist-dataset there"
    )
    folder = data_root(root, first, layout)
    for place in (folder / "emnist", folder):
        mat = place / f"{_STEM}.mat"
        idx = [_idx_pair(place, which) for which in _PARTS[part]]
        if all(pair is not None for pair in idx):
            read = [_read_pair(*pair) for pair in idx if pair is not None]
        elif mat.is_file():
            read = _read_mat(mat, _PARTS[part])
        else:
            continue
        images = np.concatenate([pair[0] for pair in read]).transpose(0, 2, 1)
        return labelled_images(images, np.concatenate([pair[1] for pair in read]), EMNIST_CLASSES, "EMNIST")
    raise DataError(f"no file {folder / first}: {layout}")


def emnist_split(images: LabelledSet) -> list[LabelledSet]:
    """Classes of even number for validation, of odd number for testing: 31 each."""
    return [images.select_classes(range(first, images.n_classes, 2)) for first in (0, 1)]


def _idx_pair(place: Path, part: str) -> tuple[Path, Path] | None:
    found = []
    for kind in ("images-idx3", "labels-idx1"):
        names = [place / f"{_STEM}-{part}-{kind}-ubyte{suffix}" for suffix in ("", ".gz")]
        found.extend([path for path in names if path.is_file()][:1])
    return (found[0], found[1]) if len(found) == 2 else None


def _read_pair(images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    pixels, y = read_idx(images, 3), read_idx(labels, 1)
    if len(pixels) != len(y):
        raise DataError(f"{images} has {len(pixels)} images but {labels} has {len(y)} labels")
    return pixels, y.astype(np.int64)


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Array of bytes from a file in IDX format, gzipped if its name ends in ``.gz``."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}): fetch it again") from None
    start = 4 + 4 * dimensions
    # Two zero bytes, the code of unsigned bytes, the number of dimensions, then the sizes, most significant byte first.
    if len(data) < start or data[:4] != bytes((0, 0, 8, dimensions)):
        raise DataError(f"{path} is no IDX file of bytes with {dimensions} dimensions: fetch it again")
    shape = struct.unpack(f">{dimensions}I", data[4:start])
    if len(data) - start != int(np.prod(shape)):
        raise DataError(
            f"{path} has {len(data) - start} values, expected {' x '.join(map(str, shape))}: fetch it again"
        )
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def _read_mat(path: Path, parts: tuple[str, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        dataset = loadmat(path, simplify_cells=True)["dataset"]
        read = []
        for part in parts:
            pixels = np.asarray(dataset[part]["images"]).astype(np.uint8)
            read.append((pixels.reshape(-1, 28, 28), np.asarray(dataset[part]["labels"]).reshape(-1).astype(np.int64)))
    except (MatReadError, ValueError, KeyError, TypeError, EOFError, OSError, zlib.error, NotImplementedError) as error:
        raise DataError(
            f"{path} cannot be read as EMNIST's MAT file ({error}): expected dataset.train.images (N, 784), labels and "
            "the same for test"
        ) from None
    return read
