"""Nearest labelled rows, against searches by all distances."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sureshot.approximations import nearest_neighbours
from sureshot.approximations.nearest_neighbours import FARTHEST, NearestNeighbours, NearestRows, rounded
from sureshot.gaussian.local_regression import local_regression
from sureshot.kernels import RBF, Expression, Laplacian, Matern

N_ROWS, WIDTH = 300, 3


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X, QUERIES = normal(0, N_ROWS, WIDTH), normal(1, 20, WIDTH)
LOTS = torch.linspace(0, 1, N_ROWS)
NOISE = torch.full((N_ROWS,), 0.2, dtype=torch.float64)


@pytest.mark.parametrize(("kernel", "p"), [(Matern(1.5), 2.0), (Laplacian(), 1.0)], ids=["radial", "by columns"])
def test_the_nearest_are_nearest_under_the_kernel(kernel: Expression, p: float) -> None:
    found = NearestNeighbours(kernel, NearestRows.of(X, LOTS), NOISE, 7).places(rounded(QUERIES), 7)
    expected = torch.cdist(QUERIES, X, p=p).topk(7, largest=False).indices
    assert (found.unsqueeze(-1) == expected.unsqueeze(-2)).any(-1).double().mean() >= (1.0 if p == 2 else 0.95)


def test_with_all_rows_as_neighbours_it_is_the_exact_regression() -> None:
    kernel, targets = RBF(1.0), normal(2, N_ROWS, 2)
    ((block, place, problem),) = NearestNeighbours(kernel, NearestRows.of(X, LOTS), NOISE, N_ROWS).around(QUERIES[:3])
    found = local_regression(problem, targets[place])
    weights = torch.linalg.solve(kernel(X) + torch.diag(NOISE), kernel(X, QUERIES[:3]))
    assert block.start == 0
    torch.testing.assert_close(found.mean, weights.mT @ targets, atol=1e-5, rtol=1e-5)  # rows are rounded
    torch.testing.assert_close(found.explained, (weights * kernel(X, QUERIES[:3])).sum(0), atol=1e-5, rtol=1e-5)


def test_a_row_is_asked_without_its_own_label_or_without_one_of_its_copies() -> None:
    """By the regression on the other rows; of a row that keeps half its weight, with twice the noise there."""
    kernel, targets = RBF(1.0), normal(2, 40, 1)
    rows, own = NearestNeighbours(kernel, NearestRows.of(X[:40], LOTS[:40]), NOISE[:40], 39), torch.tensor([5, 8])
    share = torch.tensor([1.0, 0.5], dtype=torch.float64)
    ((_, place, problem),) = rows.around(X[own], own, share)
    found = local_regression(problem, targets[place]).mean
    others = torch.arange(40) != 5
    gram = kernel(X[:40])
    expected = gram[5, others] @ torch.linalg.solve(gram[others][:, others] + torch.diag(NOISE[:39]), targets[others])
    torch.testing.assert_close(found[0], expected, atol=1e-5, rtol=1e-5)
    noise = NOISE[:40].clone()
    noise[8] *= 2
    expected = gram[8] @ torch.linalg.solve(gram + torch.diag(noise), targets)
    torch.testing.assert_close(found[1], expected, atol=1e-5, rtol=1e-5)


def test_what_is_near_does_not_hang_on_the_queries_beside() -> None:
    """On a grid most distances come many times."""
    grid = torch.cartesian_prod(*[torch.arange(9.0, dtype=torch.float64)] * 3)
    rows, queries = NearestRows.of(grid / 3.7, torch.linspace(0, 1, len(grid))), rounded((grid[::3] + 0.5) / 3.7)
    together = rows.nearest(queries, 12)
    for number in (0, 57, 200):
        alone = rows.nearest(queries[number : number + 1], 12)
        assert alone[0].sort().values.tolist() == together[number].sort().values.tolist()


def test_which_of_equally_far_rows_are_near_does_not_hang_on_their_order() -> None:
    grid = torch.cartesian_prod(*[torch.arange(6.0, dtype=torch.float64)] * 3)
    lots, queries = torch.rand(len(grid), generator=torch.Generator().manual_seed(0)), rounded(grid[::20])
    order = torch.randperm(len(grid), generator=torch.Generator().manual_seed(1))
    found = NearestRows.of(grid, lots).nearest(queries, 12)
    shuffled = order[NearestRows.of(grid[order], lots[order]).nearest(queries, 12)]
    assert found.sort().values.tolist() == shuffled.sort().values.tolist()


def test_fewer_rows_than_neighbours_copies_and_cells_out_of_range() -> None:
    x = torch.zeros(4, 2, dtype=torch.float64)
    x[3] = 1e300
    rows = NearestNeighbours(Matern(0.5), NearestRows.of(x, torch.rand(4)), NOISE[:4], 64)
    ((_, place, problem),) = rows.around(torch.tensor([[0.0, 0.0], [-1e300, 1e300]], dtype=torch.float64))
    found = local_regression(problem, torch.ones(2, 4, 1, dtype=torch.float64))
    assert place.shape == (2, 4)
    assert bool(torch.isfinite(found.mean).all())
    assert float(found.explained[1]) < 1e-9  # nothing is known there
    assert float(rows.rows.x.abs().max()) == FARTHEST


def test_many_rows_are_found_by_lists(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("faiss")
    x, queries = normal(3, 20_000, 4), rounded(normal(4, 50, 4))
    exact = NearestRows.of(x, torch.linspace(0, 1, len(x))).nearest(queries, 20)
    monkeypatch.setattr(nearest_neighbours, "ROWS_IN_LISTS", 10_000)
    found = NearestRows.of(x, torch.linspace(0, 1, len(x))).nearest(queries, 20)
    assert (found.unsqueeze(-1) == exact.unsqueeze(-2)).any(-1).double().mean() > 0.95
    assert torch.equal(found[:1], NearestRows.of(x, torch.linspace(0, 1, len(x))).nearest(queries[:1], 20))
    monkeypatch.setattr(nearest_neighbours, "find_spec", lambda name: None)
    with caplog.at_level("INFO"):
        assert torch.equal(exact, NearestRows.of(x, torch.linspace(0, 1, len(x))).nearest(queries, 20))
    assert "sureshot[large]" in caplog.text


def test_lists_with_too_few_rows_give_the_nearest_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr(nearest_neighbours, "ROWS_IN_LISTS", 10)
    monkeypatch.setattr(nearest_neighbours, "LISTS_ASKED", 1)
    found = NearestRows.of(X, LOTS).nearest(rounded(QUERIES), 200)
    assert found.shape == (20, 200)
    assert int(found.min()) >= 0
