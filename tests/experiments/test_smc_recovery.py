"""Planted structures: what is equivalent, tables by hand, one cell to the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.smc_methods import OURS
from experiments.smc_recovery import (
    PLANTED,
    RIVALS,
    SmcRecoveryConfig,
    campaign_cells,
    mass_frame,
    outcome_of,
    planted,
    representative,
    run,
)
from sureshot.structure.structure import Structure


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("CONSTANT + PERIODIC", "PERIODIC"),
        ("PERIODIC + LINEAR + CONSTANT", "LINEAR + PERIODIC"),
        ("LINEAR x CONSTANT + PERIODIC", "LINEAR + PERIODIC"),
        ("SQUARED-EXPONENTIAL x SQUARED-EXPONENTIAL", "SQUARED-EXPONENTIAL"),
        ("PERIODIC x SQUARED-EXPONENTIAL", "SQUARED-EXPONENTIAL x PERIODIC"),
        ("MATERN x SQUARED-EXPONENTIAL + CONSTANT", "GAMMA-EXPONENTIAL"),
    ],
)
def test_equivalent_structures(text: str, same: str) -> None:
    assert representative(Structure.parse(text)) == representative(Structure.parse(same))


def test_others_are_not_equivalent() -> None:
    forms = {representative(Structure.parse(name)) for name in (*PLANTED, "LINEAR x PERIODIC", "CONSTANT")}
    assert len(forms) == len(PLANTED) + 2


def test_planted_rows_are_standardised_and_repeatable() -> None:
    for name, logits in PLANTED.items():
        x, y = planted(logits, 300, 1)
        assert x.std() == pytest.approx(1.0, abs=0.1)
        assert 0.2 < y.mean() < 0.8, name
        assert ((logits(x[:, 0]) > 0) == y).mean() > 0.8
        np.testing.assert_array_equal(y, planted(logits, 300, 1)[1])


def test_masses_by_hand() -> None:
    labels = {"data": "LINEAR + PERIODIC", "method": OURS}
    posterior = [[0.5, "LINEAR + PERIODIC"], [0.2, "CONSTANT + LINEAR + PERIODIC"], [0.3, "LINEAR x PERIODIC"]]
    record = {"key": "a", "labels": {**labels, "seed": 0}, "posterior": posterior}
    record |= {"evidence": -90.0, "planted": -87.0}
    other = {"key": "b", "labels": {**labels, "seed": 1}, "posterior": [[1.0, "LINEAR"]]}
    other |= {"evidence": -80.0, "planted": -87.0}
    frame = mass_frame([record, other])
    assert frame["mass"].tolist() == pytest.approx([0.7, 0.0])
    assert frame["leaves"].tolist() == pytest.approx([1.0, 0.0])
    assert frame["missed"].tolist() == [3.0, 0.0]
    outcome = outcome_of([record, other], [], SmcRecoveryConfig())
    (verdict,) = outcome.verdicts
    assert verdict.measured == "1 of 2 seeds"
    assert not verdict.holds
    assert outcome.tables[0].frame["found by leaves"].tolist() == [1]
    kept = [
        {"labels": {**labels, "method": RIVALS["LINEAR + PERIODIC"], "seed": seed}, "kept": value}
        for seed, value in enumerate((-88.0, -90.0))
    ]
    rivals = outcome_of([record, other, *kept], [], SmcRecoveryConfig()).tables[1].frame
    assert rivals[["seeds", "nats", "se"]].iloc[0].tolist() == [2, 2.0, 1.0]


def test_a_cell_to_the_end(tmp_path: Path) -> None:
    folders = {"results": str(tmp_path / "cells"), "checkpoints": str(tmp_path / "locks")}
    options = {"structures": ("LINEAR",), "seeds": (0,), "rows": 40, "particles": 3, **folders}
    outcome = run(data_root=None, progress=lambda what, fraction: None, **options)  # type: ignore[arg-type]
    assert outcome.findings == ("1 of 1 cells have a result.",)
    assert 0 <= outcome.tables[0].frame["mass"].iloc[0] <= 1
    rivals = [cell.method for cell in campaign_cells(SmcRecoveryConfig()) if cell.method != OURS]
    assert sorted(set(rivals)) == sorted(RIVALS.values())
    with pytest.raises(ValueError, match="no planted structure 'LINEER'"):
        campaign_cells(SmcRecoveryConfig(structures=("LINEER",)))
