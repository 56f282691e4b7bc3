"""Files that appear whole under their name or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to, as the user's umask has it; in the end the file is renamed, or removed.

    A process killed on the way leaves an older file under `path` as it was.
    """
    temporary = path.with_name(f".sureshot-{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
