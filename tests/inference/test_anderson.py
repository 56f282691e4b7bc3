"""Mixing steps of a map: linear maps solved, slow ones in fewer steps, problems apart from each other."""

from __future__ import annotations

import torch
from torch import Tensor

from sureshot.inference.anderson import DEPTH, Mixing

F64 = torch.float64


def linear_map(n: int, n_problems: int = 1) -> tuple[Tensor, Tensor]:
    """Contractions (P, n, n) by at most 0.99, and where they lead to from zero."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(n_problems, n, n, dtype=F64, generator=generator)).Q
    rates = torch.linspace(0.3, 0.99, n, dtype=F64)
    return (basis * rates) @ basis.mT, torch.randn(n_problems, n, dtype=F64, generator=generator)


def test_a_linear_map_of_few_dimensions_is_solved() -> None:
    matrix, shift = linear_map(DEPTH - 1)
    expected = torch.linalg.solve(torch.eye(DEPTH - 1, dtype=F64) - matrix, shift)
    point = torch.zeros_like(shift)
    mixing = Mixing.start(point)
    for step in range(DEPTH + 1):
        image = (matrix @ point.unsqueeze(-1)).squeeze(-1) + shift
        mixing = mixing.moved(point, image, torch.zeros(1, dtype=torch.bool))
        point = mixing.next()
        assert step > 0 or torch.equal(point, image)  # of one point nothing is to be mixed
    torch.testing.assert_close(point, expected, rtol=1e-4, atol=1e-4)


def test_slow_maps_and_problems_apart() -> None:
    matrix, shift = linear_map(30, 3)
    expected = torch.linalg.solve(torch.eye(30, dtype=F64) - matrix, shift)

    def after(steps: int, problems: slice) -> Tensor:
        point = torch.zeros_like(shift[problems])
        mixing = Mixing.start(point)
        for _ in range(steps):
            image = (matrix[problems] @ point.unsqueeze(-1)).squeeze(-1) + shift[problems]
            mixing = mixing.moved(point, image, torch.zeros(len(point), dtype=torch.bool))
            point = mixing.next()
        return point

    found = after(40, slice(None))
    plain = 0.99**40
    assert float((found - expected).norm() / expected.norm()) < plain / 100
    torch.testing.assert_close(found[1:2], after(40, slice(1, 2)), rtol=1e-6, atol=1e-6)


def test_what_got_worse_is_forgotten_with_its_history() -> None:
    generator = torch.Generator().manual_seed(1)
    points, images = torch.randn(2, 4, 2, 3, dtype=F64, generator=generator)
    mixing = Mixing.start(points[0])
    for point, image in zip(points[:3], images[:3], strict=True):
        mixing = mixing.moved(point, image, torch.zeros(2, dtype=torch.bool))
    found = mixing.moved(points[3], images[3], torch.tensor([True, False]))
    assert torch.equal(found.next()[0], images[2, 0])  # the map's own step from the last point
    whole = mixing.moved(points[3], images[3], torch.zeros(2, dtype=torch.bool))
    torch.testing.assert_close(found.next()[1], whole.next()[1])
    one = found.some(torch.tensor([False, True]), 2)
    torch.testing.assert_close(one.points, found.points[1:, :, :2], rtol=0, atol=0, equal_nan=True)
