"""Few labels on frozen embeddings: 13 sets of texts and images by four encoders, and CLINC150, beside peers.

A campaign with a cell for each data set and method, which covers both numbers of labels (CLINC150 the lower) and all
draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import normalize

from experiments.batch_learners import quiet, scores
from experiments.campaigns.cells import FAILED, CampaignConfig
from experiments.campaigns.methods import MethodCell, Record, check_names, described, what_is_missing
from experiments.defaults import tuned_svm
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from sureshot.data.clinc150 import load_clinc150
from sureshot.data.root import data_root as find_data_root
from sureshot.demo.peers import TemperatureScaledLogisticRegression
from sureshot.estimators.gp.classifier import GPClassifier

NAME = "embeddings-panel"
OURS, LINEAR, LOGISTIC = "sureshot", "cosine alone", "logistic regression, one temperature"
CLINC, CLINC_SHOTS = "clinc150", 5
TEXTS = (
    *("hwu64", "snips", "sms_spam", "stackoverflow", "stackoverflow_static64", "agnews", "medical_abstracts"),
    *("hint3_curekart", "hint3_curekart_e5", "indo_emotion"),
)
IMAGES = ("cifar10", "omniglot100", "clothing10")
SETS = (*TEXTS, *IMAGES, CLINC)
N_TEST = 1000
PANEL = {5: (13, 10), 20: (12, 11)}
"""By labels of each class how many sets beside CLINC150 have as many, and on how many we aim to be ahead."""
_AIM = "this project's aim"


class NearestClassMean(ClassifierMixin, BaseEstimator):
    """A softmax of `factor` times the cosines between a row and the class means."""

    def __init__(self, factor: float = 20.0) -> None:
        self.factor = factor

    def fit(self, X: np.ndarray, y: np.ndarray) -> NearestClassMean:
        """Means of rows of unit length."""
        self.classes_ = np.unique(y)
        self.means_ = normalize(np.stack([X[y == label].mean(0) for label in self.classes_]))
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Class probabilities (n, C)."""
        logits = self.factor * X @ self.means_.T
        p = np.exp(logits - logits.max(1, keepdims=True))
        found: np.ndarray = p / p.sum(1, keepdims=True)
        return found


METHODS: dict[str, Callable[[], Any]] = {
    OURS: GPClassifier,
    LINEAR: partial(GPClassifier, kernel="cosine"),
    "RBF of directions alone": partial(GPClassifier, kernel="unit_rbf"),
    "Matern-3/2 of directions alone": partial(GPClassifier, kernel="unit_matern32"),
    LOGISTIC: partial(TemperatureScaledLogisticRegression, C=100.0),
    "nearest class mean": NearestClassMean,
    "tuned SVM": tuned_svm,
}


@dataclass(frozen=True)
class PanelConfig(CampaignConfig):
    """Settings."""

    datasets: tuple[str, ...] = SETS  # of `SETS` and `METHODS`
    methods: tuple[str, ...] = tuple(METHODS)
    shots: tuple[int, ...] = (5, 20)  # labels of each class; classes with fewer rows are left out
    seeds: tuple[int, ...] = (0, 1, 2)  # each draws rows to learn from and to test on


@dataclass(frozen=True)
class Draw:
    """Training and test rows, classes numbered from 0."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def rows_of(name: str, data_root: Path | None) -> Draw:
    """All rows of a set by its own split, texts' of unit length to the last digit."""
    if name == CLINC:
        clinc = load_clinc150(data_root)
        return Draw(*(normalize(clinc.x_train), clinc.y_train, normalize(clinc.x_test), clinc.y_test))
    file = f"embeddings/{name}.npz"
    with np.load(find_data_root(data_root, file, "expected arrays embedding, label and split") / file) as arrays:
        x, y, split = arrays["embedding"].astype(np.float64), arrays["label"].astype(np.int64), arrays["split"]
    x = normalize(x) if name in TEXTS else x
    return Draw(x[split == 0], y[split == 0], x[split == 1], y[split == 1])


