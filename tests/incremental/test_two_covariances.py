"""Two covariances against Gaussians written out: joint covariances of all rows of a class, conditioned by numpy."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, multivariate_t
from torch import Tensor

from sureshot.incremental.two_covariances import ClassSums, PredictiveDensities, TwoCovariances

D, COUNTS = 3, (4, 1, 2, 0)
GENERATOR = np.random.default_rng(0)
LABELS = np.repeat(np.arange(len(COUNTS)), COUNTS)
ROWS = GENERATOR.normal(size=(len(LABELS), D)) + GENERATOR.normal(size=(len(COUNTS), D))[LABELS]
QUERIES = GENERATOR.normal(size=(5, D)) * 2
CENTRE, BASIS = GENERATOR.normal(size=D), GENERATOR.normal(size=(D, D))
BETWEEN, WITHIN = np.array([2.0, 0.3, 1.1]), np.array([0.7, 1.4, 0.2])


def model(temperature: float = 1.0) -> TwoCovariances:
    return TwoCovariances(*map(torch.tensor, (CENTRE, BASIS, BETWEEN, WITHIN)), torch.tensor(temperature).double())


def sums(rows: np.ndarray = ROWS, labels: np.ndarray = LABELS) -> ClassSums:
    return ClassSums.of_rows(torch.tensor(rows), torch.tensor(labels), len(COUNTS))


def conditioned(label: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a new row of a class in the learned coordinates, by its rows' joint Gaussian."""
    z = (ROWS[label == LABELS] - CENTRE) @ BASIS
    n = len(z)
    joint = np.kron(np.ones((n + 1, n + 1)), np.diag(BETWEEN)) + np.kron(np.eye(n + 1), np.diag(WITHIN))
    seen, cross, own = joint[:-D, :-D], joint[-D:, :-D], joint[-D:, -D:]
    if n == 0:
        return np.zeros(D), own
    gain = np.linalg.solve(seen, cross.T).T
    return gain @ z.ravel(), own - gain @ cross.T


def log_densities() -> np.ndarray:
    z = (QUERIES - CENTRE) @ BASIS
    return np.stack([multivariate_normal(*conditioned(label)).logpdf(z) for label in range(len(COUNTS))], axis=1)


def assert_same(one: PredictiveDensities, other: PredictiveDensities) -> None:
    for part in fields(PredictiveDensities):
        torch.testing.assert_close(getattr(one, part.name), getattr(other, part.name), rtol=1e-12, atol=1e-12)


def test_predictive_densities_are_those_of_conditioning() -> None:
    found = model().densities(sums())
    for label in range(len(COUNTS)):
        mean, covariance = conditioned(label)
        np.testing.assert_allclose(found.mean[label], mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.variance[label], np.diag(covariance), rtol=1e-12)
        np.testing.assert_allclose(found.mean_variance[label], np.diag(covariance) - WITHIN, rtol=1e-11)


@pytest.mark.parametrize("temperature", [1.0, 7.0])
def test_scores_are_differences_of_log_densities(temperature: float) -> None:
    tempered, expected = model(temperature), log_densities() / temperature
    densities = tempered.densities(sums())
    scores = tempered.scores(densities, torch.tensor(QUERIES))
    np.testing.assert_allclose(scores, expected - expected[:, :1], rtol=1e-10, atol=1e-10)
    # The last class has no rows: it is the prior.
    over_prior = tempered.first_over_prior(densities, torch.tensor(QUERIES))
    np.testing.assert_allclose(over_prior, expected[:, 0] - expected[:, -1], rtol=1e-10)


