"""Members that see nearest rows, beside others and alone, as users meet them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from sureshot import GPClassifier
from sureshot.estimators.gp import fitting, judged
from sureshot.estimators.gp.leaving import features_of
from sureshot.estimators.gp.local_member import LocalMember
from sureshot.estimators.gp.tuning import local_learning
from sureshot.estimators.rows.labelled_rows import merge_rows, sample_of


def chequered(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes in a plane of small fields, a column that says nothing, and one label in twenty drawn at random."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-3, 3, (n, 2)), rng.normal(size=n)])
    y = (np.floor(X[:, 0]) + 2 * np.floor(X[:, 1])).astype(int) % 3
    return X, np.where(rng.uniform(size=n) < 0.05, rng.integers(0, 3, n), y)


X, Y = chequered(700, 0)
TEST_X, TEST_Y = chequered(300, 1)
SEEN = 20 * 17 / 700  # of the rows, by global members of `average`


@pytest.fixture(scope="module")
def fitted() -> GPClassifier:
    return GPClassifier("matern32", approximation="nearest_neighbours", n_neighbours=25).fit(X, Y)


@pytest.fixture
def model(fitted: GPClassifier) -> GPClassifier:
    copy = GPClassifier("matern32", approximation="nearest_neighbours", n_neighbours=25)
    copy._fitted = fitted._fitted
    return copy


def nll(model: GPClassifier) -> float:
    return -float(np.log(model.predict_proba(TEST_X)[np.arange(len(TEST_Y)), TEST_Y]).mean())


def test_one_kernel_alone_finds_the_fields_and_the_columns_that_make_them(model: GPClassifier) -> None:
    assert [member.n_neighbours for member in model.members_] == [25]
    assert model.likelihood_ == "least_squares"
    assert nll(model) < 0.6
    assert model.feature_relevance_[:2].min() > 3 * model.feature_relevance_[2]
    assert model.leave_one_out_nll_ == pytest.approx(nll(model), abs=0.1)


def test_left_out_rows_are_asked_as_by_a_model_without_them(model: GPClassifier) -> None:
    left_out = model._fitted.probabilities_left_out()
    rows = model._fitted.rows
    for place in (0, 123, 500):
        others = np.arange(len(rows.y)) != place
        without = LocalMember.of(
            model._fitted.heaviest.plan, type(rows)(rows.x[others], rows.y[others], rows.weight[others]), 3
        )
        moments = without.moments(torch.from_numpy(rows.x[[place]]))
        expected = without.probabilities(*moments, model.temperature_, 3)
        torch.testing.assert_close(left_out[place], expected[0], atol=5e-3, rtol=0)  # frequencies have one row more


def test_an_update_is_a_fit_with_the_same_settings(model: GPClassifier) -> None:
    updated = model.partial_fit(TEST_X[:50], TEST_Y[:50])
    member = LocalMember.of(updated._fitted.heaviest.plan, updated._fitted.rows, 3)
    p = member.probabilities(*member.moments(torch.from_numpy(TEST_X[50:60])), updated.temperature_, 3)
    np.testing.assert_allclose(updated.predict_proba(TEST_X[50:60]), p, atol=1e-12)
    assert torch.equal(updated._fitted.heaviest.process.neighbours.rows.keys, member.process.neighbours.rows.keys)


def test_classes_come_and_go(model: GPClassifier) -> None:
    before = model.predict_proba(TEST_X)
    model.partial_fit(TEST_X[:1] + 20 + 0.01 * TEST_X[:30], [7] * 30)
    assert model.predict(TEST_X[:1] + 20) == [7]
    model.forget([7])
    np.testing.assert_allclose(model.predict_proba(TEST_X), before, atol=0.02)  # the temperature is found anew


def test_influence_is_the_loss_without_a_neighbour(model: GPClassifier) -> None:
    query = TEST_X[:2]
    found = model.influence(query, n=3)
    rows = model._fitted.rows
    plan = model._fitted.heaviest.plan
    for number in range(2):
        strongest = found.proponents.inputs[number, 0]
        others = ~(rows.x == strongest).all(1)
        without = LocalMember.of(plan, type(rows)(rows.x[others], rows.y[others], rows.weight[others]), 3)
        p = without.probabilities(*without.moments(torch.from_numpy(query[[number]])), model.temperature_, 3)
        label = list(model.classes_).index(found.classes[number])
        fall = found.log_probabilities[number] - float(torch.log(p[0, label]))
        assert found.proponents.falls[number, 0] == pytest.approx(fall, abs=0.05)  # there another neighbour comes in
        assert found.proponents.falls[number, 0] > 0
        assert found.proponents.labels[number, 0] == found.classes[number]


def test_all_answers_are_there_and_do_not_hang_on_the_batch(model: GPClassifier) -> None:
    alone = np.concatenate([model.predict_proba(row[None]) for row in TEST_X[:20]])
    np.testing.assert_allclose(alone, model.predict_proba(TEST_X)[:20], atol=1e-10)
    unsure = model.uncertainty(TEST_X[:20])
    assert (unsure.epistemic > -1e-9).all()
    assert (unsure.aleatoric <= unsure.total + 1e-9).all()
    far = model.outlier_score(TEST_X[:20] + 50)
    assert far.min() > np.quantile(model.outlier_score(TEST_X), 0.95)
    latents = model.predict_latent(TEST_X[:20])
    assert latents.mean.shape == latents.variance.shape == (20, 3)
    assert model.predict_set(TEST_X[:20]).members.shape == (20, 3)
    assert len(model.suggest(TEST_X[:20], 3).rows) == 3


def test_files_hold_rows_and_settings(model: GPClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(
        GPClassifier.load(tmp_path / "model").predict_proba(TEST_X), model.predict_proba(TEST_X)
    )
    assert (tmp_path / "model").stat().st_size < 1.2 * X.nbytes + 20_000


def test_copies_and_weights_are_the_same(model: GPClassifier) -> None:
    twice = GPClassifier("matern32", approximation="nearest_neighbours", n_neighbours=25)
    twice._fitted = model._fitted
    weight = np.where(np.arange(40) < 20, 2.0, 1.0)
    model.partial_fit(TEST_X[:40], TEST_Y[:40], sample_weight=weight)
    twice.partial_fit(np.repeat(TEST_X[:40], weight.astype(int), 0), np.repeat(TEST_Y[:40], weight.astype(int)))
    np.testing.assert_allclose(model.predict_proba(TEST_X[40:60]), twice.predict_proba(TEST_X[40:60]), atol=1e-12)


@pytest.mark.slow
def test_rough_tables_of_many_rows_are_averaged_with_local_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside global ones, which are behind where fields are small."""
    monkeypatch.setattr(local_learning, "STEPS", 40)
    x, y = chequered(2500, 2)
    model = GPClassifier().fit(x, y)
    local = [member for member in model._fitted.members if isinstance(member, LocalMember)]
    assert local
    assert sum(member.plan.weight for member in model._fitted.members) == pytest.approx(1)
    assert nll(model) < 0.45
    added = model.partial_fit(TEST_X[:1], TEST_Y[:1])
    assert [one.weight for one in added.members_] == [one.plan.weight for one in model._fitted.members]


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (np.zeros((64, 2)), [0, 1] * 32),
        (np.eye(3), [0, 1, 0]),
        (np.arange(60.0).reshape(30, 2), [0] * 29 + [1]),
        (np.column_stack([np.arange(30.0), 1e300 * (np.arange(30) % 2)]), [0, 1] * 15),
        (np.random.default_rng(0).normal(size=(40, 5000)), [0, 1] * 20),
    ],
    ids=["all rows equal", "fewer rows than neighbours", "a class of one row", "huge cells", "5000 columns"],
)
def test_unusual_tables(rows: np.ndarray, labels: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_learning, "STEPS", 10)
    model = GPClassifier("matern32", approximation="nearest_neighbours").fit(rows, labels)
    p = model.predict_proba(rows)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(1), 1)


