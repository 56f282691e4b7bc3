"""Gaussian, logistic-softmax and one-vs-each on two features of Iris, from 1 to 30 examples per class.

The kernel is fixed, ``exp(-d^2 / 2)`` on the raw features with a zero mean, so that only the likelihoods differ. Splits
are nested (a larger training set contains the smaller one of the same split) and shared by all likelihoods, so that
differences are paired.

References: Snell & Zemel 2021, appendix F.3, figures 7 and 8; Fisher 1936.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_iris
from torch import Tensor

from experiments.experiment import Experiment, Outcome, Picture, Progress, configure
from experiments.iris_figures import draw_curves, draw_maps
from experiments.iris_models import MODELS, softmax_bound, squared_exponential
from experiments.iris_tables import MAIN, METRICS, Map, Scores, judge, make_tables, summary
from sureshot.metrics import summarise

N_CLASSES = 3
BINS = 10


@dataclass(frozen=True)
class Settings:
    """Settings of the study."""

    sizes: tuple[int, ...] = (1, 2, 3, 4, 5, 10, 15, 20, 25, 30)  # training examples per class
    n_splits: int = 200  # random splits for each size
    seed: int = 0  # of the generator that draws all splits
    batch: int = 50  # splits computed at once; sets memory, never the result
    n_maps: int = 20  # splits whose probability maps are measured; the first is drawn
    map_points: int = 100  # side of the grid of the probability maps

    def __post_init__(self) -> None:
        if self.sizes != tuple(sorted(set(self.sizes))) or self.sizes[0] < 1 or self.sizes[-1] > 49:
            raise ValueError(
                "sizes must increase and lie between 1 and 49, which leaves one row of each class to test on, but they "
                f"are {list(self.sizes)}"
            )
        if self.n_splits < 1:
            raise ValueError(f"n_splits must be at least 1, but it is {self.n_splits}")


class Data(NamedTuple):
    """The two features and the species."""

    x: Tensor  # (150, 2), centimetres
    y: Tensor  # (150,)


def load() -> Data:
    """Sepal length and width, and the species, of scikit-learn's copy of Iris."""
    x, y = load_iris(return_X_y=True)
    return Data(torch.from_numpy(x[:, :2].copy()), torch.from_numpy(y.astype(np.int64)))


def make_order(y: Tensor, n_splits: int, generator: torch.Generator) -> Tensor:
    """For every split a random order of each class's rows, (n_splits, C, rows of a class)."""
    by_class = torch.stack([(y == c).nonzero().squeeze(-1) for c in range(N_CLASSES)])  # (C, 50)
    keys = torch.rand(n_splits, *by_class.shape, generator=generator, dtype=torch.float64)
    return by_class.expand(n_splits, -1, -1).gather(-1, keys.argsort(-1))


