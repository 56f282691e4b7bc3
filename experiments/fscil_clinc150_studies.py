"""Studies of the published class trees: construction, representatives, kernels, inference, chains, number of classes.

The questions of GP-Tree's supplement. A campaign of two kinds of cells: a variant of the tree through the sessions of
CLINC150, and a classifier of 4 to 60 classes with a few labels each (`experiments.class_counts`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.campaigns.cells import FAILED, CampaignConfig, unfinished
from experiments.campaigns.methods import check_names
from experiments.campaigns.sessions import SessionCell, gap_between, run_sessions, study_of, wide
from experiments.class_counts import (
    RECIPES,
    CountCell,
    all_scores,
    chosen_scales,
    count_picture,
    count_tables,
    count_verdicts,
    run_counts,
)
from experiments.experiment import Experiment, Outcome, Picture, Progress, Table, Verdict, configure
from experiments.figures import new_figure, tidy
from sureshot.evaluation.session_study import SessionStudy, averaged

NAME = "fscil-clinc150-studies"

PUBLISHED = "shared root"
"""The tree that all others are variants of."""

_TREE: dict[str, Any] = {"strategy": "shared_root", "n_chains": 10}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    PUBLISHED: ("tree", _TREE),
    "session trees": ("tree", {**_TREE, "strategy": "session"}),
    "rebuilt tree": ("tree", {**_TREE, "strategy": "rebuild"}),
    "balanced random": ("tree", {**_TREE, "construction": "balanced_random"}),
    "label order": ("tree", {**_TREE, "construction": "label_order"}),
    **{f"{n} representative{'s' * (n > 1)}": ("tree", {**_TREE, "n_representatives": n}) for n in (1, 2, 3, 4)},
    "Matern 3/2": ("tree", {**_TREE, "kernel": "unit_matern32"}),
    "linear": ("tree", {**_TREE, "kernel": "cosine"}),
    "mean field": ("tree", {**_TREE, "inference": "mean_field"}),
    **{f"{n} chain{'s' * (n > 1)}": ("tree", {**_TREE, "n_chains": n}) for n in (1, 4, 20)},
    "nearest class mean": ("nearest_class_mean", {}),
}
"""Methods of the sessions by name, with options."""

STUDIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "construction": (
        "How trees are made",
        (PUBLISHED, "session trees", "rebuilt tree", "balanced random", "label order"),
    ),
    "representatives": (
        "Representatives of a class",
        (*(name for name in VARIANTS if "representative" in name), PUBLISHED),
    ),
    "kernels": ("Kernels on unit vectors", (PUBLISHED, "Matern 3/2", "linear")),
    "inference": (
        "Inference of later sessions' trees, and chains",
        ("mean field", "1 chain", "4 chains", PUBLISHED, "20 chains"),
    ),
}
"""The tables of the sessions: a title and its rows."""

_SUPPLEMENT = "GP-Tree, supplement D.2"
_TABLE_4 = {
    "Session Tree": (72.84, 67.00, 62.64, 57.98, 54.28, 50.95, 48.79, 46.65, 44.38, 42.65, 40.87),
    "Rebuild Tree": (72.84, 65.98, 61.76, 57.19, 53.85, 51.04, 48.79, 47.06, 44.61, 43.26, 41.72),
    "GP-Tree": (72.84, 67.00, 62.98, 58.19, 54.84, 51.77, 49.40, 47.57, 45.47, 44.05, 42.72),
}
_DECISIVE = 2.0  # standard errors of a paired difference
_MINOR = 0.05  # of forgetting
_SLIGHT = 0.05  # of a difference in accuracy


@dataclass(frozen=True)
class StudiesConfig(CampaignConfig):
    """Settings."""

    variants: tuple[str, ...] = tuple(VARIANTS)  # of `VARIANTS`, through the sessions
    seeds: tuple[int, ...] = (0, 1, 2)  # of the order of the intents and the shots of the sessions
    test_shots: int = 10  # test queries of each intent that are asked after each of the sessions
    recipes: tuple[str, ...] = tuple(RECIPES)  # of `experiments.class_counts.RECIPES`
    counts: tuple[int, ...] = (4, 10, 20, 30, 40, 50, 60)  # numbers of classes
    count_seeds: tuple[int, ...] = (0, 1, 2)  # of the choice of classes and shots
    shots: int = 5  # labels of each of these classes
    scales: tuple[float, ...] = (1.0, 4.0, 9.0, 18.0)  # output scales to choose from, by validation accuracy


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the tables of all that are there."""
    settings = configure(StudiesConfig, options)
    check_names("variant", settings.variants, VARIANTS)
    check_names("recipe", settings.recipes, RECIPES)
    counting, arriving = count_cells(settings), session_cells(settings)
    counted = settings.records(NAME, counting, partial(run_counts, data_root), progress)
    arrived = settings.records(NAME, arriving, partial(run_sessions, data_root), progress)
    return outcome_of(counted, arrived, counting, arriving, settings)


