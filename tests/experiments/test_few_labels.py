"""The study of one or two labels a class: what counts as worse than class frequencies; further labels do no harm."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiments import few_labels
from experiments.few_label_sets import grouped
from sureshot import GPClassifier
from sureshot.data.clinc150 import load_clinc150
from sureshot.metrics import negative_log_likelihood


def test_class_frequencies_are_the_least_that_labels_have_to_beat() -> None:
    losses = {("a", 1): (0.5, 0.7), ("b", 1): (1.0, 1.2), ("a", 2): (0.3, 0.4), ("b", 2): (0.9, 1.0)}
    frame = pd.DataFrame(
        {"labels": shots, "rows": "tables", "data": name, "classes": 2 + (name == "b"), "nll": nll, "accuracy": 0.5}
        for (name, shots), both in losses.items()
        for nll in both
    )
    tables, verdicts = few_labels.tables_of(frame)
    assert [table.name for table in tables] == ["labels-1", "labels-2"]
    np.testing.assert_allclose(tables[0].frame["difference"], [0.6 - np.log(2), 1.1 - np.log(3)])
    np.testing.assert_allclose(tables[0].frame["standard error"], 0.1)
    assert [verdict.holds for verdict in verdicts] == [False, True]
    assert verdicts[0].measured.startswith("1 of 2 sets are worse: b +0.001")


@pytest.mark.real_data
def test_it_runs_on_a_set_of_each_kind() -> None:
    outcome = few_labels.run(
        data_root=None,
        progress=lambda what, done: None,
        tables=["iris"],
        embeddings=["snips"],
        images=["choice62"],
        ways=[2],
        groups=[1],
        seeds=[0],
        n_test=100,
    )
    for table in outcome.tables:
        assert table.frame["data"].tolist() == ["iris", "2 intents", "snips", "choice62"]
        assert table.frame["classes"].tolist() == [3, 2, 7, 10]
    assert len(outcome.verdicts) == 2


@pytest.mark.real_data
@pytest.mark.parametrize(("way", "size", "most"), [(2, 20, 0.1), (20, 1, 0.15)])
def test_further_labels_of_some_classes_cost_next_to_nothing(way: int, size: int, most: float) -> None:
    """Two groups of twenty intents: once .70 with a label each, and 1.44 with a second one for one of them."""
    clinc, half, losses = load_clinc150(), way // 2, np.zeros(4)
    numbers = ([1] * way, [2] + [1] * (way - 1), [2] * half + [1] * (way - half), [5] + [1] * (way - 1))
    for seed in range(4):
        x, y = grouped(clinc.x_train, clinc.y_train, way, size, seed)
        generator = np.random.default_rng(seed)
        rows = [generator.permutation(np.flatnonzero(y == label)) for label in generator.permutation(way)]
        test = generator.permutation(np.concatenate([part[5:] for part in rows]))[:500]
        for place, labels in enumerate(numbers):
            train = np.concatenate([part[:n] for part, n in zip(rows, labels, strict=True)])
            model = GPClassifier().fit(x[train], y[train])
            losses[place] += negative_log_likelihood(model.predict_proba(x[test]), y[test]) / 4
    assert losses.max() < losses[0] + most, losses
