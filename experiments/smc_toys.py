"""Structure discovery on toy sets in the plane: how it adapts its kernels, what its particles are, a shift of pattern.

Figures 1 to 3 of Huang & Wang (2025); XOR comes with its lower half first, so that a line will do until the upper half
arrives.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from sklearn.datasets import make_circles, make_moons

from experiments.batch_learners import scores
from experiments.experiment import Experiment, Outcome, Picture, Progress, Table, Verdict, configure
from experiments.figures import label, new_figure
from experiments.smc_methods import METHODS, OURS, Context
from sureshot.estimators import KernelSearchClassifier
from sureshot.report.plots import BLUE, VERMILION
from sureshot.structure.canonical import canonical
from sureshot.structure.structure import Structure

NAME = "smc-toys"
COMPARED = ("LINEAR GP", "SQUARED-EXPONENTIAL GP", OURS)
_NEAR = 0.02  # nats by which kernel search may be behind the better of two given structures
_TITLES = {"LINEAR GP": "LINEAR", "SQUARED-EXPONENTIAL GP": "SQUARED-EXPONENTIAL"}
_SHADES = LinearSegmentedColormap.from_list("classes", [BLUE, "white", VERMILION])
_LEVELS = np.linspace(0, 1, 21)


@dataclass(frozen=True)
class SmcToysConfig:
    """Settings."""

    rows: int = 120  # of each set
    test_rows: int = 1000
    particles: int = 32
    grid: int = 60  # points of the contours along each axis
    seed: int = 0


def moons(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two half circles, noisy."""
    x, y = make_moons(n, noise=0.2, random_state=seed)
    return x, y