@pytest.mark.parametrize("freedom", [0.5, 2.0])
def test_with_long_tails_scores_are_those_of_students_t(freedom: float) -> None:
    tailed = model(3.0).with_freedom(freedom)
    densities, far = tailed.densities(sums()), QUERIES * 50
    z = (far - CENTRE) @ BASIS
    expected = np.stack(
        [multivariate_t(*conditioned(label), df=freedom * D).logpdf(z) for label in range(len(COUNTS))], axis=1
    )
    scores = tailed.scores(densities, torch.tensor(far))
    np.testing.assert_allclose(scores, (expected - expected[:, :1]) / 3, rtol=1e-9, atol=1e-9)
    over_prior = tailed.first_over_prior(densities, torch.tensor(far))
    np.testing.assert_allclose(over_prior, (expected[:, 0] - expected[:, -1]) / 3, rtol=1e-9)
    # What a squared distance counts for is the slope of the log density of the nearest class.
    distances = []
    for label in range(len(COUNTS)):
        mean, covariance = conditioned(label)
        distances.append(((z - mean) @ np.linalg.inv(covariance) * (z - mean)).sum(1))
    slope = (freedom + 1) * D / (freedom * D + np.min(distances, axis=0))
    found = tailed.discriminants(densities, densities).steepness(torch.tensor(z)).squeeze(-1)
    np.testing.assert_allclose(found, slope, rtol=1e-8)


def test_very_many_degrees_of_freedom_are_none_counted() -> None:
    densities, rows = model().densities(sums()), torch.tensor(QUERIES)
    scores = model().with_freedom(1e9).scores(densities, rows)
    torch.testing.assert_close(scores, model().scores(densities, rows), rtol=1e-6, atol=1e-6)
    assert float(model().discriminants(densities, densities).steepness(model().coordinates(rows)).min()) == 1


def test_rows_one_by_one_are_all_rows_at_once() -> None:
    step_by_step = ClassSums(torch.zeros(0, D, dtype=torch.float64), torch.zeros(0, dtype=torch.float64))
    order = np.random.default_rng(1).permutation(len(LABELS))
    for row, label in zip(ROWS[order], LABELS[order], strict=True):
        one = ClassSums.of_rows(torch.tensor(row[None]), torch.tensor([label]), len(COUNTS))
        step_by_step = step_by_step.plus(one)
    assert_same(model().densities(step_by_step), model().densities(sums()))
    assert_same(
        model().densities(
            ClassSums.of_rows(*map(torch.tensor, (ROWS, LABELS)), len(COUNTS), torch.full((7,), 2.0).double())
        ),
        model().densities(sums(np.repeat(ROWS, 2, 0), LABELS.repeat(2))),
    )


def test_names_of_classes_do_not_matter() -> None:
    order, whole = torch.tensor([2, 0, 3, 1]), sums()
    renamed = ClassSums(whole.sums[order], whole.counts[order])
    one, two = (model().scores(model().densities(each), torch.tensor(QUERIES)) for each in (whole, renamed))
    torch.testing.assert_close(torch.softmax(one, -1)[:, order], torch.softmax(two, -1), rtol=1e-12, atol=1e-12)
    labels = torch.tensor(LABELS)
    one, two = (TwoCovariances.estimated(torch.tensor(ROWS), y) for y in (labels, (labels + 1) % 3))
    for part in fields(TwoCovariances):  # directions have no sign
        first, second = (getattr(found, part.name).abs() for found in (one, two))
        torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-9)


