"""Does kernel search find the structure that made a series, and what is it worth for a forecast?

Series of one column are made from a line, a period, a slow change and noise. A structure is found if more than half of
the posterior mass is on it or an equivalent, as in `experiments.smc_recovery`; the same search with the planted
structure kept says what the numbers themselves say of it.

Then carbon dioxide: forecasts of ten years beside those of `experiments.co2`, where the kernel is given, and the parts
into which the search splits the series.

    python -m experiments series-structures --data FOLDER --set seeds=[0] --set searches=[0]
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

from experiments import co2
from experiments.batch_learners import quiet
from experiments.experiment import Experiment, Outcome, Picture, Progress, Table, Verdict, configure
from experiments.figures import GREY, INK, label, new_figure, tidy
from experiments.number_peers import OfRegressor
from experiments.number_scores import AIM, scored
from experiments.smc_recovery import representative
from sureshot import KernelSearchRegressor
from sureshot.computing.threads import one_thread
from sureshot.estimators import AdditiveForm
from sureshot.report.plots import BLUE, VERMILION
from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.structure import Structure

NAME = "series-structures"
OURS = "kernel search"
PEERS = (co2.OURS, co2.OURS_BOOK, co2.DRIFT, co2.DEFAULTS)
_WANTED = 0.8  # of the seeds
_BAND = 1.645  # deviations of 90 %


def _line(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.choice([-1, 1]) * x


def _period(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Not a sine: its second harmonic has a third of the height."""
    phase = 2 * np.pi * (x / rng.uniform(0.35, 0.55) + rng.uniform())
    return np.sin(phase) + np.cos(2 * phase) / 3


def _bumps(x: np.ndarray, rng: np.random.Generator, lengthscale: float = 0.35) -> np.ndarray:
    """Drawn from the process with this kernel."""
    gram = np.exp(-((x[:, None] - x) ** 2) / (2 * lengthscale**2)) + 1e-9 * np.eye(len(x))
    return np.linalg.cholesky(gram) @ rng.normal(size=len(x))


