"""Forecasts of carbon dioxide over Mauna Loa: a sum of a trend, seasons and wiggles, beside naive ones.

Monthly means up to the end of a year, then ten years ahead. The kernel is that of Rasmussen & Williams (2006, section
5.4.3); `GPRegressor` takes its shape from a list by evidence; scikit-learn's process has theirs, or climbs from there.

    python -m experiments co2 --data FOLDER --set 'ends=[1991]'
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from threadpoolctl import threadpool_limits

from experiments.batch_learners import quiet
from experiments.experiment import Experiment, Outcome, Picture, Progress, Table, Verdict, configure
from experiments.figures import INK, label, new_figure, tidy
from experiments.number_peers import Answers, Normal, OfRegressor
from experiments.number_scores import AIM, scored
from sureshot import GPRegressor
from sureshot.computing.threads import one_thread
from sureshot.data.root import data_file
from sureshot.kernels import RBF, Expression, Periodic, RationalQuadratic
from sureshot.report.plots import BLUE, VERMILION

NAME = "co2"
OURS, OURS_BOOK, DEFAULTS = "sureshot, trend and seasons", "sureshot, the book's", "sureshot, defaults"
BOOK, CLIMBED = "scikit-learn's process, the book's", "scikit-learn's process, learnt"
NAIVE, DRIFT = "seasonal naive", "seasonal naive with drift"
MONTHS = 12
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Co2Config:
    """Settings."""

    ends: tuple[int, ...] = (1971, 1981, 1991)  # the last years that are learnt from, each for a forecast of its own
    years: int = 10  # ahead


@dataclass(frozen=True)
class Monthly:
    """Means of months in parts per million, by decimal years; months without a measurement are left out."""

    year: np.ndarray  # (n,)
    value: np.ndarray  # (n,)

    def between(self, first: float, last: float) -> Monthly:
        """From one time on, up to another."""
        inside = (self.year >= first) & (self.year < last)
        return Monthly(self.year[inside], self.value[inside])


def read(data_root: Path | None) -> Monthly:
    """From weekly values."""
    weekly = pd.read_csv(data_file("co2.csv", data_root, "with columns date, as 19580329, and co2")).dropna()
    date = pd.to_datetime(weekly["date"].astype(str), format="%Y%m%d")
    monthly = weekly["co2"].groupby(date.dt.year * MONTHS + date.dt.month - 1).mean()
    return Monthly((monthly.index.to_numpy() + 0.5) / MONTHS, monthly.to_numpy())


def trend_and_seasons(long: float, decay: float, smoothness: float) -> Expression:
    """The book's sum, with its variances in squared parts per million; length-scales are in years.

    Of the smooth trend, of how long seasons stay alike, and of a season.
    """
    trend = 66.0**2 * RBF(_number(long))
    # The length-scale of `Periodic` is not squared, the book's is.
    seasons = 2.4**2 * (RBF(_number(decay)) * Periodic(_number(smoothness**2), _number(1.0)))
    wiggles = 0.66**2 * RationalQuadratic(_number(1.2), torch.tensor(0.78)) + 0.18**2 * RBF(_number(0.134))
    return trend + seasons + wiggles


def _number(value: float) -> torch.Tensor:
    return torch.tensor([value])


SHAPES = tuple(itertools.product((30.0, 67.0, 150.0), (30.0, 90.0, 200.0), (0.9, 1.3, 1.8)))
"""Of `trend_and_seasons`: what evidence chooses from."""
BOOKS_SHAPE = (67.0, 90.0, 1.3)


def by_evidence(seen: Monthly, shapes: Sequence[tuple[float, float, float]]) -> GPRegressor:
    """The shape with most evidence; its overall variance and the noise are found by evidence, too."""
    fits = []
    for shape in shapes:
        model = GPRegressor(
            trend_and_seasons(*shape),
            objective="evidence",
            approximation="exact",
            noise="gaussian",
            target_transform="none",
            standardize=False,
            random_state=0,
        )
        fits.append(model.fit(seen.year[:, None], seen.value))
        logger.info("shape %s: evidence %.1f", shape, model.log_evidence_)
    return max(fits, key=lambda model: float(model.log_evidence_))


def ours(seen: Monthly, year: np.ndarray, shapes: Sequence[tuple[float, float, float]] | None = None) -> Answers:
    """Of the kernel with most evidence; `SHAPES` by default."""
    return OfRegressor(by_evidence(seen, shapes or SHAPES), year[:, None])


def defaults(seen: Monthly, year: np.ndarray) -> Answers:
    """Nothing is said of trend or seasons."""
    return OfRegressor(GPRegressor(random_state=0).fit(seen.year[:, None], seen.value), year[:, None])


def book(seen: Monthly, year: np.ndarray, optimiser: str | None = None) -> Answers:
    """With the numbers of the book, or from there uphill."""
    trend = 66.0**2 * sk.RBF(67.0)
    seasons = 2.4**2 * sk.RBF(90.0) * sk.ExpSineSquared(1.3, 1.0, periodicity_bounds="fixed")
    wiggles = 0.66**2 * sk.RationalQuadratic(length_scale=1.2, alpha=0.78)
    noise = 0.18**2 * sk.RBF(0.134) + sk.WhiteKernel(0.19**2)
    centre = float(seen.value.mean())
    model = GaussianProcessRegressor(trend + seasons + wiggles + noise, optimizer=optimiser)
    model.fit(seen.year[:, None], seen.value - centre)
    mean, deviation = model.predict(year[:, None], return_std=True)
    return Normal(mean + centre, deviation)


def naive(seen: Monthly, year: np.ndarray, drift: bool = False) -> Answers:
    """The value of the month in the last year, plus, with `drift`, the mean change in a year for each that is ahead.

    Deviations are those of a random walk of years: changes in a year times the root of the years ahead.
    """
    last = pd.Series(seen.value, np.round(seen.year * MONTHS - 0.5).astype(int))
    every = last.reindex(range(last.index[0], last.index[-1] + 1)).interpolate()
    change = (every - every.shift(MONTHS)).dropna()
    growth = float(change.mean()) if drift else 0.0
    asked = np.round(year * MONTHS - 0.5).astype(int)
    ahead = -(-(asked - every.index[-1]) // MONTHS)
    mean = every.loc[asked - ahead * MONTHS].to_numpy() + growth * ahead
    return Normal(mean, float(np.sqrt(np.mean((change - growth) ** 2))) * np.sqrt(ahead))


METHODS: dict[str, Callable[[Monthly, np.ndarray], Answers]] = {
    OURS: ours,
    OURS_BOOK: partial(ours, shapes=(BOOKS_SHAPE,)),
    BOOK: book,
    CLIMBED: partial(book, optimiser="fmin_l_bfgs_b"),
    DRIFT: partial(naive, drift=True),
    NAIVE: naive,
    DEFAULTS: defaults,
}


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Forecast from the end of each year."""
    settings = configure(Co2Config, options)
    series, rows, last = read(data_root), [], {}
    for number, (end, (method, forecast)) in enumerate(itertools.product(settings.ends, METHODS.items())):
        progress(f"{method} from {end}", number / len(settings.ends) / len(METHODS))
        seen = series.between(-np.inf, end + 1.0)
        ahead = series.between(end + 1.0, end + 1.0 + settings.years)
        started = time.process_time()
        with quiet(), one_thread(), threadpool_limits(1):
            found = forecast(seen, ahead.year)
        seconds = time.process_time() - started
        rows.append({"learnt up to": end, "method": method, **scored(found, ahead.value), "seconds": seconds})
        last[method] = (seen, ahead, found)
    return outcome_of(pd.DataFrame(rows), last, settings)


