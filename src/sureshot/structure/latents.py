"""What represents the latents of particles: the interface that everything else asks.

Two representations are exact, and target the same posterior over kernels; the third does so with kernels that are seen
through inducing inputs:

- `sureshot.structure.collapsed`, the default: Polya-Gamma variables, given which the latents are integrated out;
- `sureshot.structure.whitened`, the paper's: standard normal variables that the kernel's root turns into latents;
- `sureshot.structure.sparse`: Polya-Gamma variables, given which weights of features are integrated out.

Targets that are numbers need no variables: `sureshot.structure.numbers`.

What a particle keeps while its kernel changes (omega, or eta) is its variables; all else follows from them and the
prior covariance S of the contrasts under its kernel: a tensor for the exact ones, for the third what has its place, the
`Features` of rows with the places of the contrasts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from sureshot.structure.links import LOGISTIC, Link


@dataclass(frozen=True)
class Latents(ABC):
    """Of M particles with P contrasts; the particles lead in all tensors."""

    link: Link = field(default=LOGISTIC, kw_only=True)  # what turns latents into probabilities

    @property
    @abstractmethod
    def variables(self) -> dict[str, Tensor]:
        """What all else follows from, with the covariance, by name."""

    @abstractmethod
    def restored(self, variables: Mapping[str, Tensor]) -> Self:
        """With `variables` as they were; ValueError for values out of range. `given` makes the rest."""

    @property
    @abstractmethod
    def log_likelihood(self) -> Tensor:
        """Of each kernel given the variables, in nats (M,), up to what does not depend on the kernel."""

    @abstractmethod
    def first(self, n: int) -> Self:
        """Of the first n data only; for the third representation `given` makes what follows from them."""

    @property
    def parts(self) -> dict[str, Any]:
        """All tensors, by name."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def chosen(self, places: Sequence[int] | Tensor | slice) -> Self:
        """Those of some particles, as often as they are named; a copy, except of a slice."""
        return replace(self, **{name: part[places] for name, part in self.parts.items()})

    def joined(self, parts: Sequence[Self]) -> Self:
        """Those of all parts, in their order."""
        merged: dict[str, Any] = {name: torch.cat([one.parts[name] for one in parts]) for name in self.parts}
        return replace(self, **merged)

    def put(self, places: Sequence[int], others: Self, rows: Sequence[int]) -> None:
        """Take over the given rows of others in some places. Changes this object."""
        for name, mine in self.parts.items():
            for place, row in zip(places, rows, strict=True):
                mine[place] = others.parts[name][row]

    def told(self, y: Tensor) -> Self:
        """Knowing the targets (B,) of the data that come next, where they are numbers: labels are said by contrasts."""
        return self

    @abstractmethod
    def given(
        self,
        places: Sequence[int],
        covariance: Any,  # (len(places), P, P), S of other kernels
        out: Tensor | None = None,  # as covariance, where to put the factor
    ) -> Self:
        """With the variables of some particles, and other kernels."""

    @abstractmethod
    def extended(
        self,
        cross: Any,  # (M, P, B), prior covariances of the data so far with new ones
        corner: Any,  # (M, B, B), of the new ones
        generator: torch.Generator,
    ) -> tuple[Self, Tensor]:
        """With new data, and the logarithms of the weights (M, B) that they have one after another.

        What is drawn for one does not depend on those behind it.
        """

    @abstractmethod
    def without(
        self,
        kept: Tensor,  # (P,) bool
        covariance: Any,  # (M, P, P), S
        left: Any,  # of those that are kept, classes numbered as they will be
    ) -> tuple[Self, Tensor]:
        """With some data only, and the logarithms of the weights (M,) of never having seen the others."""

    @abstractmethod
    def refreshed(
        self,
        covariance: Any,  # (M, P, P), S
        generator: torch.Generator,
    ) -> Self:
        """With the variables moved, so that their posterior under each kernel is kept."""
