"""An expression works wherever an estimator takes a kernel."""

from pathlib import Path

import numpy as np
from sklearn.base import clone

from sureshot.estimators import GPClassifier
from sureshot.kernels import RBF, Linear


def test_an_expression_is_the_gpytorch_kernel_that_it_converts_to(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(24, 3))
    y = (x[:, 0] + 0.1 * generator.normal(size=24) > 0).astype(int)
    kernel = 2.0 * (RBF(1.5) + Linear(0.5))
    by_value = clone(GPClassifier(kernel=kernel, random_state=0)).fit(x, y)
    by_module = GPClassifier(kernel=kernel.to_gpytorch(), random_state=0).fit(x, y)
    np.testing.assert_allclose(by_value.predict_proba(x), by_module.predict_proba(x), rtol=1e-12)
    assert str(by_value.kernel_).endswith(" x (RBF(1.5) + Linear(0.5))")
    assert "2 x (RBF(1.5) + Linear(0.5))" in repr(by_value)
    by_value.save(tmp_path / "model.safetensors")
    again = GPClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict_proba(x), by_value.predict_proba(x))
