"""What every special case of the defaults is worth: each is switched off, on all supports where that can change a fit.

A campaign of one cell for each switch (`special_case_switches`), set, condition and seed; those of the defaults come
first, then switch by switch, the quickest first. A special case that is worth less than `MEAN` nats in the mean of the
sets, and less than `SINGLE` on every one, is to be deleted.

    python -m experiments.special_cases                                  # prints what there is to do, and how long
    python -m experiments special-cases --data FOLDER --set jobs=2       # runs it, and writes the page
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Parallel, delayed
from sklearn.impute import SimpleImputer

from experiments import defaults, embeddings_panel, few_labels, skewed_supports
from experiments.batch_learners import quiet
from experiments.campaigns.cells import FAILED, run_cells
from experiments.campaigns.methods import MethodCell, Record, check_names, described, what_is_missing
from experiments.defaults import Split
from experiments.defaults_report import EMBEDDINGS
from experiments.experiment import Experiment, Outcome, Progress, Table, configure
from experiments.few_label_sets import FewLabelSet
from experiments.special_case_switches import SWITCHES, Facts, facts_of
from experiments.uci import TABLES
from sureshot.estimators.gp.classifier import GPClassifier

NAME, DEFAULTS = "special-cases", "defaults"
MEAN, SINGLE = 0.003, 0.03
"""Nats that a special case must be worth: in the mean of sets, or on one of them."""
AT, SCORES = ("panel", "data", "condition", "seed"), ("nll", "accuracy", "seconds")
INTENTS = {one.name: one for one in FewLabelSet.of_intents(((2, 1), (5, 1), (20, 1), (2, 5), (2, 20), (5, 4), (20, 4)))}
SKEWED = ("1 each", "first 5, others 1", "half 2, half 1", "first 20, others 1", "half 20, half 1")
TABLE_CONDITIONS: Mapping[str, Callable[..., Split | None]] = {
    **defaults.CONDITIONS,
    **{f"{n} rows a class": partial(defaults.few, n) for n in (2, 1)},
}
PANELS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "tables": ((*TABLES, *EMBEDDINGS), tuple(TABLE_CONDITIONS)),
    "embeddings": (embeddings_panel.SETS, ("1 label", "2 labels", "5 labels", "20 labels")),
    "images": (tuple(few_labels.IMAGES), ("1 label", "2 labels")),
    "skewed": (tuple(INTENTS), SKEWED),
}
"""Sets and conditions: those of `defaults` and `embeddings-panel`, fewer labels, and classes of uneven sizes."""
_LEFT_OUT = {*itertools.product(EMBEDDINGS, defaults.OF_COLUMNS), (embeddings_panel.CLINC, "20 labels")}
N_TEST = 1000


@dataclass(frozen=True)
class Settings:
    """Settings."""

    panels: tuple[str, ...] = tuple(PANELS)
    datasets: tuple[str, ...] = ()  # all that panels have, if none is named; and conditions
    conditions: tuple[str, ...] = ()
    switches: tuple[str, ...] = tuple(SWITCHES)
    seeds: tuple[int, ...] = (0, 1)
    jobs: int = 1  # processes
    # folders of the cells' results and locks; the campaign has one of its name in each
    results: str = "docs/results/cells"
    checkpoints: str = "campaigns"
    train: bool = True  # False: make the page of what is there; needs the data, too, which say what switches can change


@dataclass(frozen=True)
class Support:
    """What is learnt from: rows of a set under a condition, as a seed draws them."""

    panel: str
    data: str
    condition: str
    seed: int

    def split(self, root: Path | None) -> Split | None:
        """Rows to learn from and to test on; None where the set is too small."""
        rows = _rows(self.panel, self.data, root)
        if self.panel == "tables":
            return TABLE_CONDITIONS[self.condition](*rows, seed=self.seed)
        if self.panel == "skewed":
            x, y = INTENTS[self.data].of_seed(rows[0], rows[1], self.seed)
            supports, test = skewed_supports.supports(x, y, N_TEST, self.seed)
            train = supports[self.condition]
            return Split(x[train], y[train], x[test], y[test])
        shots = int(self.condition.split()[0])
        if self.panel == "images":
            return Split(*few_labels._of_images(rows, N_TEST, shots, self.seed))
        draw = embeddings_panel.drawn(rows, shots, self.seed)
        return None if draw is None else Split(draw.x, draw.y, draw.test_x, draw.test_y)


@lru_cache(maxsize=2)
def _rows(panel: str, data: str, root: Path | None) -> Any:
    """All rows of a set."""
    if panel == "tables":
        return defaults.rows_of(data, root)
    if panel == "skewed":
        return INTENTS[data].rows(root)
    return (few_labels.IMAGES[data] if panel == "images" else partial(embeddings_panel.rows_of, data))(root)


def supports_of(settings: Settings, root: Path | None) -> dict[Support, Facts]:
    """All supports that there are, and what conditions ask of them."""
    found = {}
    for panel in settings.panels:
        sets, conditions = PANELS[panel]
        sets = [name for name in sets if name in (settings.datasets or sets)]
        conditions = [name for name in conditions if name in (settings.conditions or conditions)]
        for data, condition, seed in itertools.product(sets, conditions, settings.seeds):
            support = Support(panel, data, condition, seed)
            split = None if (data, condition) in _LEFT_OUT else support.split(root)
            if split is not None:
                found[support] = facts_of(SimpleImputer().fit_transform(split.x), split.y)
    return found


def seconds_of(facts: Facts) -> float:
    """Roughly, of a fit and its predictions on a core, as some took that were timed."""
    thousands, classes = facts["rows"] / 1000, facts["classes"]
    if facts["unit"]:
        return 0.3 + 0.001 * classes + thousands * min(0.06 * classes, 10)
    return 0.5 + 0.1 * min(classes, 26) + thousands * (5 + min(classes, 26)) + 0.0004 * facts["columns"]


def plan(settings: Settings, supports: dict[Support, Facts]) -> pd.DataFrame:
    """Cells and hours of each switch, the quickest first; those of the defaults come before all."""
    counts = [(DEFAULTS, len(supports), sum(map(seconds_of, supports.values())) / 3600)]
    for switch in map(SWITCHES.__getitem__, settings.switches):
        own = [switch.slower * seconds_of(facts) for facts in supports.values() if switch.can_change(facts)]
        counts.append((switch.name, len(own), sum(own) / 3600))
    ordered = [counts[0], *sorted(counts[1:], key=lambda row: row[2])]
    return pd.DataFrame(ordered, columns=["switch", "cells", "hours"])


def cells_of(settings: Settings, supports: dict[Support, Facts]) -> list[MethodCell]:
    """In the order of the plan."""
    estimator, cells = described(GPClassifier()), []
    for name in plan(settings, supports)["switch"]:
        switch = SWITCHES.get(name)
        further = {} if switch is None else {"target": switch.target, "where": switch.where}
        for at, facts in supports.items():
            if switch is None or switch.can_change(facts):
                protocol: dict[str, str | int] = {"panel": at.panel, "condition": at.condition, "seed": at.seed}
                cells.append(MethodCell(at.data, name, protocol, estimator, further))
    return cells


def run_cell(root: Path | None, cell: MethodCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """Scores of the defaults with a switch on; a switch may break a fit, the defaults may not."""
    at: dict[str, Any] = {name: cell.labels[name] for name in AT}
    split, switch = Support(**at).split(root), SWITCHES.get(cell.method)
    assert split is not None
    progress(str(cell.protocol["condition"]), 0.0)
    try:
        with quiet(), nullcontext() if switch is None else switch.on():
            return {"run": defaults.scored(GPClassifier(), split)}
    except Exception as error:
        if switch is None:
            raise
        return {FAILED: f"{type(error).__name__}: {error}"}


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the page of all that are there."""
    settings = configure(Settings, options)
    check_names("switch", settings.switches, tuple(SWITCHES))
    cells = cells_of(settings, supports_of(settings, data_root))
    folders = Path(settings.results) / NAME, Path(settings.checkpoints) / NAME
    do = partial(run_cells, cells, *folders, partial(run_cell, data_root))
    if settings.train and settings.jobs > 1:  # each takes the cells that no other is at
        Parallel(n_jobs=settings.jobs)(delayed(do)(_silent) for _ in range(settings.jobs))
    return outcome_of(do(progress, settings.train), cells, settings)


