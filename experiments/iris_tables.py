"""Tables, verdicts and paragraphs of the Iris study, all computed from its scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from contourpy import contour_generator
from numpy.typing import NDArray

from experiments.experiment import Table, Verdict

MAIN = ("gaussian", "logistic-softmax", "one-vs-each", "softmax (Laplace)")
"""Models of the figures: the paper's three and the reference."""

PAPER = MAIN[:3]
METRICS = {"accuracy": "Accuracy", "brier": "Brier score", "ece": "ECE", "elbo": "Bound under the softmax model"}
HIGHER_IS_BETTER = {"accuracy", "elbo"}
SNELL = "Snell & Zemel 2021, F.3"


class Map(NamedTuple):
    """Class probabilities over the plane of the two features."""

    first: NDArray[np.float64]  # (P,)
    second: NDArray[np.float64]  # (P,)
    probabilities: dict[str, NDArray[np.float64]]  # (C, P, P), by model; first feature along rows
    x: NDArray[np.float64]  # (N, 2), training data
    y: NDArray[np.int64]


@dataclass(frozen=True)
class Scores:
    """Scores of every split, by size and model, then by metric."""

    sizes: tuple[int, ...]
    models: tuple[str, ...]
    # ``values[size, model][metric]`` is (n_splits,); a pooled metric has one entry
    values: dict[tuple[int, str], dict[str, NDArray[np.float64]]]

    def mean(self, size: int, model: str, metric: str) -> float:
        """Mean over the splits."""
        return float(self.values[size, model][metric].mean())

    def interval(self, size: int, model: str, metric: str) -> float:
        """Half width of the 95 % interval of the mean."""
        return half_width(self.values[size, model][metric])

    def best(self, size: int, metric: str, models: tuple[str, ...] = PAPER) -> str:
        """The model with the best mean."""
        sign = 1 if metric in HIGHER_IS_BETTER else -1
        return max(models, key=lambda model: sign * self.mean(size, model, metric))

    def among_the_best(self, size: int, model: str, metric: str, models: tuple[str, ...] = PAPER) -> bool:
        """Whether no other model is better by more than the 95 % interval of the paired difference."""
        sign = 1 if metric in HIGHER_IS_BETTER else -1
        own = self.values[size, model][metric]
        for other in models:
            lead = sign * (self.values[size, other][metric] - own)
            if other != model and lead.mean() > half_width(lead):
                return False
        return True


def half_width(values: NDArray[np.float64]) -> float:
    """1.96 standard errors of the mean; 0 for a single value."""
    return float(1.96 * values.std(ddof=1) / values.size**0.5) if values.size > 1 else 0.0


def make_tables(scores: Scores, maps: Sequence[Map]) -> tuple[Table, ...]:
    """A table for each metric, the map's, the predictive rules', and everything as one long table."""
    titles = {
        "accuracy": "Accuracy on the test rows.",
        "brier": "Brier score (sum over classes, 0 to 2; lower is better).",
        "ece": "Expected calibration error, 10 bins, mean over splits (lower is better).",
        "pooled ece": "Expected calibration error, 10 bins, the test rows of all splits pooled.",
        "nll": "Negative log-likelihood in nats (lower is better).",
        "elbo": "Evidence bound of each posterior under the softmax model, nats for the whole training set "
        "(higher is nearer to the softmax posterior).",
    }
    tables = []
    for metric, title in titles.items():
        spread = "" if metric.startswith("pooled") else "; ± 95 % interval"
        caption = f"{title} Rows: training examples per class{spread}."
        tables.append(Table(metric.replace(" ", "-"), caption, _wide(scores, metric)))
    tables.append(Table("rules", "Plug-in against integral, mean over splits.", _rules(scores)))
    caption = (
        f"Maps of the largest probability, mean over {len(maps)} splits at {max(scores.sizes)} per class. Bending: how "
        "much longer the boundaries between two classes are than the chords between their ends."
    )
    tables.append(Table("maps", caption, map_table(maps)))
    caption = "All means and half widths of 95 % intervals, in long form."
    tables.append(Table("all", caption, _long(scores), on_page=False))
    return tuple(tables)


