"""Pairs of trainings and their differences, by hand and on the results in the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments.bfloat16 import METRICS, differences, paired, run

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "cells"


def scores(seed: int, precision: str, accuracy: float, learner: str = "protonet") -> dict[str, Any]:
    metrics = dict.fromkeys(METRICS, 0.5) | {"accuracy": accuracy}
    return {"learner": learner, "seed": seed, "precision": precision, "best at": 1000, **metrics}


def test_differences_by_hand() -> None:
    accuracies = {"bfloat16": (0.70, 0.72, 0.76), "float32": (0.71, 0.71, 0.73)}
    frame = pd.DataFrame([scores(seed, name, a) for name, row in accuracies.items() for seed, a in enumerate(row)])
    pairs = paired(frame)
    np.testing.assert_allclose(pairs["accuracy difference"], [-0.01, 0.01, 0.03])
    row = differences(pairs).set_index("score").loc["accuracy"]
    assert row["seeds"] == 3
    assert row["difference"] == pytest.approx(0.01)
    assert row["se"] == pytest.approx(0.02 / 3**0.5)
    assert row["p"] == pytest.approx(0.4778, abs=1e-3)  # Student's t = 0.866 with two degrees of freedom
    assert row["sd between seeds"] == pytest.approx((0.0305505 + 0.0115470) / 2)


def test_only_pairs_count() -> None:
    rows = [scores(0, "bfloat16", 0.7), scores(0, "float32", 0.6), scores(1, "float32", 0.6)]
    rows.append(scores(0, "float32", 0.6, learner="dkt"))
    pairs = paired(pd.DataFrame(rows))
    assert pairs[["learner", "seed"]].to_numpy().tolist() == [["protonet", 0]]
    assert np.isnan(differences(pairs)["p"]).all()  # one seed says nothing about noise
    assert paired(pd.DataFrame(rows[1:])).empty


def collect(**options: Any) -> Any:
    return run(data_root=None, progress=lambda what, fraction: None, train=False, **options)


def test_results_of_the_repository() -> None:
    outcome = collect(results=str(RESULTS), learners=("protonet",), seeds=(0,))
    [pair] = outcome.tables[0].frame.to_dict("records")
    assert pair["accuracy difference"] == pytest.approx(pair["accuracy bfloat16"] - pair["accuracy float32"])
    assert outcome.verdicts == ()
    assert outcome.findings == ()


def test_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no learner has results in both precisions yet"):
        collect(results=str(tmp_path))
