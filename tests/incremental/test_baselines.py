"""Baselines against their definitions, computed in another way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from scipy.stats import multivariate_normal

from sureshot.incremental.baselines import make_baseline
from sureshot.incremental.herding import herded, herded_rows
from sureshot.incremental.two_covariances import ClassSums, TwoCovariances

RNG = np.random.default_rng(0)
Y = np.repeat(np.arange(4), 6)
X = RNG.normal(size=(4, 5))[Y] + 0.6 * RNG.normal(size=(24, 5))
NEW_Y = np.array([4, 4, 4, 0, 4])
NEW_X = RNG.normal(size=(5, 5))
QUERIES = RNG.normal(size=(7, 5))


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def class_means(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.stack([x[y == c].mean(0) for c in range(y.max() + 1)])


def test_nearest_class_mean_by_its_definition() -> None:
    found = make_baseline("nearest_class_mean", scale=16.0).fit(X, Y).partial_fit(NEW_X, NEW_Y)
    x, y = np.concatenate([X, NEW_X]), np.concatenate([Y, NEW_Y])
    cosines = unit(QUERIES) @ unit(class_means(unit(x), y)).T
    np.testing.assert_allclose(found.predict_proba(QUERIES), softmax(16 * cosines, axis=1), rtol=1e-10)
    np.testing.assert_allclose(found.outlier_score(QUERIES), -cosines.max(1), rtol=1e-10)


def test_the_scale_is_the_best_for_rows_that_are_left_out_of_their_class() -> None:
    found = make_baseline("nearest_class_mean").fit(X, Y)
    cosines = np.stack(
        [unit(X[i : i + 1])[0] @ unit(class_means(np.delete(unit(X), i, 0), np.delete(Y, i))).T for i in range(len(X))]
    )

    def loss(scale: float) -> float:
        logs = log_softmax(scale * cosines, axis=1)
        return float(-logs[np.arange(len(Y)), Y].sum() + np.log(scale / 16) ** 2 / 8)

    best = minimize_scalar(loss, bounds=(0.1, 1000), method="bounded", options={"xatol": 1e-6}).x
    assert found._known.state.scale == pytest.approx(best, rel=1e-5)


def test_least_squares_that_grew_is_the_regression_on_all_kept_rows() -> None:
    found = make_baseline("least_squares", rows_per_class=6, lengthscale=0.8, noise=0.2)
    found.fit(X, Y).partial_fit(NEW_X, NEW_Y)
    x, y = np.concatenate([X, NEW_X[NEW_Y == 4]]), np.concatenate([Y, [4] * 4])  # class 0 had its six rows already

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(-((unit(a)[:, None] - unit(b)[None]) ** 2).sum(-1) / (2 * 0.8**2))

    weights = np.linalg.solve(kernel(x, x) + 0.2 * np.eye(len(x)), 2.0 * np.eye(5)[y])
    latents = kernel(QUERIES, x) @ weights - 1
    temperature = found._known.state.temperature
    np.testing.assert_allclose(found.predict_proba(QUERIES), softmax(latents / temperature, axis=1), rtol=1e-9)
    np.testing.assert_allclose(found.outlier_score(QUERIES), -latents.max(1), rtol=1e-9)


def test_rows_are_bounded_and_the_others_choose_the_temperature() -> None:
    found = make_baseline("least_squares", rows_per_class=2).fit(X, Y)
    state = found._known.state
    assert torch.bincount(state.y).tolist() == [2, 2, 2, 2]
    assert state.temperature != 0.1
    found.partial_fit(NEW_X, NEW_Y)
    assert torch.bincount(found._known.state.y).tolist() == [2, 2, 2, 2, 2]
    same = found._known.state
    found.partial_fit(QUERIES, [1] * 7)
    assert found._known.state is same


def test_herding_by_hand() -> None:
    # The mean is 1. First 1.2 is nearest; with it 0 makes .6 and -.2 makes .5; then 3 makes 1.4 and -.2 makes .33.
    rows = torch.tensor([[0.0], [1.2], [-0.2], [3.0]])
    assert rows.mean() == 1.0
    assert herded(rows, 4).tolist() == [1, 0, 3, 2]
    assert herded(rows, 0).tolist() == []
    two = herded_rows(torch.cat([rows, rows]), torch.tensor([1, 1, 1, 1, 0, 0, 0, 0]), torch.tensor([1, 2, 5]))
    assert two.tolist() == [5, 1, 0]


def test_discriminant_analysis_that_streamed_is_that_of_all_rows() -> None:
    found = make_baseline("streaming_lda", shrinkage=0.3, temperature=2.0).fit(X, Y).partial_fit(NEW_X, NEW_Y)
    x, y = np.concatenate([X, NEW_X]), np.concatenate([Y, NEW_Y])
    means = class_means(x, y)
    covariance = (x - means[y]).T @ (x - means[y]) / len(x)
    covariance = 0.7 * covariance + 0.3 * np.eye(5) * covariance.trace() / 5
    densities = np.stack([multivariate_normal(m, covariance).logpdf(QUERIES) for m in means], axis=1)
    np.testing.assert_allclose(found.predict_proba(QUERIES), softmax(densities / 2, axis=1), rtol=1e-9)
    precision = np.linalg.inv(covariance)
    distance = [min((q - m) @ precision @ (q - m) for m in means) for q in QUERIES]
    np.testing.assert_allclose(found.outlier_score(QUERIES), distance, rtol=1e-9)


def test_empirical_bayes_is_two_covariances_of_the_base_session() -> None:
    found = make_baseline("empirical_bayes").fit(X, Y).partial_fit(NEW_X, NEW_Y)
    shared = TwoCovariances.estimated(torch.tensor(X), torch.tensor(Y))
    x, y = torch.tensor(np.concatenate([X, NEW_X])), torch.tensor(np.concatenate([Y, NEW_Y]))
    temperature = float(found._known.state.shared.temperature)
    densities = shared.densities(ClassSums.of_rows(x, y, 5))
    expected = softmax(shared.scores(densities, torch.tensor(QUERIES)).numpy() / temperature, axis=1)
    np.testing.assert_allclose(found.predict_proba(QUERIES), expected, rtol=1e-9)
    assert temperature != 1


@pytest.mark.parametrize("name", ["streaming_lda", "empirical_bayes"])
def test_confidence_is_that_of_rows_that_were_left_out(name: str) -> None:
    # Fewer rows than columns: rows that were learnt from are all right, others are not.
    excess = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        y = np.tile(np.arange(3), 210)
        x = 0.5 * rng.normal(size=(3, 40))[y] + rng.normal(size=(630, 40))
        learnt = make_baseline(name).fit(x[:30], y[:30])
        p = learnt.predict_proba(x[30:])
        right = (p.argmax(1) == y[30:]).mean()
        assert (learnt.predict_proba(x[:30]).argmax(1) == y[:30]).all()
        assert right < 0.97
        excess.append(p.max(1).mean() - right)
    assert abs(np.mean(excess)) < 0.1


def test_where_no_class_has_two_rows_there_is_nothing_to_leave_out() -> None:
    assert make_baseline("streaming_lda").fit(X[::6], Y[::6])._known.state.temperature == X.shape[1] ** 0.5
    shared = make_baseline("empirical_bayes").fit(X[::6], Y[::6])._known.state.shared
    assert float(shared.temperature) == pytest.approx(X.shape[1] ** 0.5)
