"""Approximations by name, and what models keep of them beside the kernel."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sureshot.approximations.base import Finite
from sureshot.approximations.random_features import FeatureMap
from sureshot.kernels import Expression
from sureshot.members import members

BY_NAME: dict[str, type[Finite]] = members(Finite, "sureshot.approximations")
FEATURE_MAPS = tuple(name for name, kind in BY_NAME.items() if issubclass(kind, FeatureMap))


@dataclass(frozen=True)
class Parts:
    """Of an approximation, but for its kernel."""

    name: str
    arrays: dict[str, Tensor]
    learnt: bool = False  # by rows, whose left-out predictions have seen themselves then

    @classmethod
    def of(cls, name: str, basis: Finite, learnt: bool = False) -> Parts:
        """Its tensors."""
        return cls(name, {key: part for key, part in vars(basis).items() if isinstance(part, Tensor)}, learnt)

    def under(self, kernel: Expression) -> Finite:
        """The approximation of a kernel."""
        return BY_NAME[self.name](kernel, **self.arrays)
