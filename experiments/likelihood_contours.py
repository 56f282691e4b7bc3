"""The likelihoods as functions of two latents, and the posteriors of one observation, on a grid without inference.

Three classes; the third latent is clamped, at 0 (so it competes) or at -100 (so it does not).

References: Snell & Zemel 2021, appendix F.2, figures 5 and 6; Ke et al. 2023, section 3.2, figure 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from experiments.experiment import (
    Experiment,
    Outcome,
    Picture,
    Progress,
    Table,
    Verdict,
    configure,
)
from experiments.figures import label, new_figure
from sureshot.likelihoods import GaussianLabels, Likelihood, LogisticSoftmax, OneVsEach, Softmax

NAMES = ("softmax", "gaussian", "logistic-softmax", "one-vs-each")
SNELL = "Snell & Zemel 2021, F.2"
KE = "Ke et al. 2023, 3.2"


@dataclass(frozen=True)
class Settings:
    """Settings of the study."""

    clamps: tuple[float, ...] = (0.0, -100.0)  # values of the third latent
    temperatures: tuple[float, ...] = (1.0, 0.5, 0.2)  # the first must be 1
    # the grid of the tables covers ``[-reach, reach]`` in both latents; prior mass outside 7 is 5e-12
    reach: float = 7.0
    step: float = 0.02  # of the grid: the resolution of the modes

    def __post_init__(self) -> None:
        if not 0 < self.step < self.reach:
            raise ValueError(f"step must be between 0 and reach = {self.reach:g}, but it is {self.step:g}")


class Grid(NamedTuple):
    """Two latents on a square grid: ``first`` varies along rows, ``second`` along columns."""

    first: Tensor  # (n, n)
    second: Tensor  # (n, n)

    def latents(self, clamp: float) -> Tensor:
        """All three latents, (3, n * n)."""
        flat = self.first.flatten()
        return torch.stack([flat, self.second.flatten(), torch.full_like(flat, clamp)])


def make_grid(reach: float, step: float) -> Grid:
    """A symmetric grid that contains the origin."""
    half = round(reach / step)
    axis = torch.arange(-half, half + 1, dtype=torch.float64) * step
    return Grid(*torch.meshgrid(axis, axis, indexing="ij"))


def make_likelihood(name: str, temperature: float) -> Likelihood:
    """The likelihood of a row of the tables."""
    if name == "gaussian":
        return GaussianLabels(temperature**2)
    if name == "one-vs-each":
        return OneVsEach()  # the latents are divided by the temperature
    return Softmax(temperature) if name == "softmax" else LogisticSoftmax(temperature)


def log_likelihood(name: str, temperature: float, latents: Tensor) -> Tensor:
    """``log L(f | y = first class)``, (n,), for latents (3, n)."""
    scaled = latents / temperature if name == "one-vs-each" else latents
    return make_likelihood(name, temperature).class_log_likelihood(scaled)[0]


def log_posterior(grid: Grid, log_like: Tensor) -> Tensor:
    """Log probability of every grid point given the observation, (n, n); it sums to one over the grid."""
    joint = log_like.view_as(grid.first) - 0.5 * (grid.first**2 + grid.second**2)
    return joint - joint.flatten().logsumexp(0)


def describe(grid: Grid, log_p: Tensor, log_reference: Tensor) -> dict[str, float]:
    """Mode, moments and distances to a reference posterior on the same grid."""
    p = log_p.exp()
    at = int(log_p.argmax())
    mean1, mean2 = float((p * grid.first).sum()), float((p * grid.second).sum())
    variance1 = float((p * (grid.first - mean1) ** 2).sum())
    variance2 = float((p * (grid.second - mean2) ** 2).sum())
    covariance = float((p * (grid.first - mean1) * (grid.second - mean2)).sum())
    wide, narrow = _axes(variance1, variance2, covariance)
    return {
        "mode f1": float(grid.first.flatten()[at]),
        "mode f2": float(grid.second.flatten()[at]),
        "mean f1": mean1,
        "mean f2": mean2,
        "variance f1": variance1,
        "variance f2": variance2,
        "correlation": covariance / (variance1 * variance2) ** 0.5,
        "area": (wide * narrow) ** 0.5,
        "elongation": (wide / narrow) ** 0.5,
        "total variation": 0.5 * float((p - log_reference.exp()).abs().sum()),
        "divergence": float((p * (log_p - log_reference)).sum()),
    }


def _axes(variance1: float, variance2: float, covariance: float) -> tuple[float, float]:
    """Variances along the principal axes, larger first."""
    middle, gap = 0.5 * (variance1 + variance2), 0.5 * (variance1 - variance2)
    radius = (gap**2 + covariance**2) ** 0.5
    return middle + radius, middle - radius


def posterior_table(grid: Grid, clamp: float, temperatures: tuple[float, ...]) -> pd.DataFrame:
    """One row for each temperature and likelihood; the reference is the softmax of the same temperature."""
    latents = grid.latents(clamp)
    records = []
    for temperature in temperatures:
        reference = log_posterior(grid, log_likelihood("softmax", temperature, latents))
        for name in NAMES:
            posterior = log_posterior(grid, log_likelihood(name, temperature, latents))
            row: dict[str, object] = {"temperature": f"{temperature:g}", "likelihood": name}
            records.append(row | describe(grid, posterior, reference))
    return pd.DataFrame(records)


def quadrant_table(temperatures: tuple[float, ...], shift: float = 5.0) -> pd.DataFrame:
    """Largest gap between logistic-softmax and softmax on unit squares, third latent at -100.

    The squares have side 2 and are centred at both latents equal to `shift`, 0, -1, -3 and minus `shift`.
    """
    square = make_grid(1.0, 0.05)
    records = []
    for temperature in temperatures:
        row: dict[str, object] = {"temperature": f"{temperature:g}"}
        for centre in (shift, 0.0, -1.0, -3.0, -shift):
            moved = Grid(square.first + centre, square.second + centre).latents(-100.0)
            gap = (
                log_likelihood("logistic-softmax", temperature, moved).exp()
                - log_likelihood("softmax", temperature, moved).exp()
            )
            row[f"around {centre:g}"] = float(gap.abs().max())
        records.append(row)
    return pd.DataFrame(records)


def run(*, data_root: Path | None = None, progress: Progress, **options: Any) -> Outcome:
    """Run the study; see `Settings` for the options."""
    settings = configure(Settings, options)
    grid = make_grid(settings.reach, settings.step)
    tables, pictures = [], []
    frames: dict[float, pd.DataFrame] = {}
    for i, clamp in enumerate(settings.clamps):
        progress(f"third latent at {clamp:g}", i / len(settings.clamps))
        frames[clamp] = posterior_table(grid, clamp, settings.temperatures)
        name = f"third-at-{clamp:g}".replace("--", "-minus-")
        where = f"third latent at {clamp:g}"
        tables.append(Table(name, f"Posterior of one observation of the first class, {where}.", frames[clamp]))
        for kind in ("likelihood", "posterior"):
            figure = draw_contours(kind, clamp, settings)
            text = (
                "L(f | y = 1); the Gaussian likelihood is shown relative to its largest value"
                if kind == "likelihood"
                else "p(f | y = 1) relative to its largest value; the cross is the mean"
            )
            pictures.append(Picture(f"{kind}-{name}", f"{text}; {where}.", figure))
    squares = quadrant_table(settings.temperatures)
    tables.append(
        Table(
            "squares",
            "Largest difference between logistic-softmax and softmax of the same temperature, p(y = 1 | f), over "
            "squares of side 2 around f1 = f2 = 5, 0, -1, -3 and -5, third latent at -100.",
            squares,
            digits=4,
        )
    )
    return Outcome(
        title="Likelihoods and posteriors of one observation",
        introduction=(
            "Three classes and one observation of the first; f1 and f2 are standard normal, f3 is clamped. Posteriors "
            f"are computed on a grid of step {settings.step:g} over [-{settings.reach:g}, {settings.reach:g}] in both "
            "latents. `area` is the product of the standard deviations along the principal axes, `elongation` their "
            "ratio; `total variation` and `divergence` (KL from the row to the reference, in nats) are to the softmax "
            "posterior of the same temperature. A temperature divides the latents; for the Gaussian likelihood it is "
            "the standard deviation of the noise. One-vs-each enters unnormalised, as it does in inference."
        ),
        tables=tuple(tables),
        pictures=tuple(pictures),
        verdicts=judge(frames, squares),
        findings=(
            "Where the third latent is at -100 only two classes compete, and one-vs-each and the softmax are the same "
            "function.",
        ),
        differences=(
            "The papers print contour plots without numbers; modes, moments and distances are added.",
            "Snell & Zemel show temperature 1 and f3 = 0; Ke et al. show f3 = -100 for softmax and "
            "logistic-softmax. Here every likelihood is shown in both, at every temperature.",
        ),
        config=settings,
        seeds=(),
    )


def judge(frames: dict[float, pd.DataFrame], squares: pd.DataFrame) -> tuple[Verdict, ...]:
    """Compare the papers' statements with the tables."""
    verdicts: list[Verdict] = []
    if 0.0 in frames:
        rows = frames[0.0]
        first = rows[rows["temperature"] == "1"].set_index("likelihood")
        modes = first[["mode f1", "mode f2"]].to_numpy()
        apart = np.sqrt(((modes - modes[0]) ** 2).sum(1))
        area, elongation = first["area"], first["elongation"]
        distance = first["total variation"].drop("softmax")
        origin = {
            name: float(log_likelihood(name, 1.0, torch.zeros(3, 1, dtype=torch.float64)).exp()) for name in NAMES
        }
        verdicts += [
            Verdict(
                "the modes of the posteriors are similar (rule: within half a prior standard deviation of the "
                "softmax's)",
                SNELL,
                "distance to the softmax's mode: "
                + ", ".join(f"{name} {gap:.2f}" for name, gap in zip(NAMES[1:], apart[1:], strict=True)),
                bool((apart < 0.5).all()),
            ),
            Verdict(
                "the Gaussian posterior is more peaked than the softmax's (rule: smaller area)",
                SNELL,
                f"area {area['gaussian']:.3f}, softmax {area['softmax']:.3f}",
                bool(area["gaussian"] < area["softmax"]),
            ),
            Verdict(
                "the logistic-softmax posterior is more spread out than the softmax's (rule: larger area)",
                SNELL,
                f"area {area['logistic-softmax']:.3f}, softmax {area['softmax']:.3f}",
                bool(area["logistic-softmax"] > area["softmax"]),
            ),
            Verdict(
                "the one-vs-each posterior is similar to the softmax's (rule: the nearest in total variation)",
                SNELL,
                "total variation " + ", ".join(f"{name} {value:.3f}" for name, value in distance.items()),
                bool(distance.idxmin() == "one-vs-each"),
            ),
            Verdict(
                "the one-vs-each posterior is slightly more elliptical than the softmax's (rule: larger elongation)",
                SNELL,
                f"elongation {elongation['one-vs-each']:.3f}, softmax {elongation['softmax']:.3f}",
                bool(elongation["one-vs-each"] > elongation["softmax"]),
            ),
            Verdict(
                "one-vs-each penalises latents near the origin slightly more than the softmax (rule: smaller "
                "likelihood at 0)",
                SNELL,
                f"likelihood at the origin {origin['one-vs-each']:.3f}, softmax {origin['softmax']:.3f}",
                origin["one-vs-each"] < origin["softmax"],
            ),
        ]
    columns = [column for column in squares.columns if column != "temperature"]
    positive, low = squares[columns[0]], squares[columns[-1]]
    near = squares["around -1"]
    verdicts += [
        Verdict(
            "with both latents a bit below 0, logistic-softmax approximates the softmax at every temperature (rule: "
            "largest gap under 0.05 on the square around -1)",
            KE,
            "largest gap " + ", ".join(f"{value:.3f}" for value in near),
            bool((near < 0.05).all()),
        ),
        Verdict(
            "well below 0 the approximation is accurate at every temperature (rule: largest gap under 0.01 on the "
            "square around -5)",
            f"{KE}, theorem 3.2",
            "largest gap " + ", ".join(f"{value:.4f}" for value in low),
            bool((low < 0.01).all()),
        ),
        Verdict(
            "with both latents positive, logistic-softmax has shapes that the softmax cannot have (rule: largest gap "
            "over 0.25 on the square around 5)",
            KE,
            "largest gap " + ", ".join(f"{value:.3f}" for value in positive),
            bool((positive > 0.25).all()),
        ),
    ]
    return tuple(verdicts)