@pytest.mark.parametrize("kernel", ["linear", "cosine", "unit_rbf", "interactions_matern32"])
def test_kernels_without_a_length_scale_for_each_column_are_refused(kernel: str) -> None:
    with pytest.raises(ValueError, match=r"nearest_neighbours.*matern32.*laplacian"):
        GPClassifier(kernel, approximation="nearest_neighbours").fit(X[:20], Y[:20])


@pytest.fixture(scope="module")
def average() -> Iterator[GPClassifier]:
    """Global members see half of the rows, local ones all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "EXACT_LIMIT", 200)
        patch.setattr(judged, "LEAST_WEIGHT", 0.0)
        patch.setattr(local_learning, "STEPS", 40)
        yield GPClassifier(n_inducing=17).fit(X, Y)


def test_global_members_of_many_rows_see_a_part_of_them(average: GPClassifier) -> None:
    members, rows = average._fitted.members, average._fitted.rows
    seen = rows.lots < SEEN
    assert 300 < seen.sum() < 400
    assert {type(member).__name__ for member in members} == {"GlobalMember", "LocalMember"}
    for member in average._fitted.globals:
        features = features_of(member.process.posterior)
        assert len(features) == seen.sum()
        p, _ = member.left_out(rows, torch.arange(len(rows.y)), 3, 1.0)
        others = torch.from_numpy(rows.x[~seen])
        torch.testing.assert_close(p[~seen], member.probabilities(*member.moments(others), 1.0, 3))
        part, _ = member.left_out(sample_of(rows, SEEN), torch.arange(len(features)), 3, 1.0)
        torch.testing.assert_close(p[seen], part)


def test_what_is_known_of_a_left_out_row_does_not_hang_on_which_others_are_asked_about(average: GPClassifier) -> None:
    rows = average._fitted.rows
    some = torch.tensor([600, *range(9), 3])
    for member in average._fitted.members:
        of_all = member.left_out(rows, torch.arange(len(rows.y)), 3, 1.0)
        for part, every in zip(member.left_out(rows, some, 3, 1.0), of_all, strict=True):
            torch.testing.assert_close(part, every[some])


def test_rows_that_they_have_not_seen_have_influence_by_local_members_alone(average: GPClassifier) -> None:
    rows, queries = average._fitted.rows, torch.from_numpy(TEST_X[:4])
    places, share = torch.arange(len(rows.y)), torch.ones(len(rows.y), dtype=torch.float64)
    for member in average._fitted.globals:
        without = member.probabilities_without(queries, member.leaving(rows, 3), places, share, 1.0, 3)
        plain = member.probabilities(*member.moments(queries), 1.0, 3)
        unseen = torch.from_numpy(rows.lots >= SEEN)
        torch.testing.assert_close(without[:, unseen], plain[:, None].expand(-1, int(unseen.sum()), -1))
        assert float((without[:, ~unseen] - plain[:, None]).abs().max()) > 1e-4


def test_an_unseen_row_leaves_global_members_as_they_are(average: GPClassifier, tmp_path: Path) -> None:
    average.save(tmp_path / "model")
    model = GPClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict_proba(TEST_X), average.predict_proba(TEST_X))
    lots = merge_rows(TEST_X, TEST_Y, np.ones(len(TEST_Y)))
    unseen, seen = (int(np.flatnonzero(lots.lots >= SEEN if far else lots.lots < SEEN)[0]) for far in (True, False))
    known = model._fitted
    model.partial_fit(lots.x[[unseen]], lots.y[[unseen]])
    assert model._fitted.globals == known.globals
    assert len(model._fitted.rows.y) == len(known.rows.y) + 1
    model.partial_fit(lots.x[[seen]], lots.y[[seen]])
    assert len(features_of(model._fitted.globals[0].process.posterior)) == (known.rows.lots < SEEN).sum() + 1
    model.save(tmp_path / "again")
    np.testing.assert_array_equal(
        GPClassifier.load(tmp_path / "again").predict_proba(TEST_X), model.predict_proba(TEST_X)
    )


def test_an_average_of_both_answers_all_there_is_to_ask(average: GPClassifier) -> None:
    alone = np.concatenate([average.predict_proba(row[None]) for row in TEST_X[:10]])
    np.testing.assert_allclose(alone, average.predict_proba(TEST_X)[:10], atol=1e-9)
    assert average.leave_one_out_nll_ == pytest.approx(nll(average), abs=0.12)
    assert (average.uncertainty(TEST_X[:10]).epistemic > -1e-9).all()
    assert average.novelty_p_value(TEST_X[:10] + 50).max() < 0.05
    assert average.influence(TEST_X[:2]).proponents.falls.shape == (2, 5)
    assert average.predict_latent(TEST_X[:10]).mean.shape == (10, 3)
