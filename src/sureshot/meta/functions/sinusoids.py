"""Sinusoids of random amplitude and phase, the functions of Finn, Abbeel & Levine (2017), with a little noise."""

from __future__ import annotations

import math

import torch

from sureshot.meta.functions.gaussian import uniform_inputs
from sureshot.meta.functions.source import FunctionRows, FunctionSource, checked_range


class Sinusoids(FunctionSource):
    """``a sin(x - b)``, a and b uniform."""

    input_width, target_width, reaches_beyond = 1, 1, True

    def __init__(
        self,
        amplitude: tuple[float, ...] = (0.1, 5.0),
        phase: tuple[float, ...] = (0.0, math.pi),
        inputs: tuple[float, ...] = (-5.0, 5.0),
        noise: float = 0.05,  # standard deviation; none in the paper, where densities have no bound
    ) -> None:
        self._ranges = checked_range("amplitude", amplitude), checked_range("phase", phase)
        self.inputs, self.noise = checked_range("inputs", inputs), noise
        if not 0 <= noise < math.inf:
            raise ValueError(f"noise must be a standard deviation, got {noise}")
        self.identity = f"sinusoids {self._ranges} {self.inputs} {noise}"

    def rows(self, n_tasks: int, n_rows: int, generator: torch.Generator, beyond: bool) -> FunctionRows:
        amplitude, phase = (
            low + (high - low) * torch.rand(n_tasks, 1, 1, generator=generator, dtype=torch.float64)
            for low, high in self._ranges
        )
        x = uniform_inputs((n_tasks, n_rows), self.inputs, generator, beyond)
        noise = self.noise * torch.randn(x.shape, generator=generator, dtype=torch.float64)
        return FunctionRows(x, amplitude * (x - phase).sin() + noise, torch.full((n_tasks, 1), n_rows))
