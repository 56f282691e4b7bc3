"""Products of kernels that are never made, and what follows from them, against dense matrices of numpy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from sureshot.approximations.gridded import Gridded, kiss, kronecker, toeplitz
from sureshot.approximations.near_preconditioner import NearRows
from sureshot.approximations.products import Products, conditioned
from sureshot.approximations.tiles import Tiles
from sureshot.gaussian.conjugate_gradients import LowRank, log_determinant, solve
from sureshot.kernels import RBF, Laplacian, Matern, Periodic, RationalQuadratic, Scale

RNG = np.random.default_rng(0)
SCALE, LENGTHS = 1.7, (0.6, 1.5)
ANY = RNG.normal(size=(120, 2))
EVEN = (0.1 * np.flatnonzero(RNG.random(170) < 0.7))[:, None] + 3.3
SQUARE = np.array(list(itertools.product(0.25 * np.arange(12), 0.5 * np.arange(9))))[RNG.permutation(108)]
UNEVEN = np.array(list(itertools.product(RNG.normal(size=11), [-3.0, 0.1, 0.2, 4.0, 9.0])))[RNG.permutation(55)]


def rbf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    scaled = (a[:, None] - b[None]) / np.array(LENGTHS[: a.shape[1]])
    found: np.ndarray = SCALE * np.exp(-0.5 * (scaled**2).sum(-1))
    return found


def laplacian(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    scaled = (a[:, None] - b[None]) / np.array(LENGTHS[: a.shape[1]])
    found: np.ndarray = SCALE * np.exp(-np.abs(scaled).sum(-1))
    return found


def matern(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    distance = math.sqrt(3) * np.linalg.norm((a[:, None] - b[None]) / np.array(LENGTHS[: a.shape[1]]), axis=-1)
    found: np.ndarray = SCALE * (1 + distance) * np.exp(-distance)
    return found


LEAVES = {rbf: RBF, laplacian: Laplacian, matern: lambda lengthscale: Matern(1.5, lengthscale)}
Dense = Callable[[np.ndarray, np.ndarray], np.ndarray]
CASES: dict[str, tuple[Any, Dense, np.ndarray]] = {
    "tiles": (Tiles, matern, ANY),
    "tiles, laplacian": (Tiles, laplacian, ANY),
    "toeplitz with gaps": (toeplitz, matern, EVEN),
    "toeplitz of two columns": (toeplitz, rbf, SQUARE[:80]),
    "toeplitz, twice the same place": (toeplitz, rbf, np.concatenate([EVEN, EVEN[:7]])),
    "kronecker": (kronecker, rbf, UNEVEN),
    "kronecker with gaps": (kronecker, laplacian, UNEVEN[:40]),
    "kronecker, one column": (kronecker, matern, UNEVEN[:30, :1]),
}


def made(name: str) -> tuple[Products, Dense, np.ndarray]:
    maker, dense, x = CASES[name]
    kernel = Scale(torch.tensor(SCALE, dtype=torch.float64), LEAVES[dense](list(LENGTHS[: x.shape[1]])))
    return maker(kernel, torch.from_numpy(x)), dense, x


@pytest.mark.parametrize("name", CASES)
def test_products_are_those_of_the_dense_kernel(name: str) -> None:
    products, dense, x = made(name)
    vectors = RNG.normal(size=(len(x), 3))
    expected = dense(x, x) @ vectors
    np.testing.assert_allclose(products.exact(torch.from_numpy(vectors)), expected, atol=1e-10)
    np.testing.assert_allclose(products.rough(torch.from_numpy(vectors)), expected, atol=2e-4)
    queries = np.concatenate([x[:9] + 0.01, 30 + x[:2]])
    found = products.of_queries(torch.from_numpy(queries), torch.from_numpy(vectors))
    np.testing.assert_allclose(found, dense(queries, x) @ vectors, atol=1e-10)


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_conditioned_is_the_dense_problem(name: str, equal: bool) -> None:
    products, dense, x = made(name)
    noise = np.full(len(x), 0.05) if equal else RNG.uniform(0.05, 0.5, size=len(x))
    noisy, sides = dense(x, x) + np.diag(noise), RNG.normal(size=(len(x), 2))
    expected, generator = np.linalg.solve(noisy, sides), torch.Generator().manual_seed(0)
    given = torch.from_numpy(sides), torch.from_numpy(noise)
    dual, log_det = conditioned(products, *given, generator)
    np.testing.assert_allclose(dual, expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(noisy)[1], rtol=1e-10)
    for guide in (products.preconditioner(given[1]), NearRows.of(products.kernel, products.x, given[1])):
        near = solve(products.exact, given[0], guide, products.rough, tolerance=1e-11).value  # as of many rows
        np.testing.assert_allclose(near, expected, rtol=1e-8, atol=1e-8)
        estimate, error = log_determinant(products.rough, guide, guide.draw(30, generator))
        assert abs(estimate - np.linalg.slogdet(noisy)[1]) < 4 * error + 1e-3


def test_near_rows_precondition_by_regressions_on_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sureshot.approximations.near_preconditioner.N_NEAR", 6)
    products, dense, x = made("tiles")
    noise = RNG.uniform(0.05, 0.5, size=len(x))
    found = NearRows.of(products.kernel, products.x, torch.from_numpy(noise))
    noisy, order = dense(x, x) + np.diag(noise), found.order.numpy()
    told, variance = np.eye(len(x)), np.empty(len(x))
    distance = np.linalg.norm((x[:, None] - x[None]) / np.array(LENGTHS), axis=-1)
    for k, row in enumerate(order):
        earlier = set(order[:k])
        beside = [place for place in distance[row].argsort(kind="stable")[: 4 * 6] if place in earlier][:6]
        weight = np.linalg.solve(noisy[np.ix_(beside, beside)], noisy[beside, row])
        told[row, beside], variance[row] = -weight, noisy[row, row] - noisy[row, beside] @ weight
    precision = told.T @ np.diag(1 / variance) @ told
    vectors = RNG.normal(size=(len(x), 2))
    np.testing.assert_allclose(found.solve(torch.from_numpy(vectors)), precision @ vectors, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.log_det, -np.linalg.slogdet(precision)[1], rtol=1e-8)
    drawn = found.draw(40_000, torch.Generator().manual_seed(0)).numpy()
    np.testing.assert_allclose(drawn @ drawn.T / drawn.shape[1], np.linalg.inv(precision), atol=0.06)


def test_smooth_kernels_are_preconditioned_by_few_columns_others_by_near_rows() -> None:
    noise = torch.full((120,), 0.1, dtype=torch.float64)
    for lengthscale, kind in ((3.0, LowRank), (0.1, NearRows)):
        kernel = Scale(torch.tensor(SCALE, dtype=torch.float64), RBF(lengthscale))
        assert isinstance(Tiles(kernel, torch.from_numpy(ANY)).preconditioner(noise), kind)


def keys(grid: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Weights (N, M) of cubic convolution (Keys 1981, a = -1/2) for one column."""
    s = np.abs(x[:, None] - grid[None]) / (grid[1] - grid[0])
    near, far = 1.5 * s**3 - 2.5 * s**2 + 1, -0.5 * s**3 + 2.5 * s**2 - 4 * s + 2
    found: np.ndarray = np.where(s < 1, near, np.where(s < 2, far, 0.0))
    return found


