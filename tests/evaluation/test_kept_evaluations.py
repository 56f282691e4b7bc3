"""An interrupted comparison in sessions goes on where it was; other settings and other rows are run anew."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sureshot.evaluation.kept_evaluations import KeptEvaluations
from sureshot.evaluation.methods import make_method
from sureshot.evaluation.session_config import MethodConfig, RunConfig, SessionDataConfig, SessionsConfig
from sureshot.evaluation.session_study import run_study
from sureshot.evaluation.sessions import evaluate_sessions
from sureshot.incremental.baselines.discriminant_analysis import StreamingDiscriminantAnalysis
from sureshot.incremental.session_data import load_sessions
from sureshot.networks.checkpoint import BEST_NAME

DATA = SessionDataConfig("digits", {"base_shots": 10, "shots": 3})
MEAN, LDA = MethodConfig("nearest_class_mean"), MethodConfig("streaming_lda", options={"shrinkage": 0.3})
CONFIG = SessionsConfig(DATA, (MEAN, LDA), RunConfig((0, 1)))


class Killed(BaseException):
    """The process ends."""


def test_a_killed_comparison_goes_on(tmp_path: Path) -> None:
    def killed(what: str, fraction: float) -> None:
        if what.startswith("seed 1, streaming_lda: session 2"):
            raise Killed

    with pytest.raises(Killed):
        run_study(CONFIG, progress=killed, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    told: list[str] = []
    study = run_study(CONFIG, progress=lambda what, _: told.append(what), folder=tmp_path)
    assert {what.split(":")[0] for what in told} == {"seed 1, streaming_lda"}
    whole = run_study(CONFIG)
    seconds = ["learn_seconds", "predict_seconds"]
    assert study.by_session().drop(columns=seconds).equals(whole.by_session().drop(columns=seconds))
    assert study.matrix().equals(whole.matrix())
    told.clear()
    again = run_study(CONFIG, progress=lambda what, _: told.append(what), folder=tmp_path)
    assert not told
    assert again.by_session().equals(study.by_session())


def test_other_settings_and_other_rows_are_run_anew(tmp_path: Path) -> None:
    sessions, kept = load_sessions("digits", seed=0, **DATA.options), KeptEvaluations(tmp_path / "runs")
    found = evaluate_sessions(make_method("streaming_lda", 0, shrinkage=0.3), sessions)
    kept.keep(sessions, LDA, 0, found)
    again = kept.find(sessions, LDA, 0)
    assert again is not None
    assert again.as_dict() == found.as_dict()
    assert kept.find(sessions, replace(LDA, label="another name"), 0) is not None
    assert kept.find(sessions, replace(LDA, options={"shrinkage": 0.4}), 0) is None
    assert kept.find(sessions, MEAN, 0) is None
    assert kept.find(sessions, LDA, 1) is None
    sessions.test.x[3, 3] += 1
    assert kept.find(sessions, LDA, 0) is None
    sessions.test.x[3, 3] -= 1
    assert kept.find(sessions, LDA, 0) is not None
    assert KeptEvaluations(None).find(sessions, LDA, 0) is None


def test_another_network_in_the_same_place_is_run_anew(tmp_path: Path) -> None:
    sessions, kept = load_sessions("digits", seed=0, **DATA.options), KeptEvaluations(tmp_path / "runs")
    found = evaluate_sessions(make_method("streaming_lda", 0), sessions)
    (tmp_path / "run").mkdir()
    for place in (tmp_path / "network", tmp_path / "run" / BEST_NAME):
        method = MethodConfig("icarl", options={"checkpoint": str(tmp_path / place.relative_to(tmp_path).parts[0])})
        place.write_bytes(b"one")
        kept.keep(sessions, method, 0, found)
        assert kept.find(sessions, method, 0) is not None
        place.write_bytes(b"another")
        assert kept.find(sessions, method, 0) is None


def test_a_method_that_fails_numerically_loses_nobody_elses_results(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise torch.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr(StreamingDiscriminantAnalysis, "_factor", failing)
    study = run_study(CONFIG)
    assert list(study.failures) == ["streaming_lda"]
    assert len(study.by_session())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"settings": {}, "evaluation": {}}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    sessions, kept = load_sessions("digits", seed=0, **DATA.options), KeptEvaluations(tmp_path)
    kept.keep(sessions, MEAN, 0, evaluate_sessions(make_method("nearest_class_mean", 0), sessions))
    (path,) = tmp_path.iterdir()
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"json is damaged .*: delete it to run nearest_class_mean again"):
        kept.find(sessions, MEAN, 0)
    del record["evaluation"]["sessions"][0]["ece"]
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ValueError, match="is damaged"):
        kept.find(sessions, MEAN, 0)