def session_cells(settings: StudiesConfig) -> list[SessionCell]:
    """Seed by seed, so that an unfinished campaign compares all variants on some seeds."""
    return [
        SessionCell("clinc150", seed, name, *VARIANTS[name], {"test_shots": settings.test_shots})
        for seed in settings.seeds
        for name in settings.variants
    ]


def count_cells(settings: StudiesConfig) -> list[CountCell]:
    """Seed by seed, too."""
    return [
        CountCell(name, seed, settings.counts, settings.shots, settings.scales)
        for seed in settings.count_seeds
        for name in settings.recipes
    ]


def outcome_of(
    counted: list[dict[str, Any]],
    arrived: list[dict[str, Any]],
    counting: list[CountCell],
    arriving: list[SessionCell],
    settings: StudiesConfig,
) -> Outcome:
    """The outcome of the campaign as far as it has been run; ValueError if no cell has scores."""
    study = study_of(arrived, "CLINC150")
    scored = [record for record in counted if FAILED not in record]
    if not study.evaluations and not scored:
        raise ValueError("no cell of this campaign has a result yet, so there is no table to make")
    tables: list[Table] = []
    pictures: list[Picture] = []
    verdicts: list[Verdict] = []
    if study.evaluations:
        tables += session_tables(study)
        verdicts += session_verdicts(study)
        for column, title in (("accuracy", "Accuracy"), ("forgetting", "Average forgetting")):
            caption = (
                f"{title} after each session, of all classes seen so far; bands are standard errors over the seeds."
            )
            pictures.append(Picture(column, caption, session_picture(study, column)))
    if scored:
        scores = all_scores(scored)
        frame = chosen_scales(scores)
        tables += count_tables(scores, frame, settings.shots)
        verdicts += count_verdicts(frame)
        caption = "Test accuracy at the means of the latents against the number of classes; bars are standard errors."
        pictures.append(Picture("classes", caption, count_picture(frame)))
    return Outcome(
        title="Studies of the published class trees: CLINC150",
        introduction=(
            "CLINC150, embeddings of all-MiniLM-L6-v2, frozen. First the sessions: 100 intents with 100 queries each, "
            "then ten sessions of 5 intents with 5 queries each, and after each session "
            f"{settings.test_shots} test queries of each intent seen so far. The tree that all others are variants of, "
            f'"{PUBLISHED}": 2-means of '
            "class prototypes, five representatives of a class, the RBF kernel on unit vectors, mean field for the "
            "first session's tree, ten sweeps of ten chains of Gibbs sampling for the one tree of all later classes "
            "and for the root between the two; a temperature from the first session's rows. Then few labels of 4 to "
            f"60 intents at once, {settings.shots} of each, no sessions: a tree beside one-vs-each and "
            "logistic-softmax by Gibbs sampling, the linear kernel on unit vectors times an output scale, with as many "
            "steps (one) and chains (20 up to 20 classes, 10 up to 30, then one) as in the supplement, unless a row "
            "says otherwise. A step draws the Polya-Gamma variables given latents from the prior."
        ),
        tables=(*tables, _table_4()),
        pictures=tuple(pictures),
        config=settings,
        seeds=tuple(sorted({*settings.seeds, *settings.count_seeds})),
        findings=(*_findings(study), *unfinished([*counted, *arrived], [*counting, *arriving])),
        verdicts=tuple(verdicts),
        differences=(
            "The paper has CUB-200-2011, a network trained on the base classes and lists of classes and shots; here "
            "embeddings are frozen, and a seed draws classes and shots.",
            "Fewer draws than the paper's ten runs, of the sessions as of the 4 to 60 classes, so standard errors are "
            f"rough; {settings.test_shots} test queries of each class in sessions; 10 chains where its code has 30.",
            "The first session's tree sees the representatives, as rows that count once; the paper's inducing inputs "
            "stand for all rows. Its kernel is not learnt (length-scale 1, output scale 4), and probabilities are "
            "divided by a temperature, which the paper has not.",
            "The 4 to 60 classes have 5 labels each instead of about 30, and variational inference is mean field, "
            "without inducing points.",
            "One-vs-each has as many chains as the others; the paper's had memory for 10 with 8 classes and 3 with 10.",
            "Balanced random trees and trees in the order of the labels are not in the supplement.",
        ),
    )


