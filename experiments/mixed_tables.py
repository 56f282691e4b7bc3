"""Tables with text and gaps as people have them: the encoder of the estimators beside the peers' usual ways."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from experiments.batch_learners import quiet, scores
from experiments.campaigns.methods import check_names, paired
from experiments.defaults import CATBOOST, catboost
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.peers import random_forest
from sureshot.data import load_table
from sureshot.data.root import data_file
from sureshot.demo.peers import logistic_regression
from sureshot.estimators.gp.classifier import GPClassifier

OURS = "sureshot"
METRICS = {"accuracy": 1, "nll": -1, "brier": -1}
"""Scores, with the sign of what is better."""


@dataclass(frozen=True)
class Source:
    """A file, its labels, and columns that say what others, or the labels, say."""

    path: str
    target: str
    left_out: tuple[str, ...] = ()


SOURCES = {
    "titanic": Source("mixed/titanic.csv", "survived", ("alive", "class", "who", "adult_male", "embark_town")),
    "credit_australian": Source("uci/credit_australian.csv", "label"),
}


class AsCategories(TransformerMixin, BaseEstimator):
    """Text as pandas categories, gaps as gaps; of more levels than boosting takes as their place in the alphabet."""

    MOST = 255

    def fit(self, X: pd.DataFrame, y: Any = None) -> AsCategories:
        """Levels of columns that have many."""
        levels = {name: np.sort(X[name].dropna().astype(str).unique()) for name in _text(X)}
        self.many_ = {name: known for name, known in levels.items() if len(known) > self.MOST}
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        """The frame with other types."""
        places = {
            name: np.where(X[name].isna(), np.nan, np.searchsorted(known, X[name].fillna("").astype(str)))
            for name, known in self.many_.items()
        }
        return X.assign(**places).astype({name: "category" for name in _text(X) if name not in places})


class AsText(TransformerMixin, BaseEstimator):
    """Text with gaps as a level."""

    def fit(self, X: pd.DataFrame, y: Any = None) -> AsText:
        """Nothing to learn."""
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        """The frame without gaps in its text."""
        return X.fillna(dict.fromkeys(_text(X), "missing"))


class CatBoostOnText(ClassifierMixin, BaseEstimator):
    """CatBoost that takes text for categories."""

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> CatBoostOnText:
        """Learn from the frame as it is."""
        self.model_ = catboost(cat_features=_text(X)).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        """Probabilities of the classes."""
        return np.asarray(self.model_.predict_proba(X))


def _text(X: pd.DataFrame) -> list[str]:
    return [str(name) for name in X if not pd.api.types.is_numeric_dtype(X[name])]


def one_hot(model: Any) -> Any:
    """The model behind one-hot columns and filled, standardised numbers."""
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    text = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    selected = make_column_selector(dtype_include="number")
    others = make_column_selector(dtype_exclude="number")
    return make_pipeline(AsText(), make_column_transformer((numbers, selected), (text, others)), model)


METHODS: dict[str, Callable[[], Any]] = {
    OURS: GPClassifier,
    "logistic regression, one-hot": lambda: one_hot(logistic_regression()),
    "random forest, one-hot": lambda: one_hot(random_forest()),
    "HistGradientBoosting, categories": lambda: make_pipeline(
        AsCategories(), HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
    ),
    f"{CATBOOST}, one-hot": lambda: one_hot(catboost()),
    f"{CATBOOST}, categories": lambda: make_pipeline(AsText(), CatBoostOnText()),
}
INSTALLED = tuple(name for name in METHODS if not name.startswith(CATBOOST) or find_spec("catboost") is not None)


@dataclass(frozen=True)
class Settings:
    """Settings of the comparison."""

    datasets: tuple[str, ...] = tuple(SOURCES)  # of `SOURCES` and `INSTALLED`
    methods: tuple[str, ...] = INSTALLED
    n_folds: int = 5  # stratified folds, drawn anew so often
    n_repeats: int = 2
    seed: int = 0  # of the folds


def load_mixed(name: str, root: Path | None) -> tuple[pd.DataFrame, np.ndarray]:
    """Columns as they are in the file, and labels as text."""
    source = SOURCES[name]
    path = data_file(source.path, root, f"with a column {source.target}")
    table = load_table(path, source.target, ignore=source.left_out, mixed=True, text_labels=True)
    assert isinstance(table.X, pd.DataFrame)
    assert table.y is not None
    return table.X, table.y


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `Settings` for the options."""
    settings = configure(Settings, options)
    check_names("data set", settings.datasets, SOURCES)
    check_names("method", settings.methods, INSTALLED)
    frame = pd.DataFrame(_records(settings, data_root, progress))
    by_method = frame.groupby(["data", "method"], sort=False)[[*METRICS, "seconds"]].mean().reset_index()
    gaps = pd.DataFrame(_differences(frame))
    return Outcome(
        title="Tables with text and gaps",
        introduction=(
            f"{settings.n_folds} stratified folds, {settings.n_repeats} times; means over the folds, defaults "
            "everywhere. `GPClassifier` gets the DataFrame as it is read; what its encoder and the peers' learn of "
            "columns they learn from a fold's training rows. Peers see numbers with the median and an indicator in "
            "place of gaps, and text as one-hot columns with gaps as a level, gradient boosting as categories. Of "
            "titanic the columns are left out that repeat others or the label."
        ),
        tables=(
            Table("scores", "Means over the folds; seconds of a fit on one core.", by_method, digits=4),
            Table(
                "differences",
                "What sureshot has more, paired by folds, with its standard error (folds share training rows, so it is "
                "too small rather than too large).",
                gaps,
                digits=4,
            ),
            Table("folds", "Every fold.", frame, on_page=False),
        ),
        config=settings,
        seeds=(settings.seed,),
        findings=(),
        verdicts=tuple(_verdicts(frame, by_method)),
    )


