"""Trees by mean field: against nodes one by one, binary classifiers, copies of rows, joins; and bad input."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sureshot.computing.blocks import AT_ONCE
from sureshot.gaussian import GramPrior, Queries
from sureshot.inference.mean_field import fit_mean_field
from sureshot.likelihoods import Logistic
from sureshot.tree import (
    ClassTree,
    SharedFeatures,
    SharedGram,
    TreePosterior,
    balanced_random_tree,
    build_tree,
    class_prototypes,
    fit_tree_mean_field,
    label_order_tree,
)
from sureshot.tree.path_probabilities import class_log_probabilities, side_log_probabilities
from tests.tree.problems import F64, TREE, features, gram, linear, one_by_one, rows

TIGHT = {"max_steps": 2000, "tolerance": 1e-12}


def expected_probabilities(tree: ClassTree, mean: Tensor, variance: Tensor) -> Tensor:
    """Classes' probabilities (C, Q) as explicit products."""
    right = side_log_probabilities(mean, variance).right.exp()
    columns = []
    for label in range(tree.n_classes):
        p = torch.ones(mean.shape[1], dtype=F64)
        for node, side in tree.path(label):
            p = p * (right[node] if side else 1 - right[node])
        columns.append(p)
    return torch.stack(columns)


@settings(max_examples=6)
@given(seed=st.integers(0, 20), weighted=st.booleans(), own=st.booleans())
def test_nodes_one_by_one_with_explicit_inverses(seed: int, weighted: bool, own: bool) -> None:
    x, y, query = rows(seed=seed)
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randint(0, 4, y.shape, generator=generator).to(F64) / 2 if weighted else None
    mean = torch.randn(5, dtype=F64, generator=generator) if own else torch.full((5,), 0.3, dtype=F64)
    scale = 0.5 + 4 * torch.rand(5, dtype=F64, generator=generator) if own else torch.full((5,), 2.0, dtype=F64)
    given_mean, given_scale = (mean, scale) if own else (0.3, 2.0)
    for tree in (TREE, label_order_tree(6), balanced_random_tree(6, seed)):
        fit = fit_tree_mean_field(tree, gram(x), y, weight, prior_mean=given_mean, output_scale=given_scale, **TIGHT)
        assert bool(fit.converged.all())
        expected = one_by_one(tree, gram(x), query, y, weight, mean, scale)
        found = fit.posterior.latents(query)
        torch.testing.assert_close(found.mean, expected[0], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(found.spread, expected[1], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(fit.bound, expected[2], rtol=1e-8, atol=1e-8)
        p = fit.posterior.probabilities(query)
        torch.testing.assert_close(p, expected_probabilities(tree, *expected[:2]), rtol=1e-6, atol=1e-10)
        assert float((p.sum(0) - 1).abs().max()) < 1e-12


def test_features_equal_their_matrix() -> None:
    x, y, query = rows()
    settings = {"output_scale": torch.linspace(0.5, 3, 5, dtype=F64), "prior_mean": 0.2, **TIGHT}
    by_features = fit_tree_mean_field(TREE, features(x), y, **settings).posterior
    by_matrix = fit_tree_mean_field(TREE, linear(x), y, **settings).posterior
    for one, other in zip(by_features.latents(query), by_matrix.latents(query), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8)
    # A residual is variance of the row's own, which the matrix has on its diagonal.
    residual = torch.linspace(0, 1, len(x), dtype=F64)
    with_residual = SharedFeatures(x, features(x).covariance, residual)
    with_diagonal = SharedGram(x @ x.mT + residual.diag(), linear(x).covariance)
    one = fit_tree_mean_field(TREE, with_residual, y, **settings)
    other = fit_tree_mean_field(TREE, with_diagonal, y, **settings)
    torch.testing.assert_close(one.bound, other.bound, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(one.posterior.probabilities(query), other.posterior.probabilities(query))


def test_two_classes_are_the_binary_classifier() -> None:
    x, y, query = rows(30, 2)
    shared = gram(x)
    prior = GramPrior(3 * shared.gram[None], torch.tensor([[0.4]], dtype=F64))
    binary = fit_mean_field(prior, Logistic(), y, None, 2, **TIGHT)
    cross, variance = shared.covariance(query)
    mean, spread = binary.posterior.query(3 * cross[None], 3 * variance[None])
    fit = fit_tree_mean_field(label_order_tree(2), shared, y, prior_mean=0.4, output_scale=3.0, **TIGHT)
    # Both stop where a step moves no latent by more than 1e-12; what is left is no more, as steps shrink by .4 here.
    torch.testing.assert_close(fit.posterior.latents(query).mean, mean, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(fit.posterior.latents(query).spread, spread, rtol=1e-10, atol=1e-10)
    for rule in ("integral", "plug_in"):
        # Both sides integrated there, one side here: apart by the error of the quadrature, 1e-10 at these variances.
        expected = Logistic().predict(mean, spread, rule)
        torch.testing.assert_close(fit.posterior.probabilities(query, rule), expected, rtol=1e-9, atol=1e-9)


def test_relabelling_permutes_columns_exactly() -> None:
    x, y, query = rows()
    labels = torch.tensor([4, 0, 5, 2, 1, 3])
    p = fit_tree_mean_field(TREE, gram(x), y, prior_mean=0.3).posterior.probabilities(query)
    renamed = fit_tree_mean_field(TREE.relabelled(labels.tolist()), gram(x), labels[y], prior_mean=0.3)
    assert torch.equal(renamed.posterior.probabilities(query)[labels], p)


def test_weights_are_copies() -> None:
    x, y, query = rows()
    counts = torch.arange(len(y)) % 3
    again = torch.arange(len(y)).repeat_interleave(counts)
    weighted = fit_tree_mean_field(TREE, gram(x), y, counts.to(F64), **TIGHT)
    copied = fit_tree_mean_field(TREE, gram(x[again]), y[again], **TIGHT)
    torch.testing.assert_close(weighted.bound, copied.bound, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(
        weighted.posterior.probabilities(query), copied.posterior.probabilities(query), rtol=1e-6, atol=1e-8
    )


def halves() -> tuple[TreePosterior, TreePosterior, TreePosterior, TreePosterior, Tensor]:
    """Posteriors over classes 0..3, over 4 and 5, of the root, of all joined; and queries."""
    x, y, query = rows(60)
    first = y < 4
    left_tree = build_tree(class_prototypes(x[first], y[first], 4))
    left = fit_tree_mean_field(left_tree, gram(x[first]), y[first], output_scale=4.0).posterior
    right = fit_tree_mean_field(label_order_tree(2), features(x[~first]), y[~first] - 4, prior_mean=0.1).posterior
    root = fit_tree_mean_field(label_order_tree(2), linear(x), (~first).long(), output_scale=2.0).posterior
    return left, right, root, left.joined(right, root), query


def test_joining_leaves_what_is_below_unchanged_to_the_last_bit() -> None:
    left, right, root, joined, query = halves()
    for rule in ("integral", "plug_in"):
        assert torch.equal(joined.log_probabilities(query, rule, below=1), left.log_probabilities(query, rule))
        below = joined.log_probabilities(query, rule, below=1 + left.tree.n_nodes)
        assert torch.equal(below, right.log_probabilities(query, rule))
        sides = root.log_probabilities(query, rule)
        whole = torch.cat([sides[0] + left.log_probabilities(query, rule), sides[1] + below])
        torch.testing.assert_close(joined.log_probabilities(query, rule), whole)
    tempered = replace(left, temperature=0.5).joined(replace(right, temperature=2.0), root)
    assert torch.equal(tempered.log_probabilities(query), joined.log_probabilities(query))  # it is of no part
    again = joined.joined(right, root)
    assert torch.equal(again.log_probabilities(query, below=2), left.log_probabilities(query))
    assert torch.equal(again.log_probabilities(query, below=1), joined.log_probabilities(query))


def test_a_root_tells_two_classes_apart() -> None:
    left, right, _, joined, _ = halves()
    with pytest.raises(ValueError, match="root must separate two classes"):
        left.joined(right, joined)


@settings(max_examples=15)
@given(n_classes=st.integers(1, 8), seed=st.integers(0, 50))
def test_classes_without_rows_keep_their_prior(n_classes: int, seed: int) -> None:
    """Labels of two classes only: at nodes below which there are none of them the latent is the prior's."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(6, 3, dtype=F64, generator=generator)
    y = torch.tensor([0, 0, 0, 1, 1, 1]).clamp_max(n_classes - 1)
    tree = balanced_random_tree(n_classes, seed)
    own_mean, own_scale = (torch.linspace(*ends, n_classes - 1, dtype=F64) for ends in ((-1, 1), (1, 3)))
    fit = fit_tree_mean_field(tree, gram(x), y, prior_mean=own_mean, output_scale=own_scale, **TIGHT)
    mean, variance, bound = (
        one_by_one(
            tree,
            gram(x),
            x[:2],
            y,
            None,
            own_mean,
            own_scale,
        )
        if n_classes > 1
        else (torch.zeros(0, 2, dtype=F64),) * 2 + (torch.zeros(0, dtype=F64),)
    )
    torch.testing.assert_close(fit.posterior.latents(x[:2]).mean, mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(fit.posterior.latents(x[:2]).spread, variance, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(fit.bound, bound, rtol=1e-8, atol=1e-8)
    assert float((fit.posterior.probabilities(x).sum(0) - 1).abs().max()) < 1e-12


def test_one_row_for_each_class_and_identical_prototypes() -> None:
    x = torch.ones(7, 3, dtype=F64)
    y = torch.arange(7)
    tree = build_tree(class_prototypes(x, y, 7))
    p = fit_tree_mean_field(tree, linear(x), y, output_scale=4.0).posterior.probabilities(x)
    assert tree.depth == 3
    assert float(p.min()) > 0.05  # nothing tells them apart
    x, y, _ = rows(6)
    p = fit_tree_mean_field(TREE, gram(x), y, output_scale=400.0).posterior.probabilities(x)
    assert p.argmax(0).tolist() == y.tolist()


def test_nodes_that_run_out_of_steps_have_not_converged() -> None:
    x, y, _ = rows()
    assert not bool(fit_tree_mean_field(TREE, gram(x), y, max_steps=1).converged.any())


def test_one_class_is_certain() -> None:
    x = torch.ones(3, 2, dtype=F64)
    fit = fit_tree_mean_field(ClassTree(), linear(x), torch.zeros(3, dtype=torch.long))
    assert torch.equal(fit.posterior.probabilities(x), torch.ones(1, 3, dtype=F64))
    assert fit.posterior.latents(x).mean.shape == (0, 3)
    assert fit.bound.shape == (0,)


def test_blocks_of_queries_do_not_change_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, query = rows()
    for shared in (gram(x), features(x)):
        posterior = fit_tree_mean_field(TREE, shared, y).posterior
        whole = posterior.probabilities(query)
        with monkeypatch.context() as patch:
            patch.setattr("sureshot.tree.posterior.AT_ONCE", 3 * len(x))
            torch.testing.assert_close(posterior.probabilities(query), whole, rtol=1e-12, atol=1e-14)


def test_no_bucket_holds_more_than_the_bound() -> None:
    """Rows of 300 classes: the kernel matrices of all nodes at the size of the largest would hold 400 million."""
    y = torch.arange(1200) % 300
    x = torch.randn(1200, 4, dtype=F64, generator=torch.Generator().manual_seed(0))
    posterior = fit_tree_mean_field(balanced_random_tree(300), features(x), y, max_steps=1).posterior
    assert len(posterior.parts[0].buckets) < 40
    for fitted in posterior.parts[0].buckets:
        count, n = fitted.problems.bucket.rows.shape
        assert count == 1 or count * n * 4 <= 2 * AT_ONCE


def test_bounds_are_differentiable_in_the_kernel() -> None:
    """As a deep kernel needs it: at a fixed point the derivative is that of the refitted bound."""
    x, y, _ = rows(20)
    scale = torch.tensor(1.3, dtype=F64, requires_grad=True)
    shared = gram(x)
    bound = fit_tree_mean_field(TREE, SharedGram(scale * shared.gram, shared.covariance), y, **TIGHT).bound
    (gradient,) = torch.autograd.grad(bound.sum(), scale)
    up, down = (
        fit_tree_mean_field(TREE, SharedGram((1.3 + d) * shared.gram, shared.covariance), y, **TIGHT).bound.sum()
        for d in (1e-4, -1e-4)
    )
    torch.testing.assert_close(gradient, (up - down) / 2e-4, rtol=1e-5, atol=1e-6)


def test_bad_input_names_the_argument() -> None:
    x, y, _ = rows()
    shared = gram(x)
    wrong = x.clone()
    wrong[3, 0] = torch.nan
    with pytest.raises(ValueError, match="gram must be finite, but row 0"):
        gram(wrong)
    with pytest.raises(ValueError, match="features must be finite, but row 3"):
        features(wrong)
    with pytest.raises(ValueError, match="gram must be a square matrix"):
        SharedGram(x, shared.covariance)
    with pytest.raises(ValueError, match="features must be a matrix"):
        SharedFeatures(x[0], shared.covariance)
    with pytest.raises(ValueError, match="residual must be 40 variances"):
        SharedFeatures(x, shared.covariance, -torch.ones(40, dtype=F64))
    with pytest.raises(ValueError, match="residual must be finite, but row 0"):
        SharedFeatures(x, shared.covariance, torch.full((40,), torch.nan, dtype=F64))
    for bad_y, message in ((y[:3], "y must have one label"), (y + 1, "y must hold labels"), (y.double(), "y must be")):
        with pytest.raises(ValueError, match=message):
            fit_tree_mean_field(TREE, shared, bad_y)
    for weight, message in ((-1.0, "weight must hold"), (torch.nan, "weight must be finite")):
        with pytest.raises(ValueError, match=message):
            fit_tree_mean_field(TREE, shared, y, torch.full((40,), weight, dtype=F64))
    with pytest.raises(ValueError, match="one for each of the 5 nodes"):
        fit_tree_mean_field(TREE, shared, y, prior_mean=torch.zeros(4))
    with pytest.raises(ValueError, match="prior_mean must be finite"):
        fit_tree_mean_field(TREE, shared, y, prior_mean=torch.nan)
    with pytest.raises(ValueError, match="output_scale must be positive, got 0"):
        fit_tree_mean_field(TREE, shared, y, output_scale=0.0)
    with pytest.raises(ValueError, match="y must hold labels"):
        fit_tree_mean_field(ClassTree(), shared, y)
    posterior = fit_tree_mean_field(TREE, shared, y).posterior
    with pytest.raises(ValueError, match="x must be finite"):
        posterior.probabilities(wrong)


def test_leaves_are_sums_of_node_logs() -> None:
    x, y, query = rows()
    posterior = fit_tree_mean_field(TREE, gram(x), y).posterior
    sides = posterior.side_log_probabilities(query)
    torch.testing.assert_close(posterior.log_probabilities(query), class_log_probabilities(TREE, sides))
    assert Queries(*gram(x).queries(query)).cross.shape == (40, 12)
