"""A tree of 100 classes of 100 embeddings by mean field, beside logistic regression on the same rows.

    python -m pytest benchmarks/test_tree.py

Synthetic embeddings: 384 numbers at unit length, classes in groups of ten. The trees use 200 features of k-means
inducing points. The goals are a fit in 60 seconds and 4 GB on two cores, and the probabilities of 150 classes at 4,500
queries in a second. The peer is scikit-learn's logistic regression, which fits the same classes without a tree and
without uncertainty.
"""

from __future__ import annotations

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from sureshot.gaussian import Queries
from sureshot.inference.inducing import kmeans_inducing
from sureshot.kernels.unit_sphere import unit_rows
from sureshot.tree import (
    SharedFeatures,
    SharedGram,
    build_tree,
    class_prototypes,
    fit_tree_mean_field,
    fit_tree_natural_gradient,
)
from sureshot.tree.path_probabilities import NodeRule


def embeddings(n_classes: int, n_rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    groups = torch.randn(n_classes // 10, 1, 384, dtype=torch.float64, generator=generator)
    centres = (groups + torch.randn(n_classes // 10, 10, 384, dtype=torch.float64, generator=generator)).flatten(0, 1)
    y = torch.arange(n_classes * n_rows) % n_classes
    noise = torch.randn(len(y), 384, dtype=torch.float64, generator=generator)
    return unit_rows(centres[y] + 1.5 * noise), y


def rbf(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b.mT - 1).exp()


def by_inducing_points(x: Tensor, y: Tensor) -> SharedFeatures:
    inducing = unit_rows(kmeans_inducing(x, y, 2))
    factor = torch.linalg.cholesky(rbf(inducing, inducing) + 1e-8 * torch.eye(len(inducing), dtype=x.dtype))

    def whitened(rows: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(factor, rbf(inducing, rows), upper=False).mT.contiguous()

    return SharedFeatures(whitened(x), lambda query: Queries(whitened(query), torch.ones(len(query), dtype=x.dtype)))


@pytest.mark.parametrize("inference", ["mean_field", "natural_gradient"])
def test_fit_of_ten_thousand_rows(benchmark: BenchmarkFixture, inference: str) -> None:
    x, y = embeddings(100, 100)
    shared = by_inducing_points(x, y)

    def fit() -> None:
        tree = build_tree(class_prototypes(x, y, 100))
        if inference == "mean_field":
            fit_tree_mean_field(tree, shared, y, output_scale=8.0)
        else:
            fit_tree_natural_gradient(tree, shared, y, output_scale=8.0, n_epochs=5)

    benchmark.pedantic(fit, rounds=1)


def test_logistic_regression_on_the_same_rows(benchmark: BenchmarkFixture) -> None:
    x, y = embeddings(100, 100)
    benchmark.pedantic(LogisticRegression(C=100.0).fit, (x.numpy(), y.numpy()), rounds=1)


@pytest.mark.parametrize("rule", ["integral", "plug_in"])
def test_prediction_of_150_classes(benchmark: BenchmarkFixture, rule: NodeRule) -> None:
    x, y = embeddings(150, 35)
    train, query = slice(0, 750), x[750:]
    tree = build_tree(class_prototypes(x[train], y[train], 150))
    shared = SharedGram(rbf(x[train], x[train]), lambda q: Queries(rbf(x[train], q), torch.ones(len(q), dtype=x.dtype)))
    posterior = fit_tree_mean_field(tree, shared, y[train], output_scale=8.0).posterior
    p = benchmark.pedantic(posterior.probabilities, (query, rule), rounds=3, warmup_rounds=1)
    assert p.shape == (150, 4500)
