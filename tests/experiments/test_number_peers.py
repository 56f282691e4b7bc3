"""Peers of the regressor: each knows a function and its noise, gaps and text included."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiments.batch_learners import quiet
from experiments.number_peers import INSTALLED, METHODS, MOST_ROWS, NGBOOST, check_size

RNG = np.random.default_rng(0)
X = pd.DataFrame({"number": RNG.normal(size=400), "text": RNG.choice(["p", "q"], 400)})
Y = 5 + X["number"].to_numpy() + 3 * (X["text"] == "p").to_numpy() + 0.3 * RNG.normal(size=400)


@pytest.mark.parametrize("method", INSTALLED)
def test_a_peer_knows_a_function_and_its_noise(method: str) -> None:
    x = X.assign(number=X["number"].where(np.arange(400) % 50 > 0))
    with quiet():
        found = METHODS[method]().fit(x[:300], Y[:300]).answers(X[300:])
    lower, upper = found.interval(0.9)
    assert np.sqrt(np.mean((found.mean - Y[300:]) ** 2)) < 0.7
    assert np.mean((lower <= Y[300:]) & (Y[300:] <= upper)) > 0.6
    assert found.log_density(Y[300:]).shape == (100,)
    assert (np.diff(found.quantiles(np.array([0.1, 0.5, 0.9]))) > 0).all()


def test_a_peer_is_given_so_many_rows() -> None:
    most = MOST_ROWS[NGBOOST]
    check_size(pd.DataFrame(index=range(most)), NGBOOST)
    with pytest.raises(ValueError, match=f"{most + 1} rows are too many for NGBoost"):
        check_size(pd.DataFrame(index=range(most + 1)), NGBOOST)
