"""Which outlier score tells rows of unknown classes, and rows far from everything, on tables, pixels and embeddings?

Leaving out one of two classes leaves one, of which estimators must have a score too. Larger scores are less like any
class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.covariance import ledoit_wolf
from sklearn.datasets import load_digits
from sklearn.ensemble import IsolationForest
from sklearn.impute import SimpleImputer
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors
from sklearn.preprocessing import StandardScaler, normalize

from experiments.batch_learners import quiet
from experiments.clinc150 import few_shot_split
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.uci import TABLES, load
from sureshot.data.clinc150 import load_clinc150
from sureshot.estimators.classes.classifier_base import IncrementalClassifier
from sureshot.estimators.gp.classifier import GPClassifier
from sureshot.estimators.tree.classifier import TreeGPClassifier
from sureshot.metrics import auroc_unknown

Array = NDArray[Any]
Score = Callable[[Array], Array]

ESTIMATORS = (GPClassifier, TreeGPClassifier)
OURS = GPClassifier.__name__
CLINC = "clinc150, 5 shots"
DIGITS = "digits"
FAR = {
    "10 deviations, a random direction": (10.0, False),
    "100 deviations, a random direction": (100.0, False),
    "10 deviations, one column": (10.0, True),
    "100 deviations, one column": (100.0, True),
}
NEVER = tuple(name for name, (size, one_column) in FAR.items() if not one_column or size == 100)
_SHOTS = 5


@dataclass(frozen=True)
class Settings:
    """Settings of the study."""

    datasets: tuple[str, ...] = tuple(name for name in TABLES if name != "credit_australian")
    digits: bool = True  # whether the digits of scikit-learn are among the sets
    clinc: int = 2  # choices of five queries of each intent of CLINC150 to learn from; 0 leaves it out
    left_out: int = 3  # classes of a set at most that are left out, one at a time
    n_train: int = 300  # rows at most
    n_test: int = 500
    n_far: int = 100  # far rows of each kind
    seed: int = 0  # draws classes and rows


@dataclass(frozen=True)
class Task:
    """Training rows, and rows to be scored."""

    data: str
    x: Array  # (n, D)
    y: Array  # (n,)
    known: Array  # (m, D), of the classes of y
    unknown: Array  # (k, D), of another


def tasks(data: str, x: Array, y: Array, settings: Settings) -> Iterator[Task]:
    """A task for each class that is left out."""
    generator = np.random.default_rng(settings.seed)
    classes, counts = np.unique(y, return_counts=True)
    enough = classes[counts >= _SHOTS]
    for left_out in generator.permutation(enough)[: settings.left_out]:
        others = generator.permutation(np.flatnonzero(y != left_out))
        n = min(settings.n_train, int(0.7 * len(others)))
        train, known = others[:n], others[n : n + settings.n_test]
        known = known[np.isin(y[known], y[train])]
        unknown = generator.permutation(np.flatnonzero(y == left_out))[: settings.n_test]
        fill = SimpleImputer().fit(x[train]).transform
        yield Task(data, fill(x[train]), y[train], fill(x[known]), fill(x[unknown]))


def far_rows(task: Task, settings: Settings) -> dict[str, Array]:
    """Rows (n_far, D) of every kind of `FAR`, so many standard deviations of the training columns from their means.

    In a random direction the deviations' root mean square over the columns is that number.
    """
    generator = np.random.default_rng(settings.seed)
    mean, deviation = task.x.mean(0), task.x.std(0)
    varying = np.flatnonzero(deviation > 0)
    found = {}
    for name, (size, one_column) in FAR.items():
        if one_column:
            rows = task.known[generator.integers(len(task.known), size=settings.n_far)].copy()
            column, sign = generator.choice(varying, settings.n_far), generator.choice([-1, 1], settings.n_far)
            rows[np.arange(len(rows)), column] = mean[column] + sign * size * deviation[column]
        else:
            direction = generator.normal(size=(settings.n_far, len(mean)))
            direction /= np.sqrt((direction**2).mean(1, keepdims=True))
            rows = mean + size * deviation * direction
        found[name] = rows
    return found


def of_ours(task: Task) -> dict[str, Score]:
    """Outlier scores of our estimators, and one minus the largest probability."""
    found: dict[str, Score] = {}
    for estimator in ESTIMATORS:
        model = estimator().partial_fit(task.x, task.y)
        found[estimator.__name__] = model.outlier_score
        if isinstance(model, GPClassifier):
            found["maximum probability"] = partial(_doubt, model)
    return found


def _doubt(model: IncrementalClassifier, x: Array) -> Array:
    return 1 - model.predict_proba(x).max(1)


def of_others(task: Task) -> dict[str, Score]:
    """Other scores, on standardised columns; rows of unit length stay as they are."""
    unit = np.allclose(np.linalg.norm(task.x, axis=1), 1, atol=1e-3)
    scaled: Score = (lambda x: x) if unit else StandardScaler().fit(task.x).transform
    x, labels = scaled(task.x), np.unique(task.y, return_inverse=True)[1]
    means = np.stack([x[labels == label].mean(0) for label in range(labels.max() + 1)])
    within = x - means[labels] if len(means) < len(x) / 2 else x - x.mean(0)
    covariance = ledoit_wolf(within, assume_centered=True)[0]
    covariance += 1e-6 * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    whiten = np.linalg.inv(np.linalg.cholesky(covariance)).T
    nearest = NearestNeighbors(n_neighbors=1).fit(x)
    nearest_mean = NearestNeighbors(n_neighbors=1).fit(means @ whiten)
    forest = IsolationForest(random_state=0).fit(x)
    local = LocalOutlierFactor(n_neighbors=min(20, len(x) - 1), novelty=True).fit(x)
    found: dict[str, Score] = {
        "nearest neighbour": lambda rows: nearest.kneighbors(rows)[0][:, 0],
        "class-mean cosine": lambda rows: -(normalize(rows) @ normalize(means).T).max(1),
        "Mahalanobis": lambda rows: nearest_mean.kneighbors(rows @ whiten)[0][:, 0],
        "isolation forest": lambda rows: -forest.score_samples(rows),
        "local outlier factor": lambda rows: -local.score_samples(rows),
    }
    return {name: partial(_of_scaled, scaled, score) for name, score in found.items()}


def _of_scaled(scaled: Score, score: Score, x: Array) -> Array:
    return score(scaled(x))


def measured(task: Task, settings: Settings) -> list[dict[str, Any]]:
    """A record for each score."""
    far, records = far_rows(task, settings), []
    with quiet():
        for name, score in (of_ours(task) | of_others(task)).items():
            known = score(task.known)
            threshold = np.quantile(known, 0.95)
            accepted = {kind: float((score(rows) <= threshold).mean()) for kind, rows in far.items()}
            auroc = auroc_unknown(known, score(task.unknown))
            classes = len(np.unique(task.y))
            records.append({"data": task.data, "classes": classes, "score": name, "AUROC": auroc, **accepted})
    return records


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `Settings` for the options."""
    settings = configure(Settings, options)
    found = list(_all_tasks(settings, data_root))
    records: list[dict[str, Any]] = []
    for number, task in enumerate(found):
        progress(f"{task.data}, {len(np.unique(task.y))} classes", number / len(found))
        records += measured(task, settings)
    frame = pd.DataFrame(records)
    names = list(frame["score"].unique())
    by_set = frame.pivot_table(index="data", columns="score", values="AUROC", sort=False)[names]
    accepted = frame.groupby("score", sort=False)[list(FAR)]
    summary = pd.DataFrame(
        {
            "mean rank": by_set.rank(axis=1, ascending=False).mean(),
            "mean AUROC": by_set.mean(),
            **{f"AUROC, {name}": _mean_auroc(frame[chosen]) for name, chosen in _kinds(frame).items()},
            **{f"accepted: {kind}": accepted.mean()[kind] for kind in FAR},
        }
    ).loc[names]
    worst = accepted.max().loc[names].reset_index()
    return Outcome(
        title="Rows of unknown classes, and rows far from everything",
        introduction=(
            f"{len(found)} tasks on {len(by_set)} sets. On tables and digits one class is left out, at most "
            f"{settings.left_out} of a set in turn, and at most {settings.n_train} rows of the others are learnt from; "
            f"on CLINC150 all intents are known by {_SHOTS} queries each, and out-of-scope queries are unknown. "
            "AUROC: rows of the class left out against other rows of known classes, 0.5 is chance. A far row is "
            "accepted if it scores below the value that 95 % of the test rows of known classes stay below. Far rows "
            "lie so many standard deviations from the mean of the training rows: in a random direction, on all "
            "columns (root mean square), or as a row of a known class in one column. Defaults everywhere; scores that "
            "are not ours see standardised columns, or embeddings as they are."
        ),
        tables=(
            Table("summary", "Means over the sets; ranks are among these scores, 1 is best.", _named(summary)),
            Table("auroc", "Mean AUROC over the classes left out.", by_set.reset_index()),
            Table("worst", "Share of far rows accepted, on the task where it is largest.", worst),
            Table("all", "Every task.", frame, on_page=False),
        ),
        config=settings,
        seeds=(settings.seed,),
        findings=(),
        verdicts=tuple(_verdicts(summary, worst.set_index("score"), by_set)),
    )


