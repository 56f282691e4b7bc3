"""The page of the campaign of defaults: scores by condition, paired differences, verdicts.

A data set counts once, with the mean over its seeds; standard errors are over data sets. Verdicts are about tables;
embeddings have a table of their own, and one verdict, on wrong labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.campaigns.cells import FAILED, Cell
from experiments.campaigns.methods import Record, paired, what_is_missing
from experiments.experiment import Outcome, Table, Verdict
from experiments.few_label_sets import named

OURS, SINGLE = "sureshot", "sureshot, one setting"
DIRTY = ("heavy tails", "wild cells", "noise columns")
_TARGET = "this project's target"
SCORES = ("nll", "brier", "ece", "accuracy")

EMBEDDINGS = {named(*size): size for size in ((10, 1), (10, 4), (2, 20))}
"""By name, the number of classes and of intents in each; the fewer, the easier."""


def outcome_of(records: Sequence[Record], cells: Sequence[Cell], settings: Any) -> Outcome:
    """The outcome as far as the campaign has been run; ValueError if no cell has scores."""
    frame = run_frame(records)
    if frame.empty:
        raise ValueError("no cell of this campaign has a result yet, so there is no table to make")
    embedded = frame["run"].isin(list(EMBEDDINGS))
    embeddings, tables = frame[embedded], frame[~embedded]
    return Outcome(
        title="What the defaults are worth",
        introduction=(
            f"{tables['run'].nunique()} tables of numbers and {embeddings['run'].nunique()} sets of sentence "
            "embeddings (CLINC150 intents, or groups of them as classes), at most 1000 rows to learn from and 2000 to "
            "test on, seven tenths and three tenths of smaller ones. Columns with heavy tails are exponentials of the "
            "standardised ones; wild cells are one in a hundred, a hundred times as large; noise columns are fifty "
            "normal ones; wrong labels are one in five of those to learn from; one in fifty keeps so many rows of the "
            "second largest class beside the largest. Gaps are filled with the mean of the training rows; peers get "
            "standardised columns. Where a peer cannot be fitted, its set is not counted. Probabilities are clipped at "
            "1e-6."
        ),
        tables=(*_of_tables(tables), *([_of_embeddings(embeddings)] if len(embeddings) else [])),
        config=settings,
        seeds=settings.seeds,
        findings=tuple(what_is_missing(records, cells)),
        verdicts=(*verdicts_of(tables), *of_wrong_labels(embeddings, "embeddings")),
    )


def _of_tables(frame: pd.DataFrame) -> list[Table]:
    if frame.empty:
        return []
    means = [
        Table(name, f"{caption}, mean over tables that all methods have.", by_condition(frame, name))
        for name, caption in (
            ("nll", "Negative log-likelihood in nats"),
            ("brier", "Brier score"),
            ("ece", "Calibration error"),
            ("accuracy", "Accuracy"),
            (
                "seconds",
                "Processor seconds of a fit (sureshot's on a slower machine than its peers', which was busy besides: "
                "two to four times as many as on theirs)",
            ),
        )
    ]
    caption = (
        "Less each other method, over tables: mean paired difference of the NLL with its standard error, and on how "
        "many tables it is better and worse by more than two standard errors of seeds."
    )
    paired_ones = [
        Table(f"differences-{number}", f"{ours}. {caption}", differences(frame, ours))
        for number, ours in enumerate((OURS, SINGLE))
        if ours in set(frame["method"]) and frame["method"].nunique() > 1
    ]
    every = Table("sets", "NLL of every table, condition and method.", by_set(frame), on_page=False)
    return [*means, *paired_ones, every]


def _of_embeddings(frame: pd.DataFrame) -> Table:
    index, scores = ["run", "condition"], ["nll", "ece", "accuracy"]
    wide = frame.pivot_table(index=index, columns="method", values=scores, sort=False)
    rows = wide.stack(0, future_stack=True)[list(frame["method"].unique())].rename_axis([*index, "score"])
    return Table("embeddings", "Sets of embeddings, each score of each method.", rows.reset_index())


def run_frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row for each set, condition and method: means over seeds, and the NLL's standard error between them."""
    rows = []
    for record in records:
        runs = pd.DataFrame(record.get("runs", ()) if FAILED not in record else ())
        if runs.empty:
            continue
        place = {"run": str(record["labels"]["data"]), "method": str(record["labels"]["method"])}
        for condition, part in runs.groupby("condition", sort=False):
            means = part[[*SCORES, "seconds", "rows"]].mean()
            rows.append({**place, "condition": condition, **means, "error": part["nll"].sem()})
    return pd.DataFrame(rows)


