"""A cell of a campaign: a computation that runs once, in a folder of its own, and whose result is one record.

The record (`experiments.campaigns.archive`) holds the settings that made it, so that a cell whose settings have changed
is run again.

A cell whose training diverges has a record of the failure, which is reported; the cell is not tried again until the
record and the checkpoints are deleted. All other errors (missing data, for instance) end the campaign.

A lock on the cell's folder is held while it is being worked on and is released by the operating system if the process
dies; another process then takes the cell over, where its last checkpoint left it if it writes any.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from experiments.campaigns.archive import Record, keep, kept, pack
from experiments.experiment import Progress, plain_value
from experiments.tables import hardware_and_versions
from sureshot.networks import DivergedError
from sureshot.progress import within

logger = logging.getLogger(__name__)

FAILED = "failed"
"""The key of a record that says why a cell has no scores."""


class Cell(ABC):
    """The identity and the settings of one computation of a campaign."""

    key: str
    """Its unique name within the campaign."""

    labels: dict[str, str | int]
    """What distinguishes it in tables."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Everything that determines the result, as JSON values."""

    def notes(self) -> dict[str, Any]:
        """Further JSON values for the record, by name, such as the values of a preset."""
        return {}

    def stale(self, record: Mapping[str, Any]) -> str | None:
        """Why a record is not the result of this cell as it is now; None if it is."""
        return None if record.get("settings") == self.settings() else "it was made with other settings"


CellT = TypeVar("CellT", bound=Cell)

RunCell = Callable[[CellT, Path, Progress], dict[str, Any]]
"""Runs a cell in its folder, resuming an earlier attempt, and returns the result as JSON values."""


def finished(cell: Cell, results: Path) -> Record | None:
    """The cell's result (or failure), or None if it is not there or was made with other settings."""
    record = kept(results, cell.key)
    if record is not None and (reason := cell.stale(record)):
        logger.info("%s of %s is stale: %s", cell.key, results, reason)
        return None
    return record


def stale_reason(cell: Cell, results: Path) -> str | None:
    """Why the result that is there is not the cell's any more; None if it is, or there is none."""
    record = kept(results, cell.key)
    return None if record is None else cell.stale(record)


def run_cells(
    cells: Sequence[CellT],
    results: Path,  # a folder, made if need be, or the compressed file beside it; checkpoints are always a folder
    checkpoints: Path,
    run: RunCell[CellT],
    progress: Progress,
    run_missing: bool = True,  # False only collects
) -> list[Record]:
    """Run the cells whose results are missing, and return all results and failures that are there afterwards.

    A damaged file is found before anything is run (ValueError).

    A cell that another process is working on is passed over, and looked at once more when the others are done: it is
    then finished, still being worked on, or ours to take over.
    """
    todo = [cell for cell in cells if finished(cell, results) is None] if run_missing else []
    if todo:
        logger.info(
            "%d of %d cells are to be run; each is kept when it ends, an interrupted one resumes from its checkpoint",
            len(todo),
            len(cells),
        )
    for last_look in (False, True):
        passed_over = []
        for number, cell in enumerate(todo):
            tell = within(progress, cell.key, number / len(todo), 1 / len(todo))
            with _claimed(checkpoints / cell.key) as ours:
                if not ours:
                    passed_over.append(cell)
                elif finished(cell, results) is None:
                    new = _record(cell, checkpoints / cell.key, run, tell)
                    with _claimed(checkpoints, wait=True):  # not while another process packs
                        keep(results, new)
        if last_look and passed_over:
            logger.info("another process is working on %s", ", ".join(cell.key for cell in passed_over))
        todo = passed_over
    if results.is_dir():
        with _claimed(checkpoints, wait=True):
            pack(results)
    return [record for cell in cells if (record := finished(cell, results)) is not None]


@dataclass(frozen=True, kw_only=True)
class CampaignConfig:
    """Settings that all campaigns share: their folders, and whether missing cells are run."""

    # folders of the cells' records, and of checkpoints, logs and locks; each campaign has its name in them
    results: str = "docs/results/cells"
    checkpoints: str = "campaigns"
    train: bool = True  # False: make the page of what is there

    def records(
        self, name: str, cells: Sequence[CellT], run: RunCell[CellT], progress: Progress, train: bool = True
    ) -> list[Record]:
        """See `run_cells`, in the folders of a campaign; nothing is run without `train`, either."""
        results, checkpoints = Path(self.results) / name, Path(self.checkpoints) / name
        return run_cells(cells, results, checkpoints, run, progress, self.train and train)


def json_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as read back from a record: tuples as lists."""
    found: dict[str, Any] = json.loads(json.dumps(settings))
    return found


def unfinished(records: Sequence[Mapping[str, Any]], cells: Sequence[Cell]) -> list[str]:
    """Sentences for a page: which cells have failed, and which have no result."""
    failed = [str(record["key"]) for record in records if FAILED in record]
    there = {str(record["key"]) for record in records}
    absent = [cell.key for cell in cells if cell.key not in there]
    lines = [f"Failed: {', '.join(failed)}."] if failed else []
    return lines + ([f"Without a result yet: {', '.join(absent)}."] if absent else [])


def computed_on(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for a page, where cells have been run on other devices than CPUs: how many on which."""
    devices = Counter(str(record["environment"]["device"]) for record in records if "environment" in record)
    if set(devices) <= {"cpu"}:
        return []
    return ["Cells were run on " + ", ".join(f"{device}: {n}" for device, n in devices.most_common()) + "."]


def _record(cell: CellT, folder: Path, run: RunCell[CellT], progress: Progress) -> dict[str, Any]:
    """The record of the result or, if the numbers broke down, of the failure."""
    try:
        outcome = run(cell, folder, progress)
    except (DivergedError, torch.linalg.LinAlgError) as error:
        logger.warning("%s failed: %s", cell.key, error)
        outcome = {FAILED: str(error)}
    about = {"key": cell.key, "labels": cell.labels, "settings": cell.settings(), **cell.notes()}
    record: dict[str, Any] = plain_value({**about, **outcome, "environment": hardware_and_versions()})
    return record


@contextmanager
def _claimed(folder: Path, wait: bool = False) -> Iterator[bool]:
    """Whether this process got the folder (if it waits, it does), which it keeps until it leaves the block or dies."""
    try:
        import fcntl
    except ImportError:
        raise OSError(
            "running a campaign needs the file locks of Linux or macOS; elsewhere results can only be collected "
            "(--collect)"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
