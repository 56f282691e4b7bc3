"""Which rows of a pool are worth a label? Accuracy after each batch of labels, by what chose the batch.

Active learning: a classifier is fitted to two rows of each class, chooses a batch of the pool, gets its labels and is
refitted, batch after batch. All ways of choosing start with the same rows and are scored on the same test rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.special import entr
from sklearn.datasets import load_digits

from experiments.batch_learners import quiet
from experiments.experiment import Experiment, Outcome, Picture, Progress, Table, Verdict, configure
from experiments.figures import label, line_styles, new_figure, tidy
from experiments.uci import load
from sureshot.data.clinc150 import load_clinc150
from sureshot.estimators.classes.suggestions import margins
from sureshot.estimators.gp.classifier import GPClassifier
from sureshot.estimators.suggestions import CANDIDATES
from sureshot.metrics import summarise

Array = NDArray[Any]
Choose = Callable[[GPClassifier, Array, int, np.random.Generator], Array]
"""From a model, a pool, how many rows and a generator to positions in the pool."""

CLINC, DIGITS = "clinc150, 30 intents", "digits"
RANDOM, OURS = "random", "margin, with variety"
_INTENTS = 30
_PER_CLASS = 2


def _by_margin(model: GPClassifier, pool: Array, n: int, _: np.random.Generator) -> Array:
    return margins(model.predict_proba(pool)).argsort(kind="stable")[:n]


def _by_entropy(model: GPClassifier, pool: Array, n: int, _: np.random.Generator) -> Array:
    return (-entr(model.predict_proba(pool)).sum(1)).argsort(kind="stable")[:n]


def _by_information(model: GPClassifier, pool: Array, n: int, _: np.random.Generator) -> Array:
    return (-model.uncertainty(pool).epistemic).argsort(kind="stable")[:n]


CHOICES: dict[str, Choose] = {
    RANDOM: lambda model, pool, n, generator: generator.permutation(len(pool))[:n],
    "margin": _by_margin,
    OURS: lambda model, pool, n, generator: model.suggest(pool, n).rows,
    "entropy": _by_entropy,
    "epistemic (BALD)": _by_information,
}


@dataclass(frozen=True)
class Settings:
    """Settings of the study."""

    datasets: tuple[str, ...] = ("satimage", "pendigits", "ida_image", "spambase")
    digits: bool = True  # whether the digits of scikit-learn are among the pools
    clinc: bool = True  # whether 30 intents of CLINC150 are
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)  # of the rows that are pool, test and first labelled
    batch: int = 20  # rows that are labelled at a time
    n_batches: int = 6
    n_pool: int = 1500  # rows at most
    n_test: int = 1000
    likelihood: str = "least_squares"  # of the classifier; least squares is fitted in a tenth of a second


@dataclass(frozen=True)
class Task:
    """Rows to be labelled, and rows to score on."""

    pool: Array  # (n, D)
    labels: Array  # (n,)
    x_test: Array  # (m, D)
    y_test: Array  # (m,)
    first: Array  # positions in the pool that are labelled from the start, two of each class

    @classmethod
    def of(cls, x: Array, y: Array, settings: Settings, seed: int) -> Task:
        """From rows (n, D) in random order."""
        order = np.random.default_rng(seed).permutation(len(y))
        n_test = min(settings.n_test, len(y) // 3)
        test, pool = order[:n_test], order[n_test : n_test + settings.n_pool]
        first = [np.flatnonzero(y[pool] == c)[:_PER_CLASS] for c in np.unique(y)]
        return cls(x[pool], y[pool], x[test], y[test], np.concatenate(first))


def curve(task: Task, choose: Choose, kernel: str, settings: Settings, seed: int) -> Iterator[dict[str, Any]]:
    """Scores after each batch, the first rows counted as none."""
    generator = np.random.default_rng(seed)
    labelled = task.first
    for batch in range(settings.n_batches + 1):
        with quiet():
            model = GPClassifier(kernel, settings.likelihood, ensemble=False)
            model.fit(task.pool[labelled], task.labels[labelled])
        scores = summarise(model.predict_proba(task.x_test), task.y_test, classes=model.classes_)
        yield {"batch": batch, "labels": len(labelled), "accuracy": scores.accuracy, "NLL": scores.nll}
        if batch < settings.n_batches:
            rest = generator.permutation(np.setdiff1d(np.arange(len(task.labels)), labelled))
            labelled = np.concatenate([labelled, rest[choose(model, task.pool[rest], settings.batch, generator)]])


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `Settings` for the options."""
    settings = configure(Settings, options)
    pools = list(_pools(settings, data_root))
    records: list[dict[str, Any]] = []
    for number, (name, x, y, kernel) in enumerate(pools):
        for place, seed in enumerate(settings.seeds):
            task = Task.of(x, y, settings, seed)
            for k, (chosen_by, choose) in enumerate(CHOICES.items()):
                done = number + (place + k / len(CHOICES)) / len(settings.seeds)
                progress(f"{name}, seed {seed}: {chosen_by}", done / len(pools))
                for scores in curve(task, choose, kernel, settings, seed):
                    records.append({"data": name, "chosen by": chosen_by, "seed": seed, **scores})
    frame = pd.DataFrame(records)
    after = frame[frame["batch"] > 0]
    accuracy, nll = (_gains(after, metric) for metric in ("accuracy", "NLL"))
    last = after[after["batch"] == settings.n_batches]
    last = last.pivot_table(index="data", columns="chosen by", values="accuracy", sort=False)
    return Outcome(
        title="What to label next",
        introduction=(
            f"{len(pools)} pools of at most {settings.n_pool} rows, {len(settings.seeds)} draws of pool, test rows and "
            f"first labels: two of each class. Then {settings.n_batches} batches of {settings.batch} labels, each "
            "chosen by a classifier of all labels so far. To keep the study short it is `GPClassifier` with one "
            f"setting, `likelihood={settings.likelihood!r}` and `ensemble=False`, on tables with `kernel='matern32'`; "
            f"at most {settings.n_test} test rows. The margin is that between the two largest probabilities; *{OURS}* "
            f"is `suggest`: of {CANDIDATES} times as many rows as are wanted, those of smallest margin, the medoids. "
            "Entropy is that of `predict_proba`; the "
            "epistemic part of `uncertainty` is the mutual information of label and latents, which BALD chooses by. "
            "With two classes entropy and margin put rows in the same order."
        ),
        tables=(
            Table(
                "accuracy",
                "Accuracy, the mean over the batches, and its paired difference to rows drawn at random. Standard "
                "errors over the draws.",
                accuracy,
            ),
            Table("nll", "The same for the negative log-likelihood, nats; lower is better.", nll),
            Table("last", "Accuracy after the last batch.", last.reset_index()),
            Table("all", "Every batch.", frame, on_page=False),
        ),
        pictures=(Picture("curves", "Accuracy on test rows against labels, means over the draws.", _figure(frame)),),
        config=settings,
        seeds=settings.seeds,
        findings=(),
        verdicts=tuple(_verdicts(accuracy, last)),
    )