def by_condition(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """A row for each condition, a column for each method; means over the sets that all methods have."""
    methods = list(frame["method"].unique())
    rows = []
    for condition, part in frame.groupby("condition", sort=False):
        wide = part.pivot(index="run", columns="method", values=column).reindex(columns=methods).dropna()
        rows.append({"condition": condition, "sets": len(wide), **wide.mean()})
    return pd.DataFrame(rows)


def differences(frame: pd.DataFrame, ours: str) -> pd.DataFrame:
    """A row for each condition and other method."""
    rows = []
    for condition, part in frame.groupby("condition", sort=False):
        for other in [name for name in part["method"].unique() if name != ours]:
            gap, error, n = paired(part, "nll", ours, other)
            wide = part[part["method"].isin([ours, other])].pivot(index="run", columns="method")
            if (ours not in wide["nll"]) or not n:
                continue
            less = wide["nll"][ours] - wide["nll"][other]
            spread = 2 * np.hypot(wide["error"][ours], wide["error"][other])
            rows.append(
                {"condition": condition, "less": other, "nll": gap, "se": error, "sets": n}
                | {"better": int((less < -spread).sum()), "worse": int((less > spread).sum())}
            )
    return pd.DataFrame(rows)


def by_set(frame: pd.DataFrame) -> pd.DataFrame:
    """NLL with a column for each method."""
    return frame.pivot(index=["run", "condition"], columns="method", values="nll").reset_index()


def verdicts_of(frame: pd.DataFrame) -> tuple[Verdict, ...]:
    """The targets of this project, as far as they were measured."""
    if frame.empty:
        return ()
    nll = by_condition(frame, "nll").set_index("condition")
    if OURS not in nll or len(nll.columns) < 3:
        return ()
    found = []
    for condition in [name for name in DIRTY if name in nll.index]:
        row = nll.loc[condition]
        trees = {name: row[name] for name in ("random forest", "extra trees") if name in row}
        if trees:
            best = min(trees, key=lambda name: trees[name])
            measured = f"{OURS} {row[OURS]:.3f}, {best} {trees[best]:.3f}"
            claim = f"no forest is ahead in mean NLL ({condition})"
            found.append(Verdict(claim, _TARGET, measured, bool(row[OURS] <= trees[best])))
    if "CatBoost" in nll and "all rows" in nll.index:
        for column in ("nll", "brier"):
            row = by_condition(frame, column).set_index("condition").loc["all rows"]
            measured = f"{OURS} {row[OURS]:.3f}, CatBoost {row['CatBoost']:.3f}"
            claim = f"ahead of CatBoost in mean {column} (all rows)"
            found.append(Verdict(claim, _TARGET, measured, bool(row[OURS] < row["CatBoost"])))
    found += of_wrong_labels(frame, "tables")
    if SINGLE in nll.columns:
        ece = by_condition(frame, "ece").set_index("condition")
        worst = str((ece[OURS] - ece[SINGLE]).idxmax())
        for where, row in (
            ("on average over the conditions", ece.mean(numeric_only=True)),
            (f"where it costs most ({worst})", ece.loc[worst]),
        ):
            measured = f"{OURS} {row[OURS]:.3f}, {SINGLE} {row[SINGLE]:.3f}"
            holds = bool(row[OURS] <= row[SINGLE])
            found.append(Verdict(f"averaging does not cost calibration {where}", _TARGET, measured, holds))
    return tuple(found)


def of_wrong_labels(frame: pd.DataFrame, kind: str) -> list[Verdict]:
    """Whether any peer is better where one label in five is wrong."""
    part = frame[frame["condition"] == "wrong labels"]
    nll = by_condition(part, "nll")
    peers = [name for name in nll.columns[2:] if name not in (OURS, SINGLE)]
    if OURS not in nll or not peers:
        return []
    row = nll.iloc[0]
    best = min(peers, key=lambda name: row[name])
    measured = f"{OURS} {row[OURS]:.3f}, {best} {row[best]:.3f}"
    claim = f"as good as the best peer where labels are wrong ({kind})"
    return [Verdict(claim, _TARGET, measured, bool(row[OURS] <= row[best]))]
