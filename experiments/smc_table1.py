"""Structure discovery on three small tables, offline and online, beside nine other methods.

The table of Huang & Wang (2025), section 4.2, by protocols that it leaves open. A campaign, of one cell for each set,
method and fold, or seed and first class; `experiments.smc_table1_report` makes its page.

    python -m experiments smc-table1 --data FOLDER --set 'datasets=["ionosphere"]' --set 'folds=[0, 1]'
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.impute import SimpleImputer
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler

from experiments.batch_learners import quiet, scores
from experiments.campaigns.cells import CampaignConfig
from experiments.campaigns.methods import MethodCell, check_names, described
from experiments.experiment import Experiment, Outcome, Progress, configure
from experiments.smc_methods import METHODS, Context
from experiments.smc_table1_report import outcome_of
from experiments.uci import load
from sureshot.data.root import data_file
from sureshot.estimators import KernelSearchClassifier
from sureshot.metrics import reliability_curve

NAME = "smc-table1"
DATASETS = ("ionosphere", "musk1", "heart_cleveland")
PROTOCOLS = ("offline", "grouped", "online")
N_FOLDS, N_MIXED = 10, 4
_GROUPED = "musk1"
_HEAVIEST = 5  # structures that a record keeps


@dataclass(frozen=True)
class SmcTable1Config(CampaignConfig):
    """Settings."""

    datasets: tuple[str, ...] = DATASETS
    # grouped is offline with molecules kept together, for Musk alone ("offline", "grouped", "online")
    protocols: tuple[str, ...] = PROTOCOLS
    methods: tuple[str, ...] = tuple(METHODS)  # of `experiments.smc_methods.METHODS`
    repeats: tuple[int, ...] = (0, 1)  # of the cross-validation, a repeat draws all ten folds; fewer folds are a sample
    folds: tuple[int, ...] = tuple(range(N_FOLDS))
    # of the online protocol: each draws the held-out rows and the order of the others
    seeds: tuple[int, ...] = tuple(range(10))
    particles: int = 32


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the page of all that are there."""
    settings = configure(SmcTable1Config, options)
    cells = campaign_cells(settings)
    run_one = partial(run_cell, data_root, settings.particles)
    return outcome_of(settings.records(NAME, cells, run_one, progress), cells, settings)


def campaign_cells(settings: SmcTable1Config) -> list[MethodCell]:
    """Fold by fold and seed by seed, so that an unfinished campaign compares all methods on some."""
    check_names("data set", settings.datasets, DATASETS)
    check_names("protocol", settings.protocols, PROTOCOLS)
    check_names("method", settings.methods, METHODS)
    found = []
    for numbers in _runs(settings):
        for data in settings.datasets:
            if numbers["protocol"] == "grouped" and data != _GROUPED:
                continue
            for method in settings.methods:
                make, context = METHODS[method], Context(1, 0, settings.particles)
                estimator = make.make(context) if numbers["protocol"] == "online" else make.offline(context)
                found.append(MethodCell(data, method, numbers, described(estimator)))
    return found


def run_cell(
    data_root: Path | None, particles: int, cell: MethodCell, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Run a cell; the result for its record."""
    x, y = load(cell.data, data_root)
    classes, method = np.unique(y), METHODS[cell.method]
    numbers = {name: value for name, value in cell.protocol.items() if isinstance(value, int)}
    with quiet():
        if cell.protocol["protocol"] == "online":
            context = Context(x.shape[1], numbers["seed"], particles)
            learner = method.learner(context, classes)
            return online(learner, x, y, seed=numbers["seed"], first=numbers["first"])
        context = Context(x.shape[1], N_FOLDS * numbers["repeat"] + numbers["fold"], particles)
        groups = molecules(data_root) if cell.protocol["protocol"] == "grouped" else None
        return offline(method.offline(context), x, y, groups, repeat=numbers["repeat"], fold=numbers["fold"])


def offline(model: Any, x: np.ndarray, y: np.ndarray, groups: Any, *, repeat: int, fold: int) -> dict[str, Any]:
    """Scores of a fold, gaps filled and columns standardised by its training rows."""
    if groups is None:
        splits = StratifiedKFold(N_FOLDS, shuffle=True, random_state=repeat).split(x, y)
    else:
        splits = StratifiedGroupKFold(N_FOLDS, shuffle=True, random_state=repeat).split(x, y, groups)
    train, test = list(splits)[fold]
    filled = SimpleImputer().fit(x[train])
    scaler = StandardScaler().fit(filled.transform(x[train]))
    a, b = (scaler.transform(filled.transform(x[rows])) for rows in (train, test))
    started = time.perf_counter()
    model.fit(a, y[train])
    seconds = time.perf_counter() - started
    p = model.predict_proba(b)
    curve = reliability_curve(p, y[test], classes=model.classes_)
    bins = [curve.count, np.nan_to_num(curve.count * curve.confidence), np.nan_to_num(curve.count * curve.accuracy)]
    return {
        "rows": len(test),
        "scores": {**scores(p, y[test], model.classes_), "seconds": seconds},
        "bins": np.array(bins).tolist(),
        **_kernels(model),
    }


def online(learner: Any, x: np.ndarray, y: np.ndarray, *, seed: int, first: int) -> dict[str, Any]:
    """Scores of the held-out rows after each batch."""
    rows, held_out = train_test_split(np.arange(len(y)), test_size=1 / 3, stratify=y, random_state=seed)
    classes = np.unique(y)
    filled = SimpleImputer().fit(x[rows]).transform(x)
    found, seen = [], 0
    for batch in batches(rows, y, classes[first], seed):
        seen += len(batch)
        started = time.perf_counter()
        learner.partial_fit(filled[batch], y[batch])
        seconds = time.perf_counter() - started
        scored: dict[str, Any] = {**scores(learner.predict_proba(filled[held_out]), y[held_out], classes)}
        if not learner.says_probabilities:
            scored |= dict.fromkeys(("nll", "brier", "ece"))
        found.append({"seen": seen, **scored, "seconds": seconds})
    return {"batches": found, **_kernels(getattr(learner, "model", None))}


def batches(rows: np.ndarray, y: np.ndarray, first: Any, seed: int) -> list[np.ndarray]:
    """A tenth of the rows, all of the first class, then what is left in four."""
    mixed = np.random.default_rng(seed).permutation(rows)
    alone = mixed[y[mixed] == first][: round(0.1 * len(rows))]
    return [alone, *np.array_split(mixed[~np.isin(mixed, alone)], N_MIXED)]


def molecules(root: Path | None) -> np.ndarray:
    """Which rows of Musk are conformations of one molecule."""
    path = data_file(f"uci/{_GROUPED}.csv.gz", root, "with a column meta_molecule")
    return np.asarray(pd.read_csv(path, usecols=["meta_molecule"])["meta_molecule"])


def _runs(settings: SmcTable1Config) -> Iterator[dict[str, str | int]]:
    for repeat in settings.repeats:
        for fold in settings.folds:
            for protocol in ("offline", "grouped"):
                if protocol in settings.protocols:
                    yield {"protocol": protocol, "repeat": repeat, "fold": fold}
    if "online" in settings.protocols:
        for seed in settings.seeds:
            for first in (0, 1):
                yield {"protocol": "online", "seed": seed, "first": first}


def _kernels(model: Any) -> dict[str, Any]:
    if not isinstance(model, KernelSearchClassifier):
        return {}
    return {"kernels": [[round(mass, 4), structure] for mass, structure in model.kernel_posterior_[:_HEAVIEST]]}


EXPERIMENT = Experiment(NAME, "structure discovery on three small tables, offline and online, ten methods", True, run)
