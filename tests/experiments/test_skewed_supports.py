"""The study of supports of uneven classes: draws are nested, tests are apart, and it runs."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import skewed_supports
from experiments.few_label_sets import grouped
from experiments.skewed_supports import ONE_EACH, SUPPORTS, supports
from sureshot import GPClassifier
from sureshot.data.clinc150 import load_clinc150
from sureshot.metrics import negative_log_likelihood


def test_supports_are_nested_and_test_rows_are_in_none() -> None:
    y = np.repeat(np.arange(4), [40, 40, 40, 10])  # the last class has too few
    drawn, test = supports(np.zeros((130, 1)), y, 50, 0)
    assert np.bincount(y[drawn[ONE_EACH]]).tolist() == [1, 1, 1]
    for name, rows in drawn.items():
        assert sorted(np.bincount(y[rows])) == sorted(SUPPORTS[name](3))
        assert set(drawn[ONE_EACH]) <= set(rows)
        assert not set(test) & set(rows)


@pytest.mark.real_data
def test_it_runs_on_few_sets() -> None:
    outcome = skewed_supports.run(
        data_root=None,
        progress=lambda what, done: None,
        tables=["iris"],
        ways=[2],
        groups=[[2, 20]],
        seeds=[0],
        n_test=100,
    )
    means, by_set = (table.frame for table in outcome.tables)
    assert len(means) == 3 * len(SUPPORTS) * 2
    assert by_set["data"].tolist() == ["2 intents", "2 groups of 20 intents", "iris"]
    assert len(outcome.verdicts) == 3


@pytest.mark.real_data
@pytest.mark.parametrize(("way", "size", "most"), [(2, 20, 0.1), (5, 4, 0.15), (20, 1, 0.15)])
def test_a_label_more_costs_next_to_nothing(way: int, size: int, most: float) -> None:
    """Two groups of twenty intents: .70 by a label each, 1.44 by another for one of them as it once was."""
    clinc, losses = load_clinc150(), {}
    for seed in range(4):
        x, y = grouped(clinc.x_train, clinc.y_train, way, size, seed)
        drawn, test = supports(x, y, 500, seed)
        for name in (ONE_EACH, "first 2, others 1", "half 2, half 1", "first 5, others 1"):
            model = GPClassifier().fit(x[drawn[name]], y[drawn[name]])
            loss = negative_log_likelihood(model.predict_proba(x[test]), y[test])
            losses[name] = losses.get(name, 0.0) + loss / 4
    assert max(losses.values()) < losses[ONE_EACH] + most, losses
