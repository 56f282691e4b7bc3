"""The search of one kernel family: where its climbs end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from sureshot.estimators.gp.model import LEAST_SQUARES, Model
from sureshot.estimators.gp.options import named_family
from sureshot.estimators.gp.tuning.family_search import DEFAULT_OUTPUT_SCALE, OUTPUT_SCALES, Candidate, Search
from sureshot.estimators.gp.tuning.objective import LabelLogLoss
from sureshot.estimators.gp.tuning.relevance import learn_relevance, weighted_by
from sureshot.estimators.rows.support import Support


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
@pytest.mark.parametrize("output_scale", [0.1, 10.0, 1000.0])
def test_climbs_end_on_a_peak(
    load: Callable[..., tuple[np.ndarray, np.ndarray]], kernel: str, output_scale: float
) -> None:
    """All neighbours on the lattice have been seen, and none is better; nothing far from the way has been."""
    x, y = load(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:100]
    x, y = x[rows], y[rows]
    ones = torch.ones(100, dtype=torch.float64)
    support = Support(
        torch.from_numpy((x - x.mean(0)) / x.std(0)), torch.from_numpy(y), ones, int(y.max()) + 1, ones, ones
    )
    search = Search(support, 0, named_family(kernel, support), LabelLogLoss("plug_in"))
    visited = search.climb(Model("softmax" if y.max() > 1 else "logistic", "laplace"), 1.0, output_scale)
    lengths = search.family.lengthscales

    def place(candidate: Candidate) -> tuple[int, int]:
        return lengths.index(candidate.lengthscale), OUTPUT_SCALES.index(candidate.output_scale)

    value = {place(candidate): candidate.objective for candidate in visited}
    top = max(value, key=value.__getitem__)
    assert len(value) == len(visited)
    for step in ((0, 1), (0, -1), (1, 0), (-1, 0)):
        other = top[0] + step[0], top[1] + step[1]
        if other[0] in range(len(lengths)) and other[1] in range(len(OUTPUT_SCALES)):
            assert value[other] <= value[top]
    start = lengths.index(1.0), int(np.argmin(np.abs(np.log(np.array(OUTPUT_SCALES) / output_scale))))
    assert len(value) <= 5 + 2 * (abs(top[0] - start[0]) + abs(top[1] - start[1]))


def two_rings(n: int = 120, columns: int = 6) -> Support:
    """One ring of rows around another, in the first two columns of several."""
    x = np.random.default_rng(0).normal(size=(n, columns))
    y = torch.from_numpy((np.square(x[:, :2]).sum(1) > 1.4).astype(int))
    ones = torch.ones(n, dtype=torch.float64)
    return Support(torch.from_numpy(x), y, ones, 2, ones, ones)


@pytest.mark.parametrize("kernel", ["rbf", "matern12"])
def test_least_squares_ends_on_a_peak_of_length_scales(kernel: str) -> None:
    support = two_rings()
    search = Search(support, 0, named_family(kernel, support), LabelLogLoss("plug_in"))
    lengths = search.family.lengthscales
    seen = {one.lengthscale: one.objective for one in search.least_squares(LEAST_SQUARES)}
    every = [search._regress(LEAST_SQUARES, length).objective for length in lengths]
    best = lengths.index(search.best_regression().lengthscale)
    assert search.best_regression().objective == max(every)
    assert {lengths[k] for k in (best - 1, best, best + 1) if k in range(len(lengths))} <= set(seen)
    assert len(seen) <= abs(best - lengths.index(1.0)) + 3


def test_relevance_is_climbed_from_where_the_family_without_it_has_ended() -> None:
    support, model = two_rings(), Model("logistic", "laplace")
    family = named_family("rbf", support)
    base = Search(support, 0, family, LabelLogLoss("plug_in"))
    learnt = learn_relevance(support, weighted_by(family.build(1.0)), 0.1)
    weighted = replace(family, relevance=learnt)
    search = Search(support, 1, weighted, LabelLogLoss("plug_in"), base)
    of_base = base.candidates((model,))
    best = max(of_base, key=lambda one: one.objective)
    first = search.candidates((model,), of_base)[0]
    nearest = min(family.lengthscales, key=lambda value: abs(np.log(value * learnt.level / best.lengthscale)))
    assert (first.lengthscale, first.output_scale) == (nearest, best.output_scale)
    alone = search.candidates((model,))[0]
    assert (alone.lengthscale, alone.output_scale) == (search.best_lengthscale(), DEFAULT_OUTPUT_SCALE)
    assert first.output_scale != alone.output_scale
