"""The search of one kernel family: where its climbs end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from sureshot.estimators.conditioning import Model
from sureshot.estimators.family_search import OUTPUT_SCALES, Candidate, Search
from sureshot.estimators.options import named_family
from sureshot.estimators.support import Support


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
    search = Search(support, 0, named_family(kernel, support), ("plug_in",), "leave_one_out")
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
