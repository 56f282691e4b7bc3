"""The contract of every approximation: the covariance that it stands for, by formulas of its own in NumPy.

Add an approximation by adding a line to `CASES`: how it is made of a kernel and rows, what it stands for at any rows,
and whether that is the kernel itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, replace

import numpy as np
import pytest
import torch
from scipy.linalg import hadamard
from torch import Tensor

from sureshot.approximations.base import Approximation, Finite
from sureshot.approximations.exact import Exact
from sureshot.approximations.explicit import Explicit
from sureshot.approximations.fastfood import ALaCarte, Fastfood
from sureshot.approximations.fitc import IndependentConditional
from sureshot.approximations.inducing import Inducing, seen_through
from sureshot.approximations.random_features import RandomFeatures, SparseSpectrum
from sureshot.approximations.sor import SubsetOfRegressors
from sureshot.approximations.vfe import FreeEnergy, StochasticVariational
from sureshot.gaussian import Sites
from sureshot.kernels import Expression, Linear, Matern, Scale

F64 = torch.float64
N, Q, M = 20, 7, 6
SCALES = [1e-6, 1.0, 1e6]


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


X, QUERY, POINTS = normal(N, 3, seed=0), normal(Q, 3, seed=1), normal(M, 3, seed=2)
LINEAR: Expression = Linear(0.7) + 0.4
BENT: Expression = Matern(1.5, 1.3) + 0.2


FREQUENCIES = normal(9, 3, seed=8)
FOOD = Fastfood.drawn(BENT, 3, 20, torch.Generator().manual_seed(9))
FOOD_PARTS = FOOD.signs, FOOD.order, FOOD.gains, FOOD.lengths


def kernel_itself(kernel: Expression, points: Tensor, x: np.ndarray) -> np.ndarray:
    return kernel(torch.from_numpy(x)).numpy()


def through_points(kernel: Expression, points: Tensor, x: np.ndarray) -> np.ndarray:
    """Nystroem's covariance, by a pseudo-inverse."""
    cross = kernel(points, torch.from_numpy(x)).numpy()
    return cross.T @ np.linalg.pinv(kernel(points).numpy(), rcond=1e-10, hermitian=True) @ cross


def through_points_and_own(kernel: Expression, points: Tensor, x: np.ndarray) -> np.ndarray:
    """With the kernel's own variances (FITC)."""
    found = through_points(kernel, points, x)
    np.fill_diagonal(found, kernel.diagonal(torch.from_numpy(x)).numpy())
    return found


def by_frequencies(frequencies: np.ndarray) -> Callable[[Expression, Tensor, np.ndarray], np.ndarray]:
    """The mean of cosines of differences, of ``scale x (Matern + 0.2)``."""

    def covariance(kernel: Expression, points: Tensor, x: np.ndarray) -> np.ndarray:
        scale = float(kernel.diagonal(torch.zeros(1, 3, dtype=F64))) / 1.2
        angles = ((x[:, None] - x[None]) / 1.3) @ frequencies.T
        return scale * (np.cos(angles).mean(-1) + 0.2)

    return covariance


def dense_blocks(food: Fastfood) -> np.ndarray:
    """``S H G P H B / sqrt(d)`` with the matrices themselves, of the columns that there are."""
    signs, order, gains = (part.numpy() for part in (food.signs, food.order, food.gains))
    size, h = signs.shape[1], hadamard(signs.shape[1]).astype(float)
    blocks = [h @ np.diag(g) @ np.eye(size)[p] @ h @ np.diag(b) for b, p, g in zip(signs, order, gains, strict=True)]
    return np.asarray(food.lengths)[:, None] * np.concatenate(blocks)[: len(food.lengths), :3] / size**0.5


@dataclass(frozen=True)
class Case:
    make: Callable[[Expression, Tensor], Approximation]  # of a kernel and the rows that are learnt from
    stands_for: Callable[[Expression, Tensor, np.ndarray], np.ndarray]  # given the inducing inputs, at rows
    kernel: Expression = BENT
    points: Tensor | None = None  # that stay whatever the rows; None: all rows
    forgets: bool = False  # whether queries have the variance that it stands for, and not the kernel's own


