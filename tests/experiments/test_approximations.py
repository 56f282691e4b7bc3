"""Approximations by rows: which sizes are run, the exact answers, slopes, and the page, on few rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments import approximations
from experiments.approximation_problems import NOISE, PROBLEMS, SERIES, TABLE, exact_answers
from experiments.approximations import GIVEN, LEARNT, NAMES, ApproximationsConfig
from experiments.approximations_report import by_lecture, outcome_of, slopes_of, verdicts_of
from sureshot.estimators.gp.regressor import APPROXIMATIONS

CAN_MEASURE = pytest.mark.skipif(not os.access("/proc/self/statm", os.R_OK), reason="Linux counts the memory")


def test_names_are_those_of_the_regressor() -> None:
    assert set(APPROXIMATIONS) - set(NAMES) == {"auto", "low_rank"}
    lines = approximations.lines_of(ApproximationsConfig())
    assert {method for _, method, _ in lines} == set(NAMES)
    assert len(set(lines)) == len(lines)
    assert (TABLE, "nearest_neighbours", GIVEN) not in lines
    assert not {method for problem, method, _ in lines if problem == TABLE} & {"toeplitz", "kronecker", "kiss"}


def test_sizes_end_where_seconds_would_be_too_many() -> None:
    line = [
        {"labels": {"rows": n}, "run": {"fit seconds": 0.75 * seconds, "prediction seconds": 0.25 * seconds}}
        for n, seconds in ((500, 1.0), (1000, 0.9), (2000, 3.6))
    ]
    assert approximations.continued([], 500) == 0
    assert approximations.continued(line[:1], 1000) == pytest.approx(2)
    assert approximations.continued(line[:2], 2000) == pytest.approx(1.8)  # a slope of 1 at least
    assert approximations.continued(line, 4000) == pytest.approx(14.4)


@pytest.mark.parametrize("name", PROBLEMS)
def test_functions_are_of_the_process_and_answers_those_of_joint_normals(name: str) -> None:
    problem = PROBLEMS[name]
    drawn = problem.drawn(60)
    rows = np.concatenate([drawn.x, drawn.queries])
    squared = ((rows[:, None] - rows) ** 2).sum(-1)
    joint = np.exp(-0.5 * squared / problem.lengthscale**2) + NOISE**2 * np.eye(len(rows))
    gain = joint[60:, :60] @ np.linalg.inv(joint[:60, :60])
    mean, deviation = exact_answers(problem, drawn)
    np.testing.assert_allclose(mean - drawn.y.mean(), gain @ (drawn.y - drawn.y.mean()), atol=1e-8)
    np.testing.assert_allclose(deviation**2, np.diag(joint)[60:] - (gain * joint[60:, :60]).sum(1), atol=1e-8)
    # A query's function has the posterior without noise, whichever function is drawn.
    draws = [problem.drawn(60, seed) for seed in range(20)]
    scores = []
    for one in draws:
        mean, deviation = exact_answers(problem, one)
        scores.append((one.function[0] - mean[0]) / np.sqrt(deviation[0] ** 2 - NOISE**2))
    assert stats.kstest(scores, "norm").pvalue > 0.001


def test_a_series_has_gaps_and_an_end() -> None:
    drawn = PROBLEMS[SERIES].drawn(900)
    inside = drawn.queries[drawn.is_inside, 0]
    assert set(inside) | set(drawn.x[:, 0]) == set(np.arange(1000.0))
    assert drawn.queries[~drawn.is_inside].min() == 1020


def test_slopes_are_of_the_last_sizes() -> None:
    n = np.array([500, 1000, 2000, 4000])
    costs = {"fit seconds": [9.0, *(1e-9 * n[1:] ** 3.0)], "prediction seconds": 1.0, "fit MB": n**2.0}
    exact = pd.DataFrame({"data": TABLE, "method": "exact", "protocol": GIVEN, "rows": n, **costs})
    sparse = exact.assign(method="inducing", **{"fit seconds": 1e-3 * n**1.5})
    slopes = slopes_of(pd.concat([exact, sparse, exact[:1].assign(protocol=LEARNT)]))
    assert slopes["fit seconds"].tolist() == pytest.approx([3, 1.5])
    assert slopes["from"].tolist() == [1000, 1000]
    assert [verdict.holds for verdict in verdicts_of(slopes)] == [True, True, False]
    assert verdicts_of(slopes_of(exact[:1])) == []
    assert by_lecture("random_features") != by_lecture("fitc") != by_lecture("nearest_neighbours") == ""


def record_of(settings: ApproximationsConfig, problem: str, method: str, scales: str, n_rows: int) -> dict[str, Any]:
    """As a campaign keeps it."""
    cell = approximations.cell_of(settings, problem, method, scales, n_rows)
    return {"key": cell.key, "labels": cell.labels, **approximations.compute(cell)}


@CAN_MEASURE
def test_the_page_is_made_of_what_is_there() -> None:
    settings = ApproximationsConfig(exact_rows=100)
    lines = [(TABLE, "exact", GIVEN), (TABLE, "inducing", LEARNT), (SERIES, "exact", GIVEN)]
    records = [record_of(settings, *line, n) for line in lines for n in (60, 120)]
    cells = [approximations.cell_of(settings, *line, n) for line in lines for n in (60, 120, 240)]
    outcome = outcome_of(records, cells, settings)
    tables = {table.name: table.frame for table in outcome.tables}
    assert list(tables) == ["slopes", TABLE, f"{TABLE}-learnt", SERIES]
    for name in (TABLE, SERIES):
        assert (tables[name][["mean error", "deviation error"]].iloc[0] < 1e-6).all()  # of the exact process
        assert tables[name]["deviation outside"].iloc[0] == pytest.approx(1)
        assert np.isnan(tables[name]["mean error"].iloc[1])
        assert (tables[name]["fit seconds"] > 0).all()
    assert outcome.findings == ("6 of 9 cells have a result.",)
    assert [picture.name for picture in outcome.pictures] == [TABLE, SERIES]
    with pytest.raises(ValueError, match="no cell"):
        outcome_of([{"key": "a", "labels": {}, "failed": "memory"}], [], settings)


@CAN_MEASURE
@pytest.mark.slow
def test_a_campaign_is_run_in_processes_of_their_own(tmp_path: Path) -> None:
    said: list[float] = []
    folders = {"results": str(tmp_path / "cells"), "checkpoints": str(tmp_path / "locks")}
    outcome = approximations.run(
        data_root=None, progress=lambda what, done: said.append(done), methods=("exact",), sizes=(60,), **folders
    )
    assert said == sorted(said)
    assert outcome.tables[1].frame["rows"].tolist() == [60]


def test_an_unknown_approximation_is_refused() -> None:
    with pytest.raises(ValueError, match="no approximation 'exakt'"):
        approximations.run(data_root=None, progress=lambda *_: None, methods=("exakt",))
