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


class DataError(ValueError):
    """A file of data that cannot be used; the message says which, why, and what to do about it."""


def data_root(option: str | os.PathLike[str] | None = None, looking_for: str | None = None) -> Path:
    """Folder that holds the data files.

    Parameters
    ----------
    option : path, optional
        The folder. Default: the value of the environment variable ``SURESHOT_DATA``.
    looking_for : str, optional
        File (relative to the root) that the caller is about to read, so that an error can name it.

    Raises
    ------
    DataError
        If neither names a folder that exists.
    """
    wanted = f" (looking for {looking_for})" if looking_for else ""
    if option is not None:
        given, source = str(option), "the data folder"
    else:
        given, source = os.environ.get(ENVIRONMENT_VARIABLE, ""), f"{ENVIRONMENT_VARIABLE} names the folder"
    if not given:
        raise DataError(
            f"no data folder is set{wanted}: set the environment variable {ENVIRONMENT_VARIABLE} to the "
            "folder that holds the data files, or name it with --data"
        )
    root = Path(given).expanduser()
    if not root.is_dir():
        what = "is not a folder" if root.exists() else "does not exist"
        raise DataError(
            f"{source} {root}, which {what}{wanted}: set {ENVIRONMENT_VARIABLE} or --data to the folder that "
            "holds the data files"
        )
    return root


def data_file(name: str, root: str | os.PathLike[str] | None = None) -> Path:
    """Path of one file under the data root.

    Parameters
    ----------
    name : str
        Path relative to the root, such as ``"uci/iris.csv"``.
    root : path, optional
        As in `data_root`.

    Raises
    ------
    DataError
        If the root or the file is missing.
    """
    folder = data_root(root, looking_for=name)
    path = folder / name
    if not path.is_file():
        raise DataError(
            f"the data folder {folder} has no file {name}: add it, or set {ENVIRONMENT_VARIABLE} (or --data) "
            "to a folder that has it"
        )
    return path
