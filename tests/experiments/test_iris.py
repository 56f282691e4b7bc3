import numpy as np
import pytest
import torch

from experiments import iris, registry
from experiments.iris_models import MODELS
from experiments.iris_tables import PAPER, Scores, boundary, half_width, judge


def order(n_splits: int = 4) -> torch.Tensor:
    return iris.make_order(iris.load().y, n_splits, torch.Generator().manual_seed(0))


def test_splits_are_stratified_disjoint_nested_and_complete():
    data = iris.load()
    rows = order()
    small, _ = iris.split_rows(rows, 2)
    train, test = iris.split_rows(rows, 5)
    assert train.shape == (4, 15)
    assert test.shape == (4, 135)
    for split in range(4):
        assert torch.bincount(data.y[train[split]]).tolist() == [5, 5, 5]
        assert sorted(torch.cat([train[split], test[split]]).tolist()) == list(range(150))
        assert set(small[split].tolist()) < set(train[split].tolist())
    assert not torch.equal(train[0], train[1])


def test_batches_of_splits_do_not_change_the_scores():
    whole = iris.evaluate(iris.load(), order(), 2, "one-vs-each", 4)
    parts = iris.evaluate(iris.load(), order(), 2, "one-vs-each", 3)
    assert set(whole) == set(parts)
    for metric, values in whole.items():
        np.testing.assert_allclose(values, parts[metric], atol=1e-6, err_msg=metric)


def test_gaussian_row_is_exact_regression():
    data, rows = iris.load(), order(1)
    train, test = (part[0] for part in iris.split_rows(rows, 3))
    x, z = data.x[train].numpy(), data.x[test].numpy()

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1))

    targets = 2 * np.eye(3)[data.y[train].numpy()] - 1
    mean = kernel(z, x) @ np.linalg.solve(kernel(x, x) + np.eye(9), targets)
    expected = np.mean(mean.argmax(1) == data.y[test].numpy())
    found = iris.evaluate(data, rows, 3, "gaussian", 1)["accuracy"]
    assert found[0] == pytest.approx(expected)


def scores(values: dict[str, float], noise: float = 0.0) -> Scores:
    """Scores in which each of the paper's models has the given value of every metric."""
    rng = np.random.default_rng(0)
    metrics = ("accuracy", "brier", "ece", "elbo")
    return Scores(
        (5, 20),
        PAPER,
        {
            (size, model): {metric: values[model] + noise * rng.standard_normal(50) for metric in metrics}
            for size in (5, 20)
            for model in PAPER
        },
    )


def test_best_and_ties_are_by_paired_intervals():
    clear = scores({"gaussian": 0.5, "logistic-softmax": 0.4, "one-vs-each": 0.6}, noise=0.01)
    assert clear.best(5, "accuracy") == "one-vs-each"
    assert clear.best(5, "brier") == "logistic-softmax"
    assert clear.among_the_best(5, "one-vs-each", "accuracy")
    assert not clear.among_the_best(5, "one-vs-each", "brier")
    tied = scores({"gaussian": 0.5, "logistic-softmax": 0.5, "one-vs-each": 0.5}, noise=0.1)
    assert sum(tied.among_the_best(5, model, "accuracy") for model in PAPER) >= 2
    assert half_width(np.array([1.0])) == 0
    assert half_width(np.array([0.0, 2.0])) == pytest.approx(1.96)


def test_length_of_straight_and_curved_boundaries():
    axis = np.linspace(-1, 1, 81)
    a, b = np.meshgrid(axis, axis, indexing="ij")

    def probabilities(score: np.ndarray) -> np.ndarray:
        return np.stack([1 / (1 + np.exp(-score)), 1 / (1 + np.exp(score))])

    straight = boundary(axis, axis, probabilities(a + 0.5 * b))
    assert straight == pytest.approx((5**0.5, 5**0.5))
    # a = b^2 / 2 over [-1, 1]: arc length sqrt(2) + asinh(1), chord 2.
    curved = boundary(axis, axis, probabilities(a - b**2 / 2))
    assert curved == pytest.approx((2**0.5 + np.arcsinh(1), 2), abs=1e-3)
    assert boundary(axis, axis, probabilities(np.ones_like(a))) == (0, 0)


def test_through_the_registry(tmp_path):
    told: list[float] = []
    result = registry.run(
        "iris",
        output=tmp_path,
        progress=lambda what, fraction: told.append(fraction),
        sizes=(1, 20),
        n_splits=4,
        n_maps=1,
        map_points=25,
    )
    assert told == sorted(told)
    [long] = [table.frame for table in result.tables if table.name == "all"]
    assert set(long["model"]) == set(MODELS)
    by = long.set_index(["per class", "model", "metric"])["mean"]
    for size in (1, 20):
        for model in MODELS:
            assert 0 <= by[size, model, "brier"] <= 2
            assert by[size, model, "converged"] == 1
            assert by[size, model, "elbo"] < 0
    assert by[20, "gaussian", "accuracy"] > 0.6
    # The reference is nearest to the softmax posterior.
    assert by[20, "softmax (Laplace)", "elbo"] > max(by[20, model, "elbo"] for model in PAPER)
    page = result.files[0].read_text()
    assert "| per class | model | metric |" not in page  # the long table stays in the files
    assert len(result.verdicts) == 8
    assert all(path.stat().st_size < 200_000 for path in result.figures)


def test_equal_seeds_give_equal_scores():
    first, second = (iris.evaluate(iris.load(), order(), 1, "logistic-softmax", 4) for _ in range(2))
    for metric in first:
        np.testing.assert_array_equal(first[metric], second[metric])


def test_statements_follow_the_scores():
    data, rows = iris.load(), order(1)
    maps = [iris.make_map(data, rows, 0, 10, 20)]
    won = judge(scores({"gaussian": 0.2, "logistic-softmax": 0.3, "one-vs-each": 0.6}), maps)
    assert won[0].holds  # highest accuracy
    assert not won[1].holds  # highest Brier score
    assert won[3].holds  # the Gaussian has the smallest ECE up to 15 per class
    assert not won[4].holds  # and beyond