CASES = {
    "exact": Case(Exact, kernel_itself),
    "explicit": Case(Explicit.of, kernel_itself, LINEAR),
    "all rows": Case(Inducing, through_points),
    "all rows, orthogonal": Case(lambda k, x: Inducing(k, x, orthogonal=True), through_points),
    "inducing": Case(lambda k, x: Inducing(k, POINTS), through_points, points=POINTS),
    "inducing, orthogonal": Case(lambda k, x: Inducing(k, POINTS, orthogonal=True), through_points, points=POINTS),
    "inducing, low rank": Case(lambda k, x: Inducing(k, POINTS), through_points, LINEAR, POINTS),
    "random features": Case(lambda k, x: RandomFeatures(k, FREQUENCIES), by_frequencies(FREQUENCIES.numpy())),
    "ssgp": Case(lambda k, x: SparseSpectrum(k, FREQUENCIES), by_frequencies(FREQUENCIES.numpy())),
    "fastfood": Case(lambda k, x: replace(FOOD, kernel=k), by_frequencies(dense_blocks(FOOD))),
    "a la carte": Case(lambda k, x: ALaCarte(k, *FOOD_PARTS), by_frequencies(dense_blocks(FOOD))),
    "sor": Case(lambda k, x: SubsetOfRegressors(k, POINTS), through_points, points=POINTS, forgets=True),
    "fitc": Case(lambda k, x: IndependentConditional(k, POINTS), through_points_and_own, points=POINTS),
    "vfe": Case(lambda k, x: FreeEnergy(k, POINTS), through_points, points=POINTS),
    "svgp": Case(lambda k, x: StochasticVariational(k, POINTS), through_points, points=POINTS),
    "inducing, residual": Case(lambda k, x: Inducing(k, POINTS, residual=True), through_points_and_own, points=POINTS),
}
everywhere = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def close(found: Tensor, expected: np.ndarray, scale: float = 1.0) -> None:
    np.testing.assert_allclose(found.numpy() / scale, expected / scale, rtol=0, atol=1e-8)