def _records(settings: Settings, data_root: Path | None, progress: Progress) -> Iterator[dict[str, Any]]:
    folds = RepeatedStratifiedKFold(n_splits=settings.n_folds, n_repeats=settings.n_repeats, random_state=settings.seed)
    total = len(settings.datasets) * folds.get_n_splits()
    for place, data in enumerate(settings.datasets):
        x, y = load_mixed(data, data_root)
        for number, (train, test) in enumerate(folds.split(x, y)):
            progress(f"{data}, fold {number + 1}", (place * folds.get_n_splits() + number) / total)
            for method in settings.methods:
                model, started = METHODS[method](), time.process_time()
                with quiet():
                    model.fit(x.iloc[train], y[train])
                    seconds = time.process_time() - started
                    found = scores(model.predict_proba(x.iloc[test]), y[test], np.unique(y))
                kept = {metric: found[metric] for metric in METRICS}
                yield {"data": data, "run": f"{data} {number}", "method": method, **kept, "seconds": seconds}


def _differences(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for data in map(str, frame["data"].unique()):
        part = frame[frame["data"] == data]
        for other in part["method"].unique():
            if other == OURS:
                continue
            row: dict[str, Any] = {"data": data, "than": other}
            for metric in METRICS:
                row[metric], row[f"{metric} s.e."], _ = paired(part, metric, OURS, other)
            yield row


def _verdicts(frame: pd.DataFrame, by_method: pd.DataFrame) -> Iterator[Verdict]:
    for data in map(str, frame["data"].unique()):
        part = frame[frame["data"] == data]
        means = by_method[by_method["data"] == data].set_index("method")
        if OURS not in means.index or len(means) < 2:
            continue
        for metric in ("accuracy", "nll"):
            found = dict(zip(map(str, means.index), means[metric].to_numpy(dtype=float).tolist(), strict=True))
            ours, sign = found.pop(OURS), METRICS[metric]
            best = max(found, key=lambda name: sign * found[name])
            gap, error, _ = paired(part, metric, OURS, best)
            yield Verdict(
                f"{data}: {metric} at least that of the best peer, less a standard error.",
                "this project's target",
                f"{ours:.4f}; {best}: {found[best]:.4f}; paired {gap:+.4f} ± {error:.4f}",
                bool(sign * gap >= -error),
            )


EXPERIMENT = Experiment("mixed-tables", "Tables with text and gaps, beside peers and their encoders", True, run)
