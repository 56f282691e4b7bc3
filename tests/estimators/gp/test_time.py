"""A classifier that knows when rows came: the past is all that predicts, old rows go, and drift is noticed."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sureshot.estimators import GPClassifier
from sureshot.estimators.gp.local_member import LocalMember
from sureshot.estimators.gp.tuning import local_learning

N = 300


def drifting(n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """The column says the label, and half of the time the contrary, in turns of fifty rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 2))
    return x, ((x[:, 0] > 0) ^ (np.arange(n) // 50 % 2 == 1)).astype(int)


X, Y = drifting()


@pytest.fixture(scope="module", autouse=True)
def few_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_learning, "STEPS", 40)
        yield


@pytest.fixture(scope="module")
def model() -> GPClassifier:
    return GPClassifier(time="arrival").fit(X[:200], Y[:200])


def prequential(model: GPClassifier, batch: int = 10) -> float:
    """Mean log loss of the rest of the stream, each batch before it is learnt."""
    losses: list[float] = []
    for start in range(200, N, batch):
        part = slice(start, start + batch)
        p = model.predict_proba(X[part])
        losses.extend(-np.log(p[np.arange(len(p)), Y[part]]))
        model.partial_fit(X[part], Y[part])
    return float(np.mean(losses))


@pytest.mark.filterwarnings("ignore:the latest")
def test_what_drifts_is_predicted_where_time_is_known(model: GPClassifier) -> None:
    timed, untimed = (prequential(GPClassifier(time=time).fit(X[:200], Y[:200])) for time in ("arrival", None))
    assert timed < 0.6 < 0.69 < untimed


def test_left_out_rows_are_predicted_by_their_past(model: GPClassifier) -> None:
    """By the regression's formula on the rows that each may see: neighbours are all, as they are few."""
    member = next(one for one in model._fitted.members if isinstance(one, LocalMember))
    assert member.plan.local is not None
    rows = model._fitted.weighted
    some = rows.x[:, -1].argsort()[:64]  # the first to come
    early = type(rows)(rows.x[some], rows.y[some], rows.weight[some])
    member = LocalMember.of(member.plan, early, 2)
    past, near = member.process.past(early), member.process.neighbours
    assert past is not None
    found = member.probabilities_left_out(early, torch.arange(64)).numpy()
    x, leaf = near.rows.x.double(), near.kernel
    gram = leaf(x).numpy() if callable(leaf) else None
    assert gram is not None
    frequency = member.link.frequency.numpy()
    targets = np.eye(2)[early.y] - frequency
    for k in (3, 20, 63):
        seen = np.flatnonzero(past.order.numpy() < int(past.seen[k]))
        query = past.asked(near.rows.x, torch.tensor([k])).double()
        cross = leaf(query, x).numpy()[0, seen]
        solved = np.linalg.solve(gram[np.ix_(seen, seen)] + np.diag(near.noise.numpy()[seen]), cross)
        mean, variance = solved @ targets[seen], 1 - solved @ cross
        local = member.plan.local
        logits = np.log(frequency) + local.gain * mean / np.sqrt(1 + local.doubt * variance)
        assert np.allclose(found[k], np.exp(logits) / np.exp(logits).sum(), atol=1e-5)


def test_queries_come_now_whatever_stands_beside_them(model: GPClassifier) -> None:
    together = model.predict_proba(X[200:230])
    assert np.allclose(together[7], model.predict_proba(X[207:208])[0], rtol=0, atol=1e-12)
    assert np.allclose(model.predict_proba(X[200:230][::-1])[::-1], together, rtol=0, atol=1e-12)


def test_users_know_their_own_columns_only(model: GPClassifier) -> None:
    assert model.n_features_in_ == 2
    assert model.feature_relevance_.shape == (2,)
    assert model.novelty_p_value(X[200:205]).min() > 0.01  # new rows are not unlike all others for being new
    assert model.influence(X[200:201]).proponents.falls.shape == (1, 5)
    assert set(model.suggest(X[195:205], 10).rows) == {5, 6, 7, 8, 9}  # the others are labelled


def test_a_file_goes_on_as_the_model_does(model: GPClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    found = GPClassifier.load(tmp_path / "model")
    known = GPClassifier(time="arrival").fit(X[:200], Y[:200])
    for one in (found, known):
        one.partial_fit(X[200:220], Y[200:220])
    assert np.array_equal(found.predict_proba(X), known.predict_proba(X))
    assert found._fitted.reader.clock == known._fitted.reader.clock
    assert (found._fitted.reader.clock.came, found._fitted.reader.clock.batch) == (220, 20)


@pytest.mark.filterwarnings("ignore:the latest")
def test_old_rows_go() -> None:
    model = GPClassifier(time="arrival", window=60).fit(X[:100], Y[:100])
    assert model.class_count_.sum() == 60
    for start in range(100, 150, 25):
        model.partial_fit(X[start : start + 25], Y[start : start + 25])
    assert sorted(model._fitted.rows.x[:, -1]) == list(range(90, 150))
    model.partial_fit(X[150:210], np.full(60, 2))
    assert model.class_count_.tolist() == [0, 0, 60]
    assert model.predict_proba(X[:1])[0, 2] > 0.8


def test_a_corrected_row_keeps_its_time() -> None:
    ids = np.arange(40)
    model = GPClassifier(time="arrival").fit(X[:40], Y[:40], row_id=ids)
    model.partial_fit(np.vstack([X[5], X[40]]), [1 - Y[5], Y[40]], row_id=[5, 40])
    times = {tuple(row[:2]): row[2] for row in model._fitted.rows.x}
    assert times[tuple(X[5])] == 5
    assert times[tuple(X[40])] == 41


def test_time_is_a_column_of_dates() -> None:
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(
        when=pd.date_range("2024-01-01", periods=N, freq="D"), kind=np.where(Y, "u", "v")
    )
    shuffled = frame[:200].sample(frac=1, random_state=0)
    model = GPClassifier(time="when", window=120).fit(shuffled, Y[shuffled.index])
    assert model.class_count_.sum() == 120
    late, early = model.partial_fit(frame[200:250], Y[200:250]), frame[60:90]
    assert late.class_count_.sum() == 120
    late.partial_fit(early, Y[60:90])  # time that runs backwards: too old to stay
    assert late.class_count_.sum() == 120
    assert set(model.feature_relevance_.nonzero()[0]) == {0, 1, 2, 3}


@pytest.fixture
def drift() -> Iterator[tuple[GPClassifier, np.ndarray, np.ndarray]]:
    """A model of rows whose label is the sign of a column, and rows with the contrary, of which another has moved."""
    x = np.random.default_rng(1).normal(size=(260, 2))
    y = np.where(x[:, 0] > 0, "up", "down")
    model = GPClassifier(time="arrival").fit(pd.DataFrame(x[:200], columns=["load", "heat"]), y[:200])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield model, x[200:] + [0, 3], np.where(y[200:] == "up", "down", "up")


def test_drift_is_said_once_with_what_has_changed(drift: Any) -> None:
    model, x, y = drift
    frame = pd.DataFrame(x, columns=["load", "heat"])
    text = r"the latest 40 labels cost .* nats each, where .* were promised.*columns that have moved: heat \(\+"
    with pytest.warns(UserWarning, match=text):
        model.partial_fit(frame[:40], y[:40])
    model.partial_fit(frame[40:], y[40:])
    before = model._fitted.chosen_by
    model.partial_fit(frame[:1], y[:1], retune="auto")
    assert model._fitted.chosen_by == (261, 2) != before
    assert not model._fitted.followed.told


def test_without_a_time_rows_are_followed_on_request(drift: Any) -> None:
    timed, x, y = drift
    model = GPClassifier().fit(timed._fitted.rows.x[:, :2], timed.classes_[timed._fitted.rows.y])
    model.partial_fit(x[:1], y[:1])
    assert model._fitted.chosen_by == (200, 2)
    model.partial_fit(x[1:41], y[1:41], retune="auto")
    assert model._fitted.chosen_by == (241, 2)
    with pytest.raises(ValueError, match="retune must be one of True, False, 'auto'"):
        model.partial_fit(x, y, retune="yes")


@pytest.mark.parametrize("arguments", [{"time": "arrival"}, {"approximation": "nearest_neighbours"}])
def test_a_stream_may_begin_with_one_row(arguments: dict[str, Any]) -> None:
    model = GPClassifier(**arguments).partial_fit(X[:1], Y[:1])
    assert model.predict_proba(X[:2]).tolist() == [[1.0], [1.0]]
    model.partial_fit(X[1:40], Y[1:40], retune="auto")  # many times as many
    assert model._fitted.chosen_by == (40, 2)
    assert model.predict_proba(X[40:50]).shape == (10, 2)
