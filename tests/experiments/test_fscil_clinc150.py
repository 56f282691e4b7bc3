"""Cells of sessions, verdicts by hand, and a small run on the real data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.campaigns.archive import kept
from experiments.campaigns.cells import FAILED
from experiments.campaigns.sessions import SessionCell, gap_between, run_sessions, study_of
from experiments.fscil_clinc150 import FscilClinc150Config, campaign_cells, outcome_of, run, verdicts_of


def record(method: str, seed: int, accuracy: float, **scores: float) -> dict[str, Any]:
    """Two sessions, the second with this accuracy."""
    one = {
        "session": 0,
        "n_classes": 2,
        "n_rows": 4,
        "accuracy": 0.9,
        "base_accuracy": 0.9,
        "novel_accuracy": None,
        "harmonic_mean": None,
        "forgetting": None,
        "nll": 0.5,
        "ece": 0.05,
        "brier": 0.2,
        "out_of_scope_auroc": None,
        "shared_numbers": 1,
        "numbers_per_class": 2.0,
        "learn_seconds": 0.1,
        "predict_seconds": 0.1,
    }
    last = {**one, "session": 1, "accuracy": accuracy, "novel_accuracy": 0.5, "harmonic_mean": 0.6, "forgetting": 0.1}
    evaluation = {"sessions": [one, {**last, **scores}], "matrix": [[0.9], [0.8, 0.5]]}
    return {"key": f"{method}-{seed}", "labels": {"method": method, "seed": seed}, "evaluation": evaluation}


def quietly(what: str, fraction: float) -> None:
    pass


def test_a_cell_is_stale_with_other_settings() -> None:
    cell = SessionCell("digits", 1, "few, two", "nearest_class_mean", {"scale": 2.0})
    assert cell.key == "digits-few-two-seed1"
    assert cell.stale({"settings": cell.settings()}) is None
    other = SessionCell("digits", 1, "few, two", "nearest_class_mean", {"scale": 3.0})
    assert other.key == cell.key
    assert other.stale({"settings": cell.settings()}) == "it was made with other settings"


def test_a_cell_on_digits(tmp_path: Path) -> None:
    cell = SessionCell("digits", 0, "means", "nearest_class_mean", data_options={"base_shots": 5})
    found = run_sessions(None, cell, tmp_path, quietly)
    study = study_of([{"labels": cell.labels, **found}, {"labels": {}, FAILED: "broken"}], "")
    assert list(study.evaluations) == ["means"]
    assert study.evaluations["means"][0].last.accuracy > 0.7


def test_verdicts_are_of_paired_differences() -> None:
    accuracies = {"empirical Bayes": (0.90, 0.92, 0.91), "nearest class mean": (0.89, 0.90, 0.88)}
    records = [record(name, seed, a) for name, row in accuracies.items() for seed, a in enumerate(row)]
    study = study_of(records, "")
    gap = gap_between(study.summary(), "accuracy", "empirical Bayes", "nearest class mean")
    assert gap is not None
    assert (gap.mean, gap.error, gap.seeds) == (pytest.approx(0.02), pytest.approx(0.01 / 3**0.5), 3)
    assert gap_between(study.summary(), "accuracy", "empirical Bayes", "tree, rebuild") is None
    first, sure = verdicts_of(study)
    assert first.measured == "empirical Bayes less nearest class mean: 2.0 ± 0.6 points, 3 seeds"
    assert first.holds
    assert not sure.holds
    assert "0.050; 0 of 2 methods" in sure.measured
    tied = [record("empirical Bayes", seed, 0.9 + 0.1 * seed) for seed in range(2)]
    tied += [record("nearest class mean", seed, 0.9, ece=0.01) for seed in range(2)]
    first, sure = verdicts_of(study_of(tied, ""))
    assert not first.holds  # one standard error
    assert sure.holds


def test_the_page_names_what_is_missing_and_what_failed() -> None:
    settings = FscilClinc150Config(methods=("nearest class mean", "least squares"), seeds=(0,))
    cells = campaign_cells(settings)
    there = {**record("nearest class mean", 0, 0.8), "key": cells[0].key}
    outcome = outcome_of([there], cells, settings)
    assert outcome.findings[-1] == "Without a result yet: clinc150-least-squares-seed0."
    outcome = outcome_of([there, {"key": cells[1].key, "labels": {}, FAILED: "x"}], cells, settings)
    assert outcome.findings[-1] == "Failed: clinc150-least-squares-seed0."
    assert [table.name for table in outcome.tables][:3] == ["last-session", "base-and-novel", "probabilities"]


def test_nothing_to_collect_and_unknown_methods(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no cell of this campaign has a result yet"):
        run(data_root=None, progress=quietly, train=False, results=str(tmp_path))
    with pytest.raises(ValueError, match=r"no method 'empirical Baye' \(did you mean 'empirical Bayes'\?\)"):
        run(data_root=None, progress=quietly, methods=("empirical Baye",))


@pytest.mark.real_data
def test_class_means_on_clinc150(tmp_path: Path) -> None:
    folders = {"results": str(tmp_path / "cells"), "checkpoints": str(tmp_path / "locks")}
    outcome = run(data_root=None, progress=quietly, methods=("nearest class mean",), seeds=(0,), **folders)
    row = outcome.tables[0].frame.iloc[0]
    assert 0.87 < row["accuracy"] < 0.91
    assert kept(tmp_path / "cells" / "fscil-clinc150", "clinc150-nearest-class-mean-seed0") is not None
