"""Solutions and log determinants against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sureshot.gaussian.conjugate_gradients import (
    LowRank,
    log_determinant,
    pivoted_cholesky,
    solve,
)

N, RANK = 150, 20
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
SQUARED = ((X[:, None] - X[None]) ** 2).sum(-1)
NOISE = RNG.uniform(0.02, 0.2, size=N)
SIDES = np.column_stack([np.sin(3 * X[:, 0]), 1e6 * X[:, 1], np.zeros(N), RNG.normal(size=N)])


GRAM = np.exp(-0.5 * SQUARED / 0.7**2)
MATRIX = torch.from_numpy(GRAM)
NOISY = GRAM + np.diag(NOISE)


def guide(rank: int = RANK) -> LowRank:
    root = pivoted_cholesky(MATRIX.diagonal(), lambda k: MATRIX[k], rank)
    return LowRank.of(root, torch.from_numpy(NOISE))


def test_the_pivoted_factor_takes_what_varies_most() -> None:
    matrix, left = GRAM, GRAM
    for _ in range(RANK):
        k = left.diagonal().argmax()
        left = left - np.outer(left[k], left[k]) / left[k, k]
    root = pivoted_cholesky(MATRIX.diagonal(), lambda k: MATRIX[k], RANK).numpy()
    np.testing.assert_allclose(root @ root.T, matrix - left, atol=1e-10)
    few = pivoted_cholesky(torch.ones(5), lambda k: torch.ones(5), 3)  # of rank one
    torch.testing.assert_close(few, torch.ones(5, 1))


def test_the_preconditioner_is_its_dense_matrix() -> None:
    found = guide()
    dense = found.root.numpy() @ found.root.numpy().T + np.diag(NOISE)
    np.testing.assert_allclose(
        found.solve(torch.from_numpy(SIDES)), np.linalg.solve(dense, SIDES), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(found.log_det, np.linalg.slogdet(dense)[1], rtol=1e-12)
    drawn = found.draw(50_000, torch.Generator().manual_seed(0)).numpy()
    np.testing.assert_allclose(drawn @ drawn.T / drawn.shape[1], dense, atol=0.04)


def test_solutions_are_those_of_the_dense_matrix() -> None:
    expected = np.linalg.solve(NOISY, SIDES)
    for rank in (1, RANK, N):
        found = solve(MATRIX.matmul, torch.from_numpy(SIDES), guide(rank), tolerance=1e-12)
        assert found.left < 1e-12
        np.testing.assert_allclose(found.value, expected, rtol=1e-8, atol=1e-9)
    near = torch.from_numpy(expected * (1 + 1e-4 * RNG.normal(size=expected.shape)))
    again = solve(MATRIX.matmul, torch.from_numpy(SIDES), guide(), start=near, tolerance=1e-10)
    assert again.steps < solve(MATRIX.matmul, torch.from_numpy(SIDES), guide(), tolerance=1e-10).steps
    np.testing.assert_allclose(again.value, expected, rtol=1e-6, atol=1e-7)
    assert solve(MATRIX.matmul, torch.zeros(N, 2, dtype=torch.float64), guide()).steps == 0


def test_rough_products_lead_to_exact_solutions() -> None:
    single, used = MATRIX.float(), [0, 0]

    def exact(vectors: torch.Tensor) -> torch.Tensor:
        used[0] += 1
        return MATRIX @ vectors

    def rough(vectors: torch.Tensor) -> torch.Tensor:
        used[1] += 1
        return (single @ vectors.float()).double()

    found = solve(exact, torch.from_numpy(SIDES), guide(), rough, tolerance=1e-10)
    np.testing.assert_allclose(found.value, np.linalg.solve(NOISY, SIDES), rtol=1e-7, atol=1e-8)
    assert used[1] > 3 * used[0]  # only remainders are exact
    wrong = solve(exact, torch.from_numpy(SIDES), guide(), lambda v: 0 * v, tolerance=1e-10)
    assert wrong.left < 1e-10  # by exact products, once rough ones lead nowhere


def test_what_does_not_converge_says_how_far_it_came() -> None:
    found = solve(MATRIX.matmul, torch.from_numpy(SIDES), guide(1), most=3)
    left = np.linalg.norm(SIDES - NOISY @ found.value.numpy(), axis=0) / np.maximum(np.linalg.norm(SIDES, axis=0), 1)
    assert found.steps == 3
    assert found.left > 1e-6
    np.testing.assert_allclose(found.left, left.max(), rtol=1e-9)


def test_log_determinants_are_exact_by_all_directions_and_near_by_a_few() -> None:
    expected = np.linalg.slogdet(NOISY)[1]
    led = guide()
    dense = led.root @ led.root.mT + torch.diag(led.noise)
    found, _ = log_determinant(MATRIX.matmul, led, N**0.5 * torch.linalg.cholesky(dense))  # all directions: the trace
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    errors = []
    for seed in range(20):
        some, error = log_determinant(MATRIX.matmul, led, led.draw(10, torch.Generator().manual_seed(seed)))
        errors.append(float((some - expected) / error))
    assert abs(np.mean(errors)) < 4 / 20**0.5
    assert 0.6 < np.std(errors) < 1.8


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_do_not_matter(scale: float) -> None:
    led = LowRank.of(scale**0.5 * guide().root, scale * torch.from_numpy(NOISE))
    found = solve((scale * MATRIX).matmul, torch.from_numpy(SIDES), led, tolerance=1e-10)
    np.testing.assert_allclose(scale * found.value.numpy(), np.linalg.solve(NOISY, SIDES), rtol=1e-6, atol=1e-7)
