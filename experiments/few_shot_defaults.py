"""What `FewShotClassifier` does without a checkpoint, beside `GPClassifier`, and which temperature suits one label.

With several labels for each class some can be left out, and both choose their temperature so. With one label none can:
`FewShotClassifier` takes its temperature from the number of classes (embeddings) or of columns (tables) by a formula
whose two constants are fitted here, to the mean log loss over the sets. What the formula is worth on a set that it has
not seen is measured by fitting it to the others. Classes of embeddings are intents, which are easy to tell, or groups
of four of them, which are not; nothing in one row of each says which.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.impute import SimpleImputer

from experiments.batch_learners import quiet
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.intents import grouped, named
from experiments.one_shot_sets import LOGS, OneShotSet, fitted_formula, losses_by_temperature
from experiments.uci import load, tables_but
from sureshot.data.clinc150 import load_clinc150
from sureshot.estimators.base import IncrementalClassifier
from sureshot.estimators.classifier import GPClassifier
from sureshot.estimators.few_shot import FewShotClassifier
from sureshot.estimators.few_shot_default import COSINE_TEMPERATURE, RBF_TEMPERATURE
from sureshot.metrics import expected_calibration_error, negative_log_likelihood

Array = NDArray[Any]

ESTIMATORS = (FewShotClassifier, GPClassifier)
GROUP = 4
"""Intents in a group."""
_IN_USE = {"embeddings": COSINE_TEMPERATURE, "tables": RBF_TEMPERATURE}


@dataclass(frozen=True)
class Settings:
    """Settings of the comparison.

    Attributes
    ----------
    datasets : tuple of str
        Tables.
    ways : tuple of int
        Numbers of intents of CLINC150, drawn from all.
    groups : tuple of int
        Numbers of groups of intents.
    shots : tuple of int
        Labels of each class.
    seeds : tuple of int
        Each draws intents, labels and test rows.
    n_test : int
        Test rows at most.
    """

    datasets: tuple[str, ...] = tables_but("credit_australian", "ida_breast_cancer", "ida_flare_solar")
    ways: tuple[int, ...] = (2, 5, 10, 20, 40, 75)
    groups: tuple[int, ...] = (2, 5, 10, 20)
    shots: tuple[int, ...] = (1, 5)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    n_test: int = 500


def drawn(x: Array, y: Array, shots: int, settings: Settings, seed: int) -> tuple[Array, Array, Array, Array]:
    """Rows to learn from with labels, others to test on with theirs; of classes that have enough."""
    generator = np.random.default_rng(seed)
    classes, counts = np.unique(y, return_counts=True)
    parts = [generator.permutation(np.flatnonzero(y == label)) for label in classes[counts >= max(settings.shots) + 2]]
    train = np.concatenate([part[:shots] for part in parts])
    test = generator.permutation(np.concatenate([part[shots:] for part in parts]))[: settings.n_test]
    return x[train], y[train], x[test], y[test]


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `Settings` for the options."""
    settings = configure(Settings, options)
    sets = _sets(settings, data_root)
    records: list[dict[str, Any]] = []
    one_shot: list[OneShotSet] = []
    for number, (name, rows) in enumerate(sets.items()):
        progress(name, number / len(sets))
        curves = []
        for shots in settings.shots:
            for seed in settings.seeds:
                x, y, test_x, test_y = drawn(*rows(seed), shots, settings, seed)
                for estimator in ESTIMATORS:
                    with quiet():
                        model = estimator().fit(x, y)
                    scores = _scores(model, test_x, test_y)
                    records.append({"data": name, "shots": shots, "method": estimator.__name__, **scores})
                    if shots == 1 and isinstance(model, FewShotClassifier):
                        curves.append((model, losses_by_temperature(model, test_x, test_y)))
        if curves:
            one_shot.append(_one_shot(name, curves))
    frame = pd.DataFrame(records)
    names = ["log loss", "accuracy", "ECE"]
    means = frame.pivot_table(index=["shots", "data"], columns="method", values=names, sort=False)
    return Outcome(
        title="A few labels without a checkpoint",
        introduction=(
            f"Means over {len(settings.seeds)} choices of labels, at most {settings.n_test} test rows; intents are "
            "CLINC150 embeddings of so many intents, drawn from all. Defaults everywhere. The temperature at one label "
            "is a factor times a power of the number of classes (embeddings) or of columns that vary (tables)."
        ),
        tables=tuple(_tables(means, one_shot)),
        config=settings,
        seeds=settings.seeds,
        findings=(),
        verdicts=tuple(_verdicts(means)),
        differences=(
            "Embeddings are of one data set. The constants in use lie between those for intents and those for intents "
            "and groups, which stand for tasks that are harder than intents; how hard others are is not known.",
        ),
    )


