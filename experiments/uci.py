"""Ten small tables, ten-fold cross-validation, beside the classifiers one would otherwise take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.impute import SimpleImputer
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler

from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.peers import DirichletGP, random_forest, svm_with_probabilities
from sureshot.data import DataError, DataTable, data_root, load_table
from sureshot.data.checks import near
from sureshot.data.root import Root
from sureshot.demo.comparison import Split, means_and_errors, measure
from sureshot.demo.peers import logistic_regression, sklearn_gp
from sureshot.estimators.gp.classifier import GPClassifier

OURS = "sureshot"
OTHERS = ("scikit-learn GP", "SVM", "random forest", "logistic regression")

TABLES = (
    *("balance_scale", "breast_wisconsin", "credit_australian", "glass", "haberman", "heart_cleveland"),
    *("heart_cleveland_5class", "heart_statlog", "ida_banana", "ida_breast_cancer", "ida_flare_solar", "ida_image"),
    *("ida_splice", "ida_titanic", "ionosphere", "iris", "letter", "musk1", "optdigits", "pendigits"),
    *("pima_diabetes", "satimage", "spambase", "wine", "zoo"),
)
"""Those that studies of many tables go over, less some."""

_UCI_LAYOUT = (
    "expected CSV files with a header, the class in the column label and numbers in all others: most are sets of the "
    "UCI Machine Learning Repository (archive.ics.uci.edu)"
)


@dataclass(frozen=True)
class Settings:
    """Settings of the comparison."""

    datasets: tuple[str, ...] = (
        "ionosphere",
        "musk1",
        "heart_cleveland",
        "heart_statlog",
        "pima_diabetes",
        "breast_wisconsin",
        "glass",
        "wine",
        "ida_banana",
        "satimage",
    )
    n_folds: int = 10
    # training rows at most of scikit-learn's GP and the Dirichlet GP, whose cost grows with their cube
    gp_rows: int = 1000
    dirichlet: bool = True  # whether to run the Dirichlet GP
    seed: int = 0  # of the folds


def tables_but(*left_out: str) -> tuple[str, ...]:
    """The others of `TABLES`."""
    return tuple(name for name in TABLES if name not in left_out)


def load_uci(
    name: str,  # such as ``"ionosphere"``: the name of the file without ``.csv`` or ``.csv.gz``
    root: Root = None,
) -> DataTable:
    """One of the small classification sets in the folder ``uci`` of the data root.

    Rows are in the file's order, often sorted by class; text stays text, and missing cells are NaN, to be filled in
    inside the training fold.
    """
    folder = data_root(root, f"uci/{name}.csv", _UCI_LAYOUT) / "uci"
    for suffix in (".csv", ".csv.gz"):
        if (folder / f"{name}{suffix}").is_file():
            return load_table(folder / f"{name}{suffix}", "label", mixed=True)
    known = sorted(path.name.split(".csv")[0] for path in folder.glob("*.csv*"))
    raise DataError(f"{folder} has no {name}.csv or {name}.csv.gz{near(name, known)}; {_UCI_LAYOUT}")


def load(name: str, data_root: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Features with their gaps as NaN, text as a column of zeros and ones for each of its levels, and labels."""
    table = load_uci(name, data_root)
    assert isinstance(table.X, pd.DataFrame)
    return pd.get_dummies(table.X, dtype=float).to_numpy(), np.asarray(table.y).astype(str)


def folds(x: np.ndarray, y: np.ndarray, settings: Settings) -> list[Split]:
    """Splits with gaps filled by the training mean and columns standardised on the training rows."""
    found = []
    for train, test in StratifiedKFold(settings.n_folds, shuffle=True, random_state=settings.seed).split(x, y):
        imputer = SimpleImputer().fit(x[train])
        scaler = StandardScaler().fit(imputer.transform(x[train]))
        a, b = (scaler.transform(imputer.transform(x[rows])) for rows in (train, test))
        found.append(Split(a, y[train], b, y[test]))
    return found


