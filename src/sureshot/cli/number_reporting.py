"""Reports of ``fit`` and ``evaluate`` for numbers."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sureshot.cli.console import command_line
from sureshot.cli.numbers import judged, means_of, score_lines
from sureshot.cli.reading import take
from sureshot.cli.reporting import N_FOLDS, average_of, fitted_without, seen_as
from sureshot.estimators.few_shot.regressor import FewShotRegressor
from sureshot.estimators.gp.regressor import GPRegressor
from sureshot.estimators.search.regressor import KernelSearchRegressor
from sureshot.report import Picture, Report, Table, environment, write_report
from sureshot.report.number_plots import MOST_POINTS, coverage_curve, predicted_against_true, residuals

if TYPE_CHECKING:
    from sureshot.data import DataTable
    from sureshot.estimators.numbers.regressor_base import IncrementalRegressor

_log = logging.getLogger(__name__)

_FEWEST = 3  # rows that are predicted without each other
_MOST = 12  # rows and columns in a table
_SCALES = {"none": "as it is", "log": "logarithms", "yeo_johnson": "powers (Yeo and Johnson)"}


def facts(model: IncrementalRegressor) -> dict[str, object]:
    """What the regressor became."""
    usual, known = model.usual_, math.isfinite(model.log_evidence_)
    return {
        **_method(model),
        "target": f"{usual.mean[0, 0]:.5g} ± {usual.deviation[0, 0]:.3g}",
        **(_noise(model) if isinstance(model, GPRegressor) else {}),
        "features": int(model.n_features_in_),
        **({"log evidence (nats)": round(model.log_evidence_, 3)} if known else {}),
    }


def _method(model: IncrementalRegressor) -> dict[str, object]:
    """What learns."""
    if isinstance(model, FewShotRegressor):
        return {"learner": model.learner_.config["name"]}
    if isinstance(model, KernelSearchRegressor):
        mass, structure = model.kernel_posterior_[0]
        return {"particles": model.n_particles, "heaviest structure": f"{structure} ({mass:.2f})"}
    assert isinstance(model, GPRegressor)
    found: dict[str, object] = {"kernel": str(model.kernel_)}
    if len(members := model.members_) > 1:
        found["average of"] = average_of((one.weight, f"{one.kernel}{seen_as(one)}") for one in members)
    return found


def _noise(model: GPRegressor) -> dict[str, object]:
    """How numbers are seen."""
    degrees = model.noise_degrees_
    return {
        "scale of the target": _SCALES[model.target_transform_],
        "noise": "normal" if math.isinf(degrees) else f"Student's with {degrees:g} degrees of freedom",
        "deviation of the noise": f"{model.members_[0].noise:.3g} of the target's, on its scale",
    }


def write_evaluation(model: IncrementalRegressor, rows: pd.DataFrame, folder: Path, title: str) -> Path:
    """Report of a saved model on rows that were judged."""
    return write_report(folder, _report(model, rows, title, f"A saved model of numbers on {len(rows)} rows."))


def cross_validated_report(
    model: IncrementalRegressor, table: DataTable, folder: Path, name: str
) -> tuple[Path, dict[str, Any]]:
    """Report of a fit, on rows predicted by models that were fitted without them, and its scores if there are any.

    The rows are dealt into five folds; beyond 5000 rows only the first is judged.
    """
    assert table.y is not None
    title, introduction = f"Numbers of {name}", f"A model of numbers, fitted on {len(table.y)} rows."
    if len(table.y) < _FEWEST:
        few = f"{_FEWEST} rows are needed to hold one out: one alone does not say how far numbers differ"
        _log.warning("%s, so the report has no scores", few)
        return write_report(folder, _report_of(model, title=title, introduction=f"{introduction} {few}.")), {}
    folds = np.random.default_rng(0).permutation(len(table.y)) % min(N_FOLDS, len(table.y))
    parts = [
        judged(fitted.forecast(take(table.X, held_out)), table.y[held_out], table.row_ids[held_out])
        for held_out, fitted in fitted_without(model, table, folds)
    ]
    rows = pd.concat(parts, ignore_index=True)
    introduction += (
        f" Scores are of {len(rows)} rows, each predicted by a model fitted without it ({N_FOLDS} folds, {len(parts)} "
        "of them judged)."
    )
    return write_report(folder, _report(model, rows, title, introduction)), means_of(rows)


def _report(model: IncrementalRegressor, rows: pd.DataFrame, title: str, introduction: str) -> Report:
    scores = means_of(rows)
    columns = ("score", f"{len(rows)} rows", "one mean for all")
    return _report_of(
        model,
        title=title,
        introduction=introduction,
        verdict=f"Predictions of {len(rows):,} rows are {scores['mae']:.3g} off on average, those of one mean for all "
        f"{scores['baseline']['mae']:.3g}. {scores['coverage_90']:.1%} of the numbers are inside intervals of 90 %.",
        summary=Table(columns, tuple(score_lines(scores))),
        pictures=_pictures(rows, isinstance(model, GPRegressor) and model.target_transform_ == "log"),
        tables=(_surprising(rows), *_relevance(model)),
    )


def _report_of(model: IncrementalRegressor, **parts: Any) -> Report:
    return Report(**parts, model=facts(model), environment=environment(), command=command_line())


def _pictures(rows: pd.DataFrame, logarithmic: bool) -> tuple[Picture, ...]:
    true, mean, lower, upper = (rows[name].to_numpy() for name in ("true", "mean", "lower", "upper"))
    some = f" {MOST_POINTS} rows, evenly chosen by their numbers, are shown." if len(true) > MOST_POINTS else ""
    return (
        Picture(
            "Predicted against true",
            predicted_against_true(true, mean, lower, upper, logarithmic),
            "Predicted numbers with intervals against the true ones",
            "On the dashed line a prediction is right. Lines are intervals of 90 %: one in ten should miss its number."
            + some,
        ),
        Picture(
            "How far off",
            residuals(mean, rows["error"].to_numpy(), logarithmic),
            "True less predicted numbers in deviations, against the predicted ones",
            "In the deviations that the model states. Most points should lie between the dashed lines, everywhere "
            "alike. Points at the edge are farther off.",
        ),
        Picture(
            "Are intervals right?",
            coverage_curve(rows["level"].to_numpy()),
            "Share of true numbers inside intervals, against the share asked for",
            "On the dashed line intervals contain as many numbers as they promise. Bars are 95 % intervals.",
        ),
    )


def _surprising(rows: pd.DataFrame) -> Table:
    far = rows.loc[rows["error"].abs().sort_values(ascending=False, kind="stable").index[:_MOST]]
    numbers = far[["true", "mean", "lower", "upper", "error"]].to_numpy().tolist()
    return Table(
        ("row", "true", "predicted", "interval of 90 %", "off (deviations)"),
        tuple(
            (name, f"{true:.5g}", f"{mean:.5g}", f"{lower:.5g} to {upper:.5g}", error)
            for name, (true, mean, lower, upper, error) in zip(far["row"], numbers, strict=True)
        ),
        note="Farthest off beside what the model expected: look for wrong numbers here first.",
        heading="Most surprising rows",
    )


def _relevance(model: IncrementalRegressor) -> tuple[Table, ...]:
    """Columns by the factors that multiply them, where these are learnt."""
    if not (isinstance(model, GPRegressor) and any(member.relevance for member in model.members_)):
        return ()
    found = model.feature_relevance_
    names = getattr(model, "feature_names_in_", range(len(found)))
    order = np.argsort(-found, kind="stable")[:_MOST].tolist()
    return (
        Table(
            ("column", "relevance"),
            tuple((str(names[place]), float(found[place])) for place in order),
            note="Factors of standardised columns, the average of the members': the larger, the more a step matters.",
            heading="Columns by relevance",
        ),
    )
