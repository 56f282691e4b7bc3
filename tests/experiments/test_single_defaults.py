"""The experiment on single defaults, on few rows."""

from __future__ import annotations

import pytest

from experiments import single_defaults


@pytest.mark.real_data
def test_each_is_taken_away_where_it_counts() -> None:
    outcome = single_defaults.run(
        data_root=None,
        progress=lambda what, done: None,
        tables=["iris"],
        conditions=["all rows"],
        ways=[3],
        shots=[14, 0],
        seeds=[0],
    )
    gains, sets = (table.frame for table in outcome.tables)
    assert gains["without"].tolist() == ["one length-scale", "one kernel", "frequencies alone"]
    assert gains["condition"].tolist() == ["all rows", "14 labels an intent", "1 to 20 labels an intent"]
    assert len(sets) == 6
    directions = gains.set_index("without").loc["one kernel"]
    assert directions["nll less"] == pytest.approx(directions["nll with"] - directions["nll without"])
    assert len(outcome.verdicts) == 3
