"""What the page `gp-basics` is made of: one function seen with noise, and what is computed from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.distributions import Normal

from experiments.gp_basics_figures import LINES, Rows, Scores, Stage, Views
from experiments.gp_posteriors import Answer, Budget, Moments, Task, basis_of, exact_answer, learnt_answer
from sureshot.approximations.base import Finite
from sureshot.approximations.exact import Exact
from sureshot.approximations.explicit import Explicit
from sureshot.gaussian.sites import Sites
from sureshot.inference.least_squares import leave_one_out_by_factors, regression_sites
from sureshot.kernels import Expression, Scale, preset_kernel

REACH, SHOWN, FAR = 3.0, 5.0, 12.0
"""Labelled rows are within the first of 0, panels show as much as the second, tables as much as the third."""
GAP = (0.3, 1.5)  # where no rows are
STEP = 0.02  # of the grid that rows are on
FEW = (2, 7)  # rows of a posterior


@dataclass(frozen=True)
class Settings:
    """Settings of the page."""

    n_rows: int = 40
    lengthscale: float = 0.6  # of the RBF kernel that the function is drawn from; its amplitude is 1
    noise: float = 0.2  # deviation
    n_inducing: int = 6
    n_features: int = 30  # of frequencies, twice as many as these
    n_neighbours: int = 8
    steps: int = 150  # of evidence, at most
    inducing_counts: tuple[int, ...] = (3, 4, 5, 6, 8, 10, 12, 15)
    frequency_counts: tuple[int, ...] = (2, 4, 8, 16, 32)
    draws: int = 5  # of frequencies, of which scores are the mean
    samples: int = 20_000  # functions, of which covariances are computed
    seed: int = 1

    def __post_init__(self) -> None:
        if self.n_rows < 2 * max(FEW):
            raise ValueError(f"n_rows must be at least {2 * max(FEW)}, but it is {self.n_rows}")


class Data(NamedTuple):
    """One function, seen with noise."""

    task: Task
    x_test: Tensor  # (M, 1), rows within the same range
    y_test: Tensor  # (M,)

    @property
    def rows(self) -> Rows:
        """The labelled ones."""
        return Rows(self.task.x[:, 0].numpy(), self.task.y.numpy())


def rbf(lengthscale: float, amplitude: float = 1.0) -> Scale:
    """With no constant."""
    kernel = preset_kernel("rbf", 1, constant=False, lengthscale=lengthscale, outputscale=amplitude**2)
    assert isinstance(kernel, Scale)
    return kernel


def grid(reach: float, step: float = 0.025) -> Tensor:
    """Inputs (Q, 1) around 0."""
    half = round(reach / step)
    return step * torch.arange(-half, half + 1, dtype=torch.float64)[:, None]


def seeded(seed: int) -> torch.Generator:
    """Of random numbers."""
    return torch.Generator().manual_seed(seed)


def drawn(kernel: Expression, x: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Functions (S, Q) from a kernel's matrix."""
    prior = Exact(kernel, x).prior(x, x.new_zeros(()))
    return prior.sample(torch.Size([count]), generator)


def made(settings: Settings, n_test: int = 300) -> Data:
    """Rows of a grid on both sides of the gap, and test rows everywhere between them."""
    generator = seeded(settings.seed)
    free = 2 * REACH - (GAP[1] - GAP[0])
    x = free * torch.rand(settings.n_rows, 1, dtype=torch.float64, generator=generator) - REACH
    x = torch.where(x > GAP[0], x + GAP[1] - GAP[0], x)
    x = STEP * (x / STEP).round()
    x_test = 2 * REACH * torch.rand(n_test, 1, dtype=torch.float64, generator=generator) - REACH
    kernel, every = rbf(settings.lengthscale), torch.cat([x, x_test])
    y = drawn(kernel, every, 1, generator)[0]
    y = y + settings.noise * torch.randn(y.shape, dtype=y.dtype, generator=generator)
    task = Task(kernel, settings.noise**2, x, y[: len(x)])
    return Data(task, x_test, y[len(x) :])


def views(settings: Settings, x: Tensor) -> tuple[tuple[Views, ...], pd.DataFrame]:
    """Models that are linear in features: their draws both ways, and how far covariances are apart."""
    found, records = [], []
    for name, preset in (("straight lines", "linear"), ("parabolas", "polynomial2")):
        generator = seeded(settings.seed)
        kernel = preset_kernel(preset, 1)
        by_weights = Explicit(kernel).prior(x, x.new_zeros(()))
        by_kernel = Exact(kernel, x).prior(x, x.new_zeros(()))
        gram, features = by_kernel.gram, by_weights.features
        samples = [prior.sample(torch.Size([settings.samples]), generator) for prior in (by_weights, by_kernel)]
        covariances = [sample.mT @ sample / len(sample) for sample in samples]
        one = int((x[:, 0] - 1).abs().argmin())
        found.append(
            Views(
                name,
                samples[0][: len(LINES)].numpy(),
                samples[1][: len(LINES)].numpy(),
                gram[:, one].numpy(),
                (covariances[0][:, one].numpy(), covariances[1][:, one].numpy()),
            )
        )
        records.append(
            {
                "model": name,
                "features": features.shape[-1],
                "kernel": "1 + x x'" if preset == "linear" else "(1 + x x')^2",
                "features' products less kernel": f"{float((features @ features.mT - gram).abs().max()):.0e}",
                "weights' draws": float((covariances[0] - gram).norm() / gram.norm()),
                "kernel's draws": float((covariances[1] - gram).norm() / gram.norm()),
            }
        )
    return tuple(found), pd.DataFrame(records)


