"""What commands ask and show of numbers; `sureshot.cli.tasks` says when."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sureshot.cli import console, options
from sureshot.cli.reading import Beside, Reading, written_number
from sureshot.cli.tasks import shared_settings
from sureshot.estimators.gp.regressor import GPRegressor
from sureshot.metrics import ranked_probability_score

if TYPE_CHECKING:
    from sureshot.data import DataTable
    from sureshot.estimators.numbers.answers import Forecast
    from sureshot.estimators.numbers.regressor_base import IncrementalRegressor

REASONS = ("number", "pull")  # what is told of each beside its name
SUGGESTED = ("prediction", "deviation")
COVERAGE = 0.9  # of intervals, unless another is asked for
_COVERAGES = (0.5, 0.9, 0.95)  # that are judged
_PROPER = {
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "log_density": "log density (nats)",
    "crps": "ranked probability score",
}
_SCORES = {**_PROPER, **{f"coverage_{100 * one:g}": f"inside intervals of {100 * one:g} %" for one in _COVERAGES}}
_BASE = "baseline "


def reporting() -> ModuleType:
    """What writes reports."""
    from sureshot.cli import number_reporting

    return number_reporting


def unfitted(asked: options.Classifier, how: Reading) -> IncrementalRegressor:
    """The regressor that is asked for."""
    if asked.checkpoint is not None:
        from sureshot.estimators.few_shot.regressor import FewShotRegressor

        return FewShotRegressor(asked.checkpoint, random_state=asked.seed)
    return GPRegressor(**shared_settings(asked, how))


def learnt(model: IncrementalRegressor) -> dict[str, Any]:
    """What a fit has found; left-out intervals are the model's own, as left-out rows have set how wide others are."""
    y, found = model.left_out_
    inside = (found.quantile(0.5 - COVERAGE / 2) <= y) & (y <= found.quantile(0.5 + COVERAGE / 2))
    rmse = float(np.sqrt(np.mean((y - found.mean) ** 2)))
    left_out = {"rmse": rmse, "log_density": model.leave_one_out_score_, "coverage_90": float(inside.mean())}
    return {
        "settings": reporting().facts(model),
        "log_evidence": model.log_evidence_,
        "leave_one_out": left_out if len(y) > 1 else {},
    }


def print_fitted(summary: dict[str, Any], first: list[tuple[str, object]], last: list[tuple[str, object]]) -> None:
    """Between other lines what a fit has found, and scores beneath."""
    left_out = [(f"leave-one-out {_SCORES[name]}", value) for name, value in summary["leave_one_out"].items()]
    settings = [(name, value) for name, value in summary["settings"].items() if name != "features"]
    console.print_table(("fitted", ""), [*first, *settings, *left_out, *last])
    if summary.get("cross_validated"):
        _print_scores("cross-validated", summary["cross_validated"])


def answerable(model: IncrementalRegressor, asked: options.Answers, as_json: bool) -> options.Answers:
    """What is asked of rows; `ValueError` for what the model cannot answer."""
    of_classes = {"proba": asked.proba, "top": asked.top, "reject": asked.reject, "set": asked.coverage}
    if given := [name for name, value in of_classes.items() if value]:
        raise ValueError(f"--{given[0]} is for models of classes, and this one is of numbers: leave it out")
    return asked


def columns(model: IncrementalRegressor, asked: options.Answers) -> list[str]:
    """Names of the columns of a row."""
    return ["prediction", "deviation", "lower", "upper", *(["outlier"] if asked.outlier else [])]


def answers(model: IncrementalRegressor, X: Any, asked: options.Answers) -> dict[str, Any]:
    """The answers for all rows, by column."""
    found = model.forecast(X)
    ends = found.interval(COVERAGE if asked.interval is None else asked.interval)
    far = [model.outlier_score(X)] if asked.outlier else []
    parts = (found.mean, found.deviation, ends.lower, ends.upper, *far)
    return dict(zip(columns(model, asked), (part.tolist() for part in parts), strict=True))


