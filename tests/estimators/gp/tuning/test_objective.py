"""Nothing in tuning but its objective knows what targets are: numbers are tuned by a log density of a few lines."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pytest
import torch
from torch import Tensor

from sureshot.estimators.gp.model import LEAST_SQUARES, Model
from sureshot.estimators.gp.options import named_family
from sureshot.estimators.gp.tuning.choose import Choice, tune
from sureshot.estimators.gp.tuning.local_learning import learn
from sureshot.estimators.gp.tuning.objective import LeftOutLatents, Objective
from sureshot.estimators.rows.support import Support
from sureshot.inference.schemes import Conditioned, Request
from sureshot.kernels import evaluate
from sureshot.likelihoods.base import PredictiveRule
from sureshot.likelihoods.local_link import LocalLink

NAMES = ("rbf", "matern12", "linear")
N_ROWS, NOISE = 160, 0.05


@dataclass(frozen=True)
class Numbers(Support):
    """Rows with a real target."""

    numbers: Tensor = field(kw_only=True)  # (N,)

    @cached_property
    def targets(self) -> tuple[Tensor, Tensor]:
        return self.numbers[None], self.numbers.mean()[None]

    @property
    def varies(self) -> bool:
        return bool(self.numbers.std() > 0)

    def folds(self, n_folds: int = 5) -> Tensor:
        return torch.arange(len(self.numbers)) % n_folds

    def part(self, rows: Tensor) -> Numbers:
        return numbers(self.x[rows], self.numbers[rows])


@dataclass(frozen=True)
class NumberLink(LocalLink):
    """Normal, with a variance that is a multiple of the regression's."""

    start, spread = (math.log(0.5),), (1.0,)
    numbers: Tensor  # (N,)

    def targets(self, place: Tensor) -> Tensor:
        return self.numbers[place].unsqueeze(-1)

    @property
    def width(self) -> int:
        return 1

    def log_density(self, parameters: Tensor, mean: Tensor, variance: Tensor, noise: Tensor, place: Tensor) -> Tensor:
        deviation = (parameters[0] * (variance + 0.1)).sqrt()
        return torch.distributions.Normal(mean[:, 0], deviation).log_prob(self.numbers[place].float())


class LogDensity(Objective):
    """Of normal predictions."""

    regression = LEAST_SQUARES

    def condition(self, model: Model, features: Tensor, rows: Support, request: Request) -> Conditioned:
        raise NotImplementedError("least squares needs no search step by step")

    def score(
        self, model: Model, rule: PredictiveRule, latents: LeftOutLatents, rows: Support, usual_temperature: float
    ) -> tuple[Tensor, Tensor]:
        variance = latents.variance + latents.noise[:, None, None]
        density = -0.5 * ((rows.targets[0] - latents.mean).square() / variance + (2 * math.pi * variance).log())
        return torch.ones_like(latents.noise), density.sum(1)

    def local_link(self, rows: Support) -> LocalLink:
        return NumberLink(rows.targets[0][0] - rows.targets[1][0])

    def targets_look_random(self, latent: Tensor, rows: Support) -> bool:
        return False


def numbers(x: Tensor, of_rows: Tensor) -> Numbers:
    ones = torch.ones_like(of_rows)
    return Numbers(x, torch.zeros(len(x), dtype=torch.int64), ones, 1, ones, ones, numbers=of_rows)


def smooth_and_noise(n_noise: int) -> Numbers:
    """A wave along the first column, beside columns that say nothing."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, (N_ROWS, 1 + n_noise))
    return numbers(
        torch.from_numpy(x), torch.from_numpy(np.sin(2 * x[:, 0]) + math.sqrt(NOISE) * rng.normal(size=N_ROWS))
    )


def tuned(rows: Numbers, average: bool, relevance: bool = False) -> tuple[Choice, ...]:
    families = tuple(replace(named_family(name, rows), per_column=name == "rbf") for name in NAMES)
    objective = LogDensity("plug_in")
    return tune(rows, families, (LEAST_SQUARES,), objective, np.random.default_rng(0), None, average, relevance)


def test_the_best_kernel_of_numbers_is_chosen_by_their_density() -> None:
    """Scores are those of the Gaussian process without each row, by arithmetic of its own."""
    rows = smooth_and_noise(0)
    (chosen,) = tuned(rows, average=False)
    (target,), (mean,) = rows.targets
    gram = evaluate(chosen.kernel, rows.x) + chosen.model.noise * torch.eye(N_ROWS)
    expected = 0.0
    for row in range(N_ROWS):
        rest = torch.arange(N_ROWS) != row
        solved = torch.linalg.solve(gram[rest][:, rest], torch.stack([gram[rest, row], target[rest] - mean], 1))
        predictive = mean + gram[row, rest] @ solved[:, 1], gram[row, row] - gram[row, rest] @ solved[:, 0]
        expected += float(torch.distributions.Normal(predictive[0], predictive[1].sqrt()).log_prob(target[row]))
    assert chosen.score * N_ROWS == pytest.approx(expected, rel=1e-8)
    assert 0.5 < chosen.model.noise / NOISE < 2
    linear = evaluate(named_family("linear", rows).build(1.0), rows.x)
    assert not torch.allclose(evaluate(chosen.kernel, rows.x) / chosen.kernel.outputscale, linear)


def test_numbers_are_averaged_and_their_columns_weighed() -> None:
    rows = smooth_and_noise(5)
    found = tuned(rows, average=True, relevance=True)
    assert sum(setting.weight for setting in found) == pytest.approx(1)
    weights = found[0].relevance
    assert weights is not None
    assert float(weights[0]) > 2 * float(weights[1:].max())


def test_length_scales_of_numbers_are_learnt_by_nearest_rows() -> None:
    """The column that makes the wave gets the shortest, and noise is about what it is relative to the wave."""
    learnt = learn("rbf", smooth_and_noise(3), LogDensity("plug_in"), 20, seed=0, steps=60)
    assert float(learnt.lengthscale[0]) < 0.5 * float(learnt.lengthscale[1:].min())
    assert 0.02 < learnt.noise < 0.5
