"""Toy sets with a handful of particles: tables, pictures, one particle beside the mixture."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.smc_toys import COMPARED, OURS, TOYS, exclusive_or, heaviest_particles, run
from sureshot.estimators import KernelSearchClassifier
from sureshot.structure.canonical import canonical
from sureshot.structure.structure import Structure


def test_sets_are_of_two_classes_and_repeatable() -> None:
    for make in TOYS.values():
        x, y = make(40, 0)
        assert x.shape == (40, 2)
        assert sorted(set(y.tolist())) == [0, 1]
        np.testing.assert_array_equal(x, make(40, 0)[0])


def test_the_heaviest_particle_of_each_structure() -> None:
    x, y = exclusive_or(40, 0)
    model = KernelSearchClassifier(3, random_state=0).fit(x, y)
    found = heaviest_particles(model, 2)
    assert [name for name, _ in found] == [structure for _, structure in model.kernel_posterior_[:2]]
    for name, number in found:
        assert str(canonical(Structure.parse(model.particles_[number].structure))) == name
    assert found[0][1] == 0 or model.particles_[found[0][1]].weight <= model.particles_[0].weight


@pytest.mark.slow
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