def _all_tasks(settings: Settings, data_root: Path | None) -> Iterator[Task]:
    for name in settings.datasets:
        yield from tasks(name, *load(name, data_root), settings)
    if settings.digits:
        digits = load_digits()
        yield from tasks(DIGITS, digits.data, digits.target, settings)
    if settings.clinc:
        clinc = load_clinc150(data_root)
        for seed in range(settings.clinc):
            split = few_shot_split(clinc, _SHOTS, seed)
            assert split.x_unknown is not None
            yield Task(CLINC, split.x_train, split.y_train, split.x_test, split.x_unknown)


def _kinds(frame: pd.DataFrame) -> dict[str, pd.Series]:
    kinds = {"one class known": frame["classes"] == 1, "several": frame["classes"] > 1}
    return {name: chosen for name, chosen in kinds.items() if chosen.any()}


def _mean_auroc(frame: pd.DataFrame) -> pd.Series:
    return frame.pivot_table(index="data", columns="score", values="AUROC").mean()


def _named(summary: pd.DataFrame) -> pd.DataFrame:
    return summary.rename_axis("score").reset_index()


def _verdicts(summary: pd.DataFrame, worst: pd.DataFrame, by_set: pd.DataFrame) -> Iterator[Verdict]:
    source = "this project's target"
    ranks = dict(zip(map(str, summary.index), summary["mean rank"].to_numpy(dtype=float).tolist(), strict=True))
    best = min(ranks, key=lambda name: ranks[name])
    yield Verdict(
        f"The score of {OURS} has the best mean rank.",
        source,
        f"{ranks[OURS]:.2f}; best: {best}, {ranks[best]:.2f}",
        best == OURS,
    )
    for estimator in ESTIMATORS:
        largest = float(worst.loc[[estimator.__name__], list(NEVER)].to_numpy().max())
        yield Verdict(
            f"{estimator.__name__} never accepts a row far off in a random direction, or 100 deviations in one column.",
            source,
            f"{100 * largest:.0f} % at most on any task",
            largest == 0,
        )
    if CLINC in by_set.index:
        value = float(by_set.loc[[CLINC], OURS].to_numpy()[0])
        yield Verdict("CLINC150, 5 shots: AUROC of .955 or better.", source, f"{value:.4f}", value >= 0.955)


EXPERIMENT = Experiment("unknowns", "Outlier scores on classes left out, and on rows far from everything", True, run)
