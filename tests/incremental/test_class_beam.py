"""Searching groups of Gaussian classes, beside looking at all of them."""

from __future__ import annotations

import pytest
import torch

from sureshot.incremental.class_beam import ClassBeam
from sureshot.incremental.gaussian_classes import GaussianClassesModel
from sureshot.incremental.strategy import ClassRows, most_probable
from sureshot.incremental.two_covariances import ClassSums, TwoCovariances

C, D = 200, 12


@pytest.fixture(scope="module")
def model() -> GaussianClassesModel:
    """Twenty groups of ten classes, of one to five rows."""
    generator = torch.Generator().manual_seed(0)
    groups = 3 * torch.randn(C // 10, 1, D, dtype=torch.float64, generator=generator)
    means = (groups + torch.randn(C // 10, 10, D, dtype=torch.float64, generator=generator)).flatten(0, 1)
    counts = 1 + torch.arange(C) % 5
    kept = ClassRows(means, torch.arange(C), counts.double(), torch.zeros(C, dtype=torch.int64))
    ones = torch.ones(D, dtype=torch.float64)
    covariances = TwoCovariances(0 * ones, torch.diag(ones), 10 * ones, 0.5 * ones, torch.tensor(2.0).double())
    return GaussianClassesModel.of(covariances, kept)


@pytest.fixture(scope="module")
def queries() -> torch.Tensor:
    return 3 * torch.randn(50, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_the_widest_beam_is_the_dense_answer(model: GaussianClassesModel, queries: torch.Tensor) -> None:
    dense, beam = most_probable(model.log_probabilities(queries), 7), model.leading(queries, 7, C)
    assert torch.equal(dense.classes, beam.classes)
    torch.testing.assert_close(dense.log_probabilities, beam.log_probabilities, rtol=1e-9, atol=1e-9)
    tempered = model.leading(queries, C, C, 3.0).log_probabilities
    expected = torch.log_softmax(model.log_probabilities(queries) / 3, -1).sort(descending=True).values
    torch.testing.assert_close(tempered, expected, rtol=1e-9, atol=1e-9)


def test_a_narrow_beam_finds_the_first_class_nearly_always(model: GaussianClassesModel) -> None:
    rows = model.densities.mean + 0.3 * torch.randn(
        C, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
    )
    dense, beam = model.log_probabilities(rows), model.leading(rows, 1, 2)
    assert float((beam.classes[:, 0] == dense.argmax(-1)).double().mean()) > 0.95


def test_groups_hold_every_class_once_and_merge_moments(model: GaussianClassesModel) -> None:
    beam = ClassBeam.of(model.covariances, model.densities, model.discriminants)
    assert torch.cat(beam.members).sort().values.tolist() == list(range(C))
    own = max(beam.members, key=len)
    assert len(own) > 1
    number = [members is own for members in beam.members].index(True)
    mean, variance = model.densities.mean[own], model.densities.variance[own]
    merged = torch.distributions.Normal(mean.mean(0), (variance + mean.square()).mean(0).sub(mean.mean(0) ** 2).sqrt())
    first = torch.distributions.Normal(model.densities.mean[0], model.densities.variance[0].sqrt())
    z = torch.zeros(1, D, dtype=torch.float64)
    expected = (merged.log_prob(z) - first.log_prob(z)).sum()
    torch.testing.assert_close(beam.merged.at(z)[0, number], expected)


def test_as_many_classes_as_asked_for_whatever_the_beam(model: GaussianClassesModel, queries: torch.Tensor) -> None:
    found = model.leading(queries, 60, 1)
    assert found.classes.shape == (50, 60)
    assert bool(torch.isfinite(found.log_probabilities).all())
    assert all(len(set(row)) == 60 for row in found.classes.tolist())


def test_groups_of_similar_classes(model: GaussianClassesModel) -> None:
    beam = ClassBeam.of(model.covariances, model.densities, model.discriminants)
    sizes = [len(own) for own in beam.members]
    assert max(sizes) <= 2 * -(-C // len(sizes))
    assert all(len(set((own // 10).tolist())) == 1 for own in beam.members)  # ten classes after another are a group


def test_classes_without_rows_are_groups_too(model: GaussianClassesModel, queries: torch.Tensor) -> None:
    announced = model.covariances.densities(ClassSums(torch.zeros(C, D).double(), torch.zeros(C).double()))
    same = model.covariances.discriminants(announced, announced)
    beam = ClassBeam.of(model.covariances, announced, same)
    assert torch.cat(beam.members).sort().values.tolist() == list(range(C))
    scores, _ = beam.candidates(queries, 2)
    assert float(scores.amax()) == 0


def test_equally_probable_classes_come_in_their_order() -> None:
    logs = torch.tensor([[0.1, 0.3, 0.1, 0.3, 0.1, 0.1], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]]).log()
    assert most_probable(logs, 3).classes.tolist() == [[1, 3, 0], [5, 0, 1]]
    assert most_probable(logs, 6).classes.tolist() == [[1, 3, 0, 2, 4, 5], [5, 0, 1, 2, 3, 4]]
    torch.testing.assert_close(most_probable(logs, 3).log_probabilities[0].exp(), torch.tensor([0.3, 0.3, 0.1]))
