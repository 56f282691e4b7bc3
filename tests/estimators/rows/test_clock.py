"""When rows came, and what each is predicted from."""

import numpy as np
import pandas as pd
import pytest
import torch

from sureshot.estimators import GPClassifier
from sureshot.estimators.rows.clock import Clock, Past, check_window

TIMES = np.array([30.0, 10.0, 20.0, 20.0, 50.0, 40.0])


def test_rows_see_those_that_came_before_them() -> None:
    past = Past.of(TIMES, np.zeros(6), batch=1, column=0, counted=False)
    assert past.order.tolist() == [3, 0, 1, 2, 5, 4]
    assert past.seen.tolist() == [3, 0, 1, 1, 5, 4]  # of two at the same time none sees the other
    hidden = past.hides(torch.tensor([0, 2]), torch.arange(6).expand(2, 6))
    assert hidden.tolist() == [[True, False, False, False, True, True], [True, False, True, True, True, True]]


def test_rows_of_a_batch_do_not_see_each_other() -> None:
    lots = np.array([0.0, 0.9, 0.5, 0.0, 0.9, 0.4])
    past = Past.of(TIMES, lots, batch=4, column=0, counted=False)
    assert past.seen.tolist() == [3, 0, 0, 1, 2, 3]  # the last lacks the three, two and one before it


def test_while_batches_are_unknown_some_rows_lack_a_tenth_of_all() -> None:
    n, lots = 1000, np.linspace(0, 1, 1000, endpoint=False)
    past = Past.of(np.arange(n, dtype=np.float64), lots, batch=0, column=0, counted=False)
    gaps = np.arange(n) - past.seen.numpy()
    assert gaps[-1] == 99
    assert (np.diff(gaps) >= 0).all()
    assert 9 <= np.median(gaps[100:]) <= 10.0 ** (2 * 0.55)


def test_rows_that_are_counted_are_asked_about_at_the_time_of_the_last_before_them() -> None:
    x = torch.tensor([[1.0, 0.0], [2.0, 1.0], [3.0, 2.0]])
    past = Past.of(x[:, 1].numpy(), np.zeros(3), batch=1, column=1, counted=True)
    assert past.asked(x, torch.tensor([2, 0])).tolist() == [[3.0, 1.0], [1.0, 0.0]]  # the first knows none
    assert x[2, 1] == 2


def test_a_clock_counts_rows_and_calls() -> None:
    clock = Clock(place=1, counted=True).after(100).after(10).after(20)
    assert (clock.came, clock.batch) == (130, 15)
    rows = np.zeros((2, 1))
    assert clock.numbered(rows, learnt=True)[:, 1].tolist() == [130, 131]
    assert clock.numbered(rows, learnt=False)[:, 1].tolist() == [129, 129]
    assert Clock(place=1, counted=True).after(100).batch == 0


FRAME = pd.DataFrame(
    {"a": np.arange(8.0), "kind": list("uvuvuvuv"), "when": pd.date_range("2024-01-01", periods=8, freq="D")}
)
LABELS = [0, 1] * 4


@pytest.mark.parametrize(
    ("time", "text"),
    [
        ("whem", r"did you mean 'when'\?"),
        ("kind", "holds neither numbers nor dates"),
        (7, "time must be 'arrival', or a column of X"),
        (True, "time must be 'arrival'"),
    ],
)
def test_what_tells_no_time(time: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        GPClassifier(time=time).fit(FRAME, LABELS)  # type: ignore[arg-type]


def test_rows_without_a_time() -> None:
    frame = FRAME.copy()
    frame.loc[3, "when"] = pd.NaT
    with pytest.raises(ValueError, match=r"1 of 8 rows have no time \(column 'when'\), the first is row 3"):
        GPClassifier(time="when").fit(frame, LABELS)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"window": 5}, "window=5 goes with a time"),
        ({"time": "arrival", "window": -1}, "window must be a positive number"),
        ({"time": "arrival", "window": "week"}, "window must be a positive number"),
        ({"time": "arrival", "kernel": "linear"}, "time='arrival' goes with kernel 'auto'"),
        ({"time": "a", "approximation": "inducing"}, "time='a' goes with approximation"),
        ({"time": "arrival", "kernel": "precomputed"}, "does not go with kernel='precomputed'"),
    ],
)
def test_what_goes_with_no_time(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        GPClassifier(**arguments).fit(FRAME[["a"]], LABELS)  # type: ignore[arg-type]


def test_windows_are_numbers() -> None:
    assert check_window(np.int64(3), "arrival") == 3.0
