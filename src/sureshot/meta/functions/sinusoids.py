"""Sinusoids ``a sin(x - b)``, a from 0.1 to 5 and b from 0 to pi (Finn, Abbeel & Levine 2017), with a little noise."""

from __future__ import annotations

import math

import torch

from sureshot.meta.functions.source import FunctionRows, FunctionSource, checked_range, uniform_inputs


class Sinusoids(FunctionSource):
    """See the module."""

    input_width, target_width = 1, 1
    inputs: tuple[float, float]

    def __init__(
        self,
        inputs: tuple[float, ...] = (-5.0, 5.0),
        noise: float = 0.05,  # standard deviation; none in the paper, where densities have no bound
    ) -> None:
        self.inputs, self.noise = checked_range("inputs", inputs, positive=False), noise
        if not 0 <= noise < math.inf:
            raise ValueError(f"noise must be a standard deviation, at least 0, got {noise}")
        self.identity = f"sinusoids on {self.inputs}, noise {noise:g}"

    def rows(self, n_tasks: int, n_rows: int, generator: torch.Generator, beyond: bool) -> FunctionRows:
        share = torch.rand(2, n_tasks, 1, 1, generator=generator, dtype=torch.float64)
        amplitude, phase = 0.1 + 4.9 * share[0], math.pi * share[1]
        x = uniform_inputs(n_tasks, n_rows, self.inputs, generator, beyond)
        noise = self.noise * torch.randn(x.shape, generator=generator, dtype=torch.float64)
        return FunctionRows(x, amplitude * (x - phase).sin() + noise, torch.full((n_tasks, 1), n_rows))