def _silent(what: str, fraction: float) -> None:
    """Of a process beside others."""


def gains_of(records: Sequence[Record]) -> pd.DataFrame:
    """Nats, accuracy and seconds that a switch has more than the defaults, at each support with both results."""
    rows = [
        {**record["labels"], **{name: record["run"][name] for name in SCORES}}
        for record in records
        if FAILED not in record
    ]
    frame = pd.DataFrame(rows, columns=["method", *AT, *SCORES])
    of_defaults = frame[frame["method"] == DEFAULTS].drop(columns="method")
    both = frame[frame["method"] != DEFAULTS].merge(of_defaults, on=list(AT), suffixes=("", " of defaults"))
    for name in SCORES:
        both[name] -= both.pop(f"{name} of defaults")
    return both.rename(columns={"method": "switch"})


def table_of(gains: pd.DataFrame) -> pd.DataFrame:
    """A row for each switch: a set counts once in a panel, with the mean of its conditions and seeds."""
    found = []
    for name, own in gains.groupby("switch", sort=False):
        by_set = own["panel"] + " " + own["data"]
        sets, single = own.groupby(by_set)["nll"].mean(), own.groupby([by_set, "condition"])["nll"].mean()
        stays = sets.mean() >= MEAN or sets.max() >= SINGLE
        found.append(
            {
                "without": name,
                "sets": len(sets),
                "worth": sets.mean(),
                "standard error": sets.sem(),
                "most": sets.max(),
                "on": sets.idxmax(),
                "least": sets.min(),
                "of": sets.idxmin(),
                "most in a condition": single.max(),
                "accuracy": -own["accuracy"].mean(),
                "seconds": -own["seconds"].mean(),
                "verdict": "stays" if stays else "is to be deleted",
            }
        )
    return pd.DataFrame(found)


