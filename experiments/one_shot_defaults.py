"""What temperature suits one label for each class? The default prior where the support itself cannot tell.

`GPClassifier` takes the geometric mean of the best temperatures over the sets as its default, and their spread as the
width of its prior. Beside it: what the temperature in use costs on further sets, what the defaults make of the same
draws, and two classes of embeddings by the integral over the latent and by the plug-in rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import log_softmax

from experiments.batch_learners import quiet, scores
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.few_label_sets import LOGISTIC, OURS, FewLabelSet, drawn, grouped, named
from experiments.uci import load, tables_but
from sureshot.data.clinc150 import load_clinc150
from sureshot.estimators.base import IncrementalClassifier
from sureshot.estimators.gp.classifier import GPClassifier
from sureshot.estimators.gp.options import ONE_SHOT_TEMPERATURE
from sureshot.estimators.gp.tuning.family_search import DEFAULT_OUTPUT_SCALE, scaled
from sureshot.kernels import preset_kernel
from sureshot.metrics import fit_temperature

CLINC = "clinc150 (validation split)"
ONE_SETTING = "sureshot, ensemble=False"
LOGS = np.linspace(-4, 3, 71)  # of temperatures that are tried


@dataclass(frozen=True)
class Settings:
    """Settings of the study."""

    # tables with several classes
    datasets: tuple[str, ...] = ("wine", "iris", "glass", "zoo", "letter", "pendigits", "optdigits", "satimage")
    # compared on the tables; the cosine kernel is for the embeddings
    kernels: tuple[str, ...] = ("rbf", "linear", "matern12", "matern32")
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7)  # of the choice of labels
    n_test: int = 1000  # test rows at most
    tables: tuple[str, ...] = tables_but("credit_australian", "ida_breast_cancer", "ida_flare_solar")
    ways: tuple[int, ...] = (2, 5, 10, 20)  # numbers of classes of embeddings
    groups: tuple[int, ...] = (1, 4)  # intents that make a class
    pairs: tuple[int, ...] = (1, 4, 20)  # the same, where there are two classes, for the comparison of rules
    shots: tuple[int, ...] = (1, 2, 3, 5, 10, 20)  # rows a class in that comparison


def best_temperature(kernel: str, x: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """The temperature that predicts the test rows best from the training rows at default scales."""
    fixed = scaled(preset_kernel(kernel, x.shape[1]), DEFAULT_OUTPUT_SCALE)
    model = GPClassifier(kernel=fixed, likelihood="softmax", objective=None).fit(x[train], y[train])
    return fit_temperature(model.predict_latent(x[test]).mean, y[test], classes=model.classes_)


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `Settings` for the options."""
    settings = configure(Settings, options)
    records = []
    for number, name in enumerate(settings.datasets):
        progress(name, 0.5 * number / (len(settings.datasets) + 1))
        x, y = load(name, data_root)
        x = x[:, x.std(axis=0) > 0]
        for seed in settings.seeds:
            rng = np.random.default_rng(seed)
            train = np.concatenate([rng.choice(np.flatnonzero(y == c), 1) for c in np.unique(y)])
            varies = x[train].std(axis=0) > 0
            test = rng.permutation(np.setdiff1d(np.arange(len(y)), train))[: settings.n_test]
            for kernel in settings.kernels:
                found = best_temperature(kernel, x[:, varies], y, train, test)
                records.append({"data": name, "kernel": kernel, "temperature": found})
    progress(CLINC, 0.45)
    clinc = load_clinc150(data_root)
    x = np.concatenate([clinc.x_train, clinc.x_val])
    y = np.concatenate([clinc.y_train, clinc.y_val])
    test = np.arange(len(clinc.y_train), len(y))
    for seed in settings.seeds:
        rng = np.random.default_rng(seed)
        train = np.concatenate([rng.choice(np.flatnonzero(clinc.y_train == c), 1) for c in range(150)])
        found = best_temperature("cosine", x, y, train, test)
        records.append({"data": CLINC, "kernel": "cosine", "temperature": found})
    frame = pd.DataFrame(records)
    frame["log"] = np.log(frame["temperature"])
    means = frame.groupby(["data", "kernel"], sort=False)["log"].mean().unstack()
    by_set = means.apply(np.exp).reset_index()
    summary = pd.DataFrame(
        {
            "kernel": means.columns,
            "geometric mean": np.exp(means.mean().to_numpy()),
            "spread between sets (nats)": means.std().to_numpy(),
            "default in use": [ONE_SHOT_TEMPERATURE[str(name)] for name in means.columns],
        }
    )
    spread = float(means.drop(columns=["cosine"], errors="ignore").std().mean())
    far = summary[np.abs(np.log(summary["geometric mean"] / summary["default in use"])) > math.log(1.5)]
    agree = "all within a factor of 1.5 of" if far.empty else f"not all ({', '.join(far['kernel'])}) within 1.5 of"
    wanted, scored = scored_sets(settings, data_root, progress)
    return Outcome(
        title="Temperature at one label for each class",
        introduction=(
            "One row of every class trains a softmax GP at output scale "
            f"{DEFAULT_OUTPUT_SCALE:g} and natural length-scale; the temperature that predicts the other rows best, "
            f"as geometric means over {len(settings.seeds)} choices of labels."
        ),
        tables=(
            Table("by-set", "Best temperature on each set.", by_set),
            Table("summary", "Over the sets.", summary),
            Table("temperatures", "One setting, ensemble=False: a temperature for each set.", pd.DataFrame(wanted)),
            *score_tables(scored),
            *two_classes(settings, data_root),
        ),
        config=settings,
        seeds=settings.seeds,
        findings=(
            f"The measured geometric means are {agree} the defaults in use. Between sets the logarithm of the best "
            f"temperature has a standard deviation of {spread:.2f} nats, averaged over kernels.",
            "Tables of two classes are predicted by the integral over the latent, which needs no temperature; their "
            "rows say what the plug-in rule would need.",
        ),
        verdicts=tuple(_verdicts(scored)),
    )


