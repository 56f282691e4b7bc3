"""Warnings point at the line that called the package."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier

X = np.column_stack([np.arange(12.0), np.ones(12)])
Y = np.arange(12) // 6


@pytest.mark.parametrize("make", [GPClassifier, lambda: KernelSearchClassifier(n_particles=2)])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_of_whatever_method_was_called(make: Any, method: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(make(), method)(X, Y)
    (one,) = [told for told in caught if "constant columns" in str(told.message)]
    assert one.filename == __file__


@pytest.mark.parametrize("make", [FewShotClassifier, GPClassifier])
def test_of_decisions(make: Any) -> None:
    model = make().fit(X[:, :1], Y)
    with pytest.warns(UserWarning, match="nothing is rejected") as caught:
        model.predict_or_reject(X[:, :1], 0.01, unknown=-1)
    assert caught[0].filename == __file__


def test_of_code_without_a_module() -> None:
    """Which is no reason to refuse a fit."""
    exec("GPClassifier().fit(X, Y)", {"GPClassifier": GPClassifier, "X": X, "Y": Y, "__name__": None})


def test_of_a_class_prior_that_later_classes_have_left() -> None:
    model = TreeGPClassifier().fit(X, Y).set_class_prior([0.9, 0.1])
    with pytest.warns(UserWarning, match="class prior") as caught:
        model.partial_fit(X[:2], [2, 2])
    assert caught[0].filename == __file__