@pytest.mark.parametrize("width", [1, 2])
def test_kiss_is_the_interpolated_kernel_of_its_nodes(width: int) -> None:
    x, dense = ANY[:, :width], rbf
    kernel = Scale(torch.tensor(SCALE, dtype=torch.float64), RBF(list(LENGTHS[:width])))
    products = kiss(kernel, torch.from_numpy(x))
    columns = [one.numpy() for one in products.columns]
    nodes = np.array(list(itertools.product(*columns)))
    weight = keys(columns[0], x[:, 0])
    if width == 2:
        weight = (weight[:, :, None] * keys(columns[1], x[:, 1])[:, None]).reshape(len(x), -1)
    gram = weight @ dense(nodes, nodes) @ weight.T
    vectors, noise = RNG.normal(size=(len(x), 2)), np.full(len(x), 0.1)
    np.testing.assert_allclose(products.exact(torch.from_numpy(vectors)), gram @ vectors, atol=1e-9)
    np.testing.assert_allclose(gram, dense(x, x), atol=1e-3)
    dual, log_det = conditioned(products, torch.from_numpy(vectors), torch.from_numpy(noise), torch.Generator())
    noisy = gram + np.diag(noise)
    np.testing.assert_allclose(dual, np.linalg.solve(noisy, vectors), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(noisy)[1], rtol=1e-8)
    queries = np.concatenate([x.min(0) + (x.max(0) - x.min(0)) * RNG.random((5, width)), x[:2] + 20, x[:3]])
    found = products.of_queries(torch.from_numpy(queries), torch.from_numpy(vectors))
    np.testing.assert_allclose(found, dense(queries, x) @ vectors, atol=5e-3)
    np.testing.assert_allclose(found[-3:], (gram @ vectors)[:3], atol=1e-9)
    np.testing.assert_array_equal(
        found[:5], products.of_queries(torch.from_numpy(queries[:5]), torch.from_numpy(vectors))
    )