def circles(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One circle inside another, noisy."""
    x, y = make_circles(n, noise=0.12, factor=0.5, random_state=seed)
    return x, y


def separable(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two clouds with a line between them."""
    generator = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return generator.normal(size=(n, 2)) * [0.45, 1.0] + np.where(y == 1, 1.4, -1.4)[:, None] * [1.0, 0.4], y


def exclusive_or(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Four clouds, opposite ones of one class."""
    generator = np.random.default_rng(seed)
    corner = np.arange(n) % 4
    centres = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    return centres[corner] + 0.45 * generator.normal(size=(n, 2)), corner % 2


TOYS: dict[str, Callable[[int, int], tuple[np.ndarray, np.ndarray]]] = {
    "moons": moons,
    "circles": circles,
    "separable": separable,
    "XOR": exclusive_or,
}
"""By name: rows and labels of a size and a seed."""


def run(*, data_root: Any, progress: Progress, **options: Any) -> Outcome:
    """See `SmcToysConfig` for the options."""
    settings = configure(SmcToysConfig, options)
    context = Context(2, settings.seed, settings.particles)
    fitted: dict[tuple[str, str], Any] = {}
    for number, toy in enumerate(TOYS):
        for k, method in enumerate(COMPARED):
            progress(f"{toy}: {method}", (number + k / len(COMPARED)) / (len(TOYS) + 1))
            fitted[toy, method] = METHODS[method].make(context).fit(*TOYS[toy](settings.rows, settings.seed))
    progress("a shift of pattern", len(TOYS) / (len(TOYS) + 1))
    before, after, shift = shifted(context, settings)
    frame = score_frame(fitted, settings)
    return Outcome(
        title="Structure discovery on toy sets",
        introduction=(
            f"{settings.rows} rows in the plane, scores on {settings.test_rows} others; shades and the black line are "
            "the probability of one class and where it is one half. LINEAR and SQUARED-EXPONENTIAL are the same "
            "sampler with the structure given, averaging over latents; kernel search predicts as it does by default."
        ),
        tables=(
            Table("scores", "On other rows of the same sets, and the heaviest structures.", frame),
            Table("shift", "XOR, its lower half first: scores on rows of both halves.", shift),
        ),
        pictures=(
            adaptation_picture(fitted, settings),
            particles_picture(fitted["separable", OURS], settings),
            shift_picture(before, after, settings),
        ),
        config=settings,
        seeds=(settings.seed,),
        findings=(),
        verdicts=verdicts_of(frame, shift),
        differences=(
            "The paper gives neither sizes nor noise of its toy sets, nor what shifts; XOR is an addition.",
            "Its figure 2 shows three of its particles; here those of the heaviest structures, one each.",
        ),
    )


def shifted(
    context: Context, settings: SmcToysConfig
) -> tuple[KernelSearchClassifier, KernelSearchClassifier, pd.DataFrame]:
    """After the lower half of XOR, and after all of it."""
    x, y = exclusive_or(settings.rows, settings.seed)
    lower = x[:, 1] < 0
    before = METHODS[OURS].make(context).fit(x[lower], y[lower])
    after = METHODS[OURS].make(context).fit(x[lower], y[lower]).partial_fit(x[~lower], y[~lower])
    test_x, test_y = exclusive_or(settings.test_rows, settings.seed + 1)
    rows = [
        {"batches": name, **_scores(model, test_x, test_y), "heaviest": _heaviest(model)}
        for name, model in (("the lower half", before), ("both halves", after))
    ]
    return before, after, pd.DataFrame(rows)


def score_frame(fitted: dict[tuple[str, str], Any], settings: SmcToysConfig) -> pd.DataFrame:
    """One row for each set and method."""
    rows = []
    for (toy, method), model in fitted.items():
        found = _scores(model, *TOYS[toy](settings.test_rows, settings.seed + 1))
        rows.append({"set": toy, "method": method, **found, "heaviest": _heaviest(model) if method == OURS else ""})
    return pd.DataFrame(rows)


def verdicts_of(frame: pd.DataFrame, shift: pd.DataFrame) -> tuple[Verdict, ...]:
    """What figures 1 and 3 are to show."""
    nll = frame.pivot(index="set", columns="method", values="nll")
    gap = nll[OURS] - nll[list(COMPARED[:2])].min(axis=1)
    accuracy = shift["accuracy"]
    return (
        Verdict(
            f"kernel search is as good as the better of two given structures, to {_NEAR} nats",
            "Huang & Wang 2025, figure 1",
            ", ".join(f"{name} {value:+.3f}" for name, value in gap.items()),
            bool((gap <= _NEAR).all()),
        ),
        Verdict(
            "kernels follow a shift of pattern",
            "Huang & Wang 2025, figure 3",
            f"accuracy {accuracy.iloc[0]:.3f} before, {accuracy.iloc[1]:.3f} after",
            bool(accuracy.iloc[1] > accuracy.iloc[0]),
        ),
    )


def adaptation_picture(fitted: dict[tuple[str, str], Any], settings: SmcToysConfig) -> Picture:
    """A row of panels for each set."""
    figure = new_figure(9.2, 2.35 * len(TOYS))
    panels = figure.subplots(len(TOYS), 1 + len(COMPARED))
    for row, toy in zip(panels, TOYS, strict=True):
        x, y = TOYS[toy](settings.rows, settings.seed)
        _frame(row[0], x, _broken(toy))
        _dots(row[0], x, y)
        for axes, method in zip(row[1:], COMPARED, strict=True):
            title = _TITLES.get(method, f"{method}: {fitted[toy, method].kernel_posterior_[0][1].lower()}")
            _contours(axes, fitted[toy, method].predict_proba, x, y, settings.grid, title)
    caption = "Kernels adapt: the rows, two structures that are given, and kernel search with its heaviest structure."
    return Picture("adaptation", caption, figure)


def particles_picture(model: KernelSearchClassifier, settings: SmcToysConfig, n: int = 3) -> Picture:
    """The mixture, and a particle of each of the heaviest structures."""
    x, y = separable(settings.rows, settings.seed)
    figure = new_figure(9.2, 2.6)
    panels = figure.subplots(1, 1 + n)
    _contours(panels[0], model.predict_proba, x, y, settings.grid, "all particles")
    for axes in panels[1:]:
        axes.set_axis_off()
    for axes, (title, number) in zip(panels[1:], heaviest_particles(model, n), strict=False):
        axes.set_axis_on()
        _contours(axes, lambda rows, k=number: model.particle_proba(rows)[k], x, y, settings.grid, title.lower())  # type: ignore[misc]
    return Picture("particles", "The mixture, and one particle of each of its heaviest structures.", figure)


def shift_picture(before: KernelSearchClassifier, after: KernelSearchClassifier, settings: SmcToysConfig) -> Picture:
    """After the first batch, and after both."""
    x, y = exclusive_or(settings.rows, settings.seed)
    lower = x[:, 1] < 0
    figure = new_figure(6.2, 3.2)
    panels = figure.subplots(1, 2)
    for axes, model, rows in zip(panels, (before, after), (lower, lower | True), strict=True):
        title = f"{len(y[rows])} rows: {model.kernel_posterior_[0][1].lower()}"
        _contours(axes, model.predict_proba, x, y, settings.grid, title, rows)
    return Picture("shift", "A shift of pattern: after the lower half of XOR, and after the upper half too.", figure)


def heaviest_particles(model: KernelSearchClassifier, n: int) -> list[tuple[str, int]]:
    """Structures in canonical form, heaviest first, and the number of their heaviest particle."""
    forms = [str(canonical(Structure.parse(particle.structure))) for particle in model.particles_]
    return [(name, forms.index(name)) for _, name in model.kernel_posterior_[:n]]


def _scores(model: Any, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    found = scores(model.predict_proba(x), y, model.classes_)
    return {name: found[name] for name in ("accuracy", "nll", "ece")}


def _heaviest(model: KernelSearchClassifier, n: int = 3) -> str:
    return ", ".join(f"{structure} {mass:.2f}" for mass, structure in model.kernel_posterior_[:n])


def _contours(
    axes: Axes,
    predict: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    y: np.ndarray,
    grid: int,
    title: str,
    shown: np.ndarray | None = None,
) -> None:
    _frame(axes, x, _broken(title))
    across, up = (np.linspace(*bounds, grid) for bounds in (axes.get_xlim(), axes.get_ylim()))
    rows = np.stack(np.meshgrid(across, up), -1).reshape(-1, 2)
    p = predict(rows)[:, 1].reshape(grid, grid)
    axes.contourf(across, up, p, _LEVELS, cmap=_SHADES, alpha=0.8)
    if p.min() < 0.5 < p.max():
        axes.contour(across, up, p, [0.5], colors="black", linewidths=1.1)
    keep = np.ones(len(x), dtype=bool) if shown is None else shown
    _dots(axes, x[keep], y[keep])


def _frame(axes: Axes, x: np.ndarray, title: str) -> None:
    low, high = x.min(axis=0), x.max(axis=0)
    margin = 0.15 * (high - low)
    axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
    axes.set_ylim(low[1] - margin[1], high[1] + margin[1])
    axes.set_xticks([])
    axes.set_yticks([])
    label(axes, title or " ")
    axes.title.set_fontsize(7.5)


def _dots(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    colours = np.array([BLUE, VERMILION])[y]
    axes.scatter(x[:, 0], x[:, 1], s=11, c=colours, edgecolors="white", linewidths=0.5, zorder=3)


def _broken(title: str, width: int = 34) -> str:
    """On two lines at most, the rest left out."""
    first, *further = textwrap.wrap(title, width)
    return "\n".join([first, textwrap.shorten(" ".join(further), width, placeholder=" ...")])


EXPERIMENT = Experiment(
    NAME, "structure discovery on toy sets: adapting kernels, particles, a shift of pattern", False, run
)
