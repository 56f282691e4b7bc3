"""A step of Newton's from the mode of all rows is that of one large Hessian, and nearly the mode of the others."""

from __future__ import annotations

import torch

from sureshot.gaussian.recomputed import SoftmaxWeightPosterior
from sureshot.inference.laplace import fit_softmax_laplace
from sureshot.inference.softmax_without_rows import SoftmaxStep

DRAW = torch.Generator().manual_seed(0)
N, R, C, Q = 12, 5, 3, 4
PHI, QUERIES = (torch.randn(size, R, generator=DRAW, dtype=torch.float64) for size in (N, Q))
Y = torch.arange(N) % C
WEIGHT = 1 + torch.arange(N, dtype=torch.float64) % 2
TEMPERATURE = 1.5


def mode(weight: torch.Tensor) -> torch.Tensor:
    """Weights (C, R)."""
    stays = weight > 0
    fit = fit_softmax_laplace(PHI[stays], Y[stays], C, weight[stays], TEMPERATURE)
    return fit.posterior.weights[0]


def gradient_and_curvature(weights: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of minus the log joint, by automatic differentiation."""

    def loss(flat: torch.Tensor) -> torch.Tensor:
        logits = PHI @ flat.view(C, R).mT / TEMPERATURE
        return 0.5 * flat.square().sum() - weight @ torch.log_softmax(logits, 1)[torch.arange(N), Y]

    flat = weights.flatten().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(flat), flat)
    return gradient, torch.autograd.functional.hessian(loss, flat.detach())


def test_the_step_is_newtons() -> None:
    weights = mode(WEIGHT)
    posterior = SoftmaxWeightPosterior(PHI, weights[None], torch.zeros(C).double(), WEIGHT, TEMPERATURE)
    place, share = torch.tensor([*range(N), 1]), torch.ones(N + 1, dtype=torch.float64)
    share[-1] = 0.5  # one of two
    at_mode = SoftmaxStep.of(posterior, Y)
    assert at_mode is not None
    found = at_mode.moves(QUERIES, place, share)
    assert found.shape == (C, Q, N + 1)
    for k, (row, part) in enumerate(zip(place.tolist(), share.tolist(), strict=True)):
        left = WEIGHT.clone()
        left[row] *= 1 - part
        gradient, curvature = gradient_and_curvature(weights, left)
        step = -torch.linalg.solve(curvature, gradient).view(C, R)
        torch.testing.assert_close(found[..., k], step @ QUERIES.mT, rtol=0, atol=1e-9)
        moved = (mode(left) - weights) @ QUERIES.mT
        assert float((found[..., k] - moved).norm()) < 0.35 * float(moved.norm())
