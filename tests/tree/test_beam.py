"""The most probable classes along a beam, beside all classes; exact without a bound, by every kernel and inference."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sureshot.kernels.leaves import RBF
from sureshot.tree import (
    ClassTree,
    SharedRows,
    TreePosterior,
    balanced_random_tree,
    fit_tree_mean_field,
    fit_tree_natural_gradient,
    label_order_tree,
    run_tree_gibbs,
)
from sureshot.tree.beam import NodeSides, leading_classes
from tests.tree.problems import F64, features, gram, rows

C = 23
X, Y, QUERY = rows(150, C)
TREE = balanced_random_tree(C, 1)


def by_rows(tree: ClassTree) -> TreePosterior:
    shared = SharedRows.of(RBF(torch.tensor(1.5, dtype=F64)), X, Y, tree, 40)
    return fit_tree_mean_field(tree, shared, Y, output_scale=4.0).posterior


def sampled(tree: ClassTree) -> TreePosterior:
    generator = torch.Generator().manual_seed(0)
    return run_tree_gibbs(tree, gram(X), Y, output_scale=4.0, n_chains=3, n_sweeps=2, generator=generator)


POSTERIORS: dict[str, Callable[[], TreePosterior]] = {
    "matrix": lambda: fit_tree_mean_field(TREE, gram(X), Y, output_scale=4.0).posterior,
    "features": lambda: fit_tree_mean_field(TREE, features(X), Y, output_scale=4.0).posterior,
    "rows": lambda: by_rows(TREE),
    "rows, one class after another": lambda: by_rows(label_order_tree(C)),
    "gibbs": lambda: sampled(TREE),
    "natural gradients": lambda: fit_tree_natural_gradient(TREE, features(X), Y, n_epochs=3).posterior,
    "classes without rows": lambda: (
        fit_tree_mean_field(
            TREE, gram(X[Y < 9]), Y[Y < 9], prior_mean=torch.linspace(-1, 1, C - 1, dtype=F64), output_scale=4.0
        ).posterior
    ),
}


@pytest.fixture(scope="module", params=POSTERIORS)
def posterior(request: pytest.FixtureRequest) -> TreePosterior:
    return POSTERIORS[request.param]()


def expected(posterior: TreePosterior, k: int) -> tuple[Tensor, Tensor]:
    found = posterior.log_probabilities(QUERY).mT.sort(stable=True, descending=True)
    return found.values[:, :k], found.indices[:, :k]


@pytest.mark.parametrize("k", [1, 5, C])
def test_without_a_bound_the_classes_are_exact(posterior: TreePosterior, k: int) -> None:
    found = leading_classes(posterior, QUERY, k)
    values, classes = expected(posterior, k)
    assert torch.equal(found.classes, classes)
    torch.testing.assert_close(found.log_probabilities, values, rtol=1e-8, atol=1e-8)


def test_temperatures(posterior: TreePosterior) -> None:
    for sharp in (replace(posterior, temperature=0.4), replace(posterior, temperature=1.6)):
        values, classes = expected(sharp, C)
        found = leading_classes(sharp, QUERY, C)  # all of them, so nothing is left out
        assert torch.equal(found.classes, classes)
        torch.testing.assert_close(found.log_probabilities, values, rtol=1e-8, atol=1e-8)
        further = leading_classes(replace(sharp, temperature=1.0), QUERY, C, None, sharp.temperature)
        torch.testing.assert_close(further.log_probabilities, values, rtol=1e-8, atol=1e-8)
        few = leading_classes(sharp, QUERY, 3)
        torch.testing.assert_close(few.log_probabilities.exp(), values[:, :3].exp(), rtol=0.0, atol=0.05)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_a_narrow_beam_is_a_search(posterior: TreePosterior, temperature: float) -> None:
    """At another temperature than one the classes of a branch that was left count as if they were equally probable."""
    narrow = leading_classes(posterior, QUERY, 1, 1, temperature)
    tree, sides = posterior.tree, posterior.side_log_probabilities(QUERY)
    for query in range(len(QUERY)):
        child, total, left_out = tree.n_classes, 0.0, 0.0
        while child >= tree.n_classes:
            node = child - tree.n_classes
            side = int(sides.right[node, query] > sides.left[node, query])
            other = tree.children[node][1 - side]
            size = 1 if other < tree.n_classes else len(tree.classes_below(other - tree.n_classes))
            branch = math.exp(total + float(sides[1 - side][node, query]))
            left_out += size * (branch / size) ** (1 / temperature)
            total += float(sides[side][node, query])
            child = tree.children[node][side]
        assert int(narrow.classes[query, 0]) == child
        expected = total / temperature - math.log(math.exp(total / temperature) + left_out)
        assert float(narrow.log_probabilities[query, 0]) == pytest.approx(expected, rel=1e-8, abs=1e-8)


def test_rows_do_not_depend_on_the_rows_beside_them(posterior: TreePosterior) -> None:
    whole = leading_classes(posterior, QUERY, 5, 6)
    alone = leading_classes(posterior, QUERY[7:8], 5, 6)
    assert torch.equal(whole.classes[7:8], alone.classes)
    torch.testing.assert_close(whole.log_probabilities[7:8], alone.log_probabilities, rtol=1e-10, atol=1e-10)


def test_few_nodes_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where classes lie far apart, about one path for each query."""
    y = torch.arange(64).repeat_interleave(3)
    x = torch.nn.functional.one_hot(y, 64).to(F64) + 0.01 * torch.randn(
        192, 64, dtype=F64, generator=torch.Generator().manual_seed(0)
    )
    posterior = fit_tree_mean_field(balanced_random_tree(64), features(x), y, output_scale=400.0).posterior
    asked: list[int] = []
    at = NodeSides.at

    def counted(self: NodeSides, nodes: Tensor, queries: Tensor) -> object:
        asked.append(len(nodes))
        return at(self, nodes, queries)

    monkeypatch.setattr(NodeSides, "at", counted)
    found = leading_classes(posterior, x, 1)
    assert torch.equal(found.classes[:, 0], y)
    assert sum(asked) < 63 * len(x) / 4
    asked.clear()
    leading_classes(posterior, x, 1, 1)
    assert sum(asked) == 6 * len(x)


def test_one_class() -> None:
    x = torch.ones(3, 3, dtype=F64)
    fit = fit_tree_mean_field(ClassTree(), features(x), torch.zeros(3, dtype=torch.long))
    found = leading_classes(fit.posterior, x, 1)
    assert found.classes.tolist() == [[0]] * 3
    assert found.log_probabilities.tolist() == [[0.0]] * 3
