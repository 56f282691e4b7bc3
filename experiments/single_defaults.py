"""What single defaults are worth: models that have all of them beside models without one, of the same rows.

Length-scales of columns on tables, clean and with columns of noise; an average of kernels on embeddings of intents with
as many labels each; rows that are added to each class where some intents have many labels and some one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.batch_learners import quiet
from experiments.campaigns.methods import check_names, paired
from experiments.defaults import CONDITIONS, Split, scored
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.few_label_sets import OURS
from experiments.uci import TABLES, load
from sureshot.data.clinc150 import load_clinc150
from sureshot.estimators.gp.classifier import GPClassifier

ONE_LENGTH_SCALE, FREQUENCIES, ONE_KERNEL = "one length-scale", "frequencies alone", "one kernel"
WITHOUT: dict[str, tuple[str, Callable[[], GPClassifier]]] = {
    ONE_LENGTH_SCALE: ("relevance=False", lambda: GPClassifier(relevance=False)),
    FREQUENCIES: ("class_prior='support'", lambda: GPClassifier(class_prior="support")),
    ONE_KERNEL: ("ensemble=False", lambda: GPClassifier(ensemble=False)),
}
"""By name: the argument that takes a default away, and the model."""
_FEWEST, _MOST = 1, 20  # labels of an intent, as they are drawn
_N_TEST = 2000


@dataclass(frozen=True)
class Settings:
    """Settings of the study."""

    tables: tuple[str, ...] = TABLES  # as in the study of all defaults
    conditions: tuple[str, ...] = ("all rows", "noise columns")
    ways: tuple[int, ...] = (3, 20, 150)  # numbers of intents
    shots: tuple[int, ...] = (5, 20, 0)  # labels of each intent; 0 is between 1 and 20, drawn for each
    seeds: tuple[int, ...] = (0, 1)  # of the rows


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `Settings` for the options."""
    settings = configure(Settings, options)
    check_names("table", settings.tables, TABLES)
    check_names("condition", settings.conditions, tuple(CONDITIONS))
    found, tasks = [], [*_on_tables(settings, data_root), *_on_intents(settings, data_root)]
    for number, (data, condition, names, splits) in enumerate(tasks):
        progress(f"{data}, {condition}", number / len(tasks))
        for seed in settings.seeds:
            split = splits(seed)
            if split is None:
                continue
            for name in (OURS, *names):
                model = GPClassifier() if name == OURS else WITHOUT[name][1]()
                with quiet():
                    said = scored(model, split)
                found.append({"condition": condition, "run": data, "seed": seed, "method": name, **said})
    frame = pd.DataFrame(found).groupby(["condition", "run", "method"], sort=False, as_index=False).mean()
    gains = _gains(frame)
    return Outcome(
        title="What single defaults are worth",
        introduction=(
            "Models with all defaults beside models without one of them, of the same rows: tables as in "
            "[the study of all defaults](defaults.md), and intents of CLINC150 with as many labels each, or with a "
            f"number between {_FEWEST} and {_MOST} that is drawn for each."
        ),
        tables=(
            Table("gains", "Less without the default: means over sets, and standard errors over them.", gains),
            Table("sets", "Every set.", frame.drop(columns="seed"), on_page=False),
        ),
        config=settings,
        seeds=settings.seeds,
        findings=(),
        verdicts=tuple(_verdict(row) for row in gains.to_dict("records")),
    )


Task = tuple[str, str, list[str], Callable[[int], Split | None]]
"""A set, a condition, what is taken away, and the rows by a seed."""


def _on_tables(settings: Settings, data_root: Path | None) -> Iterator[Task]:
    for condition in settings.conditions:
        for table in settings.tables:
            x, y = load(table, data_root)
            yield table, condition, [ONE_LENGTH_SCALE], partial(CONDITIONS[condition], x, y)


def _on_intents(settings: Settings, data_root: Path | None) -> Iterator[Task]:
    if not settings.ways:
        return
    clinc = load_clinc150(data_root)
    for shots in settings.shots:
        condition = f"{shots} labels an intent" if shots else f"{_FEWEST} to {_MOST} labels an intent"
        for way in settings.ways:
            names = [ONE_KERNEL] if shots else [FREQUENCIES]
            yield f"{way} intents", condition, names, partial(_drawn, clinc, way, shots)


def _drawn(clinc: Any, way: int, shots: int, seed: int) -> Split:
    """Labelled rows of some intents, and rows of them to test on."""
    generator = np.random.default_rng(seed)
    chosen = generator.choice(np.unique(clinc.y_train), way, replace=False)
    counts = np.full(way, shots) if shots else generator.integers(_FEWEST, _MOST + 1, way)
    parts = [generator.permutation(np.flatnonzero(clinc.y_train == label)) for label in chosen]
    train = np.concatenate([part[:count] for part, count in zip(parts, counts, strict=True)])
    test = generator.permutation(np.flatnonzero(np.isin(clinc.y_test, chosen)))[:_N_TEST]
    return Split(clinc.x_train[train], clinc.y_train[train], clinc.x_test[test], clinc.y_test[test])


def _gains(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each condition and default that is taken away."""
    rows = []
    for condition, part in frame.groupby("condition", sort=False):
        means = part.groupby("method")[["nll", "ece"]].mean()
        for name in [name for name in WITHOUT if name in means.index]:
            gap, error, n = paired(part, "nll", OURS, name)
            both = {
                f"{score} {which}": means.loc[of, score]
                for score in ("nll", "ece")
                for which, of in (("with", OURS), ("without", name))
            }
            rows.append(
                {"condition": condition, "without": name, "argument": WITHOUT[name][0], "sets": n, **both}
                | {"nll less": gap, "se": error}
            )
    return pd.DataFrame(rows)


def _verdict(row: dict[Any, Any]) -> Verdict:
    return Verdict(
        f"the default pays, or costs nothing ({row['without']}, {row['condition']})",
        "this project's aim",
        f"NLL {row['nll with']:.3f}, without {row['nll without']:.3f}",
        bool(row["nll less"] <= row["se"] or row["nll less"] <= 0),
    )


EXPERIMENT = Experiment("single-defaults", "Models with all defaults beside models without one of them", True, run)
