"""How confident is each likelihood before it has seen any data? Its largest probability, for normal latents.

References: Snell & Zemel 2021, appendix F.1 and figure 4; Ke et al. 2023, theorem 3.2 and appendix VIII, figure 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import gaussian_kde
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
from experiments.figures import COLOURS, new_figure, tidy
from sureshot.likelihoods import GaussianLabels, Likelihood, LogisticSoftmax, OneVsEach, Softmax

SNELL = "Snell & Zemel 2021, F.1"
KE = "Ke et al. 2023"
HIGHEST = 10.5  # of the common scale of densities
_EQUIVALENT = (
    "The Gaussian likelihood with noise variance s, normalised over the classes, is algebraically a softmax with "
    "temperature s/2."
)
_BEFORE_DATA = (
    "Confidence before data says how a likelihood starts, not how calibrated its posterior is: output scale, prior "
    "mean and noise move every row."
)


@dataclass(frozen=True)
class Settings:
    """Settings of the study."""

    n_classes: int = 5
    means: tuple[float, ...] = (0.0, -5.0)  # means of the latents; their variance is one
    n_draws: tuple[int, ...] = (50_000, 5_000)  # for each mean, as in the papers
    temperatures: tuple[float, ...] = (1.0, 0.5, 0.2)  # of the softmax and of the logistic-softmax; the first must be 1
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.means) != len(self.n_draws):
            raise ValueError(
                f"n_draws must have one number for each of the {len(self.means)} means, but has {len(self.n_draws)}"
            )
        if self.temperatures[0] != 1:
            raise ValueError(f"the first of the temperatures must be 1, but it is {self.temperatures[0]:g}")


def likelihoods(temperatures: tuple[float, ...]) -> dict[str, Likelihood]:
    """The likelihoods by the name of their row."""
    found: dict[str, Likelihood] = {"softmax": Softmax()}
    found |= {f"softmax, temperature {t:g}": Softmax(t) for t in temperatures if t != 1}
    found["gaussian"] = GaussianLabels(1.0)
    found["logistic-softmax"] = LogisticSoftmax()
    found |= {f"logistic-softmax, temperature {t:g}": LogisticSoftmax(t) for t in temperatures if t != 1}
    found["one-vs-each"] = OneVsEach()
    return found


def confidence_table(latents: Tensor, rows: dict[str, Likelihood]) -> tuple[pd.DataFrame, dict[str, Tensor]]:
    """Summary of the confidence under each likelihood, and the confidences (n,) themselves."""
    n = latents.shape[-1]
    reference = rows["softmax"].plug_in(latents)
    records, confidences = [], {}
    for name, likelihood in rows.items():
        probabilities = likelihood.plug_in(latents)  # (C, n)
        confidence = probabilities.amax(0)
        distance = 0.5 * (probabilities - reference).abs().sum(0)
        quantiles = torch.quantile(confidence, torch.tensor([0.05, 0.5, 0.95], dtype=confidence.dtype))
        records.append(
            {
                "likelihood": name,
                "mean": float(confidence.mean()),
                "standard error": float(confidence.std() / n**0.5),
                "5 %": float(quantiles[0]),
                "median": float(quantiles[1]),
                "95 %": float(quantiles[2]),
                "share above 0.4": float((confidence > 0.4).double().mean()),
                "share above 0.9": float((confidence > 0.9).double().mean()),
                "total variation to softmax": float(distance.mean()),
            }
        )
        confidences[name] = confidence
    return pd.DataFrame(records), confidences


def run(*, data_root: Path | None = None, progress: Progress, **options: Any) -> Outcome:
    """Run the study; see `Settings` for the options."""
    settings = configure(Settings, options)
    rows = likelihoods(settings.temperatures)
    generator = torch.Generator().manual_seed(settings.seed)
    frames: dict[float, pd.DataFrame] = {}
    tables, pictures = [], []
    for i, (mean, n_draws) in enumerate(zip(settings.means, settings.n_draws, strict=True)):
        progress(f"latents with mean {mean:g}", i / len(settings.means))
        noise = torch.randn(settings.n_classes, n_draws, generator=generator, dtype=torch.float64)
        frame, confidences = confidence_table(mean + noise, rows)
        frames[mean] = frame.set_index("likelihood")
        name = f"mean-{mean:g}".replace("--", "-minus-")
        drawn = f"latents N({mean:g}, 1), {settings.n_classes} classes, {n_draws} draws"
        caption = f"Largest class probability for {drawn}."
        tables.append(Table(name, f"{caption} Shares and quantiles are of the draws.", frame))
        figure = draw_histograms(confidences, settings)
        pictures.append(Picture(name, f"{caption} Bars: histogram; line: kernel density estimate.", figure))
    return Outcome(
        title="Confidence of the likelihoods before any data",
        introduction=(
            f"Latents of {settings.n_classes} classes are drawn independently from N(mean, 1) and turned into "
            "probabilities by each likelihood, normalised over the classes; the Gaussian likelihood has noise variance "
            "1. The confidence is the largest probability. The total variation distance is to the softmax with "
            "temperature 1 on the same draws."
        ),
        tables=tuple(tables),
        pictures=tuple(pictures),
        verdicts=judge(frames),
        findings=(_EQUIVALENT, _BEFORE_DATA),
        differences=(
            "The papers print histograms without numbers, so there is no published column to compare with.",
            "The temperatures of the softmax and the logistic-softmax are added to Snell & Zemel's figure.",
        ),
        config=settings,
        seeds=(settings.seed,),
    )


def judge(frames: dict[float, pd.DataFrame]) -> tuple[Verdict, ...]:
    """Compare the papers' statements with the tables, by mean of the latents."""
    verdicts: list[Verdict] = []
    if 0.0 in frames:
        above = frames[0.0]["share above 0.4"]
        sure = frames[0.0]["share above 0.9"]
        softmax = sure["softmax"]
        verdicts.append(
            Verdict(
                "logistic-softmax puts little mass on confidence above 0.4 (rule: under 0.25, and under half of the "
                "softmax's)",
                SNELL,
                f"share above 0.4: {above['logistic-softmax']:.3f}, softmax {above['softmax']:.3f}",
                bool(above["logistic-softmax"] < min(0.25, above["softmax"] / 2)),
            )
        )
        for name in ("gaussian", "one-vs-each"):
            verdicts.append(
                Verdict(
                    f"the {name} likelihood puts a large mass on confident outputs (rule: share above 0.9 at least "
                    "twice the softmax's)",
                    SNELL,
                    f"share above 0.9: {sure[name]:.3f}, softmax {softmax:.3f}",
                    bool(sure[name] >= 2 * softmax),
                )
            )
        sharper = frames[0.0].filter(like="logistic-softmax", axis="index")["mean"]
        verdicts.append(
            Verdict(
                "a lower temperature makes the logistic-softmax more confident (rule: mean confidence rises with "
                "every step down)",
                f"{KE}, 3.1",
                "mean confidence " + ", ".join(f"{value:.3f}" for value in sharper),
                bool((sharper.diff().dropna() > 0).all()),
            )
        )
    if -5.0 in frames:
        distance = frames[-5.0]["total variation to softmax"]
        verdicts.append(
            Verdict(
                "latents shifted by -5 make the logistic-softmax an accurate approximation of the softmax (rule: mean "
                "total variation under 0.01)",
                f"{KE}, theorem 3.2",
                f"mean total variation {distance['logistic-softmax']:.4f}",
                bool(distance["logistic-softmax"] < 0.01),
            )
        )
        verdicts.append(
            Verdict(
                "one-vs-each is not similar to the softmax as a classifier (rule: at least ten times the distance of "
                "the shifted logistic-softmax)",
                f"{KE}, appendix VIII",
                f"mean total variation {distance['one-vs-each']:.4f}",
                bool(distance["one-vs-each"] > 10 * distance["logistic-softmax"]),
            )
        )
    return tuple(verdicts)


