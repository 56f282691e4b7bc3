"""One or two labels a class of every set: are the defaults ever worse than what the labels' frequencies say?

Tables, intents and groups of them, embeddings by several encoders, and the pixels of ten classes of images. Each class
has as many labels, so by their frequencies all are alike, whose log loss is the logarithm of their number.
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

from experiments import embeddings_panel
from experiments.batch_learners import quiet, scores
from experiments.cifar import load_cifar10_subset
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.few_label_sets import FewLabelSet, drawn
from experiments.uci import TABLES
from sureshot.data.choice import load_choice
from sureshot.data.labelled import LabelledSet
from sureshot.data.mini_imagenet import load_miniimagenet32
from sureshot.data.omniglot import load_omniglot
from sureshot.estimators.gp.classifier import GPClassifier

Array = NDArray[Any]
Rows = tuple[Array, Array, Array, Array]
"""Rows to learn from with their labels, and rows to test on with theirs."""
Draw = Callable[[int, int], Rows | None]
"""By labels of a class and seed; None if fewer than two classes have as many."""

CLASSES_OF_IMAGES = 10
IMAGES: dict[str, Callable[[Path | None], LabelledSet]] = {
    "cifar10_subset": lambda root: load_cifar10_subset(root)[0],
    "choice62": load_choice,
    "miniimagenet32": lambda root: load_miniimagenet32(root).images,
    "omniglot28": lambda root: load_omniglot(root).images,
}


@dataclass(frozen=True)
class Settings:
    """Settings."""

    tables: tuple[str, ...] = TABLES  # sets, those of `IMAGES` by their pixels
    embeddings: tuple[str, ...] = embeddings_panel.SETS
    images: tuple[str, ...] = tuple(IMAGES)
    ways: tuple[int, ...] = (2, 5, 10, 20)  # numbers of classes of intents
    groups: tuple[int, ...] = (1, 4)  # intents that make one
    shots: tuple[int, ...] = (1, 2)  # labels of each class
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)  # of the draws
    n_test: int = 1000  # test rows at most


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `Settings` for the options."""
    settings = configure(Settings, options)
    records = []
    n_sets = sum(map(len, (settings.tables, settings.embeddings, settings.images)))
    n_sets += len(settings.ways) * len(settings.groups)
    for number, (kind, name, draw) in enumerate(_sets(settings, data_root)):
        progress(name, number / n_sets)
        for shots in settings.shots:
            for x, y, test_x, test_y in filter(None, (draw(shots, seed) for seed in settings.seeds)):
                with quiet():
                    model = GPClassifier().fit(x, y)
                    said = scores(model.predict_proba(test_x), test_y, model.classes_)
                records.append({"labels": shots, "rows": kind, "data": name, "classes": len(model.classes_), **said})
    tables, verdicts = tables_of(pd.DataFrame(records))
    return Outcome(
        title="One or two labels a class, beside class frequencies",
        introduction=(
            "Log loss of `GPClassifier()` in nats, and of the frequencies of its labels: the logarithm of the number "
            f"of classes. Means over {len(settings.seeds)} draws, with the standard error of their difference."
        ),
        tables=tuple(tables),
        config=settings,
        seeds=settings.seeds,
        findings=("Where labels say nothing, whoever is surer than frequencies is worse than these.",),
        verdicts=tuple(verdicts),
    )


def tables_of(frame: pd.DataFrame) -> tuple[list[Table], list[Verdict]]:
    """Of fits with their labels a class, kind and name of the set, number of classes, log loss and accuracy."""
    frame = frame.assign(frequencies=np.log(frame["classes"]))
    frame["difference"] = frame["nll"] - frame["frequencies"]
    tables, verdicts = [], []
    for shots, own in frame.groupby("labels"):
        of_sets = own.groupby(["rows", "data"], sort=False)
        found = of_sets[["classes", "accuracy", "nll", "frequencies", "difference"]].mean().reset_index()
        found["standard error"] = of_sets["difference"].sem().to_numpy()
        caption = "one label a class" if shots == 1 else f"{shots} labels a class"
        tables.append(Table(f"labels-{shots}", f"The defaults beside class frequencies, {caption}.", found))
        worse = found[found["difference"] > 0]
        names = ", ".join(f"{row.data} {row.difference:+.3f}" for row in worse.itertuples())
        mean = f"a mean difference of {found['difference'].mean():.3f}"
        verdicts.append(
            Verdict(
                f"{caption}: never worse than class frequencies",
                "this project's aim",
                f"{len(worse)} of {len(found)} sets are worse{': ' * (len(worse) > 0)}{names}; {mean}",
                worse.empty,
            )
        )
    return tables, verdicts


def _sets(settings: Settings, root: Path | None) -> Iterator[tuple[str, str, Draw]]:
    """Kind, name and draws of each; one is in memory at a time."""
    named = [FewLabelSet(name) for name in settings.tables]
    named += FewLabelSet.of_intents((way, size) for size in settings.groups for way in settings.ways)
    for one in named:
        yield one.kind, one.name, partial(_of_rows, one, *one.rows(root), settings.n_test)
    for name in settings.embeddings:
        yield "embeddings", name, partial(_of_embeddings, embeddings_panel.rows_of(name, root))
    for name in settings.images:
        yield "images", name, partial(_of_images, IMAGES[name](root), settings.n_test)


def _of_rows(one: FewLabelSet, x: Array, y: Array, n_test: int, shots: int, seed: int) -> Rows:
    return drawn(*one.of_seed(x, y, seed), shots, n_test, seed)


def _of_embeddings(rows: embeddings_panel.Draw, shots: int, seed: int) -> Rows | None:
    found = embeddings_panel.drawn(rows, shots, seed)
    return None if found is None else (found.x, found.y, found.test_x, found.test_y)


def _of_images(images: LabelledSet, n_test: int, shots: int, seed: int) -> Rows:
    """Pixels of ten classes that the seed draws."""
    chosen = np.random.default_rng(seed).choice(images.n_classes, CLASSES_OF_IMAGES, replace=False)
    among = np.flatnonzero(np.isin(images.y.numpy(), chosen))
    x, y = images.x.numpy()[among].reshape(len(among), -1), images.y.numpy()[among]
    train_x, train_y, test_x, test_y = drawn(x, y, shots, n_test, seed)
    return train_x.astype(float), train_y, test_x.astype(float), test_y


EXPERIMENT = Experiment("few-labels", "one or two labels a class of every set, beside class frequencies", True, run)
