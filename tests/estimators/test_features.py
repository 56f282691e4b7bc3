"""Features of rows that have no direction."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from sureshot import GPClassifier

PIXELS, Y = load_digits(return_X_y=True)
UNIT = PIXELS / np.linalg.norm(PIXELS, axis=1, keepdims=True)
BLANK = np.zeros((1, UNIT.shape[1]))


@pytest.mark.parametrize("kernel", ["auto", "cosine", "unit_rbf", "unit_matern32"])
def test_rows_of_zeros_say_next_to_nothing(kernel: str) -> None:
    """Less the centre of directions, zeros point the other way, of which a kernel would be as sure as of any."""
    model = GPClassifier(kernel=kernel).fit(UNIT[:100], Y[:100])
    p = model.predict_proba(np.concatenate([BLANK, UNIT[100:140]]))
    assert p[0].max() < 0.35
    assert p[1:].max(axis=1).mean() > 0.6
    np.testing.assert_allclose(p[1:], model.predict_proba(UNIT[100:140]), rtol=1e-9)
    assert model.outlier_score(BLANK) > model.outlier_score(UNIT[100:140]).max()


def test_of_a_linear_kernel_they_are_what_intercepts_say() -> None:
    model = GPClassifier(kernel="cosine").fit(UNIT[:100], Y[:100])
    centre = model.kernel_.to_gpytorch().base_kernel.kernels[0].center.numpy()
    opposite = model.predict_latent(np.stack([centre + UNIT[0], centre - UNIT[0]])).mean.mean(axis=0)
    np.testing.assert_allclose(model.predict_latent(BLANK).mean[0], opposite, atol=1e-8)