def drawn(n_classes: int, n_rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows whose covariances are known: between diag(4, 1, .25), within the identity."""
    spread = torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64)
    means = spread * torch.randn(n_classes, 3, dtype=torch.float64, generator=generator)
    y = torch.arange(n_classes).repeat_interleave(n_rows)
    return means[y] + torch.randn(len(y), 3, dtype=torch.float64, generator=generator), y


def test_estimates_are_the_covariances_of_many_classes() -> None:
    found = TwoCovariances.estimated(*drawn(4000, 5, torch.Generator().manual_seed(0)), shrinkage=0.0)
    inverse = torch.linalg.inv(found.basis)
    within, between = inverse.mT @ inverse, inverse.mT @ torch.diag(found.between) @ inverse
    torch.testing.assert_close(within, torch.eye(3, dtype=torch.float64), rtol=0, atol=0.05)
    torch.testing.assert_close(between, torch.diag(torch.tensor([4.0, 1.0, 0.25]).double()), rtol=0, atol=0.25)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([[1.0, 2.0]], [0]),  # one class of one row
        ([[1.0, 2.0], [1.0, 3.0]], [0, 0]),
        ([[1.0, 2.0], [3.0, 2.0], [0.0, 5.0]], [0, 1, 2]),  # one row each
        ([[1.0, 2.0], [1.0, 2.0], [3.0, 2.0], [3.0, 2.0]], [0, 0, 1, 1]),  # no spread within classes
        ([[1.0, 2.0]] * 4, [0, 0, 1, 1]),  # no spread at all
        ([[1.0, 0.0], [2.0, 0.0], [4.0, 0.0], [7.0, 0.0]], [0, 0, 1, 1]),  # of lower rank
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_little_to_learn_from(x: list[list[float]], y: list[int], dtype: torch.dtype) -> None:
    rows, labels = torch.tensor(x, dtype=dtype), torch.tensor(y)
    found = TwoCovariances.estimated(rows, labels)
    classes = ClassSums.of_rows(rows, labels, int(labels.max()) + 1)
    later = ClassSums.of_rows(rows[:1] + 50, torch.tensor([len(classes.counts)]), len(classes.counts) + 1)
    grown = classes.plus(later)
    scores = found.scores(found.densities(grown), torch.cat([rows, rows[:1] + 50]))
    assert bool(torch.isfinite(scores).all())
    assert int(scores[-1].argmax()) == len(classes.counts)  # whatever the first classes were, a far one is another
    assert bool((found.between > 0).all() and (found.within > 0).all())


def test_a_far_row_keeps_its_digits() -> None:
    equal = ClassSums.of_rows(torch.tensor(ROWS[:2]), torch.tensor([0, 1]), 2)
    far = torch.tensor(QUERIES[:1]) * 1e40
    scores = model().scores(model().densities(equal), far)
    z = (far.numpy() - CENTRE) @ BASIS
    mean, variance = (part.numpy() for part in (model().densities(equal).mean, model().densities(equal).variance))
    np.testing.assert_allclose(scores[0, 1], (z @ ((mean[1] - mean[0]) / variance[0]))[0], rtol=1e-10)


@pytest.mark.parametrize(("n_rows", "n_classes", "width"), [(30, 4, 5), (9, 3, 20), (9, 3, 12), (4, 1, 6)])
def test_coordinates_are_those_in_which_both_covariances_are_diagonal(n_rows: int, n_classes: int, width: int) -> None:
    """With more columns than rows, too, where most directions are ones in which no row differs."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n_rows) % n_classes
    x = torch.randn(n_rows, width, generator=generator, dtype=torch.float64) + y.unsqueeze(-1)
    found = TwoCovariances.estimated(x, y)
    counts = torch.bincount(y).double()
    means = torch.zeros(n_classes, width, dtype=torch.float64).index_add(0, y, x) / counts.unsqueeze(-1)
    apart, spread = x - means[y], means - means.mean(0)
    within = apart.mT @ apart / (n_rows - n_classes)
    share = max(0.5, width / (width + n_rows - n_classes))
    within = (1 - share) * within + share * within.trace() / width * torch.eye(width, dtype=torch.float64)
    between = spread.mT @ spread / max(n_classes - 1, 1) - within * (1 / counts).mean()
    one = torch.eye(width, dtype=torch.float64)
    torch.testing.assert_close(found.basis.mT @ within @ found.basis, one, rtol=0, atol=1e-10)
    diagonal = found.basis.mT @ between @ found.basis
    torch.testing.assert_close(diagonal, torch.diag(diagonal.diagonal()), rtol=0, atol=1e-10)
    if n_classes > 1:
        own = diagonal.diagonal().clamp_min(0)
        share = width / (width + n_classes)
        expected = ((1 - share) * own + share * own.mean()).clamp_min(0.01)
        torch.testing.assert_close(found.between, expected, rtol=0, atol=1e-10)
