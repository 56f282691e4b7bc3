"""The cells of CDKT's studies, and what is made of their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from experiments.campaigns.images import MINIIMAGENET32, ImageCampaignConfig
from experiments.cdkt_studies import BASES, STUDIES, StudiesConfig, cell_of, change_of, run, verdicts_of

SETTINGS = StudiesConfig()
TRIALS = [(study, value, base) for base in BASES for study in STUDIES for value in study.values]


def test_every_cell_changes_one_thing_of_a_preset() -> None:
    for base in BASES:
        usual = cell_of(STUDIES[0], STUDIES[0].usual, base, 0, SETTINGS)
        cells = [cell_of(study, value, base, 0, SETTINGS) for study, value, of in TRIALS if of == base]
        assert len({cell.key for cell in cells}) == 1 + 4 + 6 + 1 + 1  # the usual one belongs to all four
        values = [cell.preset_values() for cell in cells if cell.key != usual.key]
        assert all(values.count(value) == 1 for value in values)
        for study, value, of in TRIALS:
            if of != base:
                continue
            found = cell_of(study, value, base, 0, SETTINGS).preset_values()
            changed = {key for key, before in usual.preset_values().items() if found[key] != before}
            change = change_of(study, value, base)
            assert changed == set(change[1] if change else {})
            assert study.name != "steps" or found["n_steps"] == value


def test_three_cells_are_the_campaigns() -> None:
    """Those that the paper's table and its studies share are trained once."""
    campaign = {cell.key: cell for cell in MINIIMAGENET32.cells(ImageCampaignConfig(shots=(1,)))}
    shared = {(cell := cell_of(study, value, base, 0, SETTINGS)).key: cell for study, value, base in TRIALS}
    both = set(campaign) & set(shared)
    assert both == {
        f"cdkt_ml-{name}-cosine-1shot-seed0-standard-bfloat16"
        for name in ("paper", "paper-temperature-1", "recommended")
    }
    for key in both:
        assert shared[key].settings() == campaign[key].settings()
        assert shared[key].labels == campaign[key].labels


ACCURACY = {
    ("temperature", 0.2): 0.45,
    ("temperature", 0.5): 0.44,
    ("temperature", 0.75): 0.43,
    ("temperature", 1.0): 0.42,
    ("temperature", 1.5): 0.41,
    ("steps", 3): 0.46,
    ("inner loop", "detached"): 0.21,
    ("prior mean in use", 0): 0.448,
}


def collect(folder: Path, make_record: Any, base: str, **options: Any) -> Any:
    results = folder / MINIIMAGENET32.name
    results.mkdir()
    for study, value, of in TRIALS:
        if of == base:
            cell = cell_of(study, value, base, 0, SETTINGS)
            usual = ACCURACY["temperature", 0.2] if value == study.usual else 0.4
            record = make_record("cdkt_ml", ACCURACY.get((study.name, value), usual), shots=1)
            record |= {"key": cell.key, "labels": cell.labels, "settings": cell.settings(), **cell.notes()}
            (results / f"{cell.key}.json").write_text(json.dumps(record))
    return run(data_root=None, progress=lambda what, fraction: None, train=False, results=str(folder), **options)


@pytest.mark.parametrize("base", BASES)
def test_tables_verdicts_and_a_figure(tmp_path: Path, make_record: Any, base: str) -> None:
    found = collect(tmp_path, make_record, base)
    assert found.findings == ("13 of 26 trainings are missing.",)
    tables = {table.name: table.frame for table in found.tables}
    assert list(tables["temperature"]["temperature"]) == [0.2, 0.5, 0.75, 1.0, 1.5]
    assert list(tables["temperature"]["accuracy"]) == [0.45, 0.44, 0.43, 0.42, 0.41]
    assert list(tables["steps"]["accuracy"]) == [0.4, 0.45, 0.46, 0.4, 0.4, 0.4, 0.4]
    assert set(tables["inner-loop"]["preset"]) == {base}
    assert [verdict.holds for verdict in found.verdicts] == [True, True, True, False]  # 0.2 points by the prior mean
    assert all(verdict.claim.startswith(f"{base}: ") for verdict in found.verdicts)
    [picture] = found.pictures
    assert len(picture.figure.axes) == len(STUDIES)


def test_no_number_of_steps_is_best_at_chance() -> None:
    steps = next(study for study in STUDIES if study.name == "steps")
    frame = pd.DataFrame({"preset": "paper", "steps": steps.values, "accuracy": 0.2})
    frame.loc[frame["steps"] == 3, "accuracy"] += 1e-5
    assert [verdict.holds for verdict in verdicts_of(steps, frame)] == [False]


def test_part_of_the_studies(tmp_path: Path, make_record: Any) -> None:
    found = collect(tmp_path, make_record, "paper", studies=("steps",), bases=("paper",))
    assert [table.name for table in found.tables] == ["steps"]
    assert found.findings == ()
    assert len(found.verdicts) == 1


def test_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no training has a result yet"):
        run(data_root=None, progress=lambda what, fraction: None, train=False, results=str(tmp_path))
