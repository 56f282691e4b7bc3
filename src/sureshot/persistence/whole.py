"""Files that appear whole under their name or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: Path, kept: Path | None = None) -> Iterator[Path]:
    """A name to write to, as the user's umask has it; in the end the file is renamed to `path`, or removed.

    With `kept`, a file beside, it is that one, which stays where the block fails.

    A process killed on the way leaves an older file under `path` as it was. A link stays one: what it leads to is
    replaced, and keeps its permissions. A pipe or a device cannot be replaced: it is sent the finished file. Errors of
    writing name the file.
    """
    special = is_special(path)
    target = path if special else Path(os.path.realpath(path))
    folder = Path(tempfile.gettempdir()) if special else target.parent
    temporary = kept or folder / f".sureshot-{secrets.token_hex(8)}.tmp"
    try:
        yield temporary
        if special:
            with open(temporary, "rb") as source, open(target, "wb") as sink:
                shutil.copyfileobj(source, sink)
        else:
            if target.exists():
                shutil.copymode(target, temporary)
            os.replace(temporary, target)
    except OSError as error:
        if error.filename in (None, temporary, str(temporary)):  # none for a disk that is full: say which file
            error.filename = str(path)
        raise
    finally:
        if kept is None:
            temporary.unlink(missing_ok=True)


def is_special(path: Path) -> bool:
    """Whether there is something that is neither a file nor a folder, such as a pipe or a device."""
    return path.exists() and not (path.is_file() or path.is_dir())
