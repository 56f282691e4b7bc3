"""False alarms at a requested rate, and prediction sets, calibrated by leave-one-out predictions.

MAPIE belongs to the benchmark environment only; where it is not installed its rows are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.impute import SimpleImputer

from experiments.batch_learners import quiet
from experiments.clinc150 import few_shot_split
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.uci import load
from sureshot.data.clinc150 import Clinc150, load_clinc150
from sureshot.estimators.classes.classifier_base import IncrementalClassifier
from sureshot.estimators.gp.classifier import GPClassifier

Array = NDArray[Any]
RATES = (0.01, 0.05, 0.10)
COVERAGE = 0.9
OURS = "GPClassifier"
RBF = "GPClassifier, one RBF kernel"
MODELS: dict[str, Callable[[], IncrementalClassifier]] = {
    OURS: GPClassifier,
    RBF: partial(GPClassifier, kernel="rbf"),
}
BY_MAPIE = "{}, by MAPIE"
TABLES = (
    *("balance_scale", "breast_wisconsin", "ida_banana", "ida_flare_solar", "ida_image"),
    *("optdigits", "pendigits", "pima_diabetes", "satimage", "spambase"),
)
DIGITS = "digits, 20 rows a class"
_MIN_TEST = 20  # rows of a class, for its coverage to be stated


@dataclass(frozen=True)
class Settings:
    """Settings of the study."""

    tables: tuple[str, ...] = TABLES
    digits: bool = True  # whether the digits of scikit-learn are among the sets
    shots: tuple[int, ...] = (5, 10)  # queries of each intent of CLINC150 to learn from
    clinc: bool = True  # whether CLINC150 is among the sets
    seeds: int = 10  # draws of rows
    clinc_seeds: int = 5
    mapie_seeds: int = 1  # it fits six models
    n_train: int = 150  # rows of a table at most
    n_test: int = 1500


@dataclass(frozen=True)
class Task:
    """Training rows, and rows to be predicted."""

    data: str
    seed: int
    x: Array  # (n, D)
    y: Array  # (n,)
    x_test: Array  # (m, D), of the classes of y
    y_test: Array  # (m,)
    unknown: Array | None  # (k, D), of another; None where there is none


def table_task(data: str, x: Array, y: Array, seed: int, settings: Settings, per_class: int = 0) -> Task:
    """A random training set, or `per_class` rows of each class; one class is left out if two remain."""
    generator = np.random.default_rng(seed)
    classes = np.unique(y)
    left_out = classes[seed % len(classes)] if len(classes) > 2 else None
    order = generator.permutation(len(y))
    known = order[y[order] != left_out]
    if per_class:
        train = np.concatenate([known[y[known] == label][:per_class] for label in classes])
    else:
        train = known[: min(settings.n_train, len(known) // 2)]
    test = known[~np.isin(known, train) & np.isin(y[known], y[train])][: settings.n_test]
    fill = SimpleImputer(keep_empty_features=True).fit(x[train]).transform
    unknown = None if left_out is None else fill(x[order[y[order] == left_out]][: settings.n_test])
    return Task(data, seed, fill(x[train]), y[train], fill(x[test]), y[test], unknown)


def clinc_task(data: Clinc150, shots: int, seed: int, settings: Settings) -> Task:
    """Some queries of every intent to learn from, and some of the test queries to ask about."""
    split = few_shot_split(data, shots, seed)
    some = np.random.default_rng(seed).permutation(len(split.x_test))[: settings.n_test]
    test = split.x_test[some], split.y_test[some]
    return Task(f"CLINC150, {shots} shots", seed, split.x_train, split.y_train, *test, split.x_unknown)


def all_tasks(settings: Settings, data_root: Path | None, clinc: Clinc150 | None) -> Iterator[Task]:
    """Every draw of every set."""
    if clinc is not None:
        for shots in settings.shots:
            for seed in range(settings.clinc_seeds):
                yield clinc_task(clinc, shots, seed, settings)
    if settings.digits:
        digits = load_digits()
        for seed in range(settings.seeds):
            yield table_task(DIGITS, digits.data, digits.target, seed, settings, per_class=20)
    for name in settings.tables:
        x, y = load(name, data_root)
        for seed in range(settings.seeds):
            yield table_task(name, x, y, seed, settings)


def models_for(task: Task) -> dict[str, Callable[[], IncrementalClassifier]]:
    """The models for a task: on CLINC150 the default alone."""
    if task.data.startswith("CLINC150"):
        return {OURS: MODELS[OURS]}
    return MODELS


def measured(task: Task, name: str, model: IncrementalClassifier) -> tuple[dict[str, Any], pd.DataFrame]:
    """Rates of one fitted model, and its prediction sets for each test row."""
    p = model.novelty_p_value(task.x_test)
    record: dict[str, Any] = {"data": task.data, "model": name, "seed": task.seed}
    record |= {f"false alarms at {rate:.0%}": float((p <= rate).mean()) for rate in RATES}
    if task.unknown is not None:
        unknown = model.novelty_p_value(task.unknown)
        record |= {f"unknown found at {rate:.0%}": float((unknown <= rate).mean()) for rate in RATES}
    places = np.searchsorted(model.classes_, task.y_test)  # in sorted order after fit
    exact, filled = (model.predict_set(task.x_test, COVERAGE, allow_empty=empty) for empty in (True, False))
    rows = pd.DataFrame({"data": task.data, "model": name, "seed": task.seed, "label": task.y_test.astype(str)})
    rows["covered"] = exact.members[np.arange(len(places)), places]
    rows["size"] = exact.sizes
    rows["covered, none empty"] = filled.members[np.arange(len(places)), places]
    rows["size, none empty"] = filled.sizes
    return record, rows


def by_mapie(task: Task, name: str) -> pd.DataFrame:
    """MAPIE's sets of a model: cross-conformal in five folds, by the same score."""
    mapie = import_module("mapie.classification")
    labels, codes = np.unique(task.y, return_inverse=True)
    conformal = mapie.CrossConformalClassifier(MODELS[name](), COVERAGE, "lac", cv=5, random_state=task.seed)
    conformal.fit_conformalize(task.x, codes)
    _, sets = conformal.predict_set(task.x_test)
    members = sets[:, :, 0]
    places = np.searchsorted(labels, task.y_test)
    rows = pd.DataFrame(
        {"data": task.data, "model": BY_MAPIE.format(name), "seed": task.seed, "label": task.y_test.astype(str)}
    )
    rows["covered"], rows["size"] = members[np.arange(len(places)), places], members.sum(1)
    return rows


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `Settings` for the options."""
    settings = configure(Settings, options)
    clinc = load_clinc150(data_root) if settings.clinc else None
    tasks = list(all_tasks(settings, data_root, clinc))
    has_mapie = find_spec("mapie") is not None
    later = {f"CLINC150, {shots} shots" for shots in settings.shots[1:]}
    records, rows = [], []
    with quiet():
        for number, task in enumerate(tasks):
            progress(f"{task.data}, draw {task.seed + 1}", number / len(tasks))
            for name, make in models_for(task).items():
                record, of_rows = measured(task, name, make().fit(task.x, task.y))
                records.append(record)
                rows.append(of_rows)
            if has_mapie and task.seed < settings.mapie_seeds and task.data not in later:
                rows.append(by_mapie(task, OURS if task.data.startswith("CLINC150") else RBF))
    alarms = _alarms(pd.DataFrame(records))
    sets = _sets(pd.concat(rows))
    return Outcome(
        title="Decisions: one of the known classes or none, and sets of labels",
        introduction=(
            f"{len(alarms['data'].unique())} sets. Of a table at most {settings.n_train} rows are learnt from, and "
            "the others are asked about; no row is held out to calibrate by. Where a set has three classes or more one "
            "of them, another for every draw, is not learnt, and its rows are the unknown ones; on CLINC150 all "
            "intents are learnt, and out-of-scope queries are unknown. A false alarm is a row of a known class whose "
            "`novelty_p_value` is no larger than the rate. Standard errors are over draws. Defaults everywhere"
            + ("." if has_mapie else "; MAPIE was not installed, so that its rows are missing.")
        ),
        tables=(
            Table("false-alarms", "False alarms at three rates, and unknown rows that are found.", alarms),
            Table(
                "sets",
                f"Sets at a coverage of {COVERAGE:.0%}: as conformal sets are, some empty, and as `predict_set` gives "
                "them, with the most probable class in each. Least and largest coverage of a class, with "
                f"{_MIN_TEST} test rows or more over all draws. MAPIE fits a model six times, in five folds and by the "
                f"same score, on {settings.mapie_seeds} of the draws (of CLINC150 with the fewest shots).",
                sets,
            ),
        ),
        config=settings,
        seeds=tuple(range(max(settings.seeds, settings.clinc_seeds))),
        findings=(),
        verdicts=tuple(_verdicts(alarms, sets)),
    )


def _alarms(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over draws, and the standard error of what counts."""
    grouped = frame.groupby(["data", "model"], sort=False)
    found = grouped[[name for name in frame.columns if name not in ("data", "model", "seed")]].mean()
    middle = f"false alarms at {RATES[1]:.0%}"
    found.insert(2, "standard error", grouped[middle].std() / np.sqrt(grouped.size()))
    return found.reset_index()


