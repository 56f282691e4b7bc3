"""Progress is heard by whoever listens, and written at most every ten seconds."""

from __future__ import annotations

import io
import threading

import numpy as np
import pytest

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier
from sureshot.progress import ProgressLines, duration, report, reported_to, stage, tracked, within


def test_nobody_listens_by_default() -> None:
    report("nothing", 0.5)
    with stage(0, 0.5):
        assert list(tracked([1, 2], "nothing", 2)) == [1, 2]


def test_stages_are_parts_of_the_whole() -> None:
    heard: list[tuple[str, float]] = []
    with reported_to(lambda what, fraction: heard.append((what, fraction))):
        with stage(0.0, 0.5):
            assert list(tracked("ab", "first", 2)) == ["a", "b"]
        with stage(0.5, 1.0), stage(0.5, 1.0):
            report("second", 0.5)
        with reported_to(None):
            report("unheard", 1.0)
    report("late", 1.0)
    assert heard == [("first", 0.25), ("first", 0.5), ("second", 0.875)]


def test_a_listener_hears_its_own_thread_only() -> None:
    heard: list[str] = []
    with reported_to(lambda what, fraction: heard.append(what)):
        other = threading.Thread(target=report, args=("elsewhere", 0.5))
        other.start()
        other.join()
        report("here", 0.5)
    assert heard == ["here"]


def test_lines_come_at_most_every_ten_seconds_with_the_time_left() -> None:
    now, stream = [0.0], io.StringIO()
    lines = ProgressLines("fitting", stream, clock=lambda: now[0])
    for seconds, fraction in ((1, 0.1), (9, 0.2), (20, 0.25), (25, 0.3), (31, 0.5), (600, 1.0)):
        now[0] = seconds
        lines("comparing\n  settings", fraction)
    assert stream.getvalue().splitlines() == [
        "fitting: comparing settings, 25% done, about 60 s left",
        "fitting: comparing settings, 50% done, about 31 s left",
    ]
    now[0] = 700
    lines("", 0.0)
    assert stream.getvalue().splitlines()[-1] == "fitting: 0% done"
    now[0] = 711
    lines("", 0.001)  # of ten seconds: no reason to speak of hours
    assert stream.getvalue().splitlines()[-1] == "fitting: 0% done"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (130, "2 min"), (5940, "99 min"), (12000, "3 h 20 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    "model",
    [GPClassifier(), GPClassifier(n_jobs=2), KernelSearchClassifier(n_particles=4, n_rejuvenation=1)],
    ids=["average", "threads", "search"],
)
def test_long_fits_report_and_never_go_back(model: GPClassifier) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    heard: list[float] = []
    with reported_to(lambda what, fraction: heard.append(fraction)):
        model.fit(x, (x[:, 0] > 0).astype(int))
    assert heard == sorted(heard)
    assert len(heard) > 2
    assert heard[-1] == pytest.approx(1.0)


@pytest.mark.parametrize("kind", [GPClassifier, FewShotClassifier, TreeGPClassifier, KernelSearchClassifier])
def test_verbose_fits_write_lines(
    kind: type[GPClassifier], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.random.default_rng(0).normal(size=(24, 3))
    y = (x[:, 0] > 0).astype(int)
    few = {"n_particles": 3, "n_rejuvenation": 1} if kind is KernelSearchClassifier else {}
    quiet = kind(**few).fit(x, y)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(ProgressLines.__init__, "__defaults__", (0.0, ProgressLines.__init__.__defaults__[1]))  # type: ignore[index]
    loud = kind(verbose=True, **few).fit(x, y)
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith(f"{kind.__name__}: ") and "% done" in line for line in lines)
    assert bool(lines) == (kind is not TreeGPClassifier)
    np.testing.assert_array_equal(loud.predict_proba(x), quiet.predict_proba(x))


def test_a_part_tells_the_whole_how_far_it_is() -> None:
    heard: list[tuple[str, float]] = []
    with reported_to(within(lambda what, fraction: heard.append((what, fraction)), "second half", 0.5, 0.5)):
        report("first step", 0.5)
    assert heard == [("second half: first step", 0.75)]
