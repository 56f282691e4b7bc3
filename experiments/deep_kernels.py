"""Deep kernels for numbers: how far digits are turned, and where a car that follows another will be.

A Gaussian process on pixels, or on all numbers of a sequence, beside processes on features of a network that was
trained with a kernel by the evidence, a bound of it and left-out rows, and beside the same network alone. How sure one
becomes that is trained until the end by the first or the last, with no row kept aside, is a method too.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy import ndimage
from scipy.stats import norm
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from experiments.batch_learners import quiet
from experiments.experiment import Experiment, Outcome, Progress, Table, configure
from sureshot import GPRegressor
from sureshot.computing.threads import one_thread
from sureshot.deep.kernel_regression import KernelObjective, KernelTraining, train_kernel
from sureshot.estimators.gp.backbone import PRESETS
from sureshot.networks.backbones import make_backbone

COVERAGE = 0.9
WITHIN = float(norm.ppf(0.5 + COVERAGE / 2))
FARTHEST = 45.0  # degrees
STEPS = 20  # that a sequence has
SECONDS = 0.5  # between two of them
WARMING_UP = 40  # steps until drivers have forgotten how they started
PLAIN, BY_EVIDENCE, BY_LEFT_OUT = "plain kernel", "deep kernel, evidence", "deep kernel, left-out rows"
BY_BOUND, ALONE = "deep kernel, svgp", "network alone"
STOPPED = {BY_EVIDENCE: "evidence", BY_LEFT_OUT: "leave_one_out", BY_BOUND: "svgp"}
TO_THE_END: dict[str, KernelObjective] = {
    "deep kernel, evidence, to the end": "evidence",
    "deep kernel, left-out rows, to the end": "leave_one_out",
}
METHODS = (PLAIN, *STOPPED, *TO_THE_END, ALONE)


@dataclass(frozen=True)
class Settings:
    """Settings of the comparison."""

    digit_labels: tuple[int, ...] = (20, 100, 500)
    car_labels: tuple[int, ...] = (100, 500)
    test_rows: int = 500
    seeds: tuple[int, ...] = (0, 1)  # of rows, networks and noise
    steps: int = 300  # of training, at most


class Task(NamedTuple):
    """Rows to learn from, then to test on."""

    x: np.ndarray  # (n, *shape)
    y: np.ndarray  # (n,)
    new_x: np.ndarray
    new_y: np.ndarray
    backbone: str


class Answers(NamedTuple):
    """Of test rows."""

    mean: np.ndarray
    log_density: np.ndarray
    inside: np.ndarray  # of intervals of nominal 90 %


def turned_digits(n: int, n_test: int, seed: int) -> Task:
    """Digits of 16x16 pixels, turned by up to 45 degrees, and by how many; no digit is learnt from and tested on."""
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(load_digits().images))[: n + n_test]
    angle = rng.uniform(-FARTHEST, FARTHEST, len(chosen))
    images = ndimage.zoom(load_digits().images[chosen] / 16, (1, 2, 2), order=1)
    pairs = zip(images, angle, strict=True)
    x = np.stack([ndimage.rotate(image, by, reshape=False, order=1) for image, by in pairs]).clip(0, 1)
    return Task(x[:n], angle[:n], x[n:], angle[n:], "conv4")


def followed_cars(n: int, n_test: int, seed: int) -> Task:
    """Gap, speed and speed of the car in front at twenty steps, and how far the follower drives in the next three.

    The intelligent driver model (Treiber, Hennecke & Helbing 2000): each row is a driver with a desired speed, headway
    and temper of its own, behind a car whose speed wanders; accelerations, and what is seen, have noise.
    """
    rng, n_rows = np.random.default_rng(seed), n + n_test
    desired, headway, most = rng.uniform(25, 38, n_rows), rng.uniform(0.8, 2.5, n_rows), rng.uniform(0.7, 2.0, n_rows)
    comfortable, least = 1.7, 2.0
    usual = rng.uniform(12, 24, n_rows)
    ahead, speed, gap, driven = usual.copy(), usual.copy(), 10 + headway * usual, np.zeros(n_rows)
    seen, place = [], []
    for _ in range(WARMING_UP + STEPS + 3):
        seen.append(np.stack([gap + 0.5 * rng.normal(size=n_rows), speed + 0.2 * rng.normal(size=n_rows), ahead], -1))
        place.append(driven.copy())
        closing = speed * (speed - ahead) / (2 * np.sqrt(most * comfortable))
        wanted = least + np.maximum(0.0, speed * headway + closing)
        pull = most * (1 - (speed / desired) ** 4 - (wanted / np.maximum(gap, 0.5)) ** 2)
        pull = np.clip(pull + 0.2 * rng.normal(size=n_rows), -6.0, 3.0)
        ahead = ahead + 0.1 * (usual - ahead) * SECONDS + 1.5 * math.sqrt(SECONDS) * rng.normal(size=n_rows)
        ahead = np.maximum(0.0, ahead)
        before, speed = speed, np.maximum(0.0, speed + pull * SECONDS)
        driven, gap = driven + SECONDS * (before + speed) / 2, gap + SECONDS * (ahead - (before + speed) / 2)
    x = np.stack(seen, 1)[:, WARMING_UP : WARMING_UP + STEPS]
    y = place[-1] - place[WARMING_UP + STEPS - 1]
    return Task(x[:n], y[:n], x[n:], y[n:], "lstm")


def _of_regressor(task: Task, seed: int, **arguments: Any) -> Answers:
    rows, new = task.x, task.new_x
    if "backbone" not in arguments:
        rows, new = rows.reshape(len(rows), -1), new.reshape(len(new), -1)
    model = GPRegressor(random_state=seed, **arguments).fit(rows, task.y)
    found = model.forecast(new)
    return Answers(found.mean, found.log_density(task.new_y), found.interval(COVERAGE).contain(task.new_y))


class Scaled(NamedTuple):
    """Inputs as networks take them, numbers of deviation one, and how to come back."""

    x: torch.Tensor
    new_x: torch.Tensor
    y: torch.Tensor  # (1, n) double
    centre: float
    deviation: float

    @classmethod
    def of(cls, task: Task) -> Scaled:
        """Images as they are, channels of sequences standardised."""
        if task.backbone == "conv4":
            rows, new = task.x[:, None], task.new_x[:, None]
        else:
            mean, deviation = task.x.mean((0, 1)), task.x.std((0, 1))
            rows, new = (task.x - mean) / deviation, (task.new_x - mean) / deviation
        y = torch.from_numpy((task.y - task.y.mean()) / task.y.std())[None]
        x, new_x = (torch.from_numpy(part).float() for part in (rows, new))
        return cls(x, new_x, y, float(task.y.mean()), float(task.y.std()))

    def answers(self, mean: np.ndarray, deviation: np.ndarray | float, y: np.ndarray) -> Answers:
        """Of normals on the scale."""
        known = norm(self.centre + self.deviation * mean, self.deviation * deviation)
        error = np.abs(y - known.mean())
        return Answers(known.mean(), known.logpdf(y), error <= WITHIN * known.std())

    def network(self, task: Task, seed: int) -> nn.Module:
        """The one that `GPRegressor` takes."""
        return make_backbone(task.backbone, self.x.shape[1:], seed=seed, **PRESETS[task.backbone])


def _to_the_end(task: Task, seed: int, objective: KernelObjective, steps: int) -> Answers:
    """The kernel as it was trained, no row kept aside."""
    scaled, weight = Scaled.of(task), torch.ones(len(task.y), dtype=torch.float64)
    settings = KernelTraining(objective, steps, kept_aside=0.0, seed=seed)
    found = train_kernel(scaled.network(task, seed), scaled.x, scaled.y, weight, settings)
    mean, variance = found.kernel.predict(scaled.x, scaled.y, weight, scaled.new_x)
    return scaled.answers(mean[0].numpy(), variance.sqrt().numpy(), task.new_y)


def _alone(task: Task, seed: int, steps: int) -> Answers:
    """The network and a linear layer by squared errors; a fifth kept aside stops it, and says how far off it is."""
    scaled = Scaled.of(task)
    backbone = scaled.network(task, seed)
    head = nn.Linear(int(backbone.n_features), 1)  # type: ignore[arg-type]
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    model, y = nn.Sequential(backbone, head, nn.Flatten(0)), scaled.y[0].float()
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(y)))
    aside, seen = order.tensor_split([round(0.2 * len(y))])
    optimiser, best, state, since = torch.optim.Adam(model.parameters(), 3e-3), math.inf, model.state_dict(), 0
    for step in range(steps):
        model.train()
        optimiser.zero_grad()
        functional.mse_loss(model(scaled.x[seen]), y[seen]).backward()
        optimiser.step()
        if step % 5 == 4:
            with torch.no_grad():
                loss = float(functional.mse_loss(model.eval()(scaled.x[aside]), y[aside]))
            since = 0 if loss < best else since + 1
            if loss < best:
                best, state = loss, copy.deepcopy(model.state_dict())
            if since == 20:
                break
    model.load_state_dict(state)
    with torch.no_grad():
        return scaled.answers(model.eval()(scaled.new_x).double().numpy(), math.sqrt(best), task.new_y)


def answers_of(method: str, task: Task, seed: int, steps: int) -> Answers:
    """Of a method by its name."""
    if method == PLAIN:
        return _of_regressor(task, seed)
    if method in STOPPED:
        how = {"backbone_objective": STOPPED[method], "backbone_steps": steps}
        return _of_regressor(task, seed, backbone=task.backbone, **how)
    if method == ALONE:
        return _alone(task, seed, steps)
    return _to_the_end(task, seed, TO_THE_END[method], steps)


TASKS: dict[str, Callable[[int, int, int], Task]] = {"digits": turned_digits, "cars": followed_cars}


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `Settings` for the options."""
    settings = configure(Settings, options)
    sizes = [("digits", n) for n in settings.digit_labels] + [("cars", n) for n in settings.car_labels]
    cases = [(data, n, seed, method) for data, n in sizes for seed in settings.seeds for method in METHODS]
    records = []
    for number, (data, n, seed, method) in enumerate(cases):
        progress(f"{data}, {n} labels, seed {seed}: {method}", number / len(cases))
        task = TASKS[data](n, settings.test_rows, seed)
        with quiet(), one_thread():
            torch.manual_seed(seed)
            started = time.process_time()
            found = answers_of(method, task, seed, settings.steps)
            seconds = time.process_time() - started
        records.append(
            {
                "data": data,
                "labels": n,
                "method": method,
                "rmse": float(np.sqrt(np.mean((found.mean - task.new_y) ** 2))),
                "log density": float(found.log_density.mean()),
                "coverage 90": float(found.inside.mean()),
                "seconds": seconds,
            }
        )
    frame = pd.DataFrame(records)
    means = frame.groupby(["data", "labels", "method"], sort=False).mean()
    tables = tuple(
        Table(data, _CAPTIONS[data], means.loc[data].reset_index(), digits=2) for data in TASKS if data in means.index
    )
    return Outcome(
        title="Deep kernels for numbers",
        introduction=(
            f"Networks trained together with a kernel on their features, for {settings.steps} steps at most, with a "
            "fifth of the rows kept aside that says when to stop (but to the end: none, all steps, and the kernel "
            f"as it was trained). Means over {len(settings.seeds)} draws of rows; each is tested on "
            f"{settings.test_rows} others. The network alone is a normal whose deviation is the "
            "error on rows kept aside. Seconds are a core's, of fit and answers."
        ),
        tables=tables,
        config=settings,
        seeds=settings.seeds,
        findings=tuple(_finding(data, n, frame) for data, n in sizes),
    )


