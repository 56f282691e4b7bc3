"""The comparison of `FewShotClassifier` without a checkpoint: its formula, and that it runs."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import few_shot_defaults
from experiments.one_shot_sets import LOGS, OneShotSet, fitted_formula


def test_the_formula_that_made_the_best_temperatures_is_found() -> None:
    sets = [
        OneShotSet(str(size), "tables", size, (LOGS - np.log(5.0) + 0.4 * np.log(size)) ** 2) for size in (4, 12, 40)
    ]
    factor, power = fitted_formula(sets)
    assert factor == pytest.approx(5.0, rel=0.05)
    assert power == pytest.approx(-0.4, abs=0.02)


@pytest.mark.real_data
def test_it_runs_on_few_sets() -> None:
    outcome = few_shot_defaults.run(
        data_root=None, progress=lambda what, done: None, datasets=["iris", "wine"], ways=[3], groups=[2], seeds=[0]
    )
    scores, constants, *_ = outcome.tables
    assert set(scores.frame["data"]) == {"3 intents", "2 groups of 4 intents", "digits", "iris", "wine"}
    assert constants.frame["rows"].tolist() == ["tables"]  # two sets of embeddings are too few
    assert len(outcome.verdicts) == 6