def _wide(scores: Scores, metric: str) -> pd.DataFrame:
    digits = 2 if metric == "elbo" else 3

    def cell(size: int, model: str) -> str:
        text = f"{scores.mean(size, model, metric):.{digits}f}"
        pooled = scores.values[size, model][metric].size == 1
        return text if pooled else f"{text} ± {scores.interval(size, model, metric):.{digits}f}"

    return pd.DataFrame(
        [{"per class": size} | {model: cell(size, model) for model in scores.models} for size in scores.sizes]
    )


def _rules(scores: Scores) -> pd.DataFrame:
    shown = [size for size in scores.sizes if size in (1, 5, 15, 30)] or list(scores.sizes)
    records = []
    for size in shown:
        for model in MAIN:
            row: dict[str, object] = {"per class": size, "model": model}
            for metric, name in (("nll", "NLL"), ("brier", "Brier"), ("pooled ece", "pooled ECE")):
                row[f"{name}, plug-in"] = scores.mean(size, model, metric)
                row[f"{name}, integral"] = scores.mean(size, model, f"integral {metric}")
            records.append(row)
    return pd.DataFrame(records)


def _long(scores: Scores) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "per class": size,
                "model": model,
                "metric": metric,
                "mean": scores.mean(size, model, metric),
                "half width": scores.interval(size, model, metric),
                "splits": values.size,
            }
            for (size, model), metrics in scores.values.items()
            for metric, values in metrics.items()
        ]
    )


def map_table(maps: Sequence[Map]) -> pd.DataFrame:
    """Confidence, shares, length and bending of the decision boundaries over the plane, mean over splits."""
    records = []
    for model in maps[0].probabilities:
        confidence = np.stack([plane.probabilities[model].max(0) for plane in maps])
        # (maps, 2)
        lengths = np.array([boundary(p.first, p.second, p.probabilities[model]) for p in maps])
        records.append(
            {
                "model": model,
                "mean confidence": float(confidence.mean()),
                "share above 0.6": float((confidence > 0.6).mean()),
                "share above 0.8": float((confidence > 0.8).mean()),
                "boundary length": float(lengths[:, 0].mean()),
                "bending": float((lengths[:, 0] / lengths[:, 1] - 1).mean()),
            }
        )
    return pd.DataFrame(records)


def boundary(
    first: NDArray[np.float64], second: NDArray[np.float64], probabilities: NDArray[np.float64]
) -> tuple[float, float]:
    """Length of the boundaries between the two likeliest classes, and of the chords between their ends."""
    arcs = chords = 0.0
    for a, b in combinations(range(probabilities.shape[0]), 2):
        others = np.delete(probabilities, (a, b), 0).max(0, initial=0.0)
        contested = np.maximum(probabilities[a], probabilities[b]) >= others
        difference = np.ma.masked_array(probabilities[a] - probabilities[b], ~contested)
        for line in contour_generator(second, first, difference).lines(0.0):
            points = np.asarray(line)
            arcs += float(np.sqrt((np.diff(points, axis=0) ** 2).sum(1)).sum())
            chords += float(np.sqrt(((points[-1] - points[0]) ** 2).sum()))
    return arcs, chords


