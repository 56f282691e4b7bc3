"""Rows of unit length: compared by angles, by a kernel that is linear in them and one that bends."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.preprocessing import normalize
from torch import Tensor

from sureshot import GPClassifier
from sureshot.data.clinc150 import load_clinc150
from sureshot.data.root import data_root
from sureshot.estimators.gp.options import BY_COLUMNS, ONE_SHOT_TEMPERATURE, USUAL_DIRECTIONS, independent_columns
from sureshot.kernels import Cosine, Expression, UnitSphere

GROUPS = np.array([0, 1, 0, 1, 1, 0, 1, 0])


def topics(n: int, seed: int, width: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Rows of unit length about one of eight directions, which all pairs of two axes make, and the number of it."""
    directions = np.zeros((8, width))
    directions[:, :3] = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, 8).T
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 8, n)
    return normalize(directions[y] + 0.25 * generator.normal(size=(n, width))), y


def nll(model: GPClassifier, x: np.ndarray, y: np.ndarray) -> float:
    return float(-np.log(model.predict_proba(x)[np.arange(len(y)), y]).mean())


def test_groups_of_topics_need_a_kernel_that_bends() -> None:
    """Opposite corners of a cube in one class: nothing linear tells them apart."""
    (x, y), (test_x, test_y) = topics(200, 0), topics(2000, 1)
    parity = GROUPS[y]
    model, linear = GPClassifier().fit(x, parity), GPClassifier(kernel="cosine").fit(x, parity)
    assert "UnitSphere" in str(model.kernel_)
    assert nll(model, test_x, GROUPS[test_y]) < nll(linear, test_x, GROUPS[test_y]) / 2
    assert model.members_[0].weight > 0.8


def test_topics_do_not() -> None:
    """Each with a direction of its own."""
    generator = np.random.default_rng(2)
    y = generator.integers(0, 8, 200)
    x = normalize(np.eye(16)[y] + 0.25 * generator.normal(size=(200, 16)))
    assert "Cosine" in str(GPClassifier(ensemble=False).fit(x, y).kernel_)


def test_few_rows_are_learnt_by_both_kinds() -> None:
    x, y = topics(24, 0)
    model = GPClassifier().fit(x, GROUPS[y])
    assert sorted("Cosine" in str(member.kernel) for member in model.members_) == [False, True]
    assert min(member.weight for member in model.members_) > 0.1


def test_one_row_of_each_class_makes_less_sure_the_fewer_directions_are_independent() -> None:
    """Of two rows of each class the labels say how sure to be; two rows in all have a single distance."""
    generator = np.random.default_rng(0)
    x = normalize(generator.normal(size=(220, 20)) @ generator.normal(size=(20, 400)))
    y = np.arange(20)
    model = GPClassifier().fit(x[:20], y)
    factor = ONE_SHOT_TEMPERATURE["cosine"]
    expected = (
        factor * (independent_columns(torch.from_numpy(x[:20]), torch.from_numpy(y)) / USUAL_DIRECTIONS) ** BY_COLUMNS
    )
    assert model.temperature_ == pytest.approx(expected, rel=1e-6)
    assert expected > 2 * factor
    assert nll(model, x[20:], generator.integers(0, 20, 200)) < 1.5 * math.log(20)  # 2.1 times as much at the factor
    assert GPClassifier().fit(x[:2], y[:2]).temperature_ == pytest.approx(factor)


def test_many_rows_are_learnt_by_one_setting() -> None:
    """A kernel that bends has as many features as there are rows."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 1001)
    x = normalize(np.eye(8)[y] + 0.25 * generator.normal(size=(1001, 8)))
    model = GPClassifier().fit(x, y)
    assert len(model.members_) == 1
    assert "Cosine" in str(model.kernel_)


def _centres(kernel: Expression) -> Iterator[Tensor]:
    if isinstance(kernel, Cosine | UnitSphere) and kernel.center is not None:
        yield kernel.center
    for _, part in kernel._parts():
        yield from _centres(part)


def test_classes_that_come_later_are_told_apart_as_well() -> None:
    """Two classes first, in a plane of their own, whose centre is not that of all."""
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 4)
    x = normalize(np.eye(24)[y] + 0.15 * generator.normal(size=(32, 24)))
    parts, whole = GPClassifier().fit(x[:8], y[:8]).partial_fit(x[8:], y[8:]), GPClassifier().fit(x, y)
    assert (parts.predict(np.eye(24)[:8]) == np.arange(8)).all()
    assert nll(parts, x, y) < 2 * nll(whole, x, y) + 0.02
    for member in parts._fitted.members:
        centres = list(_centres(member.plan.kernel))
        assert centres
        for centre in centres:
            np.testing.assert_allclose(centre.numpy(), x.mean(0), atol=1e-9)


@pytest.mark.real_data
def test_messages_are_told_as_well_as_by_one_kernel() -> None:
    """Junk and others, twenty labels each, where directions of all rows' variance say nothing of the two."""
    file = data_root(None, "embeddings/sms_spam.npz") / "embeddings/sms_spam.npz"
    with np.load(file) as arrays:
        x, y, split = normalize(arrays["embedding"].astype(float)), arrays["label"].astype(int), arrays["split"]
    losses = np.zeros(2)
    for seed in range(3):
        generator = np.random.default_rng(seed)
        rows = np.concatenate(
            [generator.choice(np.flatnonzero((y == c) & (split == 0)), 20, replace=False) for c in (0, 1)]
        )
        for place, kernel in enumerate(("auto", "cosine")):
            losses[place] += nll(GPClassifier(kernel=kernel).fit(x[rows], y[rows]), x[split == 1], y[split == 1])
    assert losses[0] < 1.02 * losses[1]


