"""Where real data lives: one folder, named by an option or by the environment.

Data is never part of the package. It is read from a *data root*, a folder that the user names either with an option
(``--data``, or an argument) or with the environment variable ``SURESHOT_DATA``; the option wins.
"""

from __future__ import annotations

import os
from pathlib import Path

ENVIRONMENT_VARIABLE = "SURESHOT_DATA"

Root = str | os.PathLike[str] | None
"""The data root that a reader is given; None for that of the environment, see `data_root`."""


class DataError(ValueError):
    """Data that cannot be used as asked; the message says which, why, and what to do about it.

    Readers, loaders, splits and labelled sets raise it, for files that are missing, broken or laid out otherwise and
    for arguments out of their range; docstrings name further cases only.
    """


class UnclearTask(DataError):
    """A column of targets that may hold classes or numbers: whoever asks must say which."""


class WrongTask(DataError):
    """Targets that are classes where numbers are learnt, or numbers where classes are."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(f"{found}: {advice}")
        self.found = found


def data_root(option: Root = None, looking_for: str | None = None, expected: str | None = None) -> Path:
    """The folder that holds the data files: the option, else what ``SURESHOT_DATA`` names.

    An error names what the caller is ``looking_for`` (relative to the root) and what was ``expected`` there: its layout
    and where to get it.
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
    """Path of one file under the data root."""
    path = data_root(root, name, expected) / name
    if not path.is_file():
        layout = f"; {expected}" if expected else ""
        raise DataError(
            f"no file {path}: add it, or set {ENVIRONMENT_VARIABLE} (or --data) to a folder that has it{layout}"
        )
    return path
