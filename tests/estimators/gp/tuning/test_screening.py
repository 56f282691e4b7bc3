"""Which families are worth a climb, and what must beat the default."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sureshot.estimators.gp.model import Model
from sureshot.estimators.gp.options import named_family
from sureshot.estimators.gp.tuning.family_search import Candidate, Search
from sureshot.estimators.gp.tuning.objective import LabelLogLoss
from sureshot.estimators.gp.tuning.screening import choose, screened
from sureshot.estimators.rows.support import Support


def candidate(pointwise: torch.Tensor) -> Candidate:
    model = Model("softmax", "laplace")
    return Candidate(0, 1.0, 1.0, model, 1.0, pointwise, float(pointwise.sum()))


@pytest.mark.parametrize(("gain", "wins"), [(1.5, False), (2.5, True)])
def test_the_default_is_left_only_for_a_clear_gain(gain: float, wins: bool) -> None:
    """By so many standard errors."""
    generator = torch.Generator().manual_seed(0)
    base = -torch.rand(100, generator=generator, dtype=torch.float64)
    noise = torch.randn(100, generator=generator, dtype=torch.float64)
    better = base + (noise - noise.mean()) / noise.std() + gain / 10
    default, other = candidate(base), candidate(better)
    chosen = choose([default, other], default, torch.ones(100, dtype=torch.float64))
    assert (chosen is other) == wins


def test_few_rows_cannot_leave_the_default() -> None:
    base = torch.full((20,), -1.0, dtype=torch.float64)
    default, other = candidate(base), candidate(base + 1)
    assert choose([default, other], default, torch.ones(20, dtype=torch.float64)) is default


def searches(n: int, *names: str) -> list[Search]:
    """Of a table whose two classes are opposite quadrants, which nothing linear tells apart."""
    x = np.random.default_rng(0).normal(size=(n, 2))
    ones = torch.ones(n, dtype=torch.float64)
    support = Support(torch.from_numpy(x), torch.from_numpy((x.prod(1) > 0).astype(int)), ones, 2, ones, ones)
    return [Search(support, k, named_family(name, support), LabelLogLoss("plug_in")) for k, name in enumerate(names)]


def test_the_best_families_by_least_squares_are_climbed() -> None:
    curved, linear, rough = searches(120, "rbf", "linear", "matern32")
    assert screened([curved, linear, rough], 2, None) == [curved, rough]


def test_rows_that_cannot_be_left_out_leave_the_first_family() -> None:
    curved, linear = searches(2, "rbf", "linear")
    assert screened([curved, linear], 1, None) == [curved]