def _changing_period(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sine and cosine with weights that change slowly."""
    phase = 2 * np.pi * x / rng.uniform(0.35, 0.55)
    return _bumps(x, rng, 1.2) * np.sin(phase) + _bumps(x, rng, 1.2) * np.cos(phase)


PLANTED: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "LINEAR": _line,
    "LINEAR + PERIODIC": lambda x, rng: _line(x, rng) + _period(x, rng),
    "SQUARED-EXPONENTIAL": _bumps,
    "PERIODIC x SQUARED-EXPONENTIAL": _changing_period,
}
"""Functions of a standardised column, by their structures."""
NOISE = {"LINEAR": 0.5}
"""Standard deviations where they are not 0.2."""


@dataclass(frozen=True)
class SeriesStructuresConfig:
    """Settings."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)  # of planted series and their searches
    rows: int = 100
    particles: int = 32
    ends: tuple[int, ...] = (1971, 1981, 1991)  # the last years of carbon dioxide that are learnt from
    years: int = 10  # ahead
    searches: tuple[int, ...] = (0, 1)  # seeds of the searches for carbon dioxide


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Planted structures, then forecasts."""
    settings = configure(SeriesStructuresConfig, options)
    series = co2.read(data_root)
    with quiet(), one_thread(), threadpool_limits(1):
        found = recovered(settings, progress)
        forecasts, shown = forecast(series, settings, progress)
    return outcome_of(found, forecasts, shown, settings)


def planted(name: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one column, evenly spaced with a standard deviation of 1, and numbers."""
    rng = np.random.default_rng([seed, list(PLANTED).index(name)])
    x = 3**0.5 * np.linspace(-1, 1, n)
    return x[:, None], PLANTED[name](x, rng) + NOISE.get(name, 0.2) * rng.normal(size=n)


def recovered(settings: SeriesStructuresConfig, progress: Progress) -> pd.DataFrame:
    """One row for each seed of each planted structure."""
    rows = []
    prior = KernelPrior(Grammar.preset("series"), 1)
    cells = list(itertools.product(settings.seeds, PLANTED))
    for number, (seed, name) in enumerate(cells):
        progress(f"{name}, seed {seed}", 0.4 * number / len(cells))
        x, y = planted(name, settings.rows, seed)
        started = time.process_time()
        model = KernelSearchRegressor(settings.particles, random_state=seed).fit(x, y)
        seconds = time.process_time() - started
        kept = KernelSearchRegressor(settings.particles, structure=name, random_state=seed).fit(x, y)
        own = kept.log_evidence_ + prior.log_probability(Structure.parse(name))
        wanted, mass, leaves = representative(Structure.parse(name)), 0.0, 0.0
        for share, text in model.kernel_posterior_:
            form = representative(Structure.parse(text))
            mass += share * (form == wanted)
            leaves += share * (_leaves(form) == _leaves(wanted))
        heaviest = model.kernel_posterior_[0]
        rows.append(
            {"planted": name, "seed": seed, "mass": mass, "leaves": leaves, "missed": max(0, own - model.log_evidence_)}
            | {"heaviest": heaviest[1], "its mass": heaviest[0], "seconds": seconds}
        )
    return pd.DataFrame(rows)


Shown = tuple[co2.Monthly, co2.Monthly, KernelSearchRegressor]
"""What was learnt from, what was forecast, and the search."""


def forecast(series: co2.Monthly, settings: SeriesStructuresConfig, progress: Progress) -> tuple[pd.DataFrame, Shown]:
    """Scores of each forecast, and the first search from the last end."""
    rows, shown = [], []
    for number, end in enumerate(settings.ends):
        seen = series.between(-np.inf, end + 1.0)
        ahead = series.between(end + 1.0, end + 1.0 + settings.years)
        for seed in settings.searches:
            progress(f"carbon dioxide from {end}, search {seed}", 0.4 + 0.6 * number / len(settings.ends))
            started = time.process_time()
            model = KernelSearchRegressor(settings.particles, random_state=seed).fit(seen.year[:, None], seen.value)
            scores = scored(OfRegressor(model, ahead.year[:, None]), ahead.value)
            seconds, form = time.process_time() - started, model.decompose(ahead.year[:1, None])[0]
            rows.append(
                {"learnt up to": end, "method": OURS, "seed": seed, **scores, "seconds": seconds}
                | {"heaviest form": form.formula, "its mass": form.weight, "evidence": model.log_evidence_}
            )
            shown.append((seen, ahead, model))
        for method in PEERS:
            started = time.process_time()
            scores = scored(co2.METHODS[method](seen, ahead.year), ahead.value)
            seconds = time.process_time() - started
            rows.append({"learnt up to": end, "method": method, "seed": 0, **scores, "seconds": seconds})
    return pd.DataFrame(rows), shown[-len(settings.searches)]


def outcome_of(found: pd.DataFrame, forecasts: pd.DataFrame, shown: Shown, settings: SeriesStructuresConfig) -> Outcome:
    """Tables, aims, and the parts of carbon dioxide."""
    groups = found.groupby("planted", sort=False)
    summary = pd.DataFrame(
        {
            "seeds": groups.size(),
            "found": groups["mass"].apply(lambda mass: int((mass > 0.5).sum())),
            "found by leaves": groups["leaves"].apply(lambda mass: int((mass > 0.5).sum())),
            "mass": groups["mass"].mean(),
            "of its leaves": groups["leaves"].mean(),
            "missed": groups["missed"].mean(),
            "seconds": groups["seconds"].mean(),
        }
    )
    measures = ["rmse", "log density", "crps", "coverage 90", "seconds"]
    by_end = forecasts.groupby(["learnt up to", "method"], sort=False)[measures].mean().reset_index()
    means = by_end.groupby("method", sort=False)[measures].mean()
    searches = forecasts[forecasts["method"] == OURS]
    return Outcome(
        title="Structures of series",
        introduction=(
            f"`KernelSearchRegressor` with {settings.particles} particles and nothing said of the kernel. Planted: "
            f"{settings.rows} evenly spaced rows of a line, a line and a period with two harmonics, a smooth function, "
            "and a period that changes slowly, with noise. A structure is found if more than half of the posterior "
            "mass is on it or an equivalent: the same canonical form, but for a constant that is added and for how "
            "smooth bumps are. Carbon dioxide: monthly means over Mauna Loa, and the "
            f"{settings.years} years after the end of {', '.join(map(str, settings.ends))}, beside methods of "
            "[co2](co2.md), of which the first two are given a trend, seasons and wiggles."
        ),
        tables=(
            Table(
                "recovery",
                "In how many seeds more than half of the mass is on the planted structure and its equivalents, and on "
                "all structures with the same kinds of leaves; the mean of these masses; nats by which the evidence "
                "that the planted structure alone accounts for exceeds that of the search: well above zero, it came to "
                "it late or not at all; processor seconds of a search.",
                summary.reset_index(),
            ),
            Table(
                "forecasts",
                f"Carbon dioxide: means over the forecasts, of kernel search also over {len(settings.searches)} seeds; "
                "parts per million and nats.",
                means.reset_index(),
            ),
            Table("by-end", "Each forecast.", by_end),
            Table(
                "searches",
                "Each search: the heaviest sum of products, its posterior probability, the log evidence.",
                searches[["learnt up to", "seed", "heaviest form", "its mass", "evidence", "log density", "rmse"]],
            ),
            Table("seeds", "Each planted series, with the heaviest structure.", found),
        ),
        config=settings,
        seeds=settings.seeds,
        findings=(),
        pictures=(Picture("parts", _caption(settings), draw(shown)),),
        verdicts=tuple(_verdicts(summary, means)),
    )


def _caption(settings: SeriesStructuresConfig) -> str:
    return (
        f"Carbon dioxide up to the end of {settings.ends[-1]}: the forecast of the whole posterior with intervals of "
        "90 % (above), and the parts of the heaviest sum of products, each with intervals of 90 % of the function. "
        "Parts with a period are shown over some years around the end."
    )


def _verdicts(summary: pd.DataFrame, means: pd.DataFrame) -> list[Verdict]:
    found = [
        Verdict(
            f"more than half of the mass is on {name} or an equivalent in 4 of 5 seeds",
            AIM,
            f"{row['found']:.0f} of {row['seeds']:.0f} seeds",
            bool(row["found"] >= _WANTED * row["seeds"]),
        )
        for name, row in summary.iterrows()
    ]
    density = means["log density"].to_dict()
    for other in (co2.OURS, co2.DRIFT, co2.DEFAULTS):
        claim = f"mean log density of {OURS} at or above that of {other}"
        measured = f"{density[OURS]:.3f}; {density[other]:.3f}"
        found.append(Verdict(claim, AIM, measured, bool(density[OURS] >= density[other])))
    return found


def _leaves(structure: Structure) -> set[str]:
    return {structure.symbols[i] for i in structure.leaves}


def draw(shown: Shown) -> Figure:
    """The series and its forecast, and below these the parts."""
    seen, ahead, model = shown
    last = float(seen.year[-1])
    year = np.linspace(float(seen.year[0]), float(ahead.year[-1]), 1600)
    form: AdditiveForm = model.decompose(year[:, None])[0]
    parts = form.parts[:-1]
    figure = new_figure(9.5, 2.7 + 1.75 * len(parts))
    rows = figure.subplots(1 + len(parts), 1, squeeze=False, height_ratios=[1.6, *[1.0] * len(parts)])[:, 0]
    told = model.forecast(year[:, None])
    lower, upper = told.quantile([0.05, 0.95]).T
    later = year >= last
    whole: Axes = rows[0]
    whole.fill_between(year[later], lower[later], upper[later], color=BLUE, alpha=0.25, linewidth=0, label="90 %")
    whole.plot(year[later], told.mean[later], color=BLUE, linewidth=1.1, label="forecast")
    whole.plot(seen.year, seen.value, ".", color=INK, markersize=2, label="learnt from")
    whole.plot(ahead.year, ahead.value, ".", color=VERMILION, markersize=2.4, label="measured later")
    whole.legend(fontsize=8, frameon=False, loc="upper left", ncols=2)
    tidy(whole, f"all kernels; below: {form.formula}, probability {form.weight:.2f}", ylabel="parts per million")
    for axes, part in zip(rows[1:], parts, strict=True):
        inside = (year >= last - 8) & (year <= last + 4) if "PERIODIC" in part.formula else year >= year[0]
        spread = _BAND * part.deviation[inside]
        axes.fill_between(
            year[inside], part.mean[inside] - spread, part.mean[inside] + spread, color=BLUE, alpha=0.25, linewidth=0
        )
        axes.plot(year[inside], part.mean[inside], color=BLUE, linewidth=1.1)
        axes.axvline(last, color=GREY, linewidth=0.8, linestyle=":")
        tidy(axes, part.formula)
    label(rows[-1], xlabel="year")
    return figure


EXPERIMENT = Experiment(NAME, "structures that were planted in series, and the parts of carbon dioxide", True, run)
