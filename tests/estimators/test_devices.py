"""Where estimators compute; no GPU is needed, one is pretended to be there, and whatever goes to it fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

from sureshot import GPClassifier, TreeGPClassifier
from sureshot.estimators.devices import WORTH_CUDA, device_for

X, Y = load_iris(return_X_y=True)


@pytest.fixture
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.usefixtures("pretended_gpu")
def test_auto_takes_cuda_where_rows_are_worth_it() -> None:
    found = [device_for("auto", n_rows).type for n_rows in (1, WORTH_CUDA - 1, WORTH_CUDA)]
    assert found == ["cpu", "cpu", "cuda"]
    assert device_for("auto").type == "cuda"  # a network
    assert device_for("cpu", WORTH_CUDA).type == "cpu"


def test_auto_is_the_cpu_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_for("auto").type == "cpu"


def test_updates_stay_where_the_model_is(monkeypatch: pytest.MonkeyPatch) -> None:
    model = GPClassifier("rbf", objective=None, n_inducing=20).fit(X[::5], Y[::5])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    many = np.resize(X, (WORTH_CUDA, 4)) + np.random.default_rng(0).normal(0, 0.1, (WORTH_CUDA, 4))
    model.partial_fit(many, np.resize(Y, WORTH_CUDA))
    assert model.score(X, Y) > 0.9
    assert model._fitted.members[0].plan.device.type == "cpu"


@pytest.mark.usefixtures("pretended_gpu")
@pytest.mark.parametrize("estimator", [GPClassifier, TreeGPClassifier])
def test_a_file_is_learnt_from_further(estimator: type[GPClassifier | TreeGPClassifier], tmp_path: Path) -> None:
    estimator().fit(X[::5], Y[::5]).save(tmp_path / "model")
    model = estimator.load(tmp_path / "model").partial_fit(X[1:40], Y[1:40])
    assert model.score(X, Y) > 0.85
