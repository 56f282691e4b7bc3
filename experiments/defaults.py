"""What the defaults are worth: 25 tables and three sets of embeddings, clean and dirty, large and small, beside peers.

A campaign with a cell for each data set and method, which covers every condition and seed. Test rows are corrupted like
training rows, except for wrong labels. Embeddings have only those conditions under which they remain embeddings.

    python -m experiments defaults --data FOLDER --set 'datasets=["glass"]' --set 'seeds=[0]'
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from experiments.batch_learners import quiet, scores
from experiments.campaigns.cells import CampaignConfig
from experiments.campaigns.methods import MethodCell, check_names, described
from experiments.defaults_report import EMBEDDINGS, OURS, SINGLE, outcome_of
from experiments.experiment import Experiment, Outcome, Progress, configure
from experiments.few_label_sets import grouped
from experiments.peers import random_forest
from experiments.uci import TABLES, load
from sureshot.data.clinc150 import load_clinc150
from sureshot.demo.peers import logistic_regression
from sureshot.estimators.gp.classifier import GPClassifier

NAME = "defaults"
CATBOOST = "CatBoost"
_NOISE_COLUMNS, _WILD, _WRONG, _RARE = 50, 0.01, 0.2, 50
_LARGE = {"train": 1000, "test": 2000}


@dataclass(frozen=True)
class Split:
    """Training and test rows, with gaps as NaN."""

    x: np.ndarray  # (n, D)
    y: np.ndarray  # (n,)
    test_x: np.ndarray  # (m, D)
    test_y: np.ndarray  # (m,)


def whole(x: np.ndarray, y: np.ndarray, seed: int) -> Split | None:
    """Seven tenths of the rows for training, at most a thousand."""
    train, test = train_test_split(np.arange(len(y)), test_size=0.3, stratify=y, random_state=seed)
    train, test = (_at_most(rows, y, _LARGE[name], seed) for rows, name in ((train, "train"), (test, "test")))
    return Split(x[train], y[train], x[test], y[test])


def few(n: int, x: np.ndarray, y: np.ndarray, seed: int) -> Split | None:
    """`n` rows of each class for training, the others for testing; None if a class has too few."""
    generator = np.random.default_rng(seed)
    rows = [generator.permutation(np.flatnonzero(y == label)) for label in np.unique(y)]
    if min(map(len, rows)) < n + 3:
        return None
    train = np.concatenate([part[:n] for part in rows])
    test = _at_most(np.concatenate([part[n:] for part in rows]), y, _LARGE["test"], seed)
    return Split(x[train], y[train], x[test], y[test])


def heavy_tails(x: np.ndarray, y: np.ndarray, seed: int) -> Split | None:
    """The exponential of standardised columns."""
    deviation = np.nanstd(x, axis=0)
    return whole(np.exp((x - np.nanmean(x, axis=0)) / np.where(deviation > 0, deviation, 1)), y, seed)


def wild_cells(x: np.ndarray, y: np.ndarray, seed: int) -> Split | None:
    """One cell in a hundred is multiplied by a hundred."""
    wild = np.random.default_rng(seed).random(x.shape) < _WILD
    return whole(np.where(wild, 100 * x, x), y, seed)


def noise_columns(x: np.ndarray, y: np.ndarray, seed: int) -> Split | None:
    """Fifty additional columns of noise."""
    return whole(np.hstack([x, np.random.default_rng(seed).normal(size=(len(x), _NOISE_COLUMNS))]), y, seed)


def label_noise(x: np.ndarray, y: np.ndarray, seed: int) -> Split | None:
    """One training label in five is replaced by that of another class."""
    split = whole(x, y, seed)
    assert split is not None
    generator, classes = np.random.default_rng(seed), np.unique(y)
    wrong = generator.random(len(split.y)) < _WRONG
    others = (np.searchsorted(classes, split.y) + generator.integers(1, len(classes), len(split.y))) % len(classes)
    return Split(split.x, np.where(wrong, classes[others], split.y), split.test_x, split.test_y)


def rare_class(x: np.ndarray, y: np.ndarray, seed: int) -> Split | None:
    """The two largest classes, one of them fifty times as frequent; None if that leaves fewer than ten rare rows."""
    classes, counts = np.unique(y, return_counts=True)
    often, rarely = classes[np.argsort(-counts, kind="stable")[:2]]
    generator = np.random.default_rng(seed)
    frequent = generator.permutation(np.flatnonzero(y == often))
    rare = generator.permutation(np.flatnonzero(y == rarely))[: len(frequent) // _RARE]
    if len(rare) < 10:
        return None
    rows = np.concatenate([frequent, rare])
    return whole(x[rows], y[rows], seed)


CONDITIONS: dict[str, Callable[[np.ndarray, np.ndarray, int], Split | None]] = {
    "all rows": whole,
    "20 rows a class": partial(few, 20),
    "10 rows a class": partial(few, 10),
    "5 rows a class": partial(few, 5),
    "heavy tails": heavy_tails,
    "wild cells": wild_cells,
    "noise columns": noise_columns,
    "wrong labels": label_noise,
    "one in fifty": rare_class,
}
"""By name: the split of a data set under a condition and a seed, or None if the data set is too small."""

OF_COLUMNS = ("heavy tails", "wild cells", "noise columns")
"""Conditions after which embeddings are no longer embeddings."""


def tuned_svm() -> GridSearchCV:
    """RBF SVM with penalty and width chosen by cross-validation, and probabilities by Platt scaling."""
    sigmoid = CalibratedClassifierCV(SVC(random_state=0), method="sigmoid", cv=3, ensemble=False)
    grid = {"estimator__C": [0.1, 1, 10, 100], "estimator__gamma": ["scale", 0.01, 0.1]}
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    return GridSearchCV(sigmoid, grid, scoring="neg_log_loss", cv=folds)


def calibrated_extra_trees() -> CalibratedClassifierCV:
    """500 extremely randomised trees with Platt scaling; the rows are too few for isotonic regression."""
    return CalibratedClassifierCV(ExtraTreesClassifier(500, random_state=0), method="sigmoid", cv=3, ensemble=False)


def catboost(**options: Any) -> Any:
    """CatBoost with its defaults except for these options; installed in the environment of benchmarks only."""
    from catboost import CatBoostClassifier

    return CatBoostClassifier(random_seed=0, verbose=False, allow_writing_files=False, thread_count=1, **options)


METHODS: dict[str, Callable[[], Any]] = {
    OURS: GPClassifier,
    SINGLE: partial(GPClassifier, ensemble=False),
    "logistic regression": logistic_regression,
    "tuned SVM": tuned_svm,
    "random forest": random_forest,
    "extra trees": calibrated_extra_trees,
    "HistGradientBoosting": partial(HistGradientBoostingClassifier, random_state=0),
    CATBOOST: catboost,
}


INSTALLED = tuple(name for name in METHODS if name != CATBOOST or find_spec("catboost") is not None)
"""Methods whose packages are installed."""


@dataclass(frozen=True)
class DefaultsConfig(CampaignConfig):
    """Settings."""

    datasets: tuple[str, ...] = (*TABLES, *EMBEDDINGS)  # of `TABLES` and `EMBEDDINGS`, `CONDITIONS` and `INSTALLED`
    conditions: tuple[str, ...] = tuple(CONDITIONS)
    methods: tuple[str, ...] = INSTALLED
    seeds: tuple[int, ...] = (0, 1, 2)  # each draws training and test rows, and the dirt


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the page of all that are there."""
    settings = configure(DefaultsConfig, options)
    cells = campaign_cells(settings)
    records = settings.records(NAME, cells, partial(run_cell, data_root), progress)
    return outcome_of(records, cells, settings)


