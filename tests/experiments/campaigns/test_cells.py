"""Cells are run once, resumed, run again when they changed, shared between processes, and may fail alone."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.campaigns.archive import archive_of, keep, kept, write_compressed
from experiments.campaigns.cells import FAILED, Cell, computed_on, finished, run_cells
from experiments.campaigns.few_shot import FewShotCell, Load, data_loader, run_few_shot
from experiments.experiment import Progress
from sureshot.data.labelled import FewShotData
from sureshot.meta.training import load_checkpoint
from sureshot.networks import DivergedError


class Asked:
    """A `Load` that counts; every cell that is run asks once."""

    def __init__(self, data: FewShotData) -> None:
        self.data, self.times = data, 0

    def __call__(self, name: str, options: dict[str, Any]) -> FewShotData:
        assert name == "tiny"
        self.times += 1
        return self.data


def silent(what: str, fraction: float) -> None:
    del what, fraction


@pytest.fixture
def load(data: FewShotData) -> Asked:
    return Asked(data)


def run(cells: list[FewShotCell], folder: Path, load: Load, **options: Any) -> list[dict[str, Any]]:
    tell = options.pop("progress", silent)
    return run_cells(cells, folder / "results", folder / "checkpoints", partial(run_few_shot, load), tell, **options)


def forget(results: Path, key: str) -> None:
    """Take a record out of the compressed file, as a person does who wants its cell to be run again."""
    archive = archive_of(results)
    lines = gzip.decompress(archive.read_bytes()).decode().splitlines(keepends=True)
    write_compressed(archive, "".join(line for line in lines if f'"key":"{key}"' not in line))


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    """What a seed determines."""
    kept = json.loads(json.dumps(record))
    del kept["evaluation_seconds"], kept["training"]["seconds_of_last_run"]
    for scores in kept["evaluations"].values():
        del scores["time"]
    return kept  # type: ignore[no-any-return]


def test_a_finished_cell_is_not_run_again(make_cell: Any, load: Asked, tmp_path: Path) -> None:
    cells = [make_cell("first"), make_cell("second", seed=1)]
    told: list[tuple[str, float]] = []
    records = run(cells, tmp_path, load, progress=lambda what, fraction: told.append((what, fraction)))
    assert [record["key"] for record in records] == ["first", "second"]
    assert load.times == 2
    assert records == [kept(tmp_path / "results", cell.key) for cell in cells]
    assert [fraction for _, fraction in told] == sorted(fraction for _, fraction in told)
    assert {what.split(":")[0] for what, _ in told} == {"first", "second"}
    record = records[0]
    assert record["settings"] == cells[0].settings()
    assert record["training"]["episodes"] == 8
    assert record["evaluations"]["3-way 1-shot"]["n_tasks"] == 10
    assert 0 < record["evaluations"]["3-way 1-shot"]["accuracy"]["mean"] <= 1
    assert run(cells, tmp_path, load) == records
    assert load.times == 2


def test_collecting_runs_nothing(make_cell: Any, load: Asked, tmp_path: Path) -> None:
    cells = [make_cell("there"), make_cell("missing", seed=1)]
    there = run(cells[:1], tmp_path, load)
    assert run(cells, tmp_path, load, run_missing=False) == there
    assert load.times == 1
    assert not (tmp_path / "checkpoints" / "missing").exists()


def test_an_interrupted_cell_goes_on_to_the_same_result(make_cell: Any, load: Asked, tmp_path: Path) -> None:
    cell = make_cell()
    [whole] = run([cell], tmp_path / "whole", load)

    def interrupt(what: str, fraction: float) -> None:
        del fraction
        if "episode 5" in what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run([cell], tmp_path, load, progress=interrupt)
    assert finished(cell, tmp_path / "results") is None
    assert load_checkpoint(tmp_path / "checkpoints" / "cell" / "last.safetensors").episodes == 4
    [resumed] = run([cell], tmp_path, load)
    assert without_times(resumed) == without_times(whole)


def test_other_examinations_evaluate_again_without_training(make_cell: Any, load: Asked, tmp_path: Path) -> None:
    [before] = run([make_cell()], tmp_path, load)
    changed = make_cell(n_tasks=20)
    assert finished(changed, tmp_path / "results") is None
    told: list[str] = []
    [after] = run([changed], tmp_path, load, progress=lambda what, fraction: told.append(what))
    assert after["evaluations"]["3-way 1-shot"]["n_tasks"] == 20
    assert after["training"]["best_episodes"] == before["training"]["best_episodes"]
    assert not any("episode 1:" in what for what in told)


def test_a_setting_that_tests_did_not_have_had_its_default(make_cell: Any, load: Asked, tmp_path: Path) -> None:
    [record] = run([make_cell()], tmp_path, load)
    del record["settings"]["examinations"][0]["validation_tasks"]
    keep(tmp_path / "results", record)
    assert finished(make_cell(), tmp_path / "results") is not None
    for settings in ({}, None, {"examinations": ["x"]}):
        keep(tmp_path / "results", record | {"settings": settings})
        assert finished(make_cell(), tmp_path / "results") is None


def test_another_training_starts_from_the_beginning(make_cell: Any, load: Asked, tmp_path: Path) -> None:
    run([make_cell()], tmp_path, load)
    changed = make_cell(learning_rate=0.01)
    told: list[str] = []
    [record] = run([changed], tmp_path, load, progress=lambda what, fraction: told.append(what))
    assert record["settings"]["training"]["training"]["learning_rate"] == 0.01
    assert any("episode 1:" in what for what in told)
    [fresh] = run([changed], tmp_path / "fresh", load)
    assert without_times(record) == without_times(fresh)


def test_a_preset_that_stood_for_something_else_starts_from_the_beginning(
    make_cell: Any, load: Asked, tmp_path: Path
) -> None:
    cell = make_cell(learner="cdkt_pl")
    [whole] = run([cell], tmp_path, load)
    assert whole["preset_values"]["temperature"] == 0.2
    results, noted = tmp_path / "results", tmp_path / "checkpoints" / "cell" / "preset.json"

    def with_preset(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(json.dumps(whole))
        change(record["preset_values"])
        return record

    # A switch that did not exist then had its default: no change if that is what it still has.
    keep(results, with_preset(lambda values: values.pop("start")))
    assert finished(cell, results) is not None
    keep(results, with_preset(lambda values: values.pop("augmentation")))
    assert finished(cell, results) is None
    keep(results, with_preset(lambda values: values.update(temperature=0.3)))
    assert finished(cell, results) is None

    # The result is stale, but the checkpoint is not: tested again.
    told: list[str] = []
    [again] = run([cell], tmp_path, load, progress=lambda what, fraction: told.append(what))
    assert not any("episode 1:" in what for what in told)
    assert without_times(again) == without_times(whole)

    # Neither is as it would be now: trained again.
    forget(results, "cell")
    noted.write_text(json.dumps(json.loads(noted.read_text()) | {"temperature": 0.3}))
    [anew] = run([cell], tmp_path, load, progress=lambda what, fraction: told.append(what))
    assert any("episode 1:" in what for what in told)
    assert without_times(anew) == without_times(whole)
    assert json.loads(noted.read_text())["temperature"] == 0.2


@pytest.mark.parametrize("content", ['{"key": "second", "sett', "[]", ""])
def test_a_damaged_result_is_found_before_anything_is_run(
    content: str, make_cell: Any, load: Asked, tmp_path: Path
) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "second.json").write_text(content)
    with pytest.raises(ValueError, match=r"second\.json is damaged.*delete it"):
        run([make_cell("first"), make_cell("second")], tmp_path, load)
    assert load.times == 0


def test_a_cell_that_diverges_does_not_stop_the_others(
    make_cell: Any, load: Asked, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cells = [make_cell("wild", learning_rate=1e30), make_cell("tame")]
    with caplog.at_level(logging.WARNING):
        wild, tame = run(cells, tmp_path, load)
    assert "wild failed" in caplog.text
    assert "diverged at step" in wild[FAILED]
    assert wild["labels"] == cells[0].labels
    assert "evaluations" not in wild
    assert FAILED not in tame
    assert run(cells, tmp_path, load) == [wild, tame]
    assert load.times == 2  # the failure is not tried again ...
    forget(tmp_path / "results", "wild")
    run(cells, tmp_path, load)
    assert load.times == 3  # ... until it is deleted


def test_errors_of_data_end_the_campaign(make_cell: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no few-shot data called 'tiny'"):
        run([make_cell()], tmp_path, data_loader(tmp_path))
    assert not (tmp_path / "results").exists()


def test_a_cell_of_another_process_is_left_to_it_and_collected(
    make_cell: Any, data: FewShotData, tmp_path: Path
) -> None:
    """While the outer run works on its first cell, an inner one on the same folders finds that cell claimed."""
    cells = [make_cell("first"), make_cell("second", seed=1), make_cell("third", seed=2)]
    inner: list[list[dict[str, Any]]] = []
    loads = Asked(data)

    def load_while_another_works(name: str, options: dict[str, Any]) -> FewShotData:
        if not inner:
            inner.append(run(cells, tmp_path, loads))
        return loads(name, options)

    outer = run(cells, tmp_path, load_while_another_works)
    assert [record["key"] for record in inner[0]] == ["second", "third"]
    assert [record["key"] for record in outer] == ["first", "second", "third"]
    assert loads.times == 3


def test_a_cell_that_was_given_up_is_taken_over(make_cell: Any, data: FewShotData, tmp_path: Path) -> None:
    """Passed over at first, free when the others are done."""
    fcntl = pytest.importorskip("fcntl")
    cells = [make_cell("claimed"), make_cell("free", seed=1)]
    folder = tmp_path / "checkpoints" / "claimed"
    folder.mkdir(parents=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        order: list[str] = []

        def tell(what: str, fraction: float) -> None:
            del fraction
            order.append(what.split(":")[0])
            fcntl.flock(lock, fcntl.LOCK_UN)

        records = run(cells, tmp_path, Asked(data), progress=tell)
    assert [record["key"] for record in records] == ["claimed", "free"]
    assert list(dict.fromkeys(order)) == ["free", "claimed"]


def test_the_loader_reads_each_set_once(tmp_path: Path) -> None:
    rows = np.arange(24, dtype=np.float32).reshape(12, 2)
    np.savez(tmp_path / "some.npz", X=rows, y=np.repeat(np.arange(6), 2))
    load = data_loader(tmp_path)
    first = load("embeddings", {"path": str(tmp_path / "some.npz"), "seed": 0})
    assert load("embeddings", {"seed": 0, "path": str(tmp_path / "some.npz")}) is first
    assert load("embeddings", {"path": str(tmp_path / "some.npz"), "seed": 1}) is not first


@dataclass(frozen=True)
class Sum(Cell):
    """A cell that has nothing to do with learners: its result is the sum of its numbers, a file each."""

    key: str
    numbers: tuple[int, ...]
    labels = {"kind": "sum"}  # noqa: RUF012

    def settings(self) -> dict[str, Any]:
        return {"numbers": list(self.numbers)}

    def notes(self) -> dict[str, Any]:
        return {"summed": "one by one"}

    def stale(self, record: Mapping[str, Any]) -> str | None:
        return None if record.get("settings") == self.settings() else "other numbers"


def test_a_cell_is_a_name_settings_and_a_function_that_runs_it_in_a_folder(tmp_path: Path) -> None:
    ran = []

    def add(cell: Sum, folder: Path, progress: Progress) -> dict[str, Any]:
        progress("adding", 0.5)
        ran.append(cell.key)
        if cell.key == "broken":
            raise DivergedError("the sum is not finite")
        (folder / "numbers").write_text(str(cell.numbers))
        return {"sum": sum(cell.numbers)}

    def all_of(*cells: Sum) -> list[dict[str, Any]]:
        return run_cells(cells, tmp_path / "results", tmp_path / "work", add, silent)

    [small] = all_of(Sum("small", (1, 2)))
    assert small["sum"] == 3
    assert set(small) == {"key", "labels", "settings", "summed", "sum", "environment"}
    assert (tmp_path / "work" / "small" / "numbers").read_text() == "(1, 2)"
    records = all_of(Sum("small", (1, 2)), Sum("broken", ()))
    assert records[1][FAILED] == "the sum is not finite"
    assert [record["key"] for record in all_of(Sum("small", (1, 2)), Sum("broken", ()))] == ["small", "broken"]
    assert ran == ["small", "broken"]
    assert all_of(Sum("small", (4,)))[0]["sum"] == 4


def test_a_page_says_where_cells_were_run_unless_on_cpus() -> None:
    on = [{"environment": {"device": device}} for device in ("cpu", "cuda (A)", "cuda (A)")]
    assert computed_on([*on[:1], {}]) == []
    assert computed_on(on) == ["Cells were run on cuda (A): 2, cpu: 1."]