def test_sparse_rows_are_compared_by_products() -> None:
    x, y = topics(200, 0)
    sparse, dense = scipy.sparse.csr_array(x), GPClassifier(kernel="cosine").fit(x, GROUPS[y])
    model = GPClassifier().fit(sparse, GROUPS[y])
    np.testing.assert_allclose(model.predict_proba(sparse[:20]), dense.predict_proba(x[:20]), atol=1e-6)


@pytest.mark.parametrize("objective", [None, "evidence"])
def test_other_objectives_keep_to_angles(objective: str | None) -> None:
    x, y = topics(200, 0)
    assert "Cosine" in str(GPClassifier(objective=objective).fit(x, GROUPS[y]).kernel_)


@pytest.mark.real_data
def test_intents_and_groups_of_them() -> None:
    """Forty intents as ten classes, twenty rows of each."""
    clinc = load_clinc150()
    generator = np.random.default_rng(0)
    chosen = generator.permutation(150)[:40]
    rows = np.concatenate([generator.choice(np.flatnonzero(clinc.y_train == c), 5, replace=False) for c in chosen])
    test = np.isin(clinc.y_val, chosen)
    place = np.full(150, -1)
    place[chosen] = np.arange(40)
    x, intents, test_x, test_intents = (
        clinc.x_train[rows],
        place[clinc.y_train[rows]],
        clinc.x_val[test],
        place[clinc.y_val[test]],
    )
    assert "Cosine" in str(GPClassifier(ensemble=False).fit(x, intents).kernel_)
    model, linear = (GPClassifier(kernel=kernel).fit(x, intents % 10) for kernel in ("auto", "cosine"))
    assert "UnitSphere" in str(model.kernel_)
    assert nll(model, test_x, test_intents % 10) < nll(linear, test_x, test_intents % 10)


def intents(n_intents: int, shots: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Labelled rows of intents that a generator of that seed draws, and all validation queries of these."""
    clinc, generator = load_clinc150(), np.random.default_rng(seed)
    chosen = np.sort(generator.choice(150, n_intents, replace=False))
    rows = np.concatenate([generator.choice(np.flatnonzero(clinc.y_train == c), shots, replace=False) for c in chosen])
    asked = np.isin(clinc.y_val, chosen)
    y, test_y = (np.searchsorted(chosen, part) for part in (clinc.y_train[rows], clinc.y_val[asked]))
    return clinc.x_train[rows], y, clinc.x_val[asked], test_y


@pytest.mark.real_data
@pytest.mark.parametrize(("n_intents", "seed"), [(40, 20), (90, 27)])
def test_least_squares_is_not_chosen_by_some_of_the_intents(n_intents: int, seed: int) -> None:
    """By thirty intents with two labels it is ahead by more than two standard errors here, by all it is far behind."""
    model = GPClassifier().fit(*intents(n_intents, 2, seed)[:2])
    assert model.members_[0].likelihood == "softmax"


@pytest.mark.real_data
def test_least_squares_by_as_many_rows_as_columns() -> None:
    """What sixty rows say of its noise, which they can do without, is too little by far (2.7 nats)."""
    x, y, test_x, test_y = intents(150, 2, 7)
    assert nll(GPClassifier(likelihood="least_squares").fit(x, y), test_x, test_y) < 1.5


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("n_intents", "shots", "seeds"),
    [pytest.param(40, 2, range(24), marks=pytest.mark.slow), (30, 20, (109,)), (10, 50, (100,))],
)
def test_right_labels_do_not_look_random(n_intents: int, shots: int, seeds: Sequence[int]) -> None:
    shares = [GPClassifier().fit(*intents(n_intents, shots, seed)[:2]).label_noise_ for seed in seeds]
    assert np.mean(shares) < 0.01


@pytest.mark.real_data
def test_wrong_labels_do() -> None:
    x, y, _, _ = intents(30, 20, 0)
    generator = np.random.default_rng(0)
    wrong = generator.random(len(y)) < 0.05
    y[wrong] = generator.integers(0, 30, wrong.sum())
    assert 0.02 < GPClassifier().fit(x, y).label_noise_ < 0.1
