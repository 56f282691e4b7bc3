"""The exact process against the textbook's formulas with dense matrices."""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats

from sureshot.meta.functions import FunctionProtocol
from sureshot.meta.functions.gaussian import GaussianFunctions
from sureshot.meta.processes import ExactProcess

NOISE = 0.2


def kernel(origin: np.ndarray, x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    kind, length, period, decay = origin
    d = np.abs(x1[:, None] - x2[None])
    s = np.sqrt(5) * d / length
    repeating = np.exp(-2 * np.sin(np.pi * d / period) ** 2)
    formulas = (
        np.exp(-0.5 * (d / length) ** 2),
        (1 + s + s**2 / 3) * np.exp(-s),
        repeating,
        np.exp(-0.5 * (d / decay) ** 2) * repeating,
    )
    return np.asarray(formulas[int(kind)])


def test_against_dense_algebra() -> None:
    source = GaussianFunctions("mixture", noise=NOISE)
    tasks = source.sample(9, FunctionProtocol((0, 8), 4), torch.Generator().manual_seed(2))
    posterior = ExactProcess.of(source).adapt(tasks)
    mean, deviation = (part[..., 0].numpy() for part in posterior.predict(tasks.query_x))
    density = posterior.log_density(tasks.query_x, tasks.query_y.double()).numpy()
    assert tasks.support_mask is not None
    assert tasks.origin is not None
    for task, known in enumerate(tasks.support_mask.numpy()):
        origin = tasks.origin[task].numpy()
        x, y = (part[task, known, 0].double().numpy() for part in (tasks.support_x, tasks.support_y))
        query, truth = (part[task, :, 0].double().numpy() for part in (tasks.query_x, tasks.query_y))
        cross = kernel(origin, query, x)
        inverse = np.linalg.inv(kernel(origin, x, x) + NOISE**2 * np.eye(len(x)))
        expected = cross @ inverse @ y
        variance = 1 - np.einsum("qn,nm,qm->q", cross, inverse, cross) + NOISE**2
        np.testing.assert_allclose(mean[task], expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(deviation[task], np.sqrt(variance), rtol=1e-8)
        np.testing.assert_allclose(
            density[task], stats.norm.logpdf(truth, expected, np.sqrt(variance)), rtol=1e-8, atol=1e-8
        )
