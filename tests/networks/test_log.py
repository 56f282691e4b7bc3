"""The log: cut where a run resumes, and what it does without TensorBoard."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from sureshot.networks.log import MetricLog, read_log


def write_three(folder: Path) -> None:
    log = MetricLog(folder, "episodes")
    for episodes in (2, 4, 6):
        log.write("training", episodes, loss=1.0 / episodes)
    log.close()


def test_records_after_the_checkpoint_are_cut_off(tmp_path: Path) -> None:
    write_three(tmp_path)
    log = MetricLog(tmp_path, "episodes", start=4)
    log.write("validation", 8, accuracy=0.5)
    log.close()
    assert [record["episodes"] for record in read_log(tmp_path, "episodes")] == [2, 4, 8]


def test_a_new_run_starts_a_new_log(tmp_path: Path) -> None:
    write_three(tmp_path)
    MetricLog(tmp_path, "episodes").close()
    assert read_log(tmp_path, "episodes") == []


def test_an_unfinished_line_is_left_out_and_a_foreign_one_refused(tmp_path: Path) -> None:
    write_three(tmp_path)
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"kind": "trai')
    assert len(read_log(tmp_path, "episodes")) == 3
    path.write_text("hello\n" + path.read_text())
    with pytest.raises(ValueError, match="line 1 is no record of training"):
        read_log(tmp_path, "episodes")


def test_no_log_is_an_empty_log(tmp_path: Path) -> None:
    assert read_log(tmp_path, "episodes") == []


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    log = MetricLog(tmp_path, "episodes")
    with pytest.raises(ValueError, match="not JSON compliant"):
        log.write("training", 1, loss=float("nan"))
    log.close()


def test_tensorboard_is_asked_for_and_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(ImportError, match=r"python -m pip install 'sureshot\[tensorboard\]'"):
        MetricLog(tmp_path, "episodes", tensorboard=True)
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed")
def test_tensorboard_has_the_numbers(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def shown() -> list[tuple[int, float]]:
        events = EventAccumulator(str(tmp_path / "tensorboard"))
        events.Reload()
        return [(event.step, event.value) for event in events.Scalars("validation/accuracy")]

    log = MetricLog(tmp_path, "episodes", tensorboard=True)
    log.write("validation", 4, accuracy=0.25, best=True)
    log.write("validation", 8, accuracy=0.5, best=True)
    log.close()
    assert shown() == [(4, 0.25), (8, 0.5)]
    resumed = MetricLog(tmp_path, "episodes", start=4, tensorboard=True)
    resumed.write("validation", 8, accuracy=0.75, best=True)
    resumed.close()
    assert shown() == [(4, 0.25), (8, 0.75)]
    anew = MetricLog(tmp_path, "episodes", tensorboard=True)
    anew.write("validation", 6, accuracy=0.125, best=True)
    anew.close()
    assert shown() == [(6, 0.125)]
