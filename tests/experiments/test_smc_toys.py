"""Toy sets with a handful of particles: tables, pictures, one particle beside the mixture."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.smc_toys import COMPARED, OURS, TOYS, exclusive_or, heaviest_particles, of_particle, run
from sureshot.estimators import KernelSearchClassifier


def test_sets_are_of_two_classes_and_repeatable() -> None:
    for make in TOYS.values():
        x, y = make(40, 0)
        assert x.shape == (40, 2)
        assert sorted(set(y.tolist())) == [0, 1]
        np.testing.assert_array_equal(x, make(40, 0)[0])


def test_the_mixture_is_the_mean_of_its_particles() -> None:
    x, y = exclusive_or(40, 0)
    model = KernelSearchClassifier(3, random_state=0).fit(x, y)
    each = np.stack([of_particle(model, place, x) for place in range(3)])
    weights = model._fitted.weights.numpy()
    np.testing.assert_allclose(np.einsum("m,mnc->nc", weights, each), model.predict_proba(x), atol=1e-9)
    names = [name for name, _ in heaviest_particles(model, 2)]
    assert names == [structure.lower() for _, structure in model.kernel_posterior_[:2]]


def test_figures_and_tables() -> None:
    outcome = run(data_root=None, progress=lambda what, fraction: None, rows=24, test_rows=50, particles=2, grid=5)
    scores, shift = (table.frame for table in outcome.tables)
    assert len(scores) == len(TOYS) * len(COMPARED)
    assert scores["accuracy"].between(0, 1).all()
    assert (scores["heaviest"] != "").sum() == (scores["method"] == OURS).sum()
    assert len(shift) == len(outcome.verdicts) == 2
    assert [picture.name for picture in outcome.pictures] == ["adaptation", "particles", "shift"]
    with pytest.raises(ValueError, match="unknown option 'row'"):
        run(data_root=None, progress=lambda what, fraction: None, row=3)
