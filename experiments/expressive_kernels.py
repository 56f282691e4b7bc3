"""Kernels that say something, each on a small set where what it says is so, beside a plain one or plain features.

python -m experiments expressive-kernels --data FOLDER --set 'seeds=[0]'
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.ndimage import gaussian_filter1d
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from threadpoolctl import threadpool_limits

from experiments.batch_learners import quiet
from experiments.co2 import Monthly, draw_forecast
from experiments.co2 import read as read_co2
from experiments.experiment import Experiment, Outcome, Picture, Progress, Table, configure
from experiments.figures import label, new_figure, tidy
from sureshot import GPClassifier, GPRegressor
from sureshot.computing.threads import one_thread
from sureshot.data.root import data_file
from sureshot.estimators.numbers.answers import Forecast
from sureshot.kernels import (
    RBF,
    Expression,
    MarkovFisherFeatures,
    MixtureFisherFeatures,
    Periodic,
    SpectralMixture,
    SpectrumFeatures,
    SubsequenceFeatures,
)
from sureshot.report.plots import BLUE, GREEN, VERMILION

NAME = "expressive-kernels"
PLAIN, DRAWN, PEAKS = "trend and RBF", "spectral mixture, drawn start", "spectral mixture, periodogram"
AS_GIVEN, ALONE, SHARED = "RBF", "periodic", "periodic x RBF"
WAVES = 3
RIDGES = (1.0, 10.0)
TREND = 40.0  # years, where learning starts


@dataclass(frozen=True)
class Settings:
    """Settings of the comparison."""

    ends: tuple[int, ...] = (1971, 1981, 1991)  # last years that forecasts of carbon dioxide are learnt from
    years: int = 10  # ahead
    seeds: tuple[int, ...] = (0, 1, 2)  # of starts, series, and rows
    labels: int = 105  # texts, of seven classes
    test_rows: int = 350


class Case(NamedTuple):
    """One method on one draw."""

    set: str
    draw: int
    method: str
    ask: Callable[[], dict[str, float]]


def forecasts(seen: Monthly, year: np.ndarray, seed: int) -> dict[str, Callable[[], Forecast]]:
    """Of carbon dioxide, by kernels with a trend, all of whose numbers are learnt by the evidence."""
    line = np.polynomial.Polynomial.fit(seen.year, seen.value, 1)(seen.year)
    start, rng = SpectralMixture.from_periodogram(seen.year, seen.value - line, WAVES), np.random.default_rng(seed)
    uniform = torch.from_numpy(6 * rng.random(WAVES))[:, None]  # periods a year: half of twelve months
    drawn = SpectralMixture(start.mixture_weights, uniform, start.mixture_scales)
    trend = float(seen.value.var()) * RBF(_number(TREND))
    seasons: dict[str, Expression] = {
        PLAIN: float((seen.value - line).var()) * RBF(_number(1.0)),
        DRAWN: drawn,
        PEAKS: start,
    }
    return {name: partial(_learnt, trend + season, seen.year, seen.value, year) for name, season in seasons.items()}


def _number(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


def _learnt(kernel: Expression, x: np.ndarray, y: np.ndarray, asked: np.ndarray) -> Forecast:
    model = GPRegressor(
        kernel,
        learn_kernel=True,
        objective="evidence",
        approximation="exact",
        noise="gaussian",
        target_transform="none",
        random_state=0,
    )
    return model.fit(x[:, None], y).forecast(asked[:, None])


def drifting_season(seed: int, n: int = 260) -> tuple[np.ndarray, np.ndarray]:
    """Thirteen periods of length 1, whose two waves grow, shrink and shift as smooth random walks; noise of .1."""
    rng, x = np.random.default_rng(seed), np.arange(n) / 20
    drift = gaussian_filter1d(rng.normal(size=(5, n)), 60, axis=1, mode="wrap")
    drift /= drift.std(axis=1, keepdims=True)
    phase = 2 * np.pi * x + 0.6 * drift[0]
    waves = (1 + 0.3 * drift[1]) * np.sin(phase) + (0.5 + 0.2 * drift[2]) * np.sin(2 * phase + drift[3])
    return x, waves + 0.1 * rng.normal(size=n)


SEASONS: dict[str, Callable[[], Expression]] = {
    AS_GIVEN: lambda: RBF(_number(0.5)),
    ALONE: lambda: Periodic(_number(1.0), _number(1.0)),
    SHARED: lambda: Periodic(_number(1.0), _number(1.0)) * RBF(_number(5.0)),
}


def _scores(found: Forecast, y: np.ndarray) -> dict[str, float]:
    return {
        "rmse": float(np.sqrt(np.mean((found.mean - y) ** 2))),
        "log density": float(found.log_density(y).mean()),
        "coverage 90": float(found.interval(0.9).contain(y).mean()),
    }


def _classes(pipeline: Any, rows: Any, y: np.ndarray, new: Any, new_y: np.ndarray) -> dict[str, float]:
    probability = pipeline.fit(rows, y).predict_proba(new)
    return {
        "accuracy": float((pipeline.classes_[probability.argmax(1)] == new_y).mean()),
        "log loss": float(log_loss(new_y, probability, labels=pipeline.classes_)),
    }


def text_methods() -> dict[str, Any]:
    """Of lower-case texts as strings of characters."""
    letters = CountVectorizer(analyzer="char", lowercase=False)
    words = CountVectorizer(lowercase=False)
    dense = FunctionTransformer(lambda counts: counts.toarray(), accept_sparse=True)
    return {
        "letters, RBF": make_pipeline(letters, dense, GPClassifier("rbf")),
        "words, RBF": make_pipeline(words, dense, GPClassifier("rbf")),
        **{
            f"Fisher, Markov chain, ridge {ridge:g}": make_pipeline(
                MarkovFisherFeatures(ridge=ridge), GPClassifier("linear")
            )
            for ridge in RIDGES
        },
        "3-spectrum": make_pipeline(SpectrumFeatures(3), GPClassifier("linear")),
        "subsequences of 3, decay .5": make_pipeline(SubsequenceFeatures(3, 0.5), GPClassifier("linear")),
    }


def texts(data_root: Path | None, seed: int, settings: Settings) -> tuple[list[str], np.ndarray, list[str], np.ndarray]:
    """Requests of seven intents: as many of each to learn from, others to test on."""
    table = pd.read_csv(data_file("text/snips.csv", data_root, "with columns text, label and split"))
    shuffled = table.sample(frac=1, random_state=seed)
    shuffled["text"] = shuffled["text"].str.lower().str.replace("[^a-z]+", " ", regex=True).str.strip()
    train, test = shuffled[shuffled["split"] == "train"], shuffled[shuffled["split"] == "test"]
    each = settings.labels // train["label"].nunique()
    train, test = train.groupby("label").head(each), test.head(settings.test_rows)
    return list(train["text"]), train["label"].to_numpy(), list(test["text"]), test["label"].to_numpy()


def molecules(data_root: Path | None) -> tuple[list[np.ndarray], np.ndarray]:
    """Of Musk 1: shapes that each molecule takes (shapes, 166), and whether it smells of musk."""
    table = pd.read_csv(data_file("uci/musk1.csv.gz", data_root, "with columns meta_molecule, features and label"))
    columns = [name for name in table.columns if not name.startswith("meta_") and name != "label"]
    scaled = StandardScaler().fit_transform(table[columns])
    directions = np.linalg.svd(scaled, full_matrices=False)[2][:10]
    table = pd.DataFrame(scaled @ directions.T).assign(molecule=table["meta_molecule"], label=table["label"])
    bags = [part for _, part in table.groupby("molecule")]
    return [bag.drop(columns=["molecule", "label"]).to_numpy() for bag in bags], np.array(
        [b["label"].max() for b in bags]
    )


def _moments(bags: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([bag.mean(0) for bag in bags]), np.array([bag.std(0) for bag in bags])


def inked(settings: Settings, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Places of inked pixels (pixels, 2) of each of scikit-learn's digits, in no order, and the digit.

    As many of each digit come first as there are labels for.
    """
    images, label = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(label))
    first = [order[label[order] == digit][: settings.labels // 10] for digit in range(10)]
    chosen = np.concatenate([*first, order[~np.isin(order, first)][: settings.test_rows]])
    return [np.argwhere(images[k].reshape(8, 8) >= 8).astype(float) for k in chosen], label[chosen]


def bag_methods(seed: int, n_components: int) -> dict[str, Any]:
    """Of lists of bags of rows."""
    found: dict[str, Any] = {
        "mean, RBF": make_pipeline(FunctionTransformer(lambda bags: _moments(bags)[0]), GPClassifier("rbf")),
        "mean and deviation, RBF": make_pipeline(
            FunctionTransformer(lambda bags: np.hstack(_moments(bags))), GPClassifier("rbf")
        ),
    }
    for ridge in RIDGES:
        fisher = MixtureFisherFeatures(n_components, ridge=ridge, random_state=seed)
        found[f"Fisher, {n_components} normals, ridge {ridge:g}"] = make_pipeline(fisher, GPClassifier("linear"))
    return found


def cases(data_root: Path | None, settings: Settings, shown: dict[str, Any]) -> Iterator[Case]:
    """All of them; the last forecasts are kept to be `shown`."""
    series = read_co2(data_root)
    for draw, end in enumerate(settings.ends):
        seen = series.between(-np.inf, end + 1.0)
        ahead = series.between(end + 1.0, end + 1.0 + settings.years)
        for method, forecast in forecasts(seen, ahead.year, draw).items():

            def asked(
                forecast: Callable[[], Forecast] = forecast,
                method: str = method,
                known: tuple[Monthly, Monthly] = (seen, ahead),
            ) -> dict[str, float]:
                shown[method] = (*known, found := forecast())
                return _scores(found, known[1].value)

            yield Case("co2", draw, method, asked)
    for seed in settings.seeds:
        x, y = drifting_season(seed)
        ahead_of, gaps = x >= 11, (x % 3 > 2) & (x < 11)
        for what, out in (("season-ahead", ahead_of), ("season-gaps", gaps)):
            for name, kernel in SEASONS.items():
                seen_rows = ~ahead_of & ~gaps if what == "season-gaps" else ~ahead_of

                def season(
                    kernel: Callable[[], Expression] = kernel,
                    rows: tuple[np.ndarray, ...] = (x[seen_rows], y[seen_rows], x[out], y[out]),
                ) -> dict[str, float]:
                    return _scores(_learnt(kernel(), *rows[:3]), rows[3])

                yield Case(what, seed, name, season)
    for seed in settings.seeds:
        text = texts(data_root, seed, settings)
        for name, pipeline in text_methods().items():
            yield Case("texts", seed, name, partial(_classes, pipeline, *text))
    for seed in settings.seeds:
        bags, digit = inked(settings, seed)
        n = settings.labels // 10 * 10
        for name, pipeline in bag_methods(seed, 16).items():
            yield Case("digits", seed, name, partial(_classes, pipeline, bags[:n], digit[:n], bags[n:], digit[n:]))
    bags, musk = molecules(data_root)
    for seed in settings.seeds:
        half = np.random.default_rng(seed).permutation(len(bags)) < len(bags) // 2
        parts = [[bag for bag, inside in zip(bags, half == side, strict=True) if inside] for side in (True, False)]
        for name, pipeline in bag_methods(seed, 4).items():
            yield Case(
                "molecules", seed, name, partial(_classes, pipeline, parts[0], musk[half], parts[1], musk[~half])
            )


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `Settings` for the options."""
    settings, shown, records = configure(Settings, options), dict[str, Any](), []
    every = list(cases(data_root, settings, shown))
    for number, case in enumerate(every):
        progress(f"{case.set}, draw {case.draw}: {case.method}", number / len(every))
        started = time.process_time()
        with quiet(), one_thread(), threadpool_limits(1):
            scores = case.ask()
        seconds = time.process_time() - started
        records.append({"set": case.set, "draw": case.draw, "method": case.method, **scores, "seconds": seconds})
    frame = pd.DataFrame(records)
    means = {str(name): summary(part) for name, part in frame.groupby("set", sort=False)}
    return Outcome(
        title="Expressive kernels",
        introduction=(
            "Kernels that say what rows have in common, each on a small set where that is so, beside an RBF kernel. "
            "Numbers are means and standard errors: over forecasts from three years of carbon dioxide, over three "
            "drawn series, and over three draws of labelled rows. Kernels of numbers are given to `GPRegressor` as "
            "objects, and all their numbers are learnt by the evidence (`learn_kernel=True`); strings and bags are "
            "made features of, for `GPClassifier` with a linear kernel. Seconds are a core's, of fit and answers. "
            "Three waves, the trend's length and the evidence were settled on these forecasts, and digits were added "
            "after molecules: the tables show what such kernels can do, not what they would do on other sets."
        ),
        tables=tuple(Table(name, _CAPTIONS[name].format(**vars(settings)), part) for name, part in means.items()),
        config=settings,
        seeds=settings.seeds,
        findings=tuple(_findings(frame)),
        pictures=(
            Picture(
                "co2-forecast",
                f"Carbon dioxide from the end of {settings.ends[-1]}: means, and intervals of 90 %.",
                draw(shown),
            ),
        ),
    )


_CAPTIONS = {
    "co2": (
        "Carbon dioxide over Mauna Loa, in parts per million, {years} years ahead of the ends of {ends}. All kernels "
        "have a smooth trend (RBF, of forty years at first); beside it an RBF, or a spectral mixture of three waves "
        "that starts at frequencies drawn evenly, or at peaks of the periodogram."
    ),
    "season-ahead": "A simulated season that drifts, thirteen periods of twenty rows; the last two are forecast.",
    "season-gaps": "The same; every third of the first eleven periods is left out and asked for.",
    "texts": (
        "SNIPS: requests of seven intents, {labels} to learn from, {test_rows} others to test on, lower case letters "
        "and spaces. All but the second see strings of characters and nothing of words."
    ),
    "digits": (
        "Digits of scikit-learn as bags of the places of their inked pixels, in no order: as many of each digit to "
        "learn from as {labels} labels are enough for, {test_rows} others to test on."
    ),
    "molecules": (
        "Musk 1: 92 molecules, bags of 2 to 40 shapes, the first ten principal components of 166 distances; half of "
        "the molecules to learn from, half to test on."
    ),
}


def summary(part: pd.DataFrame) -> pd.DataFrame:
    """Means with standard errors over the draws of a set."""
    numbers = part.drop(columns=["set", "draw"]).dropna(axis=1).groupby("method", sort=False)
    mean, error = numbers.mean(), numbers.sem(ddof=1).fillna(0.0)
    scores = [name for name in mean if name != "seconds"]
    shown = {name: [f"{a:.3f} ± {b:.3f}" for a, b in zip(mean[name], error[name], strict=True)] for name in scores}
    return pd.DataFrame({"method": mean.index, **shown, "seconds": [f"{value:.1f}" for value in mean["seconds"]]})


def _findings(frame: pd.DataFrame) -> Iterator[str]:
    """What the means say."""
    means = frame.groupby(["set", "method"]).mean(numeric_only=True)

    def of(name: str, method: str, score: str) -> float:
        return float(means[score][name, method])

    yield (
        f"Ten years ahead the spectral mixture errs by {of('co2', PEAKS, 'rmse'):.2f} parts per million from the "
        f"periodogram's peaks, by {of('co2', DRAWN, 'rmse'):.2f} from drawn frequencies, the RBF by "
        f"{of('co2', PLAIN, 'rmse'):.2f}. Its intervals of 90 % hold {of('co2', PEAKS, 'coverage 90'):.0%} of the "
        f"months, and log densities are {of('co2', PEAKS, 'log density'):.2f}, those of the RBF "
        f"{of('co2', PLAIN, 'log density'):.2f}."
    )
    yield (
        f"Where a season drifts, {SHARED} errs by {of('season-ahead', SHARED, 'rmse'):.2f} two periods ahead and "
        f"{of('season-gaps', SHARED, 'rmse'):.2f} in gaps; {ALONE} alone, which never forgets, by "
        f"{of('season-ahead', ALONE, 'rmse'):.2f} and {of('season-gaps', ALONE, 'rmse'):.2f}; {AS_GIVEN}, which knows "
        f"of no period, by {of('season-ahead', AS_GIVEN, 'rmse'):.2f} and {of('season-gaps', AS_GIVEN, 'rmse'):.2f}."
    )
    for name, score in (("texts", "accuracy"), ("digits", "accuracy"), ("molecules", "accuracy")):
        ordered = means.loc[name][score].sort_values(ascending=False)
        listed = ", ".join(f"{method} {value:.3f}" for method, value in ordered.items())
        yield f"{name.capitalize()}, {score}: {listed}."


def draw(shown: dict[str, Any]) -> Figure:
    """A panel for each kernel."""
    figure = new_figure(11, 3.6)
    panels = figure.subplots(1, len(shown), sharey=True)
    for axes, (method, (seen, ahead, found)), colour in zip(
        panels, shown.items(), (VERMILION, GREEN, BLUE), strict=True
    ):
        recent, interval = seen.between(ahead.year[0] - 8, np.inf), found.interval(0.9)
        draw_forecast(axes, recent, ahead, found.mean, (interval.lower, interval.upper), colour)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        tidy(axes, method)
    label(figure.axes[0], ylabel="parts per million")
    return figure


EXPERIMENT = Experiment(
    NAME, "spectral mixtures, seasons that drift, strings and bags, beside plain kernels", True, run
)