_CAPTIONS = {
    "digits": (
        "By how many degrees scikit-learn's digits, made 16x16 pixels, were turned (45 at most to either side; "
        "guessing zero errs by 26.0), by a Conv4 of 32 filters."
    ),
    "cars": (
        "How many metres a car drives in the next 1.5 seconds, from noisy gaps and speeds at twenty steps of half a "
        "second, in a simulation of drivers by the intelligent driver model, by an LSTM of 32 units."
    ),
}


def _finding(data: str, n: int, frame: pd.DataFrame) -> str:
    chosen = frame[(frame["data"] == data) & (frame["labels"] == n)]
    means = chosen.groupby("method")[["rmse", "log density", "coverage 90"]].mean()
    error, density, coverage = (means[name] for name in ("rmse", "log density", "coverage 90"))
    stopped, freely = list(STOPPED), list(TO_THE_END)
    better = max(stopped, key=lambda method: density[method])
    return (
        f"{data.capitalize()}, {n} labels: the plain kernel errs by {error[PLAIN]:.2f}, deep ones by "
        f"{error[stopped].min():.2f} (log density {density[PLAIN]:.2f} and {density[stopped].max():.2f}, better by "
        f"{better.removeprefix('deep kernel, ')}). Trained to the end log density is {density[freely[0]]:.2f} by the "
        f"evidence and {density[freely[1]]:.2f} by left-out rows, and intervals of nominal 90 % contain "
        f"{100 * coverage[freely[0]]:.0f} % and {100 * coverage[freely[1]]:.0f} %."
    )


EXPERIMENT = Experiment(
    "deep-kernels", "Kernels on features of a network trained with them: turned digits, cars that follow", False, run
)