def losses_by_temperature(model: IncrementalClassifier, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Mean log loss (T,) by `LOGS` of temperatures that divide the latents."""
    latents, truth = model.predict_latent(x).mean, np.searchsorted(model.classes_, y)
    logs = [log_softmax(latents / math.exp(value), axis=1)[np.arange(len(y)), truth] for value in LOGS]
    return -np.maximum(logs, math.log(1e-6)).mean(1)


def scored_sets(
    settings: Settings, data_root: Path | None, progress: Progress
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What temperature every table, intents and groups of them want of one setting; scores of all methods."""
    wanted: list[dict[str, Any]] = []
    scored: list[dict[str, Any]] = []
    sets = [FewLabelSet(name) for name in settings.tables]
    sets += FewLabelSet.of_intents((way, group) for group in settings.groups for way in settings.ways)
    for number, one in enumerate(sets):
        progress(one.name, 0.5 + 0.5 * number / len(sets))
        losses, in_use = [], []
        x, y = one.rows(data_root)
        for seed in settings.seeds:
            train_x, train_y, test_x, test_y = drawn(*one.of_seed(x, y, seed), 1, settings.n_test, seed)
            with quiet():
                model = GPClassifier(ensemble=False).fit(train_x, train_y)
                methods = {
                    OURS: GPClassifier().fit(train_x, train_y),
                    ONE_SETTING: model,
                    LOGISTIC: one.peer().fit(train_x, train_y),
                }
            losses.append(losses_by_temperature(model, test_x, test_y))
            for method, fitted in methods.items():
                said = scores(fitted.predict_proba(test_x), test_y, fitted.classes_)
                scored.append({"data": one.name, "rows": one.kind, "method": method, **said})
                in_use += [said["nll"]] * (method == ONE_SETTING)
        mean = np.mean(losses, axis=0)
        best = {"best temperature": float(np.exp(LOGS[mean.argmin()])), "log loss at it": float(mean.min())}
        wanted.append({"data": one.name, **best, "as in use": float(np.mean(in_use))})
    return wanted, scored


def score_tables(scored: list[dict[str, Any]]) -> list[Table]:
    """Of every method, means over kinds of sets, and every set."""
    frame, names = pd.DataFrame(scored), ["nll", "accuracy", "ece"]
    if frame.empty:
        return []
    of_sets = frame.groupby(["rows", "data", "method"], sort=False)[names].mean()
    means = of_sets.groupby(["rows", "method"], sort=False).mean().reset_index()
    wide = of_sets["nll"].unstack("method").reset_index().rename_axis(columns=None)
    return [
        Table("scores", "The defaults at one label for each class, means over the sets.", means),
        Table("scores-sets", "Negative log likelihood on each set.", wide),
    ]


def _verdicts(scored: list[dict[str, Any]]) -> list[Verdict]:
    found, frame = [], pd.DataFrame(scored)
    for kind in dict.fromkeys(frame["rows"]):
        means = frame[frame["rows"] == kind].groupby("method")["nll"].mean()
        best = means.drop(OURS).idxmin()
        found.append(
            Verdict(
                f"{kind}: the defaults have the lowest mean log loss",
                "this project's aim",
                f"{means[OURS]:.3f}; {best} {means[best]:.3f}",
                bool(means[OURS] <= means[best]),
            )
        )
    return found


def two_classes(settings: Settings, data_root: Path | None) -> list[Table]:
    """Log loss of two classes of embeddings by the integral and by default."""
    clinc, rows = load_clinc150(data_root), []
    for group in settings.pairs:
        for shots in settings.shots:
            losses = []
            for seed in settings.seeds:
                pair = grouped(clinc.x_train, clinc.y_train, 2, group, seed)
                train_x, train_y, test_x, test_y = drawn(*pair, shots, settings.n_test, seed)
                with quiet():
                    models = [GPClassifier(predictive=rule).fit(train_x, train_y) for rule in ("integral", "auto")]
                losses.append([scores(m.predict_proba(test_x), test_y, m.classes_)["nll"] for m in models])
            integral, default = np.mean(losses, axis=0)
            rows.append({"data": named(2, group), "rows a class": shots, "integral": integral, "default": default})
    caption = "Two classes of embeddings, log loss in nats: by the integral over the latent, and by default."
    return [Table("two-classes", caption, pd.DataFrame(rows))] if rows else []


EXPERIMENT = Experiment("one-shot-defaults", "The temperature that suits one label for each class", True, run)
