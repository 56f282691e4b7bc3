"""Bayesian MAML against loops over particles by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sureshot.meta.baselines import BayesianMAML
from sureshot.meta.learners import make_learner
from sureshot.meta.tasks import Tasks
from sureshot.networks.backbones import make_backbone

WAY, WIDTH, PARTICLES, RATE = 3, 4, 3, 0.5


def learner(**options: Any) -> BayesianMAML:
    given = {"particles": PARTICLES, "inner_rate": RATE, "way": WAY}
    found = make_learner("bayesian_maml", make_backbone("identity", (WIDTH,)), **given | options).double()
    assert isinstance(found, BayesianMAML)
    return found


def tasks() -> Tasks:
    rng = np.random.default_rng(0)
    y = torch.arange(WAY).repeat(2).expand(2, -1)
    x = torch.from_numpy(rng.normal(size=(2, 2, 2 * WAY, WIDTH)))
    return Tasks(x[0], y, x[1], y, WAY)


def softmax(logits: np.ndarray) -> np.ndarray:
    found = np.exp(logits - logits.max(-1, keepdims=True))
    return found / found.sum(-1, keepdims=True)


def stepped(particles: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """One step of Stein variational gradient descent, particle by particle; (M, C, D + 1)."""
    m, rows = len(particles), np.c_[x, np.ones(len(x))]
    slopes = [(np.eye(WAY)[y] - softmax(rows @ particle.T)).T @ rows for particle in particles]
    distances = [np.linalg.norm(particles[i] - particles[j]) for i in range(m) for j in range(i)]
    h = np.median(distances) ** 2 / np.log(m)
    found = particles.copy()
    for i in range(m):
        for j in range(m):
            apart = particles[i] - particles[j]
            kernel = np.exp(-(apart**2).sum() / h)
            found[i] += RATE / m * kernel * (slopes[j] + 2 / h * apart)
    return found


def start(model: BayesianMAML) -> np.ndarray:
    return model.particles.detach().numpy()


def test_predictions_are_means_over_particles_after_the_steps() -> None:
    model, around = learner(inner_steps_prediction=3), tasks()
    posterior = model.condition(around.support_x, around.support_y)
    for task in range(2):
        particles = start(model)
        for _ in range(3):
            particles = stepped(particles, around.support_x[task].numpy(), around.support_y[task].numpy())
        rows = np.c_[around.query_x[task].numpy(), np.ones(2 * WAY)]
        logits = np.stack([rows @ particle.T for particle in particles])
        np.testing.assert_allclose(posterior.predict(around.query_x)[task], softmax(logits).mean(0), rtol=1e-9)
        latents = posterior.latents(around.query_x)
        np.testing.assert_allclose(latents.mean[task], logits.mean(0), rtol=1e-9)
        np.testing.assert_allclose(latents.variance[task], logits.var(0), rtol=1e-9)


def test_the_predictive_loss() -> None:
    model, around = learner(), tasks()
    found = model(around)
    for task in range(2):
        y = around.query_y[task].numpy()
        particles = stepped(start(model), around.support_x[task].numpy(), around.support_y[task].numpy())
        rows = np.c_[around.query_x[task].numpy(), np.ones(2 * WAY)]
        p = softmax(np.stack([rows @ particle.T for particle in particles])).mean(0)
        np.testing.assert_allclose(found[task].item(), -np.log(p[np.arange(len(y)), y]).mean(), rtol=1e-9)


def test_the_chaser_loss_and_its_gradient() -> None:
    model, around = learner(objective="chaser", leader_steps=2), tasks()
    assert (model.inner_steps, model.inner_steps_prediction) == (1, 5)
    found = model(around)
    for task in range(2):
        chaser = stepped(start(model), around.support_x[task].numpy(), around.support_y[task].numpy())
        leader = chaser
        x = np.concatenate([around.support_x[task], around.query_x[task]])
        y = np.concatenate([around.support_y[task], around.query_y[task]])
        for _ in range(2):
            leader = stepped(leader, x, y)
        np.testing.assert_allclose(found[task].item(), ((chaser - leader) ** 2).sum() / PARTICLES, rtol=1e-9)
    # The leader is a constant: the slope is that of the distance from where the leader is now.
    (slope,) = torch.autograd.grad(found.sum(), [model.particles])
    direction = np.random.default_rng(1).normal(size=slope.shape)
    total = 0.0
    for task in range(2):
        x, y = around.support_x[task].numpy(), around.support_y[task].numpy()
        both = np.concatenate([x, around.query_x[task]]), np.concatenate([y, around.query_y[task]])
        leader = stepped(stepped(stepped(start(model), x, y), *both), *both)
        ends = [
            ((stepped(start(model) + sign * 1e-5 * direction, x, y) - leader) ** 2).sum() / PARTICLES
            for sign in (1, -1)
        ]
        total += (ends[0] - ends[1]) / 2e-5
    np.testing.assert_allclose((slope.numpy() * direction).sum(), total, rtol=1e-6)


def test_starts_that_are_drawn_take_any_classes() -> None:
    model, around = learner(way=None), tasks()
    two = around.support_y[0] < 2
    found = model.condition(around.support_x[:, two], around.support_y[:, two]).predict(around.query_x)
    assert found.shape[-1] == 2
    with pytest.raises(ValueError, match=r"'bayesian_maml' has a last layer for 3 classes, but the task has 2"):
        learner().condition(around.support_x[:, two], around.support_y[:, two])


def test_a_rate_that_diverges_is_named() -> None:
    around = tasks()
    with pytest.raises(ValueError, match=r"inner loop of bayesian_maml diverged: at step \d of 4 the loss of task 0"):
        learner(inner_rate=1e200, inner_steps_prediction=4).condition(around.support_x * 1e150, around.support_y)


@pytest.mark.parametrize(
    "options", [{"particles": 1}, {"objective": "leader"}, {"inner_rate": 0.0}, {"way": 1}, {"leader_steps": 0}]
)
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        learner(**options)
