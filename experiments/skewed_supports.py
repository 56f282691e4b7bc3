"""Some classes have a label or a few more than others: does that make answers worse than one label for each does?

Rows that can be left out are then of some classes only, and what they say of scales and temperatures holds for these.
Every draw is nested: the support with one row of each class is part of all others, and test rows are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.batch_learners import quiet, scores
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.few_label_sets import LOGISTIC, OURS, FewLabelSet
from experiments.uci import tables_but
from sureshot.estimators.gp.classifier import GPClassifier

ONE_EACH = "1 each"
SUPPORTS: dict[str, Callable[[int], list[int]]] = {
    ONE_EACH: lambda classes: [1] * classes,
    "first 2, others 1": lambda classes: [2] + [1] * (classes - 1),
    "half 2, half 1": lambda classes: [2] * (classes // 2) + [1] * (classes - classes // 2),
    "first 5, others 1": lambda classes: [5] + [1] * (classes - 1),
    "half 5, half 1": lambda classes: [5] * (classes // 2) + [1] * (classes - classes // 2),
    "first 20, others 1": lambda classes: [20] + [1] * (classes - 1),
    "half 20, half 1": lambda classes: [20] * (classes // 2) + [1] * (classes - classes // 2),
    "first 20, others 3": lambda classes: [20] + [3] * (classes - 1),
    "3 each": lambda classes: [3] * classes,
}
"""Labelled rows of each class, in an order of classes that the seed draws."""
MOST_ROWS = 20
GAIN = 0.05  # nats of log loss that more labels may cost before it counts as a loss


@dataclass(frozen=True)
class Settings:
    """Settings of the study."""

    # tables; classes with fewer than 25 rows are left out
    tables: tuple[str, ...] = tables_but("credit_australian", "ida_breast_cancer", "ida_flare_solar", "zoo")
    ways: tuple[int, ...] = (2, 5, 20)  # numbers of classes that are one intent each
    groups: tuple[tuple[int, int], ...] = ((2, 5), (2, 20), (5, 4))  # numbers of classes, and of intents that make one
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5)  # of the choice of labels
    n_test: int = 500  # test rows at most


def supports(x: np.ndarray, y: np.ndarray, n_test: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows of every support, and test rows that none of them has."""
    generator = np.random.default_rng(seed)
    classes, counts = np.unique(y, return_counts=True)
    classes = generator.permutation(classes[counts >= MOST_ROWS + 5])
    parts = [generator.permutation(np.flatnonzero(y == label)) for label in classes]
    found = {
        name: np.concatenate([part[:n] for part, n in zip(parts, rows_of(len(classes)), strict=True)])
        for name, rows_of in SUPPORTS.items()
    }
    rest = np.concatenate([part[MOST_ROWS:] for part in parts])
    return found, generator.permutation(rest)[:n_test]


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `Settings` for the options."""
    settings = configure(Settings, options)
    sets = FewLabelSet.of_intents((*((way, 1) for way in settings.ways), *settings.groups))
    sets += [FewLabelSet(name) for name in settings.tables]
    scored = []
    for number, one in enumerate(sets):
        progress(one.name, number / len(sets))
        x, y = one.rows(data_root)
        for seed in settings.seeds:
            rows, labels = one.of_seed(x, y, seed)
            drawn, test = supports(rows, labels, settings.n_test, seed)
            for support, train in drawn.items():
                for method, model in ((OURS, GPClassifier()), (LOGISTIC, one.peer())):
                    with quiet():
                        model.fit(rows[train], labels[train])
                    said = scores(model.predict_proba(rows[test]), labels[test], model.classes_)
                    scored.append({"rows": one.kind, "data": one.name, "labels": support, "method": method, **said})
    frame = pd.DataFrame(scored)
    of_sets = frame.groupby(["rows", "data", "labels", "method"], sort=False)[["nll", "accuracy", "ece"]].mean()
    means = of_sets.groupby(["rows", "labels", "method"], sort=False).mean()
    by_set = of_sets["nll"].xs(OURS, level="method").unstack("labels")[list(SUPPORTS)]
    return Outcome(
        title="Supports of uneven classes",
        introduction=(
            "Labels of one class or of half of them are more than one, those of the others one each. The model should "
            "not be worse for it. Test rows of intents come in equal shares, those of tables as they are."
        ),
        tables=(
            Table("means", "Means over the sets.", means.reset_index()),
            Table("sets", f"Negative log likelihood of {OURS} on each set.", by_set.reset_index()),
        ),
        config=settings,
        seeds=settings.seeds,
        findings=(),
        verdicts=tuple(_verdicts(means["nll"])),
    )


def _verdicts(nll: pd.Series) -> list[Verdict]:
    found = []
    for kind in nll.index.unique("rows"):
        ours = nll.loc[kind].xs(OURS, level="method")
        excess = ours.drop(ONE_EACH) - ours[ONE_EACH]
        worst = excess.idxmax()
        found.append(
            Verdict(
                f"{kind}: further labels of some classes cost at most {GAIN} nats",
                "this project's aim",
                f"{ours[worst]:.3f} by {worst}, {ours[ONE_EACH]:.3f} by {ONE_EACH}",
                bool(excess[worst] <= GAIN),
            )
        )
    return found


EXPERIMENT = Experiment("skewed-supports", "Some classes with a few labels more than others", True, run)