def outcome_of(frame: pd.DataFrame, last: dict[str, tuple[Monthly, Monthly, Answers]], settings: Co2Config) -> Outcome:
    """Tables, aims, and a figure of the last forecast."""
    columns = ["rmse", "log density", "crps", "coverage 50", "coverage 90", "coverage 95", "seconds"]
    means = frame.groupby("method", sort=False)[columns].mean().reset_index()
    return Outcome(
        title="Carbon dioxide",
        introduction=(
            f"Monthly means over Mauna Loa from 1958 on, up to the end of {_listed(settings.ends)}, and the "
            f"{settings.years} years after. `{OURS}`: `GPRegressor` with a kernel that is given, of a smooth trend, "
            "seasons that change slowly, and wiggles (Rasmussen & Williams 2006, section 5.4.3); of "
            f"{len(SHAPES)} shapes the one with most evidence; also with the book's alone. scikit-learn's process has "
            "the book's numbers, or climbs the evidence from there. These numbers were found with rows of the years "
            "that are forecast, which helps. Seasonal naive: the same month of the last year, with deviations as of a "
            "random walk."
        ),
        tables=(
            Table("means", "Means over the forecasts, in parts per million and nats.", means),
            Table("forecasts", "Each forecast.", frame[["learnt up to", "method", *columns]]),
        ),
        config=settings,
        seeds=(0,),
        findings=(),
        pictures=(
            Picture("forecast", f"From the end of {settings.ends[-1]}: means, and intervals of 90 %.", draw(last)),
        ),
        verdicts=tuple(verdicts_of(means.set_index("method"))),
    )


