"""The record of a run: one JSON object a line, and TensorBoard on request.

``metrics.jsonl`` has what determines nothing but tells everything: training loss, gradient norms and warnings every
so many units, and the scores of every validation. It holds no times of the clock, so an
interrupted and resumed run leaves the same file as an uninterrupted one: on resuming, records after the checkpoint
are cut off and written again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from sureshot.persistence import written_whole

LOG_NAME = "metrics.jsonl"


class MetricLog:
    """Appends records to a file, each written through at once."""

    def __init__(
        self,
        folder: Path,
        unit: str,  # what the run is counted in: the key of the counts
        start: int = 0,  # units already trained; records of later ones are cut off. With 0 the file starts anew
        tensorboard: bool = False,  # write all numbers for TensorBoard too, in the folder ``tensorboard``
    ) -> None:
        self._path, self._unit = folder / LOG_NAME, unit
        self._board = _board(folder / "tensorboard", start) if tensorboard else None
        kept = [record for record in read_log(folder, unit) if record[unit] <= start] if start else []
        with written_whole(self._path) as temporary:
            temporary.write_text("".join(_line(record) for record in kept), encoding="utf-8")
        self._stream = open(self._path, "a", encoding="utf-8")  # noqa: SIM115 - open while the run lasts

    def write(
        self,
        kind: str,  # "training", "validation" or "warning"
        units: int,  # trained so far
        **values: Any,  # finite numbers, strings or None
    ) -> None:
        """Add a record."""
        self._stream.write(_line({"kind": kind, self._unit: units, **values}))
        self._stream.flush()
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{name}", value, units)

    def sync(self) -> None:
        """Wait until all records are on the disk."""
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Close the files."""
        self._stream.close()
        if self._board is not None:
            self._board.close()


def read_log(folder: str | os.PathLike[str], unit: str) -> list[dict[str, Any]]:
    """The records of a run's log, in order; a last line that was not completed is left out."""
    path = Path(folder) / LOG_NAME
    if not path.is_file():
        return []
    records = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines[:-1], start=1):  # a complete line ends with a line break
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or not isinstance(record.get(unit), int):
            raise ValueError(f"{path}, line {number} is no record of training: move the file away to go on")
        records.append(record)
    return records


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


def _board(folder: Path, start: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError(
            "training.tensorboard = true needs TensorBoard: python -m pip install 'sureshot[tensorboard]'"
        ) from error
    return SummaryWriter(str(folder), purge_step=start + 1)  # later numbers are those of an older run