def draw_histograms(confidences: dict[str, Tensor], settings: Settings) -> Figure:
    """Small multiples, one for each likelihood, on one scale."""
    columns = 4
    n_rows = -(-len(confidences) // columns)
    figure = new_figure(9.6, 2.45 * n_rows + 0.2)
    grid = figure.subplots(n_rows, columns, sharex=True, sharey=True, squeeze=False)
    lowest = 1 / settings.n_classes
    edges = np.linspace(lowest, 1, 41)
    for i, (axes, (name, confidence)) in enumerate(zip(grid.flat, confidences.items(), strict=False)):
        colour = COLOURS[name.split(",")[0]]
        values = confidence.numpy()
        axes.hist(values, edges, density=True, color=colour, alpha=0.35)
        x = np.linspace(lowest, 1, 300)
        axes.plot(x, mirrored_density(values, x, lowest), color=colour, linewidth=1.6)
        axes.axvline(values.mean(), color="#444444", linestyle=(0, (3, 3)), linewidth=1)
        tidy(axes, name.replace(", ", "\n"), "largest probability" if i // columns == n_rows - 1 else "")
        axes.set(xlim=(lowest - 0.02, 1.02), ylim=(0, HIGHEST))
        peak = np.histogram(values, edges, density=True)[0].max()
        if peak > HIGHEST:  # a bar that leaves the common scale says how high it is
            axes.text(0.4, 0.9, f"highest bar {peak:.0f}", transform=axes.transAxes, fontsize=8, ha="center")
    for axes in grid[:, 0]:
        axes.set_ylabel("density", fontsize=9)
    for axes in list(grid.flat)[len(confidences) :]:
        axes.set_visible(False)
    return figure


def mirrored_density(
    values: NDArray[np.float64], x: NDArray[np.float64], low: float, high: float = 1.0
) -> NDArray[np.float64]:
    """Kernel density estimate on an interval, mirrored at both ends so that no mass leaks out of it.

    The values are first counted in a thousand bins, much narrower than the kernel (Scott's bandwidth).
    """
    count, edges = np.histogram(values, 1000, (low, high))
    kernel = gaussian_kde((edges[1:] + edges[:-1]) / 2, bw_method=values.size**-0.2, weights=count)
    density: NDArray[np.float64] = kernel(x) + kernel(2 * low - x) + kernel(2 * high - x)
    return density


EXPERIMENT = Experiment(
    "confidence-histograms",
    "how sure each likelihood is before any data (histograms of the largest probability)",
    needs_data=False,
    run=run,
)
