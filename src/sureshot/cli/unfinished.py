"""Rows that are written a block at a time, so that a command that was killed can go on behind the last whole one.

They go to ``OUT.part``, which is renamed in the end. ``OUT.part.json`` says how far it is whole, and what it is of.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sureshot
from sureshot.cli.console import note, output_text
from sureshot.data.file_kinds import parquet_files
from sureshot.persistence import is_special, written_whole


def origin(model: Path, data: Path, options: object) -> dict[str, str]:
    """What answers depend on: a model by its bytes, data by names, sizes and times of change of its files."""
    files = [(file.name, file.stat()) for file in parquet_files(data) or sorted(data.rglob("*")) if file.exists()]
    states = repr([(name, state.st_size, state.st_mtime_ns) for name, state in files])
    digests = [hashlib.sha256(content).hexdigest() for content in (model.read_bytes(), states.encode())]
    return {"model": digests[0], "data": digests[1], "options": repr(options), "version": sureshot.__version__}


@dataclass(frozen=True)
class Unfinished:
    """What there is of an output already."""

    path: Path | None  # None: standard output
    of: Mapping[str, str]
    rows: int = 0
    size: int = 0  # in bytes, of these rows and the head before them

    @classmethod
    def found(cls, path: Path | None, of: Mapping[str, str], resume: bool) -> Unfinished:
        """What an earlier process left, if it is wanted; ValueError if it is of something else."""
        new = cls(path, of)
        if not resume or not (new.part.exists() and new.state.exists()):
            return new
        known = json.loads(new.state.read_text(encoding="utf-8"))
        if others := [name for name, value in of.items() if known["of"].get(name) != value]:
            raise ValueError(f"{new.part} is of other {' and '.join(others)}: leave --resume out to start anew")
        if new.part.stat().st_size < known["size"]:
            raise ValueError(f"{new.part} has been cut off: leave --resume out to start anew")
        note(f"{new.part}: goes on behind {known['rows']} rows")
        return cls(path, of, known["rows"], known["size"])

    def write(
        self, head: str, blocks: Iterator[list[Any]], as_text: Callable[[list[Any], int], str], tail: str
    ) -> None:
        """The head unless it is there, blocks of further rows with the number of those before, and the tail.

        What is refused for the first rows is refused before anything is written.
        """
        blocks = itertools.chain(list(itertools.islice(blocks, 1)), blocks)
        rows = self.rows
        if self.path is None or is_special(self.path):
            with output_text(self.path) as stream:
                stream.write(head)
                for block in blocks:
                    stream.write(as_text(block, rows))
                    rows += len(block)
                stream.write(tail)
            return
        if rows:
            os.truncate(self.part, self.size)
        else:
            self.state.unlink(missing_ok=True)  # before the rows that it is of
        with written_whole(self.path, self.part), open(self.part, "ab" if rows else "wb") as sink:
            sink.write(b"" if rows else head.encode())
            for block in blocks:
                sink.write(as_text(block, rows).encode())
                sink.flush()
                rows += len(block)
                with written_whole(self.state) as file:
                    file.write_text(json.dumps({"of": self.of, "rows": rows, "size": sink.tell()}), encoding="utf-8")
            sink.write(tail.encode())
        self.state.unlink(missing_ok=True)

    @property
    def part(self) -> Path:
        """Where rows go until all are there."""
        return Path(f"{os.path.realpath(self.path or '')}.part")

    @property
    def state(self) -> Path:
        """What says how far that is whole."""
        return Path(f"{self.part}.json")
