"""The study of temperatures at one label runs."""

from __future__ import annotations

import pytest

from experiments import one_shot_defaults


@pytest.mark.real_data
def test_it_runs_on_few_sets() -> None:
    outcome = one_shot_defaults.run(
        data_root=None,
        progress=lambda what, done: None,
        datasets=["iris", "wine"],
        kernels=["rbf"],
        tables=["iris", "wine", "zoo"],
        ways=[2],
        groups=[1],
        pairs=[1],
        shots=[1],
        seeds=[0],
        n_test=100,
    )
    found = {table.name: table.frame for table in outcome.tables}
    wanted = found["temperatures"]
    assert wanted["data"].tolist() == ["iris", "wine", "zoo", "2 intents"]
    assert (wanted["log loss at it"] <= wanted["as in use"] + 0.01).all()
    assert set(found["scores"]["rows"]) == {"tables", "intents"}
    assert len(outcome.verdicts) == 2
    assert found["two-classes"]["default"].item() < found["two-classes"]["integral"].item()
