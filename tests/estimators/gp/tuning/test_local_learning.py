"""What local Gaussian processes learn from left-out rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sureshot.estimators.gp.tuning.local_learning import learn
from sureshot.estimators.gp.tuning.objective import LabelLogLoss
from sureshot.estimators.rows.labelled_rows import merge_rows
from sureshot.estimators.rows.support import Support

OBJECTIVE = LabelLogLoss("plug_in")


def waves(n: int, wrong: float, copies: int = 1) -> Support:
    """Two classes along a wave of the first column of three, a share of whose labels is drawn at random."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3))
    y = np.where(rng.uniform(size=n) < wrong, rng.integers(0, 2, n), np.sin(3 * x[:, 0]) > 0)
    rows = merge_rows(x, y.astype(np.int64), np.full(n, float(copies)))
    return Support.of(rows, 2, None, torch.device("cpu"))


@pytest.mark.parametrize("name", ["matern32", "laplacian"])
def test_the_column_that_tells_classes_has_the_shortest_length_scale(name: str) -> None:
    found = learn(name, waves(300, 0.0), OBJECTIVE, 20, seed=0, steps=60)
    assert float(found.lengthscale[0]) < 0.5 * float(found.lengthscale[1:].min())
    assert found.link[0] > 4  # surer than it began


def test_where_labels_are_wrong_neighbours_say_less() -> None:
    clean, dirty = (learn("matern32", waves(300, wrong), OBJECTIVE, 20, seed=0, steps=60) for wrong in (0.0, 0.3))
    assert dirty.noise > clean.noise
    assert dirty.link[0] < 0.5 * clean.link[0]


def test_equal_seeds_learn_equally_and_copies_are_one_row() -> None:
    first, again, copied = (learn("rbf", waves(80, 0.1, n), OBJECTIVE, 10, seed=3, steps=5) for n in (1, 1, 2))
    assert torch.equal(first.lengthscale, again.lengthscale)
    assert copied.noise == pytest.approx(first.noise, rel=0.5)
    assert copied.noise != first.noise  # a neighbour of weight 2 is surer


def test_very_wide_rows_share_a_length_scale() -> None:
    wide = waves(40, 0.0)
    wide = Support(wide.x.repeat(1, 150), wide.y, wide.weight, 2, wide.left_out, wide.evidence)
    assert len(learn("matern32", wide, OBJECTIVE, 10, seed=0, steps=3).lengthscale.unique()) == 1
