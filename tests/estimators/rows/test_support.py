"""What is left out of a row that is there more than once, when settings are chosen."""

from __future__ import annotations

import numpy as np
import pytest

from sureshot import FewShotClassifier, GPClassifier
from sureshot.estimators.classes.class_weights import weigh_classes
from sureshot.estimators.rows.labelled_rows import LabelledRows

X = np.array([[0.0], [0.0], [1.0], [2.0], [2.0]])
ROWS = LabelledRows(X, np.array([0, 1, 0, 0, 1]), np.array([4.0, 1.0, 5.0, 0.5, 2.0]))


def table_of_few_values(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Four places, and a coin for each."""
    generator = np.random.default_rng(seed)
    x = generator.integers(0, 2, (n, 2)).astype(float)
    heads = np.array([0.1, 0.35, 0.6, 0.9])[(x @ [1, 2]).astype(int)]
    return x, (generator.random(n) < heads).astype(int)


def nll(model: GPClassifier | FewShotClassifier, x: np.ndarray, y: np.ndarray) -> float:
    return float(-np.log(model.predict_proba(x)[np.arange(len(y)), y]).mean())


def test_one_copy_is_left_out_where_labels_contradict_each_other() -> None:
    np.testing.assert_array_equal(ROWS.left_out_shares, [1 / 4, 1, 1, 1, 1 / 2])


def test_weights_of_classes_are_no_copies() -> None:
    weighed = weigh_classes(ROWS, {0: 10.0, 1: 0.1}, np.arange(2), "auto")
    np.testing.assert_array_equal(weighed.left_out_shares, ROWS.left_out_shares)
    half = weigh_classes(ROWS, {0: 0.0, 1: 3.0}, np.arange(2), "auto")
    np.testing.assert_array_equal(half.left_out_shares, [1, 1])


@pytest.mark.parametrize("options", [{}, {"ensemble": False}, {"likelihood": "least_squares"}])
def test_a_table_of_few_values_is_predicted_by_its_frequencies(options: dict[str, object]) -> None:
    x, y = table_of_few_values(400, 0)
    test_x, test_y = table_of_few_values(20_000, 1)
    place = (x @ [1, 2]).astype(int)
    shares = (np.bincount(place, y) + 1) / (np.bincount(place) + 2)
    p = shares[(test_x @ [1, 2]).astype(int)]
    by_frequencies = float(-np.log(np.where(test_y == 1, p, 1 - p)).mean())
    assert nll(GPClassifier(**options).fit(x, y), test_x, test_y) < by_frequencies + 0.01


def test_few_shots_of_few_values() -> None:
    x, y = table_of_few_values(400, 0)
    test_x, test_y = table_of_few_values(20_000, 1)
    assert (
        nll(FewShotClassifier().fit(x, y), test_x, test_y) < 0.56
    )  # .49 by the coins themselves, .69 where nothing is told


@pytest.mark.parametrize("weighted", [False, True])
def test_copies_of_all_rows_make_no_model_surer_that_it_knows_them(weighted: bool) -> None:
    """As rows that were drawn again, or weights whose mean is not 1."""
    generator = np.random.default_rng(0)
    x, test_x = generator.normal(size=(60, 2)), generator.normal(size=(4000, 2))
    y, test_y = ((part[:, 0] + generator.normal(size=len(part)) > 0).astype(int) for part in (x, test_x))
    once = GPClassifier(kernel="rbf").fit(x, y)
    often = GPClassifier(kernel="rbf")
    if weighted:
        often.fit(x, y, np.full(60, 5.0))
    else:
        often.fit(np.repeat(x, 5, 0), np.repeat(y, 5))
    assert nll(often, test_x, test_y) < nll(once, test_x, test_y) + 0.05