def _sets(rows: pd.DataFrame) -> pd.DataFrame:
    """Coverage, the range of it over classes, and sizes; draws count alike."""
    keys = ["data", "model"]
    numbers = ["covered", "size", "covered, none empty", "size, none empty"]
    by_draw = rows.groupby([*keys, "seed"], sort=False)[numbers].mean()
    found = by_draw.groupby(keys, sort=False).mean()
    error = by_draw["covered"].groupby(keys, sort=False).sem()
    of_class = rows.groupby([*keys, "label"], sort=False)["covered"].agg(["mean", "size"])
    enough = of_class[of_class["size"] >= _MIN_TEST]["mean"].groupby(keys, sort=False)
    return (
        pd.DataFrame(
            {
                "coverage": found["covered"],
                "standard error": error,
                "least of a class": enough.min(),
                "most of a class": enough.max(),
                "size": found["size"],
                "coverage, none empty": found["covered, none empty"],
                "size, none empty": found["size, none empty"],
            }
        )
        .loc[found.index]
        .reset_index()
    )


def _verdicts(alarms: pd.DataFrame, sets: pd.DataFrame) -> Iterator[Verdict]:
    source = "this project's target"
    ours = alarms[alarms["model"] == OURS]
    shares = dict(zip(ours["data"], ours[f"false alarms at {RATES[1]:.0%}"], strict=True))
    yield Verdict(
        f"{OURS}: 3 to 7 % of false alarms at 5 % on every set.",
        source,
        ", ".join(f"{name} {share:.1%}" for name, share in shares.items()),
        all(0.03 <= share <= 0.07 for share in shares.values()),
    )
    covered = dict(zip(*(sets[sets["model"] == OURS][name] for name in ("data", "coverage")), strict=True))
    mean = float(np.mean(list(covered.values())))
    yield Verdict(
        f"{OURS}: sets at 90 % cover 88 to 93 % overall.",
        source,
        f"{mean:.1%}; " + ", ".join(f"{name} {share:.1%}" for name, share in covered.items()),
        0.88 <= mean <= 0.93,
    )


EXPERIMENT = Experiment(
    "decisions", "False alarms at a stated rate, and sets of labels at a stated coverage", True, run
)
