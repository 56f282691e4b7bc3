"""Where the records of a campaign are kept: one compressed file, and a folder of those that have come since.

Of a campaign in ``cells/NAME``, ``cells/NAME.jsonl.gz`` has a line of JSON for each cell, in the order of their keys.
While it runs, every finished cell is a file ``cells/NAME/KEY.json``, written whole or not at all, which counts before
the line of its key; `pack` moves them all into the file. Equal records make equal files.
"""

from __future__ import annotations

import gzip
import json
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from sureshot.persistence import written_whole

Record = dict[str, Any]


def archive_of(results: Path) -> Path:
    """The compressed file of a campaign whose folder is `results`."""
    return results.with_name(f"{results.name}.jsonl.gz")


def kept(results: Path, key: str) -> Record | None:
    """The record under a key, or None if there is none."""
    path = results / f"{key}.json"
    try:
        return _read(path)
    except FileNotFoundError:  # look into the archive second: `pack` writes it before it deletes the file
        return _packed(archive_of(results)).get(key)


def all_kept(results: Path) -> dict[str, Record]:
    """All records by key; see `kept`."""
    added = {record["key"]: record for record in map(_read, sorted(results.glob("*.json")))}
    return {**_packed(archive_of(results)), **added}


def keep(results: Path, record: Record) -> None:
    """Write a record under its ``key``, beside the compressed file."""
    write_json(results / f"{record['key']}.json", record)


def pack(results: Path) -> None:
    """Move the records beside the compressed file into it; nothing may be written there meanwhile."""
    paths = sorted(results.glob("*.json"))
    if not paths:
        return
    records = all_kept(results)
    lines = [
        json.dumps(records[key], sort_keys=True, separators=(",", ":"), allow_nan=False) for key in sorted(records)
    ]
    write_compressed(archive_of(results), "\n".join(lines) + "\n")
    for path in paths:
        path.unlink()
    if not any(results.iterdir()):
        results.rmdir()


def write_compressed(path: Path, text: str) -> None:
    """Whole or not at all; equal texts make equal files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as temporary:
        temporary.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def write_json(path: Path, value: Any) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _read(path: Path) -> Record:
    return _parsed(path.read_text(encoding="utf-8"), path)


def _packed(archive: Path) -> dict[str, Record]:
    return _unpacked(archive, archive.stat().st_mtime_ns) if archive.is_file() else {}


@lru_cache(maxsize=4)
def _unpacked(archive: Path, written: int) -> dict[str, Record]:
    """The records by key; remembered until the file is written again."""
    del written
    try:
        lines = gzip.decompress(archive.read_bytes()).decode().splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{archive} is damaged ({error}): restore it") from None
    records = [_parsed(line, archive) for line in lines]
    return {record["key"]: record for record in records}


def _parsed(text: str, path: Path) -> Record:
    try:
        record = json.loads(text)
    except ValueError:
        record = None
    if not isinstance(record, dict) or "key" not in record:
        raise ValueError(f"{path} is damaged (not a JSON object with a key): delete it to run the cell again")
    return record
