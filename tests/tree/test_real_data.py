"""Trees on digits and on sentence embeddings, well above chance."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from sureshot.gaussian import Queries
from sureshot.kernels.unit_sphere import unit_rows
from sureshot.metrics import fit_temperature
from sureshot.tree import (
    ClassTree,
    SharedGram,
    balanced_random_tree,
    build_tree,
    class_prototypes,
    fit_tree_mean_field,
    fit_tree_natural_gradient,
    run_tree_gibbs,
)
from tests.tree.problems import features


def on_the_sphere(x: Tensor) -> SharedGram:
    """The RBF kernel of unit rows with lengthscale 1."""

    def covariance(query: Tensor) -> Queries:
        return Queries((x @ query.mT - 1).exp(), torch.ones(len(query), dtype=x.dtype))

    return SharedGram((x @ x.mT - 1).exp(), covariance)


def accuracy(log_probabilities: Tensor, y: Tensor) -> float:
    return float((log_probabilities.argmax(0) == y).double().mean())


def test_digits() -> None:
    data = load_digits()
    x, y = unit_rows(torch.tensor(data.data, dtype=torch.float64)), torch.tensor(data.target, dtype=torch.int64)
    train, test = slice(0, 300), slice(900, 1500)
    tree = build_tree(class_prototypes(x[train], y[train], 10))
    shared = on_the_sphere(x[train])
    fit = fit_tree_mean_field(tree, shared, y[train], output_scale=50.0)
    assert accuracy(fit.posterior.log_probabilities(x[test]), y[test]) > 0.8  # chance is 0.1
    sampled = run_tree_gibbs(
        tree,
        shared,
        y[train],
        output_scale=50.0,
        n_chains=4,
        n_sweeps=20,
        generator=torch.Generator().manual_seed(0),
    )
    assert accuracy(sampled.log_probabilities(x[test]), y[test]) > 0.8
    stochastic = fit_tree_natural_gradient(tree, features(x[train]), y[train], output_scale=50.0, batch_size=100)
    assert accuracy(stochastic.posterior.log_probabilities(x[test]), y[test]) > 0.8


@pytest.mark.real_data
def test_intents_of_sentences() -> None:
    """Five rows for each of 60 classes; a tree of prototypes beats one that knows nothing, and a temperature helps."""
    with np.load(Path(os.environ["SURESHOT_DATA"]) / "clinc150_minilm.npz") as file:
        embedding, label, split = file["embedding"], file["label"], file["split"]
    x, y = unit_rows(torch.tensor(embedding, dtype=torch.float64)), torch.tensor(label, dtype=torch.int64)

    def of(which: int, n: int) -> Tensor:
        own = torch.tensor(split == which)
        return torch.cat([(own & (y == c)).nonzero().flatten()[:n] for c in range(60)])

    train, held, test = of(0, 5), of(1, 5), of(2, 10)

    def fitted(tree: ClassTree) -> tuple[float, float, float]:
        posterior = fit_tree_mean_field(tree, on_the_sphere(x[train]), y[train], output_scale=8.0).posterior
        logs = posterior.log_probabilities(x[test])
        temperature = fit_temperature(posterior.log_probabilities(x[held]).mT, y[held])
        warm = replace(posterior, temperature=temperature).log_probabilities(x[test])
        loss, calibrated = (-float(part.gather(0, y[test][None]).mean()) for part in (logs, warm))
        return accuracy(logs, y[test]), loss, calibrated

    right, loss, calibrated = fitted(build_tree(class_prototypes(x[train], y[train], 60)))
    assert right > 0.75  # chance is 0.017
    assert calibrated < loss
    assert right > fitted(balanced_random_tree(60))[0]