def subsample(split: Split, n_rows: int, seed: int) -> Split:
    """At most `n_rows` training rows, stratified."""
    if len(split.y_train) <= n_rows:
        return split
    a, _, y, _ = train_test_split(
        split.x_train, split.y_train, train_size=n_rows, stratify=split.y_train, random_state=seed
    )
    return Split(a, y, split.x_test, split.y_test)


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `Settings` for the options."""
    settings = configure(Settings, options)
    records = []
    for number, name in enumerate(settings.datasets):
        x, y = load(name, data_root)
        for fold, split in enumerate(folds(x, y, settings)):
            classifiers: dict[str, tuple[Callable[[], Any], Split]] = {
                OURS: (GPClassifier, split),
                "SVM": (svm_with_probabilities, split),
                "random forest": (random_forest, split),
                "logistic regression": (logistic_regression, split),
            }
            small = subsample(split, settings.gp_rows, settings.seed)
            width = x.shape[1]
            classifiers["scikit-learn GP"] = (lambda width=width: sklearn_gp(width), small)  # type: ignore[misc]
            if settings.dirichlet:
                classifiers["Dirichlet GP"] = (DirichletGP, small)
            for k, (method, (make, rows)) in enumerate(classifiers.items()):
                done = (number + (fold + k / len(classifiers)) / settings.n_folds) / len(settings.datasets)
                progress(f"{name}, fold {fold + 1}: {method}", done)
                records.append({"data": name, "method": method, "rows": len(rows.y_train), **measure(make, rows)[0]})
    frame = pd.DataFrame(records)
    ours = frame[frame["method"] == OURS].groupby("data", sort=False)["rows"].max()
    larger = [str(name) for name in ours.index[ours > settings.gp_rows]]
    nll = frame.pivot_table(index="data", columns="method", values="nll", sort=False).reset_index()
    accuracy = frame.pivot_table(index="data", columns="method", values="accuracy", sort=False).reset_index()
    return Outcome(
        title="Ten small tables",
        introduction=(
            f"{settings.n_folds}-fold stratified cross-validation; gaps filled with the training mean inside the fold, "
            f"columns standardised. The scikit-learn GP and the Dirichlet GP see at most {settings.gp_rows} training "
            f"rows (fewer than there are on {', '.join(larger) or 'none of the sets'}); everyone else sees all. "
            "Probabilities are clipped at 1e-6."
        ),
        tables=(
            Table("nll", "Mean negative log-likelihood over the folds, in nats.", nll),
            Table("accuracy", "Mean accuracy over the folds.", accuracy),
            Table(
                "all", "Everything, with standard errors.", means_and_errors(records, ["data", "method"]), on_page=False
            ),
            Table(
                "seconds",
                "Mean seconds of a fit.",
                frame.pivot_table(index="data", columns="method", values="fit seconds", sort=False).reset_index(),
            ),
        ),
        config=settings,
        seeds=(settings.seed,),
        findings=(),
        verdicts=_verdicts(nll.set_index("data"), accuracy.set_index("data")),
    )


def _verdicts(nll: pd.DataFrame, accuracy: pd.DataFrame) -> tuple[Verdict, ...]:
    classifiers = list(OTHERS)
    better = nll[OURS] < nll[classifiers].min(axis=1)
    near = accuracy[OURS] >= accuracy[[OURS, *classifiers]].max(axis=1) - 0.01
    bar = int(np.ceil(0.7 * len(nll)))

    def names(mask: pd.Series) -> str:
        missing = ", ".join(str(name) for name in mask.index[~mask])
        return f"{int(mask.sum())} of {len(mask)}" + (f"; not {missing}" if missing else "")

    return (
        Verdict(
            "Mean NLL better than scikit-learn's GP, SVM, random forest and logistic regression on 7 of 10.",
            "this project's target",
            names(better),
            bool(better.sum() >= bar),
        ),
        Verdict(
            "Accuracy within one point of the best of them on 7 of 10.",
            "this project's target",
            names(near),
            bool(near.sum() >= bar),
        ),
    )


EXPERIMENT = Experiment("uci", "Ten small tables by ten-fold cross-validation, beside five others", True, run)
