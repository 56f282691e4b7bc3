"""What a search over kernels has found, whatever the targets are: batches, particles, a posterior over structures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.layout import aligned
from sureshot.estimators.rows.labelled_rows import LabelledRows, merged_rows
from sureshot.estimators.rows.preprocessing import Scaling, kernel_inputs, within_range
from sureshot.kernels import Expression
from sureshot.structure.canonical import canonical
from sureshot.structure.smc import SmcState
from sureshot.structure.structure import Structure

_FARTHEST = 1e6  # of a kernel input: products of sixteen leaves are numbers still


@dataclass(frozen=True)
class SearchStep:
    """What a batch did, in JSON values."""

    n_rows: int  # behind it
    effective_sample_sizes: tuple[float, ...]  # before resampling, of each part of the batch
    ancestors: tuple[int, ...]  # of each particle, its place before the batch
    resampled: bool
    acceptance: dict[str, float]  # by kind of move
    log_evidence: float
    structures: tuple[tuple[float, str], ...]  # mass and structure, heaviest first
    waits: bool = False  # whether the rows behind it are of one class, and structures those of the prior


@dataclass(frozen=True)
class WeightedKernel:
    """A particle as a user sees it."""

    weight: float
    structure: str
    kernel: Expression  # of standardised columns
    nugget: float  # variance that belongs to a row alone


Callback = Callable[[SearchStep], Any]


class Searched:
    """The part of a `Fitted` whose predictor has a state and a scaling."""

    predictor: Any
    steps: tuple[SearchStep, ...]
    rows: LabelledRows
    reader: Any
    columns: Any

    @property
    def state(self) -> SmcState:
        """Of the particles."""
        return self.predictor.state

    @property
    def scaling(self) -> Scaling:
        """Of columns."""
        return self.predictor.scaling

    @property
    def distinct_rows(self) -> LabelledRows:
        return self._merged[0]

    @cached_property
    def _merged(self) -> tuple[LabelledRows, np.ndarray]:
        """Rows that differ, and where among them each row is, (N,)."""
        return merged_rows(self.rows)

    @property
    def kernel_columns(self) -> list[str]:
        """Names of the columns as kernels number them, from 0: those that vary, as the encoder makes them."""
        names = self.reader.names_of(self.columns)
        return [f"column {place}" if names is None else names[place] for place in self.scaling.kept.tolist()]

    @property
    def kernel_posterior(self) -> list[tuple[float, str]]:
        """Mass and canonical structure, heaviest first."""
        return posterior_of(self.state)

    @property
    def particles(self) -> list[WeightedKernel]:
        """All particles, heaviest first."""
        state, found = self.state, list[WeightedKernel]()
        weights = state.log_weights.exp()
        for i in order_of(state).tolist():
            structure, z = state.particles.structures[i], state.particles.z[i]
            kernel = state.prior.kernel(structure, z[1:])
            found.append(WeightedKernel(float(weights[i]), str(structure), kernel, float(state.prior.nugget(z[0]))))
        return found

    @property
    def ess_history(self) -> list[float]:
        """Effective sample sizes after each batch, before resampling."""
        return [size for step in self.steps for size in step.effective_sample_sizes]

    @property
    def learnt(self) -> LabelledRows:
        """A row and its copies are one."""
        return self.distinct_rows

    def _sets(self, place: Tensor, share: Tensor) -> list[Tensor]:
        """Numbers of the rows that leave together; those of one place are not the same while there are others."""
        copies: dict[int, list[int]] = {}
        for number, merged in enumerate(self._merged[1].tolist()):
            copies.setdefault(merged, []).append(number)
        begins, found = dict.fromkeys(copies, 0), []
        for merged, part in zip(place.tolist(), share.tolist(), strict=True):
            of_place = copies[merged]
            count, begin = max(1, round(part * len(of_place))), begins[merged]
            found.append(torch.tensor([of_place[(begin + k) % len(of_place)] for k in range(count)]))
            begins[merged] = begin + count
        return found


def order_of(state: SmcState) -> Tensor:
    """Places of the particles (M,), heaviest first."""
    return state.log_weights.exp().argsort(descending=True, stable=True)


def posterior_of(state: SmcState) -> list[tuple[float, str]]:
    """Mass and canonical structure, heaviest first."""
    mass: dict[Structure, float] = {}
    for structure, weight in zip(state.particles.structures, state.log_weights.exp().tolist(), strict=True):
        form = canonical(structure)
        mass[form] = mass.get(form, 0.0) + weight
    total = sum(mass.values())
    return sorted(((value / total, str(form)) for form, value in mass.items()), key=lambda pair: (-pair[0], pair[1]))


def inputs_of(kept: np.ndarray, scaling: Scaling) -> Tensor:
    """What kernels see of rows."""
    x = kernel_inputs(kept, scaling, torch.device("cpu"))
    return aligned(within_range(x.numpy(), _FARTHEST))
