"""Classes that arrive in sessions, on frozen sentence embeddings: every method of `sureshot sessions`, five seeds.

There are no validation data: temperatures come from the base session, or from what the model itself says of its rows.
A campaign of one cell for each method and seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.campaigns.cells import CampaignConfig, unfinished
from experiments.campaigns.methods import check_names
from experiments.campaigns.sessions import (
    SessionCell,
    best_and_surest,
    cost_of,
    gap_between,
    run_sessions,
    study_of,
    wide,
)
from experiments.experiment import Experiment, Outcome, Picture, Progress, Table, Verdict, configure
from sureshot.evaluation.session_study import SessionStudy, averaged
from sureshot.report.session_tables import matrices_picture, session_curves

NAME = "fscil-clinc150"

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "nearest class mean": ("nearest_class_mean", {}),
    "nearest class mean, scale 16": ("nearest_class_mean", {"scale": 16.0}),
    "least squares": ("least_squares", {}),
    "streaming LDA": ("streaming_lda", {}),
    "empirical Bayes": ("empirical_bayes", {}),
    "gp, 5 rows a class": ("gp", {"rows_per_class": 5}),
    "gp, all rows": ("gp", {}),
    "tree, recommended": ("tree", {"strategy": "recommended"}),
    "tree, shared root": ("tree", {"strategy": "shared_root"}),
    "tree, session": ("tree", {"strategy": "session"}),
    "tree, rebuild": ("tree", {"strategy": "rebuild"}),
}
"""What rows of the tables are: a method by its name, with options."""

_DECISIVE = 2.0  # standard errors of a paired difference
_SURE_ENOUGH = 0.02  # expected calibration error


@dataclass(frozen=True)
class FscilClinc150Config(CampaignConfig):
    """Settings."""

    methods: tuple[str, ...] = tuple(METHODS)  # rows, of `METHODS`
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the tables of all that are there."""
    settings = configure(FscilClinc150Config, options)
    cells = campaign_cells(settings)
    records = settings.records(NAME, cells, partial(run_sessions, data_root), progress)
    return outcome_of(records, cells, settings)


def campaign_cells(settings: FscilClinc150Config) -> list[SessionCell]:
    """Seed by seed, so that an unfinished campaign compares all methods on some seeds."""
    check_names("method", settings.methods, METHODS)
    return [
        SessionCell("clinc150", seed, method, *METHODS[method])
        for seed in settings.seeds
        for method in settings.methods
    ]


def outcome_of(records: list[dict[str, Any]], cells: list[SessionCell], settings: FscilClinc150Config) -> Outcome:
    """The outcome of the campaign as far as it has been run; ValueError if no cell has scores."""
    study = study_of(records, "CLINC150")
    if not study.evaluations:
        raise ValueError("no cell of this campaign has a result yet, so there is no table to make")
    curves, matrices = session_curves(study), matrices_picture(study)
    return Outcome(
        title="Classes in sessions on sentence embeddings: CLINC150",
        introduction=(
            "CLINC150, embeddings of all-MiniLM-L6-v2, frozen. A base session of 100 intents with 100 queries each, "
            "then ten sessions of 5 intents with 5 queries each; the seed draws the order of the intents and the "
            "shots. After each session all methods are asked about the test queries (30 of each intent) of all intents "
            "seen so far, and about 1000 queries that have none of the 150. No method sees validation data."
        ),
        tables=tables_of(study),
        pictures=(
            Picture("curves", curves.explanation, curves.figure),
            Picture("matrices", matrices.explanation, matrices.figure),
        ),
        config=settings,
        seeds=settings.seeds,
        findings=_findings(study, records, cells),
        verdicts=verdicts_of(study),
        differences=(
            "No paper has this protocol; published class-incremental numbers are of images and trained backbones.",
            "gp with 5 rows a class is shown the five rows of a base class that herding chooses.",
        ),
    )