def split_rows(order: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Row numbers of the training and the test set of every split, each (n_splits, rows)."""
    return order[..., :size].flatten(1), order[..., size:].flatten(1)


def evaluate(data: Data, order: Tensor, size: int, model: str, batch: int) -> dict[str, NDArray[np.float64]]:
    """Scores of one model at one size for every split, by metric, each (n_splits,); pooled ECE has one entry."""
    train, test = split_rows(order, size)
    bounds, plug_in, integral, converged = [], [], [], []
    for rows, queries in zip(train.split(batch), test.split(batch), strict=True):
        x, y = data.x[rows], data.y[rows]
        fit = MODELS[model](squared_exponential(x, x), y, N_CLASSES)
        mean, covariance = fit.query(squared_exponential(x, data.x[queries]))
        bounds.append(softmax_bound(fit, y))
        converged.append(fit.converged)
        plug_in.append(fit.likelihood.plug_in(mean))
        integral.append(fit.likelihood.integral(mean, covariance))
    truth = data.y[test].numpy()
    found = {"elbo": torch.cat(bounds).numpy(), "converged": torch.cat(converged).double().numpy()}
    for rule, parts in (("", plug_in), ("integral ", integral)):
        probabilities = torch.cat(parts).mT.numpy()  # (n_splits, Q, C)
        scores = [summarise(p, t, BINS) for p, t in zip(probabilities, truth, strict=True)]
        for metric in ("accuracy", "brier", "nll", "ece"):
            found[rule + metric] = np.array([getattr(score, metric) for score in scores])
        pooled = summarise(probabilities.reshape(-1, N_CLASSES), truth.reshape(-1), BINS)
        found[rule + "pooled ece"] = np.array([pooled.ece])
    return found


def make_map(data: Data, order: Tensor, split: int, size: int, points: int) -> Map:
    """Probabilities of every main model over the plane, trained on one split."""
    rows = split_rows(order, size)[0][split]
    x, y = data.x[rows], data.y[rows]
    low, high = data.x.amin(0) - 0.5, data.x.amax(0) + 0.5
    axes = [torch.linspace(float(low[i]), float(high[i]), points, dtype=torch.float64) for i in range(2)]
    plane = torch.cartesian_prod(*axes)
    cross, gram = squared_exponential(x, plane)[None], squared_exponential(x, x)[None]
    probabilities = {}
    for model in MAIN:
        fit = MODELS[model](gram, y[None], N_CLASSES)
        found = fit.likelihood.plug_in(fit.query(cross)[0])[0]  # (C, points^2)
        probabilities[model] = found.view(N_CLASSES, points, points).numpy()
    return Map(axes[0].numpy(), axes[1].numpy(), probabilities, x.numpy(), y.numpy())


def run(*, data_root: Path | None = None, progress: Progress, **options: Any) -> Outcome:
    """Run the study; see `Settings` for the options."""
    settings = configure(Settings, options)
    data = load()
    order = make_order(data.y, settings.n_splits, torch.Generator().manual_seed(settings.seed))
    results: dict[tuple[int, str], dict[str, NDArray[np.float64]]] = {}
    done, total = 0, len(settings.sizes) * len(MODELS)
    with torch.no_grad():
        for size in settings.sizes:
            for model in MODELS:
                progress(f"{size} per class, {model}", done / total)
                results[size, model] = evaluate(data, order, size, model, settings.batch)
                done += 1
        progress("probability maps", 1.0)
        # A map takes a hundred megabytes, so one split at a time.
        maps = [
            make_map(data, order, split, max(settings.sizes), settings.map_points)
            for split in range(min(settings.n_maps, settings.n_splits))
        ]
    scores = Scores(settings.sizes, tuple(MODELS), results)
    verdicts = judge(scores, maps)
    shared = "Bands: 95 % interval of the mean over the splits."
    return Outcome(
        title="Likelihoods on two features of Iris",
        introduction=(
            "Sepal length and width of 150 irises, three classes; kernel exp(-d²/2) on the raw features, zero mean, "
            f"nothing tuned. {settings.n_splits} random splits for each training size; the test set is the rest. "
            "`gaussian` is least squares with noise variance 1 and its exact posterior; `logistic-softmax` is mean "
            "field with the negative-multinomial augmentation; `one-vs-each` is mean field jointly over the classes; "
            "`softmax (Laplace)` is the reference that none of the papers' likelihoods has to beat. Predictions are "
            "the normalised likelihood at the posterior mean unless a table says otherwise. Intervals are 95 % "
            "intervals of the mean over splits (1.96 standard errors); all splits draw on the same 150 flowers, so "
            "they say how well the splits were averaged, not how another sample of flowers would come out."
        ),
        tables=make_tables(scores, maps),
        pictures=(
            Picture("curves", f"{', '.join(METRICS.values())} by training size. {shared}", draw_curves(scores)),
            Picture(
                "maps",
                f"Largest class probability, one split with {max(settings.sizes)} examples per class. White lines: "
                "where the predicted class changes; points: the training data.",
                draw_maps(maps[0]),
            ),
        ),
        verdicts=verdicts,
        findings=summary(scores, verdicts),
        differences=(
            "The paper does not say how the posteriors were computed. Here they are mean field (exact for the "
            "Gaussian likelihood), for which the bound under the softmax model can be computed; a mixture of Gibbs "
            "chains would need its own density.",
            "The paper does not say how it bins for the ECE. Here there are 10 equal-width bins over [0, 1]; the "
            "error is averaged over splits, and also pooled over all splits, because so few test points in 10 bins "
            "bias the former upwards.",
            "The rules that turn the paper's sentences into verdicts are ours. For 'warped' boundaries the rule is "
            "their bending, because their length, also in the table, depends on where the classes meet as much as on "
            "shape.",
            "The paper prints curves without numbers, so there is no published column to compare with.",
            "Added: negative log-likelihood, the integral rule, the softmax Laplace reference, factorised "
            "one-vs-each, the Poisson-gamma augmentation, and logistic-softmax with prior mean -5.",
        ),
        config=settings,
        seeds=(settings.seed,),
    )


EXPERIMENT = Experiment(
    "iris",
    "Gaussian, logistic-softmax and one-vs-each on two features of Iris, 1 to 30 examples per class",
    needs_data=False,
    run=run,
)
