"""Kernels of strings against every substring and every subsequence, written out."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from sureshot import GPClassifier, GPRegressor
from sureshot.kernels import SpectrumFeatures, SubsequenceFeatures
from sureshot.kernels.strings import subsequence_kernel

STRINGS = ["abracadabra", "bracket", "cadaver", "aa  bb", "abab", "brrr", "rbarc"]
OTHERS = ["abacus", "zebra", "aaaa"]
MAKE: list[Callable[[], Any]] = [lambda: SpectrumFeatures(2, sparse_output=False), lambda: SubsequenceFeatures(2, 0.6)]


def substrings(one: str, other: str, k: int) -> float:
    """How many pairs of equal substrings of k characters there are."""
    return sum(one[i : i + k] == other[j : j + k] for i in range(len(one) - k + 1) for j in range(len(other) - k + 1))


def subsequences(one: str, other: str, length: int, decay: float) -> float:
    """Every pair of equal subsequences, by the characters that they span."""
    found = 0.0
    for a in itertools.combinations(range(len(one)), length):
        for b in itertools.combinations(range(len(other)), length):
            if [one[i] for i in a] == [other[j] for j in b]:
                found += decay ** (a[-1] - a[0] + 1 + b[-1] - b[0] + 1)
    return found


def normalised(kernel: Callable[[str, str], float], first: list[str], second: list[str]) -> np.ndarray:
    """Of all pairs."""
    return np.array([[kernel(a, b) / np.sqrt(kernel(a, a) * kernel(b, b)) for b in second] for a in first])


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_spectrum_kernel_counts_substrings(k: int) -> None:
    features = SpectrumFeatures(k).fit(STRINGS)
    known, new = features.transform(STRINGS), features.transform(OTHERS)
    assert issparse(known)

    def kernel(a: str, b: str) -> float:
        return substrings(a, b, k)

    np.testing.assert_allclose((known @ known.T).toarray(), normalised(kernel, STRINGS, STRINGS), atol=1e-12)
    np.testing.assert_allclose((new @ known.T).toarray(), normalised(kernel, OTHERS, STRINGS), atol=1e-12)
    names = features.get_feature_names_out()
    assert set(names) == {one[i : i + k] for one in STRINGS for i in range(len(one) - k + 1)}
    raw = known[0].toarray()[0]
    place = list(names).index("abra"[:k])
    assert raw[place] / raw.max() == substrings("abra"[:k], STRINGS[0], k) / max(
        substrings(name, STRINGS[0], k) for name in names
    )


@pytest.mark.parametrize(("length", "decay"), [(1, 0.5), (2, 0.6), (3, 0.3), (3, 1.0)])
def test_the_subsequence_kernel_counts_subsequences(length: int, decay: float) -> None:
    def kernel(a: str, b: str) -> float:
        return subsequences(a, b, length, decay)

    raw = [[kernel(a, b) for b in STRINGS] for a in OTHERS]
    np.testing.assert_allclose(subsequence_kernel(OTHERS, STRINGS, length, decay), raw, rtol=1e-10, atol=1e-14)
    features = SubsequenceFeatures(length, decay).fit(STRINGS + STRINGS[:2])
    known, new = features.transform(STRINGS), features.transform(OTHERS)
    np.testing.assert_allclose(known @ known.T, normalised(kernel, STRINGS, STRINGS), atol=1e-9)
    np.testing.assert_allclose(new @ known.T, normalised(kernel, OTHERS, STRINGS), atol=1e-9)
    assert (np.linalg.norm(new, axis=1) <= 1 + 1e-9).all()
    assert len(features.get_feature_names_out()) == known.shape[1] <= len(STRINGS)


def test_pairs_in_blocks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = subsequence_kernel(STRINGS, OTHERS, 3, 0.5)
    monkeypatch.setattr("sureshot.kernels.strings.ENTRIES", 1)
    np.testing.assert_allclose(subsequence_kernel(STRINGS, OTHERS, 3, 0.5), whole, rtol=1e-14)


@pytest.mark.parametrize("make", MAKE)
def test_kernels_are_positive_semidefinite_and_normalised(make: Callable[[], Any]) -> None:
    features = make().fit(STRINGS).transform(STRINGS)
    gram = features @ features.T
    np.testing.assert_allclose(gram.diagonal(), 1, atol=1e-9)
    assert np.linalg.eigvalsh(gram).min() > -1e-12


@pytest.mark.parametrize("make", MAKE)
def test_copies_give_the_same(make: Callable[[], Any]) -> None:
    model = make().fit(STRINGS)
    expected = model.transform(OTHERS)
    for other in (pickle.loads(pickle.dumps(model)), clone(model).fit(np.array(STRINGS, dtype=object))):
        np.testing.assert_array_equal(other.transform(OTHERS), expected)
    with pytest.raises(NotFittedError):
        clone(model).transform(OTHERS)


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("abab", "expected a list of at least one string"),
        ([], "expected a list of at least one string"),
        ([1, 2], "expected a list of at least one string"),
        (["ab", None], "expected a list of at least one string"),
        (["ab", "a"], "string 1, 'a', has less than 2 characters"),
    ],
)
def test_what_are_no_strings_is_refused(make: Callable[[], Any], X: Any, message: str) -> None:
    model = make().fit(STRINGS)
    for call in (make().fit, model.transform):
        with pytest.raises(ValueError, match=message):
            call(X)


@pytest.mark.parametrize(
    "model", [SpectrumFeatures(0), SpectrumFeatures(True), SubsequenceFeatures(1.5), SubsequenceFeatures(2, 0.0)]
)
def test_settings_that_are_none_are_refused(model: Any) -> None:
    with pytest.raises(ValueError, match=r"at least 1|above 0"):
        model.fit(STRINGS)


@pytest.mark.parametrize("make", [SpectrumFeatures, lambda: SpectrumFeatures(sparse_output=False), SubsequenceFeatures])
def test_pipelines_classify_strings(make: Callable[[], Any]) -> None:
    rng = np.random.default_rng(0)
    strings = ["".join(rng.permutation([word, "xyz", "yzx"])) for word in ("shot", "slow") for _ in range(12)]
    pipeline = make_pipeline(make(), GPClassifier("linear")).fit(strings, [0] * 12 + [1] * 12)
    assert pipeline.score(["xxshotzz", "yslowy"], [0, 1]) == 1


def test_pipelines_regress_on_strings() -> None:
    rng = np.random.default_rng(0)
    strings = ["".join(rng.choice(list("ab"), 20)) for _ in range(40)]
    numbers = np.array([substrings("ab", one, 2) for one in strings])
    for features in (SpectrumFeatures(2, sparse_output=False), SubsequenceFeatures(2, 0.1)):
        pipeline = make_pipeline(features, GPRegressor("linear", noise="gaussian", target_transform="none"))
        assert pipeline.fit(strings[:30], numbers[:30]).score(strings[30:], numbers[30:]) > 0.8