def outcome_of(records: Sequence[Record], cells: Sequence[MethodCell], settings: Settings) -> Outcome:
    """The outcome as far as the campaign has been run; ValueError if nothing can be compared yet."""
    gains = gains_of(records)
    if gains.empty:
        raise ValueError("no switch of this campaign has a result beside the defaults' yet, so there is no table")
    table = table_of(gains)
    have = gains.groupby("switch").size()
    wanted = pd.Series([cell.method for cell in cells]).value_counts()
    table.insert(1, "cells", [f"{have[name]} of {wanted[name]}" for name in table["without"]])
    table.loc[[have[name] < wanted[name] for name in table["without"]], "verdict"] = "not known yet"
    targets = [(one.name, one.target, one.where) for one in map(SWITCHES.__getitem__, settings.switches)]
    return Outcome(
        title="What special cases of the defaults are worth",
        introduction=(
            "Each is switched off on all supports where that can change a fit. What it is worth are the nats of log "
            "loss that are lost without it, and likewise of accuracy and seconds of a fit. A set counts once in a "
            f"panel; a special case stays if it is worth {MEAN} nats in the mean of the sets, or {SINGLE} on one."
        ),
        tables=(
            Table("worth", "With a special case less without it.", table.sort_values("worth"), digits=4),
            Table(
                "switches", "What is replaced, and where.", pd.DataFrame(targets, columns=["without", "name", "where"])
            ),
            Table("gains", "By support.", gains, on_page=False),
        ),
        config=settings,
        seeds=settings.seeds,
        findings=tuple(what_is_missing(records, cells)),
    )


EXPERIMENT = Experiment(NAME, "each special case of the defaults switched off, where that can change a fit", True, run)

if __name__ == "__main__":
    everything = Settings()
    found = plan(everything, supports_of(everything, Path(os.environ["SURESHOT_DATA"])))
    print(found.to_string(index=False, float_format="%.2f"))
    print(f"{found['cells'].sum()} cells, about {found['hours'].sum():.1f} hours of a core")
