"""The experiment on seeds, on few rows."""

import numpy as np
import pytest

from experiments import seed_spread


@pytest.mark.real_data
def test_seeds_are_compared_on_the_same_rows() -> None:
    outcome = seed_spread.run(
        data_root=None,
        progress=lambda what, done: None,
        tables=["iris"],
        n_train=[60],
        n_test=80,
        splits=[0, 1],
        seeds=[0, 3],
    )
    spread, seeds = (table.frame for table in outcome.tables)
    assert len(seeds) == 4
    np.testing.assert_allclose(spread["nll"], seeds.groupby("split")["nll"].mean())
    assert (spread["between"] == 0).all()  # so few rows are compared whole, and nothing is drawn
    assert all(verdict.holds for verdict in outcome.verdicts)
