"""The most probable of very many classes: beam search in the tree of classes, beside looking at all of them.

Synthetic classes lie in groups of ten; their three sizes say how costs grow.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from experiments.experiment import Experiment, Outcome, Progress, Table, configure
from sureshot.data.clinc150 import load_clinc150
from sureshot.data.images import with_rotations
from sureshot.data.labelled import places_within_classes
from sureshot.data.omniglot import load_omniglot
from sureshot.estimators import TreeGPClassifier

Found = TypeVar("Found")
TOP = 5
_COLUMNS = (
    "Milliseconds for a row, by a look at all classes and this way, and the latter over the former; how often both "
    f"name the same class first, what share of the first {TOP} they have in common, and how often each names the right "
    "class."
)
_OF_A_CLASS = 20  # rows that are used; those after the first session's are queries


@dataclass(frozen=True)
class BeamSearchConfig:
    """Settings."""

    # "clinc150", "omniglot" (with rotations), or "synthetic-" and a number of classes, a multiple of ten
    sets: tuple[str, ...] = ("clinc150", "synthetic-150", "synthetic-1000", "omniglot", "synthetic-10000")
    base_classes: int = 100  # of the first session of "recommended"
    base_rows: int = 15
    rows: int = 3  # of every other class there, and of every class of the published tree
    queries: int = 1000
    beams: tuple[int, ...] = (16, 32, 64, 128)  # widths
    columns: int = 128  # of synthetic rows, and principal components of characters
    seed: int = 0


@dataclass(frozen=True)
class ManyClasses:
    """Rows of classes, to learn from and to ask about."""

    x: NDArray[np.float64]
    y: NDArray[np.int64]
    place: NDArray[np.int64]  # of each row among those of its class

    def some(self, rows: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Rows and labels."""
        return self.x[rows], self.y[rows]


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `BeamSearchConfig` for the options."""
    settings = configure(BeamSearchConfig, options)
    records, chosen, fits = [], [], []
    for number, name in enumerate(settings.sets):
        progress(name, number / len(settings.sets))
        data = many_classes(name, settings, data_root)
        n_classes = int(data.y.max()) + 1
        asked = np.flatnonzero(data.place >= settings.base_rows)
        asked = np.random.default_rng(settings.seed).permutation(asked)[: settings.queries]
        x, y = data.x[asked], data.y[asked]
        for strategy, learn in (("recommended", _recommended), ("shared_root", _published)):
            model, fitting = _timed(partial(learn, data, settings))
            search = model._fitted.model
            preparing = _timed(partial(_searched, model, x[:1], 1))[1]  # groups are made when a search first asks
            head: dict[str, Any] = {"set": name, "classes": n_classes, "strategy": strategy}
            rows = len(model._fitted.rows.y)
            fits.append({**head, "rows": rows, "fit, s": fitting, "first search, s": preparing})
            every, dense = _timed(partial(_searched, model, x, None))
            for beam in settings.beams:
                found, seconds = _timed(partial(_searched, model, x, beam))
                branch = (seconds / dense) * n_classes / beam
                compared = _compared(found, every, y, dense, seconds)
                records.append({**head, "beam": beam, **compared, "classes for a branch": branch})
            top, seconds = _timed(partial(model.predict_topk, x, TOP))
            few = n_classes <= search.classes_for_a_branch * search.usual_beam
            way = {"beam": "all" if few else str(search.usual_beam)}
            chosen.append({**head, **way, **_compared(top.labels, every, y, dense, seconds)})
    frame, own = pd.DataFrame(records), pd.DataFrame(chosen)
    return Outcome(
        title="The most probable of very many classes",
        introduction=(
            f"The {TOP} most probable classes along a beam beside a look at all classes, for {settings.queries} rows "
            'that no model has seen; processor time of one process. "recommended" learns from '
            f"{settings.base_rows} rows of {settings.base_classes} classes and gets {settings.rows} rows of each other "
            f'class in one session; "shared_root" is one tree of all classes by mean field, {settings.rows} rows of '
            f"each. Synthetic classes lie in groups of ten, {settings.columns} columns; characters are Omniglot's in "
            f"four directions by {settings.columns} principal components of their pixels, sentences are CLINC150's by "
            "384 numbers."
        ),
        tables=(
            Table(
                "predict-topk",
                f"`predict_topk(X, {TOP})` as it chooses by itself: the beam that it follows, or all classes. "
                f"{_COLUMNS}",
                own,
            ),
            Table(
                "search",
                f"Searches along beams of given widths, also where `predict_topk` looks at all classes. {_COLUMNS} "
                "Last: how many classes of a look at all of them a branch of the beam takes as long as.",
                frame,
            ),
            Table(
                "fits",
                "Rows kept; seconds of fitting, and of the first search, which groups the classes.",
                pd.DataFrame(fits),
                digits=1,
            ),
        ),
        config=settings,
        seeds=(settings.seed,),
        findings=tuple(_findings(own, frame)),
        differences=("No paper has this experiment.",),
    )


def many_classes(name: str, settings: BeamSearchConfig, data_root: Path | None) -> ManyClasses:
    """A set by its name."""
    kind, _, size = name.partition("-")
    if kind == "synthetic" and size.isdecimal() and int(size) >= 10 and int(size) % 10 == 0:
        return _synthetic(int(size), settings)
    if name == "clinc150":
        intents = load_clinc150(data_root)
        x, y = np.asarray(intents.x_train, dtype=np.float64), np.asarray(intents.y_train, dtype=np.int64)
    elif name == "omniglot":
        images = with_rotations(load_omniglot(data_root).images)
        x, y = images.x.numpy().reshape(len(images), -1).astype(np.float64), images.y.numpy()
        x = _principal(x, y < settings.base_classes, settings.columns)
    else:
        raise ValueError(
            f"sets must name 'clinc150', 'omniglot' or 'synthetic-' and a multiple of ten classes, got {name!r}"
        )

    place = places_within_classes(torch.from_numpy(y), torch.arange(len(y))).numpy()
    keep = place < _OF_A_CLASS
    return ManyClasses(x[keep], y[keep], place[keep])


def _synthetic(n_classes: int, settings: BeamSearchConfig) -> ManyClasses:
    rng = np.random.default_rng(settings.seed)
    width = settings.columns
    groups = rng.normal(size=(n_classes // 10, 1, width))
    means = (groups + rng.normal(size=(n_classes // 10, 10, width))).reshape(-1, width)
    y = np.repeat(np.arange(n_classes), _OF_A_CLASS)
    place = np.tile(np.arange(_OF_A_CLASS), n_classes)
    x = means[y] + 1.5 * rng.normal(size=(len(y), width))
    return ManyClasses(x, y, place)


def _principal(x: NDArray[np.float64], rows: NDArray[np.bool_], n_columns: int) -> NDArray[np.float64]:
    """Principal components by some of the rows."""
    mean = x[rows].mean(0)
    return (x - mean) @ np.linalg.svd(x[rows] - mean, full_matrices=False)[2][:n_columns].T


def _recommended(data: ManyClasses, settings: BeamSearchConfig) -> TreeGPClassifier:
    base = data.y < settings.base_classes
    model = TreeGPClassifier().fit(*data.some(base & (data.place < settings.base_rows)))
    later = ~base & (data.place < settings.rows)
    return model.partial_fit(*data.some(later)) if later.any() else model


def _published(data: ManyClasses, settings: BeamSearchConfig) -> TreeGPClassifier:
    model = TreeGPClassifier("shared_root", n_representatives=settings.rows, inference="mean_field")
    return model.fit(*data.some(data.place < settings.rows))


def _searched(model: TreeGPClassifier, x: NDArray[np.float64], beam: int | None) -> NDArray[np.int64]:
    """Numbers of the most probable classes along a beam whatever `predict_topk` would do; None for a look at all."""

    def leading(fitted: Any, queries: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found: tuple[torch.Tensor, ...] = fitted.model.leading(queries, TOP, beam, fitted.temperature)
        return found

    numbers: NDArray[np.int64] = model._predict_in_blocks(model._current(), x, leading)[1]
    return numbers


def _compared(
    beam: NDArray[np.int64], dense: NDArray[np.int64], y: NDArray[np.int64], dense_seconds: float, seconds: float
) -> dict[str, float]:
    common = [len(set(one) & set(other)) / TOP for one, other in zip(beam.tolist(), dense.tolist(), strict=True)]
    return {
        "all, ms": 1e3 * dense_seconds / len(y),
        "beam, ms": 1e3 * seconds / len(y),
        "ratio": seconds / dense_seconds,
        "same first": float((beam[:, 0] == dense[:, 0]).mean()),
        "in common": float(np.mean(common)),
        "accuracy, all": float((dense[:, 0] == y).mean()),
        "accuracy, beam": float((beam[:, 0] == y).mean()),
    }


def growth(frame: pd.DataFrame, column: str) -> float:
    """The exponent by which a cost grows with the classes, between the fewest and the most."""
    own = frame.sort_values("classes")
    classes, cost = own["classes"].to_numpy(), own[column].to_numpy()
    return math.log(cost[-1] / cost[0]) / math.log(classes[-1] / classes[0])


def _findings(own: pd.DataFrame, frame: pd.DataFrame) -> list[str]:
    found = []
    for name, part in own.groupby("strategy"):
        scored = part.to_dict("records")
        worst, slowest = min(scored, key=lambda row: row["in common"]), max(scored, key=lambda row: row["ratio"])
        found.append(
            f"{name}, predict_topk as it chooses: of the first {TOP} at least {worst['in common']:.1%} are those "
            f"of a look at all classes ({worst['set']}); it takes at most {slowest['ratio']:.2f} times as long "
            f"({slowest['set']}), at best {part['ratio'].min():.2f}."
        )
    synthetic = frame[frame["set"].str.startswith("synthetic")]
    many = synthetic[synthetic["classes"] >= 1000]  # below, a beam meets most of the classes
    several = many if many["classes"].nunique() > 1 else synthetic
    for (strategy, beam), rows in several.groupby(["strategy", "beam"]):
        if rows["classes"].nunique() > 1:
            sizes = f"{rows['classes'].min():,} to {rows['classes'].max():,}"
            found.append(
                f"{strategy}, a beam of {beam}: from {sizes} synthetic classes C the time for a row grows as "
                f"C^{growth(rows, 'beam, ms'):.2f} along the beam, as C^{growth(rows, 'all, ms'):.2f} by all classes."
            )
    return found


def _timed(work: Callable[[], Found]) -> tuple[Found, float]:
    start = time.process_time()
    return work(), time.process_time() - start


EXPERIMENT = Experiment(
    "beam-search", "the most probable of up to 10,000 classes: along a beam, beside looking at all of them", True, run
)