def _pools(settings: Settings, data_root: Path | None) -> Iterator[tuple[str, Array, Array, str]]:
    """Name, rows, labels and the kernel that suits them."""
    if settings.digits:
        digits = load_digits()
        yield DIGITS, digits.data, digits.target, "matern32"
    if settings.clinc:
        data = load_clinc150(data_root)
        x, y = np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])
        yield CLINC, x[y < _INTENTS], y[y < _INTENTS], "auto"
    for name in settings.datasets:
        yield name, *load(name, data_root), "matern32"


def _gains(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """A row for each pool and way: mean over batches, difference to random, standard errors over seeds."""
    by_seed = {
        (str(name), str(chosen_by)): part.groupby("seed")[metric].mean().to_numpy()
        for (name, chosen_by), part in frame.groupby(["data", "chosen by"], sort=False)
    }
    rows = []
    for (name, chosen_by), values in by_seed.items():
        gain = values - by_seed[name, RANDOM]
        row = {"data": name, "chosen by": chosen_by, metric: values.mean(), "s.e.": _error(values)}
        rows.append({**row, "against random": gain.mean(), "its s.e.": _error(gain)})
    return pd.DataFrame(rows)


def _error(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def _figure(frame: pd.DataFrame) -> Figure:
    names = list(frame["data"].unique())
    figure = new_figure(9.6, 3.1 * ((len(names) + 2) // 3))
    styles = line_styles(list(CHOICES), OURS)
    panels = figure.subplots((len(names) + 2) // 3, 3, squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=False):
        means = frame[frame["data"] == name].pivot_table(index="labels", columns="chosen by", values="accuracy")
        for chosen_by, style in styles.items():
            axes.plot(means.index.to_numpy(), means[chosen_by].to_numpy(), label=chosen_by, **style)
        tidy(axes, name, "labels")
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    label(panels[0], ylabel="accuracy")
    panels[0].legend(fontsize=8, frameon=False)
    return figure


def _verdicts(gains: pd.DataFrame, last: pd.DataFrame) -> Iterator[Verdict]:
    source = "this project's target"
    means = gains.pivot_table(index="data", columns="chosen by", values="accuracy", sort=False)
    overall = {str(name): float(value) for name, value in means.mean().items()}
    best = max(overall, key=lambda name: overall[name])
    yield Verdict(
        "`suggest` has the best mean accuracy over pools and batches.",
        source,
        f"{overall[OURS]:.4f}; best: {best}, {overall[best]:.4f}",
        best == OURS,
    )
    yield Verdict(
        "Variety makes the margin better on every pool.",
        source,
        f"least difference: {float((means[OURS] - means['margin']).min()):+.4f}",
        bool((means[OURS] > means["margin"]).all()),
    )
    for when, values in (("over all batches", means), ("after the last batch", last)):
        gain = values[OURS] - values[RANDOM]
        yield Verdict(
            f"`suggest` is better than random on every pool, {when}.",
            source,
            f"least difference: {float(gain.min()):+.4f} on {gain.idxmin()}",
            bool((gain > 0).all()),
        )
    for other in ("margin", "epistemic (BALD)"):
        losses = means.index[means[other] < means[RANDOM]].tolist()
        yield Verdict(
            f"Rows chosen by {other} alone are worse than random on some pool, over all batches.",
            source,
            ", ".join(map(str, losses)) or "on none",
            bool(losses),
        )


EXPERIMENT = Experiment("what-to-label", "Which rows of a pool are worth a label: six pools, batch by batch", True, run)
