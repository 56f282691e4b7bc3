"""Where real data lives: one folder, named by an option or by the environment.

Data is never part of the package. Experiments read it from a *data root*, a folder that the user names
either with an option (``--data``, or an argument) or with the environment variable ``SURESHOT_DATA``; the
option wins. A missing folder or file is an ordinary mistake, so it gives one line that says what was looked
for and what to set.
"""

from __future__ import annotations

import os
from pathlib import Path

ENVIRONMENT_VARIABLE = "SURESHOT_DATA"

Root = str | os.PathLike[str] | None
"""The data root that a reader is given; None for that of the environment, see `data_root`."""


class DataError(ValueError):
    """A file of data that cannot be used; the message says which, why, and what to do about it."""


def data_root(option: Root = None, looking_for: str | None = None, expected: str | None = None) -> Path:
    """Folder that holds the data files.

    Parameters
    ----------
    option : path, optional
        The folder. Default: the value of the environment variable ``SURESHOT_DATA``.
    looking_for : str, optional
        File (relative to the root) that the caller is about to read, so that an error can name it.
    expected : str, optional
        Its layout and where to get it, for the error: "expected ...".

    Raises
    ------
    DataError
        If neither names a folder that exists.
    """
    missing = f"cannot find {looking_for}, as " if looking_for else ""
    layout = f"; {expected}" if expected else ""
    if option is not None:
        given, source = str(option), "the data folder is"
    else:
        given, source = os.environ.get(ENVIRONMENT_VARIABLE, ""), f"{ENVIRONMENT_VARIABLE} names the folder"
    if not given:
        raise DataError(
            f"{missing}no data folder is set: set the environment variable {ENVIRONMENT_VARIABLE} to the folder that "
            f"holds the data files, or name it with --data{layout}"
        )
    root = Path(given).expanduser()
    if not root.is_dir():
        what = "is not a folder" if root.exists() else "does not exist"
        raise DataError(
            f"{missing}{source} {root}, which {what}: set {ENVIRONMENT_VARIABLE} or --data to the folder that holds "
            f"the data files{layout}"
        )
    return root


def data_file(
    name: str,  # path relative to the root, such as ``"uci/iris.csv"``
    root: Root = None,
    expected: str | None = None,  # as in `data_root`
) -> Path:
    """Path of one file under the data root.

    Raises
    ------
    DataError
        If the root or the file is missing.
    """
    path = data_root(root, name, expected) / name
    if not path.is_file():
        layout = f"; {expected}" if expected else ""
        raise DataError(
            f"no file {path}: add it, or set {ENVIRONMENT_VARIABLE} (or --data) to a folder that has it{layout}"
        )
    return path