def drawn(rows: Draw, shots: int, seed: int) -> Draw | None:
    """`shots` rows of each class with enough, and test rows of these classes; None with fewer than two such classes."""
    generator = np.random.default_rng(seed)
    labels, counts = np.unique(rows.y, return_counts=True)
    labels = labels[counts >= shots]
    if len(labels) < 2:
        return None
    chosen = [generator.choice(np.flatnonzero(rows.y == label), shots, replace=False) for label in labels]
    train = np.concatenate(chosen)
    test = generator.permutation(np.flatnonzero(np.isin(rows.test_y, labels)))[:N_TEST]
    numbers = [np.searchsorted(labels, y) for y in (rows.y[train], rows.test_y[test])]
    return Draw(rows.x[train], numbers[0], rows.test_x[test], numbers[1])


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the page of all that are there."""
    settings = configure(PanelConfig, options)
    check_names("data set", settings.datasets, SETS)
    check_names("method", settings.methods, METHODS)
    cells = [
        MethodCell(data, method, {"protocol": "panel"}, described(METHODS[method]()), _further(data, settings))
        for data in settings.datasets
        for method in settings.methods
    ]
    records = settings.records(NAME, cells, partial(run_cell, data_root), progress)
    return outcome_of(records, cells, settings)


def _further(data: str, settings: PanelConfig) -> dict[str, Any]:
    """Shots and seeds of a cell: few shots only for CLINC150, where fits of 150 intents take long."""
    shots = [n for n in settings.shots if data != CLINC or n <= CLINC_SHOTS]
    return {"shots": shots, "seeds": list(settings.seeds)}


def run_cell(data_root: Path | None, cell: MethodCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """Scores of a method on a set at every number of labels and draw, and processor seconds of a fit."""
    rows, found = rows_of(cell.data, data_root), []
    for shots in cell.further["shots"]:
        for seed in cell.further["seeds"]:
            draw = drawn(rows, shots, seed)
            if draw is None:
                continue
            progress(f"{shots} labels, seed {seed}", 0.0)
            x, test_x = (part if cell.method == OURS else normalize(part) for part in (draw.x, draw.test_x))
            with quiet():
                started = time.process_time()
                model = METHODS[cell.method]().fit(x, draw.y)
                seconds = time.process_time() - started
                said = scores(model.predict_proba(test_x), draw.test_y, model.classes_)
            found.append({"shots": shots, "seed": seed, **said, "seconds": seconds})
    return {"runs": found}


def outcome_of(records: Sequence[Record], cells: Sequence[MethodCell], settings: PanelConfig) -> Outcome:
    """The outcome as far as the campaign has been run; ValueError if no cell has scores."""
    parts = [
        pd.DataFrame(record["runs"]).assign(data=record["labels"]["data"], method=record["labels"]["method"])
        for record in records
        if FAILED not in record and record.get("runs")
    ]
    if not parts:
        raise ValueError("no cell of this campaign has a result yet, so there is no table to make")
    frame = pd.concat(parts)
    means = frame.groupby(["shots", "data", "method"], sort=False)[["nll", "accuracy", "ece", "seconds"]].mean()
    methods = [name for name in settings.methods if name in set(frame["method"])]
    tables, verdicts = [], []
    for shots in settings.shots:
        if shots not in means.index.get_level_values("shots"):
            continue
        wide = means.loc[shots].unstack("method")
        panel = wide.drop(index=CLINC, errors="ignore").dropna()
        summary = pd.DataFrame({name: panel[name].mean() for name in ("nll", "accuracy", "ece", "seconds")})
        summary = summary.reindex(methods).rename_axis("method").reset_index()
        caption = f"{shots} labels a class: means over the {len(panel)} sets beside CLINC150 that all methods have."
        tables.append(Table(f"means-{shots}", caption, summary, digits=4))
        sets = wide["nll"][methods].reset_index().rename_axis(columns=None)
        tables.append(Table(f"nll-{shots}", f"{shots} labels a class: negative log likelihood, nats.", sets))
        complete = shots in PANEL and len(panel) == PANEL[shots][0]
        if {OURS, LINEAR, LOGISTIC} <= set(methods) and complete:
            verdicts += _verdicts(shots, pd.DataFrame(panel["nll"]))
    return Outcome(
        title="Few labels on frozen embeddings, by encoder",
        introduction=(
            "Texts by three encoders (unit length) and images by one (1280 pooled features; peers, and ours by a named "
            f"kernel, get directions); at most {N_TEST} test rows with the frequencies that they have. "
            f"{len(settings.seeds)} draws of labels; probabilities are clipped at 1e-6."
        ),
        tables=tuple(tables),
        config=settings,
        seeds=settings.seeds,
        findings=tuple(what_is_missing(records, cells)),
        verdicts=tuple(verdicts),
    )


def _verdicts(shots: int, nll: pd.DataFrame) -> list[Verdict]:
    """Verdicts at one number of labels."""
    ahead, ratio = int((nll[OURS] < nll[LOGISTIC]).sum()), nll[OURS] / nll[LINEAR]
    n_sets, needed = PANEL[shots]
    mean, others = nll[OURS].mean(), nll.drop(columns=OURS).mean()
    return [
        Verdict(
            f"{shots} labels: ahead of logistic regression with one temperature on {needed} sets of {n_sets}",
            _AIM,
            f"{ahead} of {len(nll)}",
            ahead >= needed,
        ),
        Verdict(
            f"{shots} labels: no set more than 3 % behind the cosine kernel alone",
            _AIM,
            f"at most {100 * (ratio.max() - 1):.1f} %, {ratio.idxmax()}",
            bool(ratio.max() <= 1.03),
        ),
        Verdict(
            f"{shots} labels: the lowest mean log loss",
            _AIM,
            f"{mean:.4f}; {others.idxmin()} {others.min():.4f}",
            bool(mean <= others.min()),
        ),
    ]


EXPERIMENT = Experiment(NAME, "few labels of 13 sets of embeddings by four encoders, beside peers", True, run)
