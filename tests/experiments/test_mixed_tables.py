"""The comparison on tables with text and gaps: what its peers see, and that it runs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiments import mixed_tables
from experiments.mixed_tables import METHODS, AsCategories, one_hot
from experiments.uci import load


@pytest.mark.parametrize("name", [name for name in METHODS if name.startswith(("logistic", "Hist"))])
def test_peers_take_text_gaps_and_levels_they_have_not_seen(name: str) -> None:
    x = pd.DataFrame({"a": ["u", "v", None, "u"] * 10, "b": [1.0, np.nan, 2.0, 3.0] * 10})
    model = METHODS[name]().fit(x, np.tile([0, 1, 1, 0], 10))
    p = model.predict_proba(pd.DataFrame({"a": ["u", "w", None], "b": [np.nan, 1.0, 2.0]}))
    np.testing.assert_allclose(p.sum(1), 1)


def test_one_hot_columns_have_gaps_as_a_level() -> None:
    x = pd.DataFrame({"a": ["u", "v", None], "b": [1.0, np.nan, 2.0]})
    assert one_hot("passthrough").fit(x, [0, 1, 0]).transform(x).shape == (3, 5)


@pytest.mark.real_data
def test_it_runs_on_a_table() -> None:
    outcome = mixed_tables.run(
        data_root=None,
        progress=lambda what, done: None,
        datasets=["credit_australian"],
        methods=["logistic regression, one-hot"],
        n_folds=3,
        n_repeats=1,
    )
    assert outcome.tables[0].frame["accuracy"].min() > 0.8
    assert not outcome.verdicts


@pytest.mark.real_data
def test_text_of_small_sets_is_zeros_and_ones_elsewhere() -> None:
    x, _ = load("credit_australian", None)
    assert x.shape == (690, 46)
    assert np.isnan(x).sum() == 25


def test_text_of_more_levels_than_boosting_takes_is_its_place_in_the_alphabet() -> None:
    table = pd.DataFrame({"day": [f"{day:03d}" for day in range(300)], "kind": ["a", "b", None] * 100})
    found = AsCategories().fit(table).transform(pd.DataFrame({"day": ["007", None, "9"], "kind": ["a", None, "b"]}))
    np.testing.assert_array_equal(found["day"], [7, np.nan, 300])
    assert found["kind"].dtype == "category"