def reasons(model: IncrementalRegressor, X: Any, n_rows: int) -> list[list[dict[str, Any]]]:
    """Of each answer the labelled rows without which it would be another: up or down, the strongest first."""
    found = model.influence(X, n_rows).drivers
    parts = zip(found.row_ids.tolist(), found.y.tolist(), found.pulls.tolist(), strict=True)
    return [[dict(zip(("row", *REASONS), one, strict=True)) for one in zip(*rows, strict=True)] for rows in parts]


def cells(found: dict[str, Any], beside: Beside | None) -> list[Any]:
    """The answers for a row, in the order of `columns`."""
    return [written_number(value, beside) for name, value in found.items() if name not in ("row", "why")]


def evaluated(
    model: IncrementalRegressor, path: Path, data: Path, table: DataTable, report: Path | None, quiet: bool
) -> dict[str, Any]:
    """Scores of rows with numbers, and a report if one is wanted."""
    assert table.y is not None
    with console.progress(f"evaluating {len(table.y)} rows", quiet):
        rows = judged(model.forecast(table.X), table.y, table.row_ids)
    summary = means_of(rows)
    if report is not None:
        title = f"{path.name} on {data.resolve().name}"
        summary["report"] = str(reporting().write_evaluation(model, rows, report, title))
    return summary


def judged(forecast: Forecast, y: np.ndarray, names: np.ndarray) -> pd.DataFrame:
    """Of n rows predictions and scores, with those of one normal of all numbers that were learnt, the baseline."""
    ends = forecast.interval(COVERAGE)
    shown = {"row": names.astype(str), "true": y, "mean": forecast.mean, "lower": ends.lower, "upper": ends.upper}
    error, level = (part[:, 0] for part in forecast.errors(y[:, None]))
    inside = {f"coverage_{100 * one:g}": forecast.interval(one).contain(y) for one in _COVERAGES}
    scores = {**_proper("", forecast.found, y), **inside, **_proper(_BASE, forecast.fitted.usual, y)}
    return pd.DataFrame({**shown, "error": error, "level": level, **scores})


def _proper(prefix: str, found: Any, y: np.ndarray) -> dict[str, np.ndarray]:
    true = y[:, None]
    error, crps = true - found.mean, ranked_probability_score(found.quantile, true)
    scores = error**2, np.abs(error), found.log_density(true), crps
    return {prefix + name: of_rows[:, 0] for name, of_rows in zip(_PROPER, scores, strict=True)}


def means_of(rows: pd.DataFrame) -> dict[str, Any]:
    """Scores of all rows that were judged together."""
    own, baseline = (
        {name: float(rows[prefix + name].mean()) ** (0.5 if name == "rmse" else 1) for name in names}
        for prefix, names in (("", _SCORES), (_BASE, _PROPER))
    )
    return {"rows": len(rows), **own, "baseline": baseline}


def print_evaluated(summary: dict[str, Any]) -> None:
    """Scores beside those of the baseline."""
    _print_scores("evaluated", summary)
    if "report" in summary:
        console.print_table(("report", ""), [("report", summary["report"])])


def _print_scores(heading: str, scores: Mapping[str, Any]) -> None:
    console.print_table((heading, f"{scores['rows']} rows", "one mean for all"), score_lines(scores))


def score_lines(scores: Mapping[str, Any]) -> list[tuple[str, float, float | None]]:
    """Scores by their names, beside those of the baseline."""
    return [(words, scores[name], scores["baseline"].get(name)) for name, words in _SCORES.items()]


def suggested(model: IncrementalRegressor, X: Any) -> list[list[Any]]:
    """What `SUGGESTED` names of each row."""
    found = model.forecast(X)
    return [list(pair) for pair in zip(found.mean.tolist(), found.deviation.tolist(), strict=True)]