def session_tables(study: SessionStudy) -> list[Table]:
    """One for each study, and all scores."""
    summary = study.summary()
    after_all = averaged(summary, ["method"]).set_index("method")
    sessions = study.by_session()
    first = averaged(sessions[sessions["session"] == 0], ["method"]).set_index("method")
    tables = []
    for name, (title, methods) in STUDIES.items():
        rows = []
        for method in methods:
            if method not in after_all.index:
                continue
            last = after_all.loc[method]
            gap = None if method == PUBLISHED else gap_between(summary, "accuracy", method, PUBLISHED)
            rows.append(
                {
                    "variant": method,
                    "seeds": len(study.evaluations[method]),
                    **{f"first {column}": first.loc[method, column] for column in ("accuracy", "nll", "ece")},
                    "accuracy": last["accuracy"],
                    "accuracy se": last["accuracy s.e."],
                    "less shared root": gap.mean if gap else np.nan,
                    "less shared root se": gap.error if gap else np.nan,
                    **{
                        column.replace("_", " "): last[column]
                        for column in ("base_accuracy", "novel_accuracy", "average_accuracy", "forgetting")
                    },
                    "forgetting se": last["forgetting s.e."],
                    **{column: last[column] for column in ("nll", "ece")},
                }
            )
        caption = (
            f"{title}. Columns that begin with first: after the first session, 100 intents; all others after the last, "
            "150 intents. Columns ending in se are standard errors over the seeds, of differences paired by seed."
        )
        if rows:
            tables.append(Table(name, caption, pd.DataFrame(rows)))
    by_session = averaged(sessions, ["method", "session"])
    for column in ("accuracy", "forgetting"):
        shown = "Accuracy" if column == "accuracy" else "Average forgetting"
        caption = f"{shown} after each session, 0 is the first; means over the seeds."
        tables.append(Table(f"sessions-{column}", caption, wide(by_session, "session", column)))
    return [*tables, Table("by-seed", "All scores of each seed.", summary, on_page=False)]


def _first(study: SessionStudy) -> SessionStudy:
    """The same with nothing after the first session."""
    return SessionStudy(
        study.description,
        {
            method: {seed: replace(one, sessions=one.sessions[:1]) for seed, one in by_seed.items()}
            for method, by_seed in study.evaluations.items()
        },
    )