def _sets(settings: Settings, data_root: Path | None) -> dict[str, Callable[[int], tuple[Array, Array]]]:
    """Rows and labels for a seed, by name."""

    def table(name: str) -> Callable[[int], tuple[Array, Array]]:
        x, y = load(name, data_root)
        filled = SimpleImputer().fit_transform(x)
        return lambda seed: (filled, y)

    def intents(way: int, size: int = 1) -> Callable[[int], tuple[Array, Array]]:
        return lambda seed: grouped(clinc.x_train, clinc.y_train, way, size, seed)

    clinc = load_clinc150(data_root)
    digits = load_digits(return_X_y=True)
    return {
        **{named(way, 1): intents(way) for way in settings.ways},
        **{named(way, GROUP): intents(way, GROUP) for way in settings.groups},
        "digits": lambda seed: digits,
        **{name: table(name) for name in settings.datasets},
    }


def log_loss(p: Array, truth: Array) -> float:
    """Mean over rows, in nats, of probabilities (n, C) of 1e-6 at least at the true classes' numbers (n,)."""
    return negative_log_likelihood(np.maximum(p, 1e-6), truth)


def _scores(model: IncrementalClassifier, x: Array, y: Array) -> dict[str, float]:
    p, truth = model.predict_proba(x), np.searchsorted(model.classes_, y)
    return {
        "log loss": log_loss(p, truth),
        "accuracy": float((p.argmax(1) == truth).mean()),
        "ECE": expected_calibration_error(p, truth),
    }


def _one_shot(name: str, found: list[tuple[FewShotClassifier, Array]]) -> OneShotSet:
    defaults = [model._fitted.default for model, _ in found]
    kind = "embeddings" if defaults[0].kernel == "cosine" else "tables"
    sizes = [len(found[0][0].classes_)] if kind == "embeddings" else [default.n_features for default in defaults]
    return OneShotSet(name, kind, float(np.exp(np.mean(np.log(sizes)))), np.mean([part for _, part in found], axis=0))


def _tables(means: pd.DataFrame, one_shot: list[OneShotSet]) -> list[Table]:
    flat = means.copy()
    names = zip(*(flat.columns.get_level_values(level) for level in (0, 1)), strict=True)
    flat.columns = pd.Index([f"{score}, {str(method).removesuffix('Classifier')}" for score, method in names])
    tables = [Table("scores", "Few-shot and GP stand for the two classifiers.", flat.reset_index())]
    constants, by_set = [], []
    for kind, in_use in _IN_USE.items():
        sets = [part for part in one_shot if part.kind == kind]
        if len(sets) < 3:
            continue
        easy = [part for part in sets if "groups" not in part.data]
        for name, chosen in {kind: sets, f"{kind}, intents only": easy}.items():
            if name == kind or 2 < len(chosen) < len(sets):
                factor, power = fitted_formula(chosen)
                used = f"{in_use[0]:g}, {in_use[1]:g}"
                constants.append({"rows": name, "factor": factor, "power": power, "in use": used})
        for part in sets:
            unseen = fitted_formula([other for other in sets if other is not part])
            by_set.append(
                {
                    "data": part.data,
                    "best temperature": math.exp(LOGS[part.losses.argmin()]),
                    "log loss at it": float(part.losses.min()),
                    "at 1": part.loss(1.0, 0.0),
                    "as in use": part.loss(*in_use),
                    "by the formula of the other sets": part.loss(*unseen),
                    "rows": kind,
                }
            )
    if by_set:
        summary = pd.DataFrame(by_set).groupby("rows", sort=False).mean(numeric_only=True).reset_index()
        tables += [
            Table("constants", "Factor and power that suit one label best, and those in use.", pd.DataFrame(constants)),
            Table("formula", "Means over the sets.", summary),
            Table("by-set", "Temperatures at one label.", pd.DataFrame(by_set)),
        ]
    return tables


def _verdicts(means: pd.DataFrame) -> list[Verdict]:
    found = []
    ours, theirs = (means["log loss", estimator.__name__] for estimator in ESTIMATORS)
    shots_of, data_of = (np.array(means.index.get_level_values(name)) for name in ("shots", "data"))
    groups = np.array(["groups" in str(name) for name in data_of])
    intents = np.array([str(name).endswith("intents") for name in data_of]) & ~groups
    kinds = {"intents": intents, "groups of intents": groups, "tables and digits": ~(intents | groups)}
    for shots, most in ((1, 1.0), (5, 1.02)):
        for kind, chosen in kinds.items():
            chosen = chosen & (shots_of == shots)
            if not chosen.any():
                continue
            own, others = (np.array(part)[chosen] for part in (ours, theirs))
            n_near = int((own <= most * others).sum())
            bar = "no larger than" if most == 1 else f"within {100 * (most - 1):.0f} % of"
            found.append(
                Verdict(
                    f"{shots} of each class, {kind}: mean log loss {bar} GPClassifier's.",
                    "this project's aim",
                    f"{own.mean():.3f} against {others.mean():.3f}; on {n_near} of {len(own)} sets",
                    bool(own.mean() <= most * others.mean()),
                )
            )
    return found


EXPERIMENT = Experiment("few-shot-defaults", "FewShotClassifier without a checkpoint beside GPClassifier", True, run)
