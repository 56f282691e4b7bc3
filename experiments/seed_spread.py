"""Does the seed decide? Models of the same rows that differ by nothing but their seed, asked about the same new rows.

The seed draws the part of the rows that compares kernels where rows are many.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.batch_learners import quiet, scores
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.uci import load
from sureshot.estimators.gp.classifier import GPClassifier

BAR = 0.002  # nats between the best and the worst of the seeds


@dataclass(frozen=True)
class Settings:
    """Settings of the study."""

    tables: tuple[str, ...] = ("pendigits", "satimage")
    n_train: tuple[int, ...] = (1500, 3000)  # rows to learn from
    n_test: int = 2000  # rows to test on, at most
    splits: tuple[int, ...] = (0, 1)  # seeds of the choice of rows
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)  # of the models


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `Settings` for the options."""
    settings = configure(Settings, options)
    rows = {table: load(table, data_root) for table in settings.tables}
    cells = [
        (table, n_train, split, seed)
        for table in settings.tables
        for n_train in settings.n_train
        for split in settings.splits
        for seed in settings.seeds
    ]
    scored = []
    for number, (table, n_train, split, seed) in enumerate(cells):
        progress(f"{table}, {n_train} rows, split {split}, seed {seed}", number / len(cells))
        x, y = rows[table]
        order = np.random.default_rng(split).permutation(len(y))
        train, test = order[:n_train], order[n_train:][: settings.n_test]
        start = time.perf_counter()
        with quiet():
            model = GPClassifier(random_state=seed).fit(x[train], y[train])
        seconds = time.perf_counter() - start
        said = scores(model.predict_proba(x[test]), y[test], model.classes_)
        scored.append({"data": table, "rows": n_train, "split": split, "seed": seed, **said, "fit seconds": seconds})
    frame = pd.DataFrame(scored)
    groups = frame.groupby(["data", "rows", "split"], sort=False)
    spread = groups.agg(
        nll=("nll", "mean"),
        lowest=("nll", "min"),
        highest=("nll", "max"),
        accuracy=("accuracy", "mean"),
        seconds=("fit seconds", "mean"),
    ).reset_index()
    spread.insert(6, "between", spread["highest"] - spread["lowest"])
    return Outcome(
        title="Does the seed decide?",
        introduction=(
            "Models of the same rows that differ by their seed alone, asked about the same "
            f"{settings.n_test} others. A seed draws the part of the rows that compares kernels."
        ),
        tables=(
            Table("spread", "Negative log likelihoods over the seeds, and time to fit.", spread),
            Table("seeds", "Each seed.", frame.drop(columns="fit seconds")),
        ),
        config=settings,
        seeds=settings.seeds,
        findings=(),
        verdicts=tuple(
            Verdict(
                f"{row['data']}, {row['rows']} rows, split {row['split']}: seeds are within {BAR} nats of each other",
                "this project's aim",
                f"{row['lowest']:.4f} to {row['highest']:.4f}",
                bool(row["between"] <= BAR),
            )
            for row in spread.to_dict("records")
        ),
    )


EXPERIMENT = Experiment("seed-spread", "Models that differ by their seed alone", True, run)
