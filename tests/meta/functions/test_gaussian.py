"""Functions drawn from Gaussian processes have the covariances that their origin says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sureshot.meta.functions import FunctionProtocol
from sureshot.meta.functions.gaussian import KERNELS, GaussianFunctions, true_covariance

FORMULAS = {
    "rbf": lambda d, length, period, decay: np.exp(-0.5 * (d / length) ** 2),
    "matern": lambda d, length, period, decay: (
        (1 + np.sqrt(5) * d / length + 5 * (d / length) ** 2 / 3) * np.exp(-np.sqrt(5) * d / length)
    ),
    "periodic": lambda d, length, period, decay: np.exp(-2 * np.sin(np.pi * d / period) ** 2),
    "weakly_periodic": lambda d, length, period, decay: (
        np.exp(-0.5 * (d / decay) ** 2) * np.exp(-2 * np.sin(np.pi * d / period) ** 2)
    ),
}


def test_the_true_kernel_is_that_of_each_task() -> None:
    rows = GaussianFunctions("mixture").rows(12, 5, torch.Generator().manual_seed(0), beyond=False)
    assert rows.origin is not None
    found = true_covariance(rows.origin, rows.x, rows.x[:, :3]).numpy()
    for task, (kind, *parameters) in enumerate(rows.origin.numpy()):
        x = rows.x[task, :, 0].numpy()
        expected = FORMULAS[list(KERNELS)[int(kind)]](np.abs(x[:, None] - x[None, :3]), *parameters)
        np.testing.assert_allclose(found[task], expected, atol=1e-12)
    assert set(rows.origin[:, 0].tolist()) == {0.0, 1.0, 2.0, 3.0}


@pytest.mark.parametrize("family", KERNELS)
def test_sample_covariances(family: str) -> None:
    """The products of pairs of values, over 20,000 functions whose kernels differ, have the kernels' means."""
    n = 20_000
    source = GaussianFunctions(family, noise=0.1)  # type: ignore[arg-type]
    rows = source.rows(n, 4, torch.Generator().manual_seed(1), beyond=False)
    assert rows.origin is not None
    x, y = rows.x[..., 0].numpy(), rows.y[..., 0].numpy()
    distance = np.abs(x[:, :, None] - x[:, None])
    length, period, decay = (part[:, None, None] for part in rows.origin.numpy()[:, 1:].T)
    expected = FORMULAS[family](distance, length, period, decay) + 0.01 * np.eye(4)
    products = y[:, :, None] * y[:, None]
    # Of a pair with covariance k and variances v the product has the variance v^2 + k^2.
    gap = (products - expected) / np.sqrt(1.01**2 + expected**2)
    assert np.abs(gap.mean(0) * np.sqrt(n)).max() < 4
    above = np.where(distance < 0.3, gap, 0)  # pairs that are near, apart from those that are far
    assert np.abs(above.mean(0) / np.sqrt((distance < 0.3).mean(0)) * np.sqrt(n)).max() < 4
    assert length.min() > 0.25
    assert length.max() < 1.0


def test_beyond_is_a_range_as_wide_above() -> None:
    source, generator = GaussianFunctions(inputs=(-1.0, 3.0)), torch.Generator().manual_seed(0)
    inside = source.sample(50, FunctionProtocol(10, 10), generator)
    beyond = source.sample(50, FunctionProtocol(10, 10), generator, beyond=True)
    for x in (inside.support_x, inside.query_x):
        assert -1 <= float(x.min()) < -0.9
        assert 2.9 < float(x.max()) <= 3
    for x in (beyond.support_x, beyond.query_x):
        assert 3 <= float(x.min()) < 3.1
        assert 6.9 < float(x.max()) <= 7


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lengthscale": (1.0, 0.5)}, "lengthscale must be two rising positive numbers"),
        ({"period": (0.0, 0.5)}, "period must be"),
        ({"inputs": (1.0, 1.0)}, "inputs must be two rising numbers"),
        ({"noise": 0.0}, "noise must be a positive standard deviation"),
    ],
)
def test_what_cannot_be_drawn(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GaussianFunctions(**options)  # type: ignore[arg-type]