def _listed(ends: tuple[int, ...]) -> str:
    return " or ".join(map(str, ends))


def verdicts_of(means: pd.DataFrame) -> list[Verdict]:
    """This project's aims."""
    found, density = [], {str(name): float(value) for name, value in means["log density"].items()}
    for one, other in ((OURS_BOOK, BOOK), (OURS, CLIMBED), (OURS, DRIFT), (OURS, NAIVE)):
        claim = f"mean log density of {one} at or above that of {other}"
        measured = f"{density[one]:.3f}; {density[other]:.3f}"
        found.append(Verdict(claim, AIM, measured, density[one] >= density[other]))
    return found


def draw(last: dict[str, tuple[Monthly, Monthly, Answers]]) -> Figure:
    """A panel for each of three methods."""
    figure = new_figure(11, 3.6)
    shown = [OURS, BOOK, DRIFT]
    for axes, method, colour in zip(
        figure.subplots(1, 3, sharey=True), shown, (BLUE, VERMILION, "#009E73"), strict=True
    ):
        seen, ahead, found = last[method]
        recent = seen.between(ahead.year[0] - 6, np.inf)
        draw_forecast(axes, recent, ahead, found.mean, found.interval(0.9), colour)
        tidy(axes, method)
    label(figure.axes[0], ylabel="parts per million")
    return figure


def draw_forecast(
    axes: Axes,
    recent: Monthly,  # the latest that was learnt from
    ahead: Monthly,
    mean: np.ndarray,
    interval: tuple[np.ndarray, np.ndarray],  # of 90 %
    colour: str,
) -> None:
    """What was forecast and what was measured."""
    axes.fill_between(ahead.year, *interval, color=colour, alpha=0.25, linewidth=0, label="90 %")
    axes.plot(ahead.year, mean, color=colour, linewidth=1.2, label="forecast")
    axes.plot(recent.year, recent.value, color=INK, linewidth=0.8)
    axes.plot(ahead.year, ahead.value, ".", color=INK, markersize=2.2, label="measured")
    label(axes, xlabel="year")
    axes.legend(fontsize=8, frameon=False, loc="upper left")


EXPERIMENT = Experiment(
    NAME, "forecasts of carbon dioxide by a kernel with trend and seasons, beside naive ones", True, run
)
