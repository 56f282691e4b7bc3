"""The trainings of the table, and what is made of their results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.campaigns.archive import keep
from experiments.campaigns.cells import FAILED, finished
from experiments.cdkt_switches import DATA, OTHERS, PAPER, VARIANTS, SwitchesConfig, cell_of, run


def test_every_training_is_one_of_its_own() -> None:
    cells = [cell_of(data, variant, 2000, 0) for data in DATA for variant in (*VARIANTS, *OTHERS)]
    assert len({cell.key for cell in cells}) == len(cells)
    # Settings are checked when a cell is made, so every variant is one that the learner has; none repeats another.
    values = [(cell.training.data.name, cell.preset_values(), cell.training.learner.name) for cell in cells]
    assert all(values.count(value) == 1 for value in values)


def test_variants_change_the_algorithm_of_the_paper_in_one_thing() -> None:
    base = cell_of("miniimagenet32", "algorithm 1", 2000, 0).preset_values()
    assert base["warm_start"]
    assert base["n_steps"] == 2
    assert base["prior_mean"] == 0
    for variant, options in VARIANTS.items():
        found = cell_of("miniimagenet32", variant, 2000, 0).preset_values()
        assert {key for key in base if found[key] != base[key]} == {
            key for key, value in options.items() if value != base[key]
        }
    assert set(PAPER) <= set(base)


def outcome_of(folder: Path, accuracies: dict[str, float | None]) -> Any:
    for variant, accuracy in accuracies.items():
        cell = cell_of("miniimagenet32", variant, 2000, 0)
        scores: dict[str, Any] = {FAILED: "diverged"}
        if accuracy is not None:
            scores = {
                "accuracy": accuracy,
                "accuracy_error": 0.004,
                "nll": 1.3,
                "first_loss": 1.8,
                "last_loss": 1.6,
                "seconds": 240.0,
            }
        record = {"key": cell.key, "labels": cell.labels, "settings": cell.settings(), **cell.notes(), **scores}
        keep(folder / "cdkt-switches", record)
        assert finished(cell, folder / "cdkt-switches") is not None
    return run(data_root=None, progress=lambda what, fraction: None, train=False, results=str(folder))


def test_a_table_of_what_is_there(tmp_path: Path) -> None:
    found = outcome_of(tmp_path, {"algorithm 1": 0.45, "cold start": 0.21, "inner loop detached": None})
    (table,) = found.tables
    assert list(table.frame["variant"]) == ["algorithm 1", "cold start", "inner loop detached"]
    assert table.frame["minutes"][0] == 4
    assert "missing" in found.findings[0]
    assert [verdict.holds for verdict in found.verdicts if "warm start" in verdict.claim] == [True]


def test_nothing_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no training has a result"):
        run(data_root=None, progress=lambda what, fraction: None, train=False, results=str(tmp_path))
    assert SwitchesConfig().episodes == 2000
