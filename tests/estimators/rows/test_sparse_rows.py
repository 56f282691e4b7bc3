"""Sparse rows, seen by what they have in common with labelled rows and by their length."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

import sureshot.estimators.rows.sparse_rows as sparse_rows
from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier
from sureshot.estimators.rows.sparse_rows import SpannedRows


def drawn(n: int, n_columns: int, seed: int, unit: bool = True) -> scipy.sparse.csr_matrix:
    rng = np.random.default_rng(seed)
    cells = np.where(rng.random((n, n_columns)) < 0.05, rng.random((n, n_columns)), 0.0)
    cells[:, 0] = 1 + rng.random(n)  # none is empty
    x = scipy.sparse.csr_matrix(cells)
    return normalize(x) if unit else x


Y = np.arange(60) % 3
X, QUERIES = drawn(60, 200, 0), drawn(25, 200, 1)


def test_inner_products_and_lengths_are_kept() -> None:
    for unit in (True, False):
        x, queries = drawn(60, 200, 0, unit), drawn(25, 200, 1, unit)
        spanned = SpannedRows.of("GPClassifier", x, None)
        known = spanned.known(spanned(scipy.sparse.csr_array(x)))
        asked = spanned(scipy.sparse.csr_array(queries))
        np.testing.assert_allclose(known @ known.T, (x @ x.T).toarray(), atol=1e-10)
        np.testing.assert_allclose(asked @ known.T, (queries @ x.T).toarray(), atol=1e-10)
        np.testing.assert_allclose((asked**2).sum(1), np.asarray(queries.multiply(queries).sum(1)).ravel(), atol=1e-10)
        assert (known[:, -1] == 0).all()
        assert asked[:, -1].max() > 0.1


@pytest.mark.parametrize("kernel", ["cosine", "auto"])
def test_sparse_rows_are_predicted_like_dense_ones(kernel: str) -> None:
    """By products of rows as they are, which "auto" compares sparse rows by."""
    sparse, dense = GPClassifier(kernel=kernel).fit(X, Y), GPClassifier(kernel="cosine").fit(X.toarray(), Y)
    assert sparse.n_features_in_ == 200
    np.testing.assert_allclose(sparse.predict_proba(QUERIES), dense.predict_proba(QUERIES.toarray()), atol=1e-6)
    np.testing.assert_allclose(
        sparse.predict_latent(QUERIES).variance, dense.predict_latent(QUERIES.toarray()).variance, rtol=1e-5
    )
    np.testing.assert_array_equal(sparse.predict_proba(QUERIES.toarray()), sparse.predict_proba(QUERIES))
    np.testing.assert_allclose(sparse.predict_proba(QUERIES[3:5]), sparse.predict_proba(QUERIES)[3:5], rtol=1e-12)


@pytest.mark.parametrize("make", [GPClassifier, FewShotClassifier])
def test_one_row_of_two_classes_is_enough_for_embeddings(make: Any) -> None:
    """Though it spans two coordinates only."""
    sparse, dense = make().fit(X[:2], Y[:2]), make().fit(X[:2].toarray(), Y[:2])
    assert str(sparse.kernel_) == str(dense.kernel_)
    np.testing.assert_allclose(sparse.predict_proba(QUERIES), dense.predict_proba(QUERIES.toarray()), rtol=0, atol=1e-7)


def test_an_empty_text_among_labelled_ones_and_among_new_ones() -> None:
    texts = ["the cat sat", "a cat and a dog", "dogs bark", "stock market fell", "market shares", "shares sold", ""]
    x = TfidfVectorizer().fit_transform(texts)
    model = FewShotClassifier().fit(x, [0, 0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(model.predict(x), [0, 0, 0, 1, 1, 1, 1])
    np.testing.assert_allclose(FewShotClassifier().fit(x[:6], [0, 0, 0, 1, 1, 1]).predict_proba(x[6:]), 0.5, atol=0.1)


def test_linear_kernels_take_rows_of_any_length() -> None:
    x, queries = drawn(60, 200, 0, False), drawn(25, 200, 1, False)
    model = GPClassifier(kernel="linear").fit(x, Y)
    p = model.predict_proba(queries)
    np.testing.assert_allclose(p.sum(1), 1)
    assert np.isfinite(model.outlier_score(queries)).all()


def test_a_row_of_words_that_nobody_knows_is_an_outlier() -> None:
    unknown = scipy.sparse.csr_matrix(([1.0, 1.0], ([0, 1], [198, 199])), shape=(2, 200))
    cells = X.toarray()
    cells[:, 198:] = 0
    x = normalize(scipy.sparse.csr_matrix(cells))
    model = GPClassifier().fit(x, Y)
    assert model.outlier_score(unknown).min() > np.quantile(model.outlier_score(x), 0.95)


def test_many_rows_keep_the_largest_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_rows, "MOST_EXACT", 20)
    monkeypatch.setattr(sparse_rows, "COMPONENTS", 10)
    spanned = SpannedRows.of("GPClassifier", X, None)
    assert spanned.basis.shape[1] == 10
    assert not spanned.exact
    np.testing.assert_allclose(np.linalg.norm(spanned(scipy.sparse.csr_array(QUERIES)), axis=1), 1)
    model = GPClassifier().fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(QUERIES), GPClassifier().fit(X, Y).predict_proba(QUERIES))


@pytest.mark.parametrize(("kernel", "unit"), [("cosine", True), ("cosine", False), ("linear", False)])
@pytest.mark.parametrize("most", [2000, 5])
def test_no_more_rows_are_rejected_than_stated(
    kernel: str, unit: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_rows, "MOST_EXACT", most)
    monkeypatch.setattr(sparse_rows, "COMPONENTS", 30)
    rejected = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        topics = rng.dirichlet(np.full(200, 0.5), 3)
        y = rng.integers(3, size=400)
        counts = scipy.sparse.csr_matrix(np.array([rng.multinomial(25, topics[k]) for k in y], dtype=float))
        x = normalize(counts) if unit else counts
        model = GPClassifier(kernel=kernel, objective=None).fit(x[:100], y[:100])
        rejected.append((model.novelty_p_value(x[100:]) <= 0.05).mean())
        assert not set(model.suggest(x, 30).rows.tolist()) & set(range(100))
    assert np.mean(rejected) < 0.1


def test_models_are_saved_and_pickled(tmp_path: Path) -> None:
    model = GPClassifier().fit(X, Y)
    model.save(tmp_path / "m")
    for other in (GPClassifier.load(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict_proba(QUERIES), model.predict_proba(QUERIES))


def test_rows_and_classes_are_added() -> None:
    cells = QUERIES.toarray()
    cells[:, 1] += 3
    others = normalize(scipy.sparse.csr_matrix(cells))
    model = GPClassifier().fit(X, Y).partial_fit(others, np.full(25, 7))
    assert model.classes_.tolist() == [0, 1, 2, 7]
    assert (model.predict(others) == 7).all()
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)


def test_texts() -> None:
    texts = [
        "open the door",
        "close the door",
        "play some music",
        "play a song",
        "stop the music",
        "shut the window",
    ] * 2
    labels = ["home", "home", "media", "media", "media", "home"] * 2
    vectors = TfidfVectorizer().fit(texts)
    model = GPClassifier().fit(vectors.transform(texts), labels)
    asked = vectors.transform(["open the window", "play music"])
    assert model.predict(asked).tolist() == ["home", "media"]


@pytest.mark.parametrize(
    ("model", "x", "message"),
    [
        (GPClassifier(kernel="rbf"), X, "kernel='linear' or 'cosine'"),
        (GPClassifier(), drawn(60, 200, 0, False), "nothing says how to compare them"),
        (TreeGPClassifier(), X, "X is sparse.*TruncatedSVD"),
        (KernelSearchClassifier(), X, "X is sparse.*TruncatedSVD"),
    ],
)
def test_elsewhere_the_refusal_says_where(model: Any, x: scipy.sparse.csr_matrix, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        model.fit(x, Y)


def test_rows_without_any_entry() -> None:
    model = GPClassifier(kernel="linear").fit(scipy.sparse.csr_matrix((12, 5)), [0, 1, 2] * 4)
    np.testing.assert_allclose(model.predict_proba(scipy.sparse.csr_matrix(np.eye(5))), 1 / 3, atol=1e-6)
    assert model.feature_relevance_.shape == (5,)


def test_bad_rows_are_named() -> None:
    bad = X.copy()
    bad.data[3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        GPClassifier().fit(bad, Y)
    model = GPClassifier().fit(X, Y)
    with pytest.raises(ValueError, match="features"):
        model.predict(QUERIES[:, :5])
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        GPClassifier(kernel="rbf").fit(X.toarray(), Y).predict(QUERIES)
