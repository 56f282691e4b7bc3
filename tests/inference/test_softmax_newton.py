"""The mode that Newton's steps find is where the gradient vanishes, however it was started."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sureshot.inference.laplace import fit_softmax_laplace
from sureshot.inference.softmax_newton import newton_mode


@pytest.mark.parametrize(("n", "rank", "n_classes"), [(60, 20, 12), (200, 150, 3), (40, 60, 2)])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_gradient_vanishes(n: int, rank: int, n_classes: int, temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    features = 3 * torch.randn(n, rank, generator=generator, dtype=torch.float64)
    features[:, 0] += 20  # an intercept, whose eigenvalue is far from the others
    y = torch.arange(n) % n_classes
    weight = 0.5 + torch.rand(n, generator=generator, dtype=torch.float64)
    without = fit_softmax_laplace(features[1:], y[1:], n_classes, weight[1:], temperature)
    found = newton_mode(features, y, weight, temperature, without.posterior.weights[0])
    assert found is not None
    w = found[0].mT

    def gradient_left(w: Tensor) -> float:
        p = torch.softmax(features @ w / temperature, 1)
        one_hot = torch.nn.functional.one_hot(y, n_classes)
        return float((features.mT @ ((p - one_hot) * (weight / temperature)[:, None]) + w).norm())

    assert gradient_left(w) < 1e-6
    cold = fit_softmax_laplace(features, y, n_classes, weight, temperature)
    warm = fit_softmax_laplace(features, y, n_classes, weight, temperature, near=without.posterior.weights[0])
    for fit in (cold, warm):
        torch.testing.assert_close(fit.posterior.weights[0].mT, w, rtol=0, atol=1e-7)
    # The Hessian is at least one, so weights are off by the gradient that is left at most, latents by that times the
    # length of a row, and the logarithm of a class's curvature at a row by 2 / temperature of this. The evidence has
    # half of a log determinant for each class, whose derivatives in the logarithms add up to min(n, rank) at most.
    off = sum(gradient_left(fit.posterior.weights[0].mT) for fit in (cold, warm))
    off *= float(features.norm(dim=1).max()) / temperature * n_classes * min(n, rank)
    torch.testing.assert_close(cold.log_evidence, warm.log_evidence, rtol=1e-12, atol=off)


def test_a_start_that_leads_nowhere_is_given_up() -> None:
    features = torch.eye(4, dtype=torch.float64)
    y, weight = torch.arange(4) % 2, torch.ones(4, dtype=torch.float64)
    nowhere = torch.full((2, 4), torch.nan, dtype=torch.float64)
    assert newton_mode(features, y, weight, 1.0, nowhere) is None
    found = fit_softmax_laplace(features, y, 2, weight, near=nowhere)
    assert bool(found.posterior.weights.isfinite().all())
