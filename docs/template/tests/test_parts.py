"""The parts are found by their names, learn, and come back from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from sureshot import FewShotClassifier, FewShotRegressor
from sureshot.data import load_few_shot
from sureshot.meta.learners import make_learner
from sureshot.meta.processes import make_process
from sureshot.meta.training import FunctionTrainingConfig, TrainingConfig, load_checkpoint, train
from sureshot.networks.backbones import backbone_from_config, make_backbone


def test_features() -> None:
    backbone = make_backbone("fourier", (3,), n_frequencies=5, scale=2.0, seed=1)
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    angles = x.numpy() @ backbone.state_dict()["frequencies"].numpy().T
    with torch.no_grad():
        np.testing.assert_allclose(backbone(x), np.hstack([np.cos(angles), np.sin(angles)]), atol=1e-6)
    again = backbone_from_config(backbone.config)
    assert torch.equal(again.state_dict()["frequencies"], backbone.state_dict()["frequencies"])


def test_the_nearest_median() -> None:
    learner = make_learner("medians", make_backbone("identity", (1,))).eval()
    support = torch.tensor([[[0.0], [1.0], [50.0], [4.0], [5.0], [6.0]]])
    posterior = learner.condition(support, torch.tensor([[0, 0, 0, 1, 1, 1]]))
    query = torch.tensor([[[2.0], [4.0]]])  # medians are 1 and 5, the means 17 and 5
    logits = -np.array([[(2 - 1) ** 2, (2 - 5) ** 2], [(4 - 1) ** 2, (4 - 5) ** 2]], dtype=float)
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(posterior.predict(query)[0].numpy(), expected, atol=1e-5)


def test_means_of_neighbours() -> None:
    learner = make_process("neighbours", 1, 1, window=2.0, floor=0.1).double()
    known, numbers, query = np.array([0.0, 4.0]), np.array([3.0, -1.0]), np.array([1.0, 99.0])
    posterior = learner.condition(*(torch.tensor(part).reshape(1, 2, 1) for part in (known, numbers)))
    mean, deviation = (part.flatten().numpy() for part in posterior.predict(torch.tensor(query).reshape(1, 2, 1)))
    weight = np.exp(-((query[:, None] - known) ** 2) / 8)
    np.testing.assert_allclose(mean, weight @ numbers / (1 + weight.sum(1)), atol=1e-12)
    np.testing.assert_allclose(deviation, 1.1)  # before training those near and far are 1


def test_a_run(tmp_path: Path) -> None:
    config = {
        "data": {"name": "spots"},
        "backbone": {"name": "fourier", "options": {"scale": 0.3}},
        "learner": {"name": "medians"},
        "episodes": {"way": 4, "shots": 3, "queries": 5},
        "training": {"episodes": 60, "learning_rate": 1e-2},
        "validation": {"every": 30, "tasks": 20, "queries": 5},
    }
    result = train(TrainingConfig.from_dict(config), tmp_path / "run")
    assert result.scores is not None
    assert result.scores.accuracy > 0.6  # a quarter is chance
    assert load_checkpoint(tmp_path / "run").learner["package"]["name"] == "sureshot-own-parts"
    test = load_few_shot("spots").test
    x, y = test.x.numpy(), test.y.numpy()
    labelled = np.arange(len(y)) % 20 < 5
    model = FewShotClassifier(tmp_path / "run").fit(x[labelled], y[labelled])
    assert model.score(x[~labelled], y[~labelled]) > 0.5
    model.save(tmp_path / "model.safetensors")
    loaded = FewShotClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))


def test_a_run_on_functions(tmp_path: Path) -> None:
    config = {
        "data": {"name": "ramps", "options": {"slope": 2.0}},
        "learner": {"name": "neighbours"},
        "episodes": {"context": [1, 20], "targets": 10},
        "training": {"episodes": 400, "episodes_per_step": 8, "learning_rate": 3e-2, "learning_rate_kernel": 3e-2},
        "validation": {"every": 400, "tasks": 20},
    }
    train(FunctionTrainingConfig.from_dict(config), tmp_path / "run")
    assert load_checkpoint(tmp_path / "run").learner["package"]["name"] == "sureshot-own-parts"
    x = np.linspace(-1, 1, 40)[:, None]
    y = 2 - 3 * x[:, 0]
    model = FewShotRegressor(tmp_path / "run").fit(x[::2], y[::2])
    assert model.score(x, y) > 0.8
    model.save(tmp_path / "model.safetensors")
    loaded = FewShotRegressor.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))