def judge(scores: Scores, maps: Sequence[Map]) -> tuple[Verdict, ...]:
    """Compare the statements of the paper with the scores."""
    sizes = scores.sizes
    verdicts = []
    for metric, name in (("accuracy", "accuracy"), ("brier", "Brier score"), ("elbo", "ELBO")):
        good = [size for size in sizes if scores.among_the_best(size, "one-vs-each", metric)]
        first = [size for size in sizes if scores.best(size, metric) == "one-vs-each"]
        rest = {size: tuple(model for model in PAPER if model != scores.best(size, metric)) for size in sizes}
        second = [size for size in sizes if scores.best(size, metric, rest[size]) == "one-vs-each"]
        verdicts.append(
            Verdict(
                f"one-vs-each performs well in {name} across the sizes (rule: at four of five sizes no other of the "
                "three is better by more than the paired 95 % interval)",
                SNELL,
                f"of {len(sizes)} sizes: best mean at {len(first)}, second at {len(second)}, not beaten beyond the "
                f"interval at {len(good)} (per class: {_list(good)})",
                len(good) >= 0.8 * len(sizes),
            )
        )
    few = [size for size in sizes if size <= 15]
    many = [size for size in sizes if size > 15]
    winners = {size: scores.best(size, "ece") for size in sizes}
    verdicts.append(
        Verdict(
            "the Gaussian likelihood has the best ECE through 15 per class (rule: smallest mean at every such size)",
            SNELL,
            "smallest ECE: " + ", ".join(f"{size}: {winners[size]}" for size in few),
            bool(few) and all(winners[size] == "gaussian" for size in few),
        )
    )
    ahead = [size for size in many if scores.mean(size, "one-vs-each", "ece") < scores.mean(size, "gaussian", "ece")]
    verdicts.append(
        Verdict(
            "beyond 15 per class one-vs-each has a better ECE than the Gaussian (rule: smaller mean at every such "
            "size)",
            SNELL,
            "one-vs-each / gaussian: "
            + ", ".join(
                f"{size}: {scores.mean(size, 'one-vs-each', 'ece'):.3f} / {scores.mean(size, 'gaussian', 'ece'):.3f}"
                for size in many
            ),
            bool(many) and ahead == many,
        )
    )
    rows = map_table(maps).set_index("model").loc[list(PAPER)]
    confidence, sure, bending = rows["mean confidence"], rows["share above 0.8"], rows["bending"]
    length = rows["boundary length"]
    verdicts += [
        Verdict(
            "logistic-softmax produces lower confidence than the others (rule: smallest mean over the maps)",
            f"{SNELL}, figure 7",
            "mean confidence " + _series(confidence),
            bool(confidence.idxmin() == "logistic-softmax"),
        ),
        Verdict(
            "one-vs-each produces larger regions of greater confidence than the others (rule: largest share of the "
            "map above 0.8)",
            f"{SNELL}, figure 7",
            "share above 0.8 " + _series(sure),
            bool(sure.idxmax() == "one-vs-each"),
        ),
        Verdict(
            "the Gaussian likelihood produces more warped decision boundaries (rule: largest bending on the maps)",
            f"{SNELL}, figure 7",
            f"bending {_series(bending)}; by the length of the boundaries, the first measure that was tried, it is "
            f"{length.idxmax()} ({_series(length)})",
            bool(bending.idxmax() == "gaussian"),
        ),
    ]
    return tuple(verdicts)


def summary(scores: Scores, verdicts: tuple[Verdict, ...]) -> tuple[str, ...]:
    """Paragraphs with the numbers that matter."""
    sizes, last = scores.sizes, scores.sizes[-1]
    held = sum(verdict.holds for verdict in verdicts)
    first = [f"{held} of the {len(verdicts)} statements hold."]
    for metric, name in (("accuracy", "accuracy"), ("brier", "Brier score"), ("pooled ece", "pooled ECE")):
        listed = ", ".join(f"{model} {scores.mean(last, model, metric):.3f}" for model in MAIN)
        first.append(f"At {last} per class, {name}: {listed}.")
    gap = {
        model: float(
            np.mean([scores.mean(s, "softmax (Laplace)", "elbo") - scores.mean(s, model, "elbo") for s in sizes])
        )
        for model in scores.models
        if model != "softmax (Laplace)"
    }
    nearest = min(gap, key=lambda model: gap[model])
    second = (
        "Averaged over the sizes, the bound under the softmax model falls short of the Laplace posterior's by "
        + ", ".join(f"{value:.2f} ({model})" for model, value in sorted(gap.items(), key=lambda item: item[1]))
        + f" nats: the nearest to the softmax posterior is {nearest}."
    )
    shifted, plain = "logistic-softmax, mean -5", "logistic-softmax"
    word = "yet" if gap[shifted] > gap[plain] else "and"
    second += (
        f" With prior mean -5 the logistic-softmax likelihood is close to the softmax, {word} its mean-field "
        f"posterior is {gap[shifted]:.2f} nats short, against {gap[plain]:.2f} with prior mean 0."
    )
    fits = np.concatenate([metrics["converged"] for metrics in scores.values.values()])
    second += f" {int(fits.sum())} of {fits.size} fits converged."
    better = [
        f"{model} at {sum(_integral_wins(scores, size, model) for size in sizes)} of {len(sizes)} sizes"
        for model in MAIN
    ]
    third = (
        "Integrating over the latents instead of plugging in their mean lowers the negative log-likelihood "
        "of " + ", ".join(better) + "."
    )
    return (" ".join(first), second, third)


def _integral_wins(scores: Scores, size: int, model: str) -> bool:
    return scores.mean(size, model, "integral nll") < scores.mean(size, model, "nll")


def _series(values: pd.Series) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items())


def _list(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes)) or "none"