def stages(data: Data, x: Tensor, seed: int) -> list[Stage]:
    """Band and draws of the prior, and of posteriors of a few rows."""
    kernel, noise = data.task.kernel, data.task.noise
    order = torch.randperm(len(data.task.y), generator=seeded(seed))
    found = []
    for count in (0, *FEW):
        some = order[:count]
        rows_x, rows_y = data.task.x[some], data.task.y[some]
        every = torch.cat([rows_x, x])  # those without a label have no precision
        seen = regression_sites(rows_y[None], None, noise)
        sites = Sites(*(torch.cat([part, part.new_zeros(1, len(x))], 1) for part in seen))
        prior = Exact(kernel, every).prior(every, x.new_zeros(()))
        posterior = prior.condition(sites)
        moments = Moments(posterior.mean[0, count:].numpy(), posterior.variance[0, count:].sqrt().numpy())
        generator, sampler = seeded(seed), prior.sampler()
        draws = torch.cat([prior.draw(sites, generator, sampler) for _ in range(5)])[:, count:]
        title = "prior" if count == 0 else f"given {count} rows"
        found.append(Stage(title, moments, draws.numpy(), Rows(rows_x[:, 0].numpy(), rows_y.numpy())))
    return found


def scored(task: Task, lengthscales: Tensor) -> Scores:
    """Evidence in its terms and left-out rows, by the length-scale; amplitude and noise stay."""
    terms = []
    ratio, n = torch.tensor([task.noise], dtype=task.x.dtype) / task.kernel.outputscale, len(task.y)
    for lengthscale in lengthscales.tolist():
        gram = rbf(lengthscale)(task.x)
        (found,) = leave_one_out_by_factors(gram, *task.rows[1:], ratio, torch.ones_like(task.y))
        variance = float(task.kernel.outputscale) * (found.variance + ratio)
        left_out = Normal(found.latent[0], variance.sqrt()).log_prob(task.y).sum()
        fit = -0.5 * found.fit / float(task.kernel.outputscale)
        complexity = -0.5 * (found.log_det + n * float(np.log(2 * np.pi * task.noise)))
        terms.append((fit, complexity, float(left_out)))
    return Scores(lengthscales.numpy(), *np.array(terms).T)


def compared(task: Task, found: Mapping[str, Answer], data: Data) -> pd.DataFrame:
    """How far moments are from the exact ones, and evidence beside the exact one of the same noise."""
    x = grid(FAR)
    inside = (x[:, 0].abs() <= REACH).numpy()
    exact = exact_answer(task)
    records = []
    for name, answer in {"exact": exact, **found}.items():
        apart = [np.abs(ours - theirs) for ours, theirs in zip(answer.at(x), exact.at(x), strict=True)]
        records.append(
            {
                "approximation": name,
                "mean, inside": apart[0][inside].max(),
                "mean, outside": apart[0][~inside].max(),
                "deviation, inside": apart[1][inside].max(),
                "deviation, outside": apart[1][~inside].max(),
                "deviation at the end": answer.at(x[-1:]).deviation[0],
                "noise": answer.noise**0.5,
                "evidence": answer.evidence,
                "exact evidence": exact_answer(replace(task, noise=answer.noise)).evidence,
                "left-out rows": answer.left_out,
                "other rows": answer.log_density(data.x_test, data.y_test),
            }
        )
    return pd.DataFrame(records)


def evenly(count: int) -> Tensor:
    """Inducing inputs (M, 1) over the labelled rows."""
    return torch.linspace(-REACH, REACH, count, dtype=torch.float64)[:, None]


def sparse_spectra(settings: Settings, data: Data) -> tuple[pd.DataFrame, Answer]:
    """Scores of frequencies as they are drawn and learnt, by their number, and one answer of the most."""
    records, last = [], None
    for count in settings.frequency_counts:
        scores = []
        for seed in range(settings.draws):
            basis = basis_of("ssgp", data.task, Budget(evenly(1), 2 * count, 1, seed))
            last = learnt_answer(data.task, basis, settings.steps, seed)
            scores.append(scores_of(last, data))
        mean = np.mean(scores, 0)
        records.append(
            {"frequencies": count, **dict(zip(("evidence", "left-out rows", "other rows"), mean, strict=True))}
        )
    assert last is not None
    return pd.DataFrame(records), last


def scores_of(answer: Answer, data: Data) -> tuple[float, float, float]:
    """In nats a row."""
    fresh = answer.log_density(data.x_test, data.y_test)
    return answer.evidence / len(data.task.y), answer.left_out, fresh


def covariance_from_zero(basis: Finite, x: Tensor) -> np.ndarray:
    """Of functions of features at 0 and at inputs (Q, 1), (Q,)."""
    features = basis.features(torch.cat([torch.zeros_like(x[:1]), x]))
    found: np.ndarray = (features[1:] @ features[0]).numpy()
    return found
