"""Named arrays of an NPZ file, read with care.

The prepared sets are NPZ files with arrays of known names. `read_arrays` reads those it is asked for, and says
which file is broken, or which array is missing, in one line. Object arrays are pickles, which can run code when
they are read, so they are refused.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from sureshot.data.checks import listed, reason
from sureshot.data.root import DataError


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays with the given names."""
    with opened(path, f"fetch or write it again, with {listed(names)}") as archive:
        missing = [name for name in names if name not in archive.files]
        if missing:
            raise DataError(f"{path} has no array {listed(missing)}; arrays: {listed(archive.files) or 'none'}")
        return {name: np.asarray(archive[name]) for name in names}


@contextmanager
def opened(path: Path, advice: str) -> Iterator[np.lib.npyio.NpzFile]:
    """The archive; anything wrong with its bytes, then or when an array is read, as a `DataError` with advice."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise DataError(f"{path} holds one bare array: {advice}")
        with loaded as archive:
            yield archive
    except DataError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, OSError, SyntaxError) as error:
        detail = reason(error)
        if "pickle" in detail:
            detail = "it is a pickle or no NPZ file at all"
        raise DataError(f"{path} cannot be read as NPZ ({detail}): {advice}") from None