def tables_of(study: SessionStudy) -> tuple[Table, ...]:
    """After the last session; by session; what methods cost; everything."""
    frame = averaged(study.summary(), ["method"])
    frame.insert(1, "seeds", [len(study.evaluations[method]) for method in frame["method"]])
    by_session = averaged(study.by_session(), ["method", "session"])
    known = _columns(frame, "accuracy", "average_accuracy", "performance_drop", "forgetting")
    shares = _columns(frame, "base_accuracy", "novel_accuracy", "harmonic_mean")
    sure = _columns(frame, "nll", "ece", "brier", "out_of_scope_auroc")
    errors = "Columns ending in se are standard errors over the seeds."
    return (
        Table("last-session", f"After the last session, among all 150 intents. {errors}", known),
        Table("base-and-novel", f"The same, of base and of novel intents' queries. {errors}", shares),
        Table("probabilities", f"After the last session, without any validation data. {errors}", sure),
        Table(
            "sessions",
            "Accuracy after each session, 0 is the base session; means over the seeds.",
            wide(by_session, "session", "accuracy"),
        ),
        Table(
            "cost",
            "Numbers kept after the last session, for a class and shared by all; seconds to learn all sessions, and to "
            "predict 4500 queries after the last.",
            cost_of(frame),
            digits=2,
        ),
        Table("by-session", "All scores after each session.", by_session, on_page=False),
        Table("by-seed", "All scores of each seed.", study.summary(), on_page=False),
    )


def verdicts_of(study: SessionStudy) -> tuple[Verdict, ...]:
    """Statements about pairs of methods, as far as both have results of two seeds or more."""
    pairs = (
        (
            "empirical Bayes",
            "nearest class mean",
            "what base classes say about new ones is worth more than their means",
        ),
        ("least squares", "nearest class mean", "least squares knows more than class means"),
        ("gp, 5 rows a class", "gp, all rows", "as many rows of old classes as of new ones are better than all rows"),
        ("tree, shared root", "nearest class mean", "a tree over classes beats class means"),
        ("tree, recommended", "empirical Bayes", "the recommended tree beats the empirical-Bayes classifier"),
    )
    found, summary = [], study.summary()
    for method, other, claim in pairs:
        if gap := gap_between(summary, "accuracy", method, other):
            measured = f"{method} less {other}: {gap}, {gap.seeds} seeds"
            source = "GP-Tree (Achituve et al. 2021)" if method == "tree, shared root" else "expected here"
            found.append(Verdict(claim, source, measured, gap.mean > _DECISIVE * gap.error))
    rows = averaged(summary, ["method"]).to_dict("records")
    surest = min(rows, key=lambda row: row["ece"])
    calibrated = [row for row in rows if row["ece"] <= _SURE_ENOUGH]
    measured = f"{surest['method']} {surest['ece']:.3f}; {len(calibrated)} of {len(rows)} methods"
    claim = f"an expected calibration error of {_SURE_ENOUGH} needs no validation data"
    return (*found, Verdict(claim, "expected here", measured, bool(calibrated)))


def _findings(study: SessionStudy, records: list[dict[str, Any]], cells: list[SessionCell]) -> tuple[str, ...]:
    rows = averaged(study.summary(), ["method"]).to_dict("records")
    lines = [best_and_surest(rows, "queries", "intents")]
    detecting = [row for row in rows if row["out_of_scope_auroc"] == row["out_of_scope_auroc"]]  # no NaN
    if detecting:
        first = max(detecting, key=lambda row: row["out_of_scope_auroc"])
        lines.append(
            f"Queries of no intent are told best by {first['method']}: AUROC {first['out_of_scope_auroc']:.3f}."
        )
    lines += unfinished(records, cells)
    return tuple(lines)


def _columns(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    parts = {"method": frame["method"], "seeds": frame["seeds"]}
    for name in names:
        parts[name.replace("_", " ")] = frame[name]
        parts[f"{name.replace('_', ' ')} se"] = frame[f"{name} s.e."]
    return pd.DataFrame(parts)


EXPERIMENT = Experiment(
    NAME, "methods for classes that arrive in sessions, on sentence embeddings, five seeds", True, run
)