def of_group(rank: int, count: int, place: str) -> None:
    """Solve in one of several processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}/group", rank=rank, world_size=count)
    torch.save(_solved(), f"{place}/{rank}.pt")
    x = torch.full((3, 1), float(rank), dtype=torch.float64)
    with pytest.raises(ValueError, match="the processes of the group have different rows or kernels"):
        Tiles(Scale(torch.tensor(SCALE, dtype=torch.float64), RBF(1.0)), x).exact(x)
    dist.destroy_process_group()


def _solved() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(1510, 2)))
    products = Tiles(Scale(torch.tensor(SCALE, dtype=torch.float64), Matern(1.5, list(LENGTHS))), x)
    noise = torch.full((len(x),), 0.1, dtype=torch.float64)
    return conditioned(products, x.sin(), noise, torch.Generator().manual_seed(0))


def test_two_processes_solve_as_one_does(tmp_path: Any) -> None:
    mp.spawn(of_group, (2, str(tmp_path)), nprocs=2)  # type: ignore[no-untyped-call]
    dual, log_det = _solved()
    for rank in range(2):
        found, log_found = torch.load(tmp_path / f"{rank}.pt")
        torch.testing.assert_close(found, dual, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(log_found, log_det, rtol=1e-6, atol=1e-6)


def test_rows_off_a_grid_and_kernels_that_are_no_products_are_refused() -> None:
    kernel = Scale(torch.tensor(1.0, dtype=torch.float64), RBF(1.0))
    rough = Scale(torch.tensor(1.0, dtype=torch.float64), Matern(1.5, 1.0))
    with pytest.raises(ValueError, match=r"evenly spaced values of every column.*round times.*'kronecker'"):
        toeplitz(kernel, torch.from_numpy(ANY[:, :1]))
    with pytest.raises(ValueError, match=r"120 rows are few of the 120 x 120 points.*'kiss'"):
        kronecker(kernel, torch.from_numpy(ANY))
    for maker, x in ((kronecker, UNEVEN), (toeplitz, SQUARE), (kiss, ANY)):
        with pytest.raises(
            ValueError, match=r"product over columns, 'rbf' or 'laplacian', and Matern\(1.5, 1\) is none"
        ):
            maker(rough, torch.from_numpy(x))
    with pytest.raises(ValueError, match="interpolates 1 to 4 columns, and 5 vary: use approximation='iterative'"):
        kiss(kernel, torch.from_numpy(RNG.normal(size=(20, 5))))
    with pytest.warns(UserWarning, match="nodes a column, fewer than 2 in a length-scale"):
        kiss(Scale(torch.tensor(1.0, dtype=torch.float64), RBF(0.01)), torch.from_numpy(RNG.normal(size=(20, 2))))


def test_steps_are_found_where_the_shortest_gap_is_several() -> None:
    kernel = Scale(torch.tensor(1.0, dtype=torch.float64), RBF(1.0))
    times = torch.tensor([0, 2, 5, 9, 11, 14], dtype=torch.float64)[:, None] * 0.1 + 1e9
    found = toeplitz(kernel, times)
    assert isinstance(found, Gridded)
    assert len(found.columns[0]) == 15
    assert len(toeplitz(kernel, torch.full((4, 1), 2.0, dtype=torch.float64)).columns[0]) == 1


def test_next_to_no_noise_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sureshot.approximations.tiles.FACTORED", 0)
    x = torch.linspace(0, 1, 300, dtype=torch.float64)[:, None]
    products = Tiles(Scale(torch.tensor(1.0, dtype=torch.float64), RBF(0.1)), x)
    noise = torch.full((300,), 1e-16, dtype=torch.float64)
    with pytest.warns(UserWarning, match=r"conjugate gradients left .* over after .* products, more than 1e-07.*try"):
        conditioned(products, torch.randn(300, 1, dtype=torch.float64), noise, torch.Generator())


def test_other_leaves_of_distances_have_tiles() -> None:
    x = torch.from_numpy(ANY)
    for leaf in (RationalQuadratic(0.7, 1.3), Periodic(1.0, 2.0)):
        products = Tiles(Scale(torch.tensor(SCALE, dtype=torch.float64), leaf), x)
        torch.testing.assert_close(products.rough(x), products.kernel(x) @ x, rtol=1e-4, atol=1e-4)
