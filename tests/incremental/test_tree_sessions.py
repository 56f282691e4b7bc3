"""Trees that grow by sub-trees, in the three ways."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sureshot.gaussian import Queries
from sureshot.incremental.representatives import representative_groups
from sureshot.incremental.strategy import ClassRows
from sureshot.incremental.tree_sessions import TreeModel, TreeSessions
from sureshot.tree import SharedGram, build_tree, class_prototypes, fit_tree_mean_field, label_order_tree
from sureshot.tree.build import directions_of

D, N = 5, 4
GENERATOR = torch.Generator().manual_seed(0)
CENTRES = torch.randn(9, D, dtype=torch.float64, generator=GENERATOR)
NOISE = 0.3 * torch.randn(9, N, D, dtype=torch.float64, generator=GENERATOR)
QUERIES = torch.randn(20, D, dtype=torch.float64, generator=GENERATOR)
SESSIONS = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
NONE = {"temperature": torch.tensor(1.0)}


def rows(n_classes: int) -> ClassRows:
    """Of the first classes."""
    x = (CENTRES.unsqueeze(1) + NOISE)[:n_classes].flatten(0, 1)
    y = torch.arange(n_classes).repeat_interleave(N)
    return ClassRows(x, y, torch.ones(len(y), dtype=torch.float64), SESSIONS[:n_classes])


def strategy(name: str, **settings: Any) -> TreeSessions:
    return TreeSessions(name, n_chains=3, n_sweeps=3, **settings)  # type: ignore[arg-type]


def after(name: str, *n_classes: int, **settings: Any) -> TreeModel:
    """The model after sessions that brought so many classes in all."""
    model = None
    for n in n_classes:
        model = strategy(name, **settings).later_session(NONE, rows(n), 7, model)
    assert model is not None
    return model


@pytest.mark.parametrize("inference", ["auto", "mean_field", "natural_gradient"])
@pytest.mark.parametrize("name", ["shared_root", "session", "rebuild"])
def test_a_model_is_a_function_of_the_kept_rows(name: str, inference: str) -> None:
    grown, at_once = after(name, 4, 6, 9, inference=inference), after(name, 9, inference=inference)
    assert grown.tree == at_once.tree
    assert torch.equal(grown.log_probabilities(QUERIES), at_once.log_probabilities(QUERIES))
    torch.testing.assert_close(grown.log_probabilities(QUERIES).exp().sum(-1), torch.ones(20, dtype=torch.float64))


def test_the_trees_are_those_of_the_strategies() -> None:
    shared, session, rebuilt = (after(name, 4, 6, 9).tree for name in ("shared_root", "session", "rebuild"))

    def sides(child: int, tree: Any) -> set[int]:
        return {child} if child < 9 else set(tree.classes_below(child - 9).tolist())

    assert [sides(child, shared) for child in shared.children[0]] == [set(range(4)), set(range(4, 9))]
    assert [sides(child, session) for child in session.children[0]] == [set(range(6)), {6, 7, 8}]
    assert [sides(child, session) for child in session.children[1]] == [set(range(4)), {4, 5}]
    x = directions_of(rows(9).x)
    assert rebuilt == build_tree(class_prototypes(x, rows(9).y, 9))


def test_other_constructions() -> None:
    assert after("rebuild", 4, 9, construction="label_order").tree == label_order_tree(9)
    balanced = after("shared_root", 4, 9, construction="balanced_random")
    assert balanced.tree.depth == 1 + 3  # a root above trees of four and of five classes
    at_once = after("shared_root", 9, construction="balanced_random")
    assert torch.equal(balanced.log_probabilities(QUERIES), at_once.log_probabilities(QUERIES))


@pytest.mark.parametrize("name", ["shared_root", "session"])
def test_first_classes_are_told_apart_as_before_to_the_last_bit(name: str) -> None:
    before = after(name, 4)
    model = after(name, 4, 6, 9)
    node = next(k for k in range(model.tree.n_nodes) if set(model.tree.classes_below(k).tolist()) == set(range(4)))
    x = directions_of(QUERIES)
    assert torch.equal(model.posterior.log_probabilities(x, below=node), before.posterior.log_probabilities(x))
    ratios = model.log_probabilities(QUERIES)[:, :4].log_softmax(-1)
    torch.testing.assert_close(ratios, before.log_probabilities(QUERIES), rtol=1e-9, atol=1e-9)


def test_the_first_block_is_the_tree_of_mean_field() -> None:
    data = rows(4)
    x = directions_of(data.x)

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return (-0.5 * torch.cdist(a, b).square()).exp()

    shared = SharedGram(kernel(x, x), lambda query: Queries(kernel(x, query), torch.ones(len(query)).double()))
    fit = fit_tree_mean_field(build_tree(class_prototypes(x, data.y, 4)), shared, data.y, output_scale=4.0)
    model = after("shared_root", 4)
    torch.testing.assert_close(
        model.log_probabilities(QUERIES),
        fit.posterior.log_probabilities(directions_of(QUERIES)).mT,
        rtol=1e-6,
        atol=1e-7,
    )
    assert model.log_evidence == pytest.approx(float(fit.bound.sum()), rel=1e-6)


def test_latents_give_the_probabilities() -> None:
    model = after("shared_root", 4, 6, 9, inference="mean_field")
    mean, variance = model.latents(QUERIES)
    sharp = model.class_logits(mean[None])[0].mT
    torch.testing.assert_close(sharp.exp().sum(-1), torch.ones(20, dtype=torch.float64))
    first, second = model.class_latents(QUERIES)
    torch.testing.assert_close(first, sharp, rtol=1e-10, atol=1e-10)
    spread = torch.zeros_like(second)
    for node in range(len(mean)):  # the derivative of every class's logarithm in every latent
        step = torch.zeros_like(mean)
        step[node] = 1e-6
        slope = (model.class_logits((mean + step)[None])[0].mT - model.class_logits((mean - step)[None])[0].mT) / 2e-6
        spread += slope.square() * variance[node].unsqueeze(-1)
    torch.testing.assert_close(second, spread, rtol=1e-6, atol=1e-9)


def test_outlier_scores_are_distances_to_class_means_in_feature_space() -> None:
    model, data = after("session", 4, 6, kernel="cosine"), rows(6)
    means = torch.stack([directions_of(data.x)[data.y == c].mean(0) for c in range(6)])
    expected = (directions_of(QUERIES).unsqueeze(1) - means).square().sum(-1).amin(-1)
    torch.testing.assert_close(model.outlier_scores(QUERIES), expected)


def test_temperature_of_rows_that_the_tree_has_not_seen() -> None:
    generator = torch.Generator().manual_seed(3)
    y = torch.arange(4).repeat_interleave(40)
    x = CENTRES[y] + 1.2 * torch.randn(160, D, dtype=torch.float64, generator=generator)
    data = ClassRows(x, y, torch.ones(160, dtype=torch.float64), SESSIONS[:4])
    model = strategy("shared_root").first_session(data, rows(4), 0).model
    temperature = float(model.shared["temperature"])
    assert temperature != 1

    def loss(at: float) -> float:
        logs = after("shared_root", 4).log_probabilities(x)
        return float(torch.nn.functional.cross_entropy(logs / at, y))

    assert loss(temperature) < min(loss(temperature * 1.3), loss(temperature / 1.3), loss(1.0))
    assert float(strategy("shared_root").first_session(rows(4), rows(4), 0).model.shared["temperature"]) == 0.1


def test_representatives() -> None:
    x = torch.cat([torch.eye(3, dtype=torch.float64).repeat(4, 1), CENTRES[:2, :3]])
    y = torch.tensor([1] * 12 + [0, 0])
    groups = representative_groups(x, y, torch.ones(14, dtype=torch.float64), 3)
    assert len(groups.unique()) == 5
    for number in groups.unique():
        assert len(x[groups == number].unique(dim=0)) == 1
    few = representative_groups(x, y, torch.ones(14, dtype=torch.float64), 2)
    assert [len(few[y == c].unique()) for c in (0, 1)] == [2, 2]