def draw_contours(kind: str, clamp: float, settings: Settings) -> Figure:
    """Filled contours: a row for each temperature, a column for each likelihood."""
    reach = 6.0 if kind == "likelihood" else 3.0
    grid = make_grid(reach, reach / 60)
    latents = grid.latents(clamp)
    n_rows = len(settings.temperatures)
    figure = new_figure(9.4, 2.25 * n_rows + 0.35)
    axes_grid = figure.subplots(n_rows, len(NAMES), sharex=True, sharey=True, squeeze=False)
    levels = np.linspace(0, 1, 11)
    for i, temperature in enumerate(settings.temperatures):
        for j, name in enumerate(NAMES):
            axes = axes_grid[i, j]
            log_like = log_likelihood(name, temperature, latents)
            if kind == "posterior":
                values = log_posterior(grid, log_like)
                values = (values - values.max()).exp()
            else:
                values = log_like.view_as(grid.first)
                values = (values - values.max() if name == "gaussian" else values).exp()
            filled = axes.contourf(grid.first, grid.second, values, levels, cmap="viridis")
            axes.contour(grid.first, grid.second, values, levels[1:-1:2], colors="white", linewidths=0.5, alpha=0.6)
            axes.axhline(0, color="white", linewidth=0.4, alpha=0.5)
            axes.axvline(0, color="white", linewidth=0.4, alpha=0.5)
            if kind == "posterior":
                p = values / values.sum()
                axes.plot((p * grid.first).sum(), (p * grid.second).sum(), "+", color="#D55E00", markersize=9)
            axes.set(
                aspect="equal", xticks=[-2 * reach / 3, 0, 2 * reach / 3], yticks=[-2 * reach / 3, 0, 2 * reach / 3]
            )
            axes.tick_params(labelsize=8)
            title = name if i == 0 else ""
            left = f"temperature {temperature:g}\nf2" if j == 0 else ""
            label(axes, title, "f1" if i == n_rows - 1 else "", left)
    bar = figure.colorbar(filled, ax=axes_grid, shrink=0.6, aspect=30)
    bar.ax.tick_params(labelsize=8)
    return figure


EXPERIMENT = Experiment(
    "likelihood-contours",
    "likelihoods of two latents and the posteriors of one observation (contours, moments, distances)",
    needs_data=False,
    run=run,
)
