"""Pairs of budgets, by hand and on a training that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from experiments.campaigns.archive import keep, kept
from experiments.training_budgets import METRICS, learning_curves, paired, run

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "cells"
LEARNER = "cdkt_ml"


def scores(budget: str, accuracy: float, learner: str = LEARNER) -> dict[str, Any]:
    labels = {"learner": learner, "shots": 5, "seed": 0, "evaluation": "5-way 5-shot", "budget": budget}
    beside = {"accuracy se": 0.003, "best at": 1000, "trained": 2000, "minutes": 1.0}
    return labels | beside | dict.fromkeys(METRICS, 0.5) | {"accuracy": accuracy}


def test_gains_by_hand() -> None:
    frame = pd.DataFrame([scores("standard", 0.7), scores("full", 0.72), scores("full", 0.8, "dkt")])
    [pair] = paired(frame).to_dict("records")
    assert (pair["learner"], pair["shots"]) == (LEARNER, 5)
    assert pair["gain"] == pytest.approx(0.02)
    assert pair["gain se"] == pytest.approx(0.003 * 2**0.5)
    assert paired(frame[1:]).empty


def test_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no learner has results of both budgets yet"):
        run(data_root=None, progress=lambda what, fraction: None, train=False, results=str(tmp_path))


def test_a_page_of_results(tmp_path: Path) -> None:
    """The standard result of the repository beside itself under the other budget's settings, with a curve."""
    from experiments.campaigns.images import OMNIGLOT_CHOICE, ImageCampaignConfig

    for budget in ("standard", "full"):
        [cell] = OMNIGLOT_CHOICE.cells(ImageCampaignConfig(budget, (LEARNER,), shots=(5,)))
        if budget == "standard":
            found = kept(RESULTS / OMNIGLOT_CHOICE.name, cell.key)
            assert found is not None
            record = dict(found)
        else:
            curve = [{"episodes": 1000 * k, "accuracy": 0.5 + 0.01 * k, "nll": 1.0} for k in range(1, 41)]
            record |= {"key": cell.key, "labels": cell.labels, "settings": cell.settings()}
            record["training"] = record["training"] | {"validations": curve}
        keep(tmp_path / OMNIGLOT_CHOICE.name, record)
    outcome = run(
        data_root=None,
        progress=lambda what, fraction: None,
        train=False,
        results=str(tmp_path),
        learners=(LEARNER,),
        shots=(5,),
    )
    [verdict] = outcome.verdicts
    assert verdict.holds  # the same twice gains nothing
    assert "+0.00 points" in verdict.measured
    assert outcome.findings == (
        "Of 1 trainings by the papers' budget 0 are best on validation tasks in the first quarter, and at their end "
        "accuracy there is 0.0 to 0.0 points below its best.",
    )
    np.testing.assert_allclose(outcome.tables[1].frame["accuracy"], 0.5 + 0.01 * np.arange(1, 41))
    [picture] = outcome.pictures
    [axes] = picture.figure.axes
    dashed = axes.lines[-1]
    assert isinstance(dashed, mpl.lines.Line2D)
    assert dashed.get_xdata()[0] == 10_000
    assert learning_curves([{"labels": {"budget": "standard"}, "training": {}}]).empty