def moments(case: Case, kernel: Expression, x: Tensor, noise: Tensor, targets: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Latents at queries given noisy ones at rows, by the dense covariance; a query's variance is the kernel's own."""
    points = x if case.points is None else case.points
    joint = case.stands_for(kernel, points, torch.cat([x, QUERY]).numpy())
    n = len(x)
    gain = np.linalg.solve(joint[:n, :n] + np.diag(noise.numpy()), joint[:n, n:])
    own = np.diag(joint)[n:] if case.forgets else kernel.diagonal(QUERY).numpy()
    return 0.3 + gain.T @ (targets.numpy() - 0.3), own - (gain * joint[:n, n:]).sum(0)


@everywhere
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("repeated", [False, True])
def test_what_is_predicted(case: Case, scale: float, repeated: bool) -> None:
    """Of kernels of any size, also where rows repeat, so that kernel matrices are singular."""
    x = torch.cat([X, X[:5], X[:2]]) if repeated else X
    kernel = Scale(scale, case.kernel)
    noise, targets = scale * (0.1 + normal(len(x), seed=3).square()), scale**0.5 * normal(len(x), seed=4)
    approximation = case.make(kernel, x)
    mean = torch.tensor(0.3, dtype=F64)
    prior = approximation.prior(x.unsqueeze(0), mean)
    points = x if case.points is None else case.points
    close(prior.variance[0], np.diag(case.stands_for(kernel, points, x.numpy())), scale)
    posterior = prior.condition(Sites(1 / noise[None], targets[None] / noise[None]))
    found = posterior.query(*prior.queries(QUERY.unsqueeze(0)))
    expected = moments(case, kernel, x, noise, targets)
    close(found.mean[0], expected[0], scale**0.5 + scale)
    close(found.spread[0], expected[1], scale)


@everywhere
def test_a_prior_s_queries_are_the_approximation_s(case: Case) -> None:
    approximation = case.make(case.kernel, X)
    prior = approximation.prior(X, torch.zeros((), dtype=F64))
    for one, other in zip(prior.queries(QUERY), approximation.queries(QUERY), strict=True):
        assert torch.equal(one, other)
    if not case.forgets:
        np.testing.assert_allclose(approximation.queries(QUERY).variance, case.kernel.diagonal(QUERY), rtol=1e-12)


@everywhere
def test_batches_equal_their_members(case: Case) -> None:
    """Rows with leading dimensions, a class among them."""
    approximation, mean = case.make(case.kernel, X), torch.zeros((), dtype=F64)
    x = normal(2, 3, 9, 3, seed=5)
    together = approximation.prior(x, mean)
    queries = approximation.queries(x)
    assert together.variance.shape == (2, 3, 9)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(together.variance[i, j], approximation.prior(x[i, j], mean).variance)
            for one, other in zip(queries, approximation.queries(x[i, j]), strict=True):
                torch.testing.assert_close(one[i, j], other)


@everywhere
def test_another_kernel(case: Case) -> None:
    larger = Scale(3.0, case.kernel)
    found, expected = replace(case.make(case.kernel, X), kernel=larger), case.make(larger, X)
    mean = torch.zeros((), dtype=F64)
    torch.testing.assert_close(found.prior(X, mean).variance, expected.prior(X, mean).variance)


@everywhere
def test_it_is_a_value(case: Case) -> None:
    approximation = case.make(case.kernel, X)
    with pytest.raises(FrozenInstanceError):
        approximation.kernel = LINEAR  # type: ignore[misc]


@pytest.mark.parametrize("case", [case for case in CASES.values() if isinstance(case.make(case.kernel, X), Finite)])
def test_weights_and_coefficients_are_the_same_functions(case: Case) -> None:
    approximation = case.make(case.kernel, X)
    assert isinstance(approximation, Finite)
    features, values = approximation.features(QUERY), approximation.values(QUERY).cross
    weights = normal(2, features.shape[1], seed=6)
    coefficients = approximation.coefficients(weights)
    torch.testing.assert_close(coefficients @ values.mT, weights @ features.mT, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(approximation.weights(coefficients), weights, rtol=1e-6, atol=1e-6)
    scaled = approximation.scaled(Scale(4.0, case.kernel), 4.0)
    assert scaled.kernel == Scale(4.0, case.kernel)
    torch.testing.assert_close(scaled.features(QUERY), 2 * features)


def test_rows_in_fewer_directions_than_columns_have_as_many_features() -> None:
    wide = normal(4, 50, seed=7)
    assert Explicit.of(Linear(1.0) + 0.4, wide).features(wide).shape == (4, 4)
    again = torch.cat([wide, wide])
    assert Explicit.of(Linear(1.0) + 0.4, again).features(again).shape == (8, 4)


@pytest.mark.parametrize("scale", SCALES)
def test_many_kernels_at_once(scale: float) -> None:
    """Each as alone, whatever the others; nothing is said of one that overflows."""
    kernels, points = [Scale(scale, kernel) for kernel in (LINEAR, BENT, BENT)], torch.cat([POINTS, POINTS[:2]])
    gram, cross = (torch.stack([kernel(points, x) for kernel in kernels]) for x in (points, X))
    gram[2] *= 1e300 / scale
    gram[2] *= 1e300
    features, own = seen_through(gram, cross, torch.stack([kernel.diagonal(X) for kernel in kernels]))
    for k, kernel in enumerate(kernels[:2]):
        expected = through_points_and_own(kernel, points, X.numpy())
        close(features[k] @ features[k].mT + torch.diag(own[k]), expected, scale)
    assert not bool(features[2].isfinite().any())


def test_queries_of_an_exact_prior_are_beside_its_own_rows() -> None:
    prior = Exact(BENT, X).prior(POINTS, torch.zeros((), dtype=F64))
    assert torch.equal(prior.queries(QUERY).cross, BENT(POINTS, QUERY))