def session_verdicts(study: SessionStudy) -> list[Verdict]:
    """Claims of the supplement, as far as both sides have results of two seeds or more."""
    found = []
    claims = (
        ("one tree of all later classes is better than a tree for each session", _SUPPLEMENT, "session trees"),
        ("one tree of all later classes is better than a tree that is built anew", _SUPPLEMENT, "rebuilt tree"),
        ("2-means is better than balanced random trees", "expected here", "balanced random"),
        ("2-means is better than trees in the order of the labels", "expected here", "label order"),
        ("the RBF kernel is ahead of the linear kernel", _SUPPLEMENT, "linear"),
        ("Gibbs sampling suits new classes better than mean field", "GP-Tree, supplement D.1", "mean field"),
    )
    summary = study.summary()
    for claim, source, method in claims:
        if gap := gap_between(summary, "accuracy", method, PUBLISHED):
            said = f"{method} less {PUBLISHED}, last session: {gap}"
            found.append(Verdict(claim, source, said, -gap.mean > _DECISIVE * gap.error))
    first, last = (
        gap_between(part.summary(), "accuracy", "1 representative", PUBLISHED) for part in (_first(study), study)
    )
    if first and last:
        said = f"1 representative less 5: first session {first}, last {last}"
        slight = -_SLIGHT < last.mean < -_DECISIVE * last.error
        found.append(Verdict("fewer representatives are slightly worse", _SUPPLEMENT, said, slight))
        claim = "fewer representatives cost more in later sessions"
        found.append(Verdict(claim, _SUPPLEMENT, said, last.mean < first.mean))
    base, novel = (gap_between(summary, f"{part}_accuracy", PUBLISHED, "linear") for part in ("base", "novel"))
    if base and novel:
        said = f"{PUBLISHED} less linear: novel {novel}, base {base}"
        claim = "the RBF kernel's lead over the linear kernel is on new classes above all"
        holds = novel.mean > max(base.mean, _DECISIVE * novel.error)
        found.append(Verdict(claim, _SUPPLEMENT, said, holds))
    if rest := gap_between(summary, "accuracy", "20 chains", "4 chains"):
        said = f"20 chains less 4, last session: {rest}"
        claim = "beyond four chains the difference is marginal"
        found.append(Verdict(claim, "GP-Tree, supplement D.1", said, rest.mean < 0.01))
    forgotten = {
        str(row["method"]): float(row["forgetting"]) for row in averaged(summary, ["method"]).to_dict("records")
    }
    if PUBLISHED in forgotten:
        shown = [name for name in (PUBLISHED, "nearest class mean") if name in forgotten]
        said = "; ".join(f"{name} {100 * forgotten[name]:.1f} points" for name in shown)
        found.append(Verdict("forgetting is minor", "GP-Tree, supplement D.3", said, forgotten[PUBLISHED] < _MINOR))
    return found


def session_picture(study: SessionStudy, column: str) -> Figure:
    """A panel for each study, a line for each of its variants."""
    frame = averaged(study.by_session(), ["method", "session"])
    colours = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
    figure = new_figure(9.5, 6.8)
    for axes, (title, methods) in zip(figure.subplots(2, 2).flat, STUDIES.values(), strict=True):
        others = iter(colours)
        for method in (*methods, "nearest class mean"):
            own = frame[(frame["method"] == method) & frame[column].notna()]
            colour = {PUBLISHED: "#222222", "nearest class mean": "#AAAAAA"}.get(method) or next(others)
            if len(own):
                x, y = own["session"].to_numpy(), own[column].to_numpy()
                error = own[f"{column} s.e."].fillna(0).to_numpy()
                axes.fill_between(x, y - error, y + error, color=colour, alpha=0.15, linewidth=0)
                axes.plot(x, y, color=colour, marker="o", markersize=2.5, linewidth=1.3, label=method)
        tidy(axes, title, "session", column)
        axes.legend(fontsize=7, frameon=False)
    return figure


def _findings(study: SessionStudy) -> list[str]:
    rows = averaged(study.summary(), ["method"]).to_dict("records") if study.evaluations else []
    trees = [row for row in rows if row["method"] != "nearest class mean"]
    if not trees:
        return []
    best, worst = (choose(trees, key=lambda row: row["accuracy"]) for choose in (max, min))
    return [
        f"Of all trees {best['method']} is the most accurate after the last session, {best['accuracy']:.1%} (new "
        f"intents {best['novel_accuracy']:.1%}), {worst['method']} the least, {worst['accuracy']:.1%}"
        + "".join(
            f"; nearest class means are right about {row['accuracy']:.1%}."
            for row in rows
            if row["method"] == "nearest class mean"
        )
    ]


def _table_4() -> Table:
    rows = [
        {"strategy": name, **{str(k): value for k, value in enumerate(values)}} for name, values in _TABLE_4.items()
    ]
    caption = (
        "GP-Tree's supplement, table 4: accuracy in per cent after each session, CUB-200-2011, 100 classes of birds "
        "first, then ten sessions of ten with 5 shots each, ten runs. Here they are called session trees, rebuilt tree "
        "and shared root."
    )
    return Table("published", caption, pd.DataFrame(rows), digits=2, published=True)


EXPERIMENT = Experiment(
    NAME, "variants of the published class trees in sessions, and 4 to 60 classes at once", True, run
)
