"""Features of rows that have no direction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfVectorizer

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier

PIXELS, Y = load_digits(return_X_y=True)
UNIT = PIXELS / np.linalg.norm(PIXELS, axis=1, keepdims=True)
BLANK = np.zeros((1, UNIT.shape[1]))


@pytest.mark.parametrize("kernel", ["auto", "cosine", "unit_rbf", "unit_matern32"])
def test_rows_of_zeros_say_next_to_nothing(kernel: str) -> None:
    """Less the centre of directions, zeros point the other way, of which a kernel would be as sure as of any."""
    model = GPClassifier(kernel=kernel).fit(UNIT[:100], Y[:100])
    p = model.predict_proba(np.concatenate([BLANK, UNIT[100:140]]))
    assert p[0].max() < 0.35
    assert p[1:].max(axis=1).mean() > 0.6
    np.testing.assert_allclose(p[1:], model.predict_proba(UNIT[100:140]), rtol=1e-9)
    assert model.outlier_score(BLANK) > model.outlier_score(UNIT[100:140]).max()


@pytest.mark.parametrize("make", [GPClassifier, FewShotClassifier, TreeGPClassifier])
def test_a_labelled_row_of_zeros_leaves_the_others_embeddings(make: Any) -> None:
    x, y, queries, wanted = UNIT[:60], Y[:60], UNIT[60:600], Y[60:600]
    plain = make().fit(x, y).score(queries, wanted)
    model = make().fit(np.concatenate([x, BLANK]), np.append(y, 3))
    assert model.score(queries, wanted) > plain - 0.03
    assert model.predict(BLANK) == 3


@pytest.mark.parametrize("model", [GPClassifier(), TreeGPClassifier(), KernelSearchClassifier(2, n_rejuvenation=0)])
def test_a_query_without_direction_is_answered(model: Any) -> None:
    """That in the centre of all rows as well, which differs from it by rounding alone."""
    x = np.concatenate([UNIT[:40], -UNIT[:40]])
    model.fit(x, np.tile(Y[:40] % 2, 2))
    asked = np.stack([x.mean(0), np.zeros(64), UNIT[41]])
    assert np.isfinite(model.predict_proba(asked)).all()
    np.testing.assert_allclose(model.predict_proba(asked[:1]), model.predict_proba(asked)[:1], rtol=1e-9)


def test_categories_as_zeros_and_ones_are_no_embeddings() -> None:
    """Three levels that hardly say anything: log loss 1 to 1.3 where their rows were taken for directions."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 3, 400)
    y = (rng.random(400) < np.array([0.3, 0.5, 0.7])[level]).astype(int)
    x = np.eye(3)[level]
    losses = []
    for begin in range(0, 100, 10):
        rows = np.arange(begin, begin + 5)
        if len(set(y[rows])) < 2 or len(set(level[rows])) < 3:
            continue
        p = GPClassifier().fit(x[rows], y[rows]).predict_proba(x[100:])
        losses.append(-np.log(p[np.arange(300), y[100:]]).mean())
    assert np.mean(losses) < 0.9


def test_of_a_linear_kernel_they_are_what_intercepts_say() -> None:
    model = GPClassifier(kernel="cosine").fit(UNIT[:100], Y[:100])
    centre = model.kernel_.to_gpytorch().base_kernel.kernels[0].center.numpy()
    opposite = model.predict_latent(np.stack([centre + UNIT[0], centre - UNIT[0]])).mean.mean(axis=0)
    np.testing.assert_allclose(model.predict_latent(BLANK).mean[0], opposite, atol=1e-8)


def test_fewer_inducing_inputs_than_classes() -> None:
    X, y = load_digits(return_X_y=True)
    model = GPClassifier(kernel="rbf", approximation="inducing", n_inducing=3, objective=None).fit(X[:100], y[:100])
    (member,) = model._fitted.members
    assert len(member.process.approximation.inputs) == 3


@pytest.mark.parametrize("make", [GPClassifier, FewShotClassifier])
def test_a_text_without_a_known_word_is_of_no_class(make: Any) -> None:
    """Rows of texts are nearly orthogonal, so a row of zeros is nearer to each than they are to each other."""
    rng = np.random.default_rng(0)
    words, common = (
        {c: [f"{c}{k}" for k in range(15)] for c in ("sport", "money", "music")},
        [f"w{k}" for k in range(20)],
    )

    def texts(n: int) -> list[str]:
        return [" ".join([*rng.choice(words[c], 4), *rng.choice(common, 4)]) for c in words for _ in range(n)]

    vectors = TfidfVectorizer()
    model = make().fit(vectors.fit_transform(texts(10)), np.repeat(list(words), 10))
    unknown = vectors.transform(["words that nobody knows"])
    assert model.outlier_score(unknown) > model.outlier_score(vectors.transform(texts(40))).max()
    assert model.predict_or_reject(unknown, unknown="none").tolist() == ["none"]
