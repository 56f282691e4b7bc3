"""Fisher scores against finite differences of log likelihoods, and kernels against their definition."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from sureshot import GPClassifier
from sureshot.kernels import MarkovFisherFeatures, MixtureFisherFeatures

RNG = np.random.default_rng(0)
SEQUENCES = ["abab", "aabb", "cab", "bbbbbb", "a", "acacb", "ccba", "bacab"]
ROWS = np.concatenate([RNG.normal(size=(20, 2)), RNG.normal(3, 0.5, size=(15, 2))])
BAGS = [ROWS[:4], ROWS[4:11], ROWS[20:22], ROWS[22:35], ROWS[11:20]]
MAKE: dict[str, tuple[Callable[..., Any], Any]] = {
    "chain": (MarkovFisherFeatures, SEQUENCES),
    "rows": (lambda **given: MixtureFisherFeatures(2, random_state=0, **given), ROWS),
    "bags": (lambda **given: MixtureFisherFeatures(2, random_state=0, **given), BAGS),
}
everywhere = pytest.mark.parametrize(("make", "X"), MAKE.values(), ids=MAKE)
STEP = 1e-5


def chain_log_likelihood(logits: np.ndarray, sequence: str) -> float:
    """By (1 + A, A) logits of the symbols a, b and c."""
    logs, places = log_softmax(logits, axis=1), ["abc".index(symbol) for symbol in sequence]
    return logs[0, places[0]] + sum(logs[1 + a, b] for a, b in pairwise(places))


def test_scores_of_a_chain_are_gradients() -> None:
    model = MarkovFisherFeatures().fit(SEQUENCES)
    counts = np.ones((4, 3))
    for one in SEQUENCES:
        counts[0, "abc".index(one[0])] += 1
        for a, b in pairwise(one):
            counts[1 + "abc".index(a), "abc".index(b)] += 1
    logits = np.log(counts / counts.sum(1, keepdims=True))
    expected = np.zeros((len(SEQUENCES), 12))
    for place, one in enumerate(SEQUENCES):
        for k in range(12):
            move = STEP * np.eye(12)[k].reshape(4, 3)
            change = chain_log_likelihood(logits + move, one) - chain_log_likelihood(logits - move, one)
            expected[place, k] = change / (2 * STEP)
    np.testing.assert_allclose(model.scores(SEQUENCES), expected, atol=1e-8)
    np.testing.assert_allclose(model.scores([list(one) for one in SEQUENCES]), expected, atol=1e-8)


def test_symbols_that_the_fit_lacks_are_passed_over() -> None:
    model = MarkovFisherFeatures().fit(SEQUENCES)
    # x: "ab" and "ba" begin anew, and neither begins the sequence.
    whole = model.scores(["aba"]) - model.scores(["a"])
    np.testing.assert_allclose(model.scores(["xabaxx"]), whole, atol=1e-12)
    np.testing.assert_allclose(model.scores(["abxba"]), model.scores(["aba"]), atol=1e-12)
    np.testing.assert_array_equal(model.transform(["xyz"]), 0)


def test_scores_of_a_mixture_are_gradients() -> None:
    model = MixtureFisherFeatures(2, random_state=0).fit(ROWS)

    def log_likelihood(logits: np.ndarray, means: np.ndarray, logs: np.ndarray) -> np.ndarray:
        moved = copy.deepcopy(model.mixture_)
        moved.weights_, moved.means_ = np.exp(log_softmax(logits)), means
        moved.covariances_, moved.precisions_cholesky_ = np.exp(2 * logs), np.exp(-logs)
        return np.asarray(moved.score_samples(ROWS))

    start = np.concatenate(
        [
            np.log(model.mixture_.weights_),
            model.mixture_.means_.ravel(),
            np.log(model.mixture_.covariances_).ravel() / 2,
        ]
    )

    def at(vector: np.ndarray) -> np.ndarray:
        return log_likelihood(vector[:2], vector[2:6].reshape(2, 2), vector[6:].reshape(2, 2))

    expected = np.stack([(at(start + move) - at(start - move)) / (2 * STEP) for move in STEP * np.eye(10)], axis=1)
    np.testing.assert_allclose(model.scores(ROWS), expected, atol=1e-7)
    np.testing.assert_allclose(model.scores(BAGS)[1], expected[4:11].sum(0), atol=1e-6)


@everywhere
def test_inner_products_are_the_kernel(make: Callable[..., Any], X: Any) -> None:
    plain, model = make(normalize=False, ridge=0.2).fit(X), make(ridge=0.2).fit(X)
    scores = plain.scores(X)
    moment = scores.T @ scores / len(X)
    ridge = 0.2 * np.trace(moment) / len(moment)
    expected = scores @ np.linalg.inv(moment + ridge * np.eye(len(moment))) @ scores.T
    features = plain.transform(X)
    np.testing.assert_allclose(features @ features.T, expected, rtol=1e-8, atol=1e-9)
    unit = model.transform(X)
    length = np.sqrt(expected.diagonal())
    np.testing.assert_allclose(unit @ unit.T, expected / np.outer(length, length), rtol=1e-8, atol=1e-9)
    assert np.linalg.eigvalsh(unit @ unit.T).min() > -1e-12


@everywhere
def test_copies_give_the_same(make: Callable[..., Any], X: Any) -> None:
    model = make().fit(X)
    expected = model.transform(X[:3])
    for other in (pickle.loads(pickle.dumps(model)), clone(model).fit(X)):
        np.testing.assert_array_equal(other.transform(X[:3]), expected)
    assert len(model.get_feature_names_out()) == expected.shape[1]
    with pytest.raises(NotFittedError):
        clone(model).transform(X)


@everywhere
@pytest.mark.parametrize("ridge", [0, -1, "much"])
def test_a_ridge_is_needed(make: Callable[..., Any], X: Any, ridge: Any) -> None:
    with pytest.raises(ValueError, match="ridge must be a positive number"):
        make(ridge=ridge).fit(X)


@pytest.mark.parametrize("X", ["abab", [], ["ab", ""]])
def test_what_are_no_sequences_is_refused(X: Any) -> None:
    with pytest.raises(ValueError, match="expected a list of sequences"):
        MarkovFisherFeatures().fit(X)
    with pytest.raises(ValueError, match="expected a list of sequences"):
        MarkovFisherFeatures().fit(SEQUENCES).transform(X)


@pytest.mark.parametrize("X", [[], [1.0, 2.0], [[[1.0, 2.0]], [[1.0]]], [[[np.nan], [1.0]]]])
def test_what_are_no_rows_is_refused(X: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        MixtureFisherFeatures(1).fit(X)
    with pytest.raises(ValueError, match=r"\w"):
        MixtureFisherFeatures(2, random_state=0).fit(ROWS).transform(X)


def test_a_pipeline_tells_chains_by_their_steps_and_bags_by_their_shape() -> None:
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1], 30)
    stay = np.where(y == 0, 0.2, 0.8)
    chains = [np.cumsum(rng.random(15) > one) % 2 for one in stay]
    bags = [rng.normal(size=(20, 1)) * (0.2 if one else 1) + (rng.choice([-1, 1], (20, 1)) if one else 0) for one in y]
    seen = np.arange(60) % 2 == 0
    for features, X in ((MarkovFisherFeatures(), chains), (MixtureFisherFeatures(2, random_state=0), bags)):
        pipeline = make_pipeline(features, GPClassifier("linear"))
        pipeline.fit([one for one, kept in zip(X, seen, strict=True) if kept], y[seen])
        assert pipeline.score([one for one, kept in zip(X, seen, strict=True) if not kept], y[~seen]) > 0.85