def campaign_cells(settings: DefaultsConfig) -> list[MethodCell]:
    """All cells, one data set after the other."""
    check_names("data set", settings.datasets, (*TABLES, *EMBEDDINGS))
    check_names("condition", settings.conditions, CONDITIONS)
    check_names("method", settings.methods, INSTALLED)
    cells = []
    for data in settings.datasets:
        conditions = [name for name in settings.conditions if data in TABLES or name not in OF_COLUMNS]
        further = {"conditions": conditions, "seeds": list(settings.seeds)}
        for method in settings.methods:
            what = described(METHODS[method]())
            cells.append(MethodCell(data, method, {"protocol": "conditions"}, what, further))
    return cells


def run_cell(data_root: Path | None, cell: MethodCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """The record of a cell: scores under every condition under which the method can be fitted."""
    x, y = rows_of(cell.data, data_root)
    found: list[dict[str, Any]] = []
    too_few: set[str] = set()
    tasks = [(name, seed) for name in cell.further["conditions"] for seed in cell.further["seeds"]]
    for number, (condition, seed) in enumerate(tasks):
        progress(f"{condition}, seed {seed}", number / len(tasks))
        split = CONDITIONS[condition](x, y, seed)
        if split is None:
            continue
        try:
            with quiet():
                found.append({"condition": condition, "seed": seed, **scored(METHODS[cell.method](), split)})
        except ValueError:  # wrong labels may leave two rows of a class, too few to calibrate trees and machines by
            if cell.method in (OURS, SINGLE):
                raise
            too_few.add(condition)
    return {"runs": [run for run in found if run["condition"] not in too_few]}


def rows_of(data: str, data_root: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels of a table, gaps included, or of a set of intents."""
    if data in TABLES:
        return load(data, data_root)
    clinc = load_clinc150(data_root)
    return grouped(clinc.x_train, clinc.y_train, *EMBEDDINGS[data], seed=0)


def scored(model: Any, split: Split) -> dict[str, float]:
    """Scores on the test rows, and the seconds of the fit."""
    steps = [SimpleImputer()] if isinstance(model, GPClassifier) else [SimpleImputer(), StandardScaler()]
    pipeline = make_pipeline(*steps, model)
    started = time.process_time()
    pipeline.fit(split.x, split.y)
    seconds = time.process_time() - started
    classes = np.unique(np.concatenate([split.y, split.test_y]))
    p = np.zeros((len(split.test_y), len(classes)))
    p[:, np.searchsorted(classes, pipeline.classes_)] = pipeline.predict_proba(split.test_x)
    return {**scores(p, split.test_y, classes), "seconds": seconds, "rows": len(split.y)}


def _at_most(rows: np.ndarray, y: np.ndarray, most: int, seed: int) -> np.ndarray:
    """A stratified sample of `most` rows, or all if there are fewer."""
    if len(rows) <= most:
        return rows
    kept, _ = train_test_split(rows, train_size=most, stratify=y[rows], random_state=seed)
    found: np.ndarray = kept
    return found


EXPERIMENT = Experiment(
    NAME, "the defaults on 25 tables and embeddings, clean and dirty, beside tuned peers", True, run
)
