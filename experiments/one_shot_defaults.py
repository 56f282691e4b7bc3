"""What temperature suits one label for each class? The default prior where the support itself cannot tell.

For each data set and kernel, one row of every class trains the softmax GP at the default scales; the temperature that
predicts other rows best is recorded. `GPClassifier` takes the geometric mean over the sets as its default temperature
and their spread as the width of its prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.experiment import Experiment, Outcome, Progress, Table, configure
from experiments.uci import load
from sureshot.data.clinc150 import load_clinc150
from sureshot.estimators.classifier import GPClassifier
from sureshot.estimators.options import one_shot_temperature
from sureshot.estimators.tuning import DEFAULT_OUTPUT_SCALE, scaled
from sureshot.kernels import make_kernel
from sureshot.metrics import fit_temperature

CLINC = "clinc150 (validation split)"


@dataclass(frozen=True)
class Settings:
    """Settings of the study.

    Attributes
    ----------
    datasets : tuple of str
        Tables with several classes.
    kernels : tuple of str
        Compared on the tables; the cosine kernel is for the embeddings.
    seeds : tuple of int
        Of the choice of labels.
    n_test : int
        Test rows at most.
    """

    datasets: tuple[str, ...] = ("wine", "iris", "glass", "zoo", "letter", "pendigits", "optdigits", "satimage")
    kernels: tuple[str, ...] = ("rbf", "linear", "matern12", "matern32")
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7)
    n_test: int = 1000


def best_temperature(kernel: str, x: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """The temperature that predicts the test rows best from the training rows at default scales."""
    fixed = scaled(make_kernel(kernel, x.shape[1]), DEFAULT_OUTPUT_SCALE)
    model = GPClassifier(kernel=fixed, likelihood="softmax", objective=None).fit(x[train], y[train])
    return fit_temperature(model.predict_latent(x[test]).mean, y[test], classes=model.classes_)


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `Settings` for the options."""
    settings = configure(Settings, options)
    records = []
    for number, name in enumerate(settings.datasets):
        progress(name, number / (len(settings.datasets) + 1))
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
    progress(CLINC, 0.9)
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
            "default in use": [one_shot_temperature(str(name)) for name in means.columns],
        }
    )
    spread = float(means.drop(columns=["cosine"], errors="ignore").std().mean())
    far = summary[np.abs(np.log(summary["geometric mean"] / summary["default in use"])) > math.log(1.5)]
    agree = "all within a factor of 1.5 of" if far.empty else f"not all ({', '.join(far['kernel'])}) within 1.5 of"
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
        ),
        config=settings,
        seeds=settings.seeds,
        findings=(
            f"The measured geometric means are {agree} the defaults in use. Between sets the logarithm of the best "
            f"temperature has a standard deviation of {spread:.2f} nats, averaged over kernels.",
        ),
    )


EXPERIMENT = Experiment("one-shot-defaults", "The temperature that suits one label for each class", True, run)
