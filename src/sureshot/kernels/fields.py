"""What the fields of a kernel are: parameters of two shapes, constants, settings, parts.

Everything that does not depend on a kernel's formula (its parameters by name, JSON, printing, comparison, conversion to
and from GPyTorch) follows from the roles that are declared here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Role:
    """What a field is: scalars and columns are parameters, a vector is a constant, settings are plain values."""

    kind: Literal["scalar", "columns", "vector", "setting", "part", "parts"]
    natural: Callable[[int], float] | None = None  # where a parameter starts on standardised rows of a width; 1 without
    upper: float = math.inf  # the largest value of a parameter; all are positive
    trailing: int = 1  # dimensions that GPyTorch has for a scalar behind those of the batch
    check: Callable[[Any, str], Any] | None = None  # gives the value of a setting or raises a ValueError

    @property
    def is_parameter(self) -> bool:
        """Whether it can be learned."""
        return self.kind in ("scalar", "columns")

    def value(self, value: Any, owner: str, name: str) -> Any:
        """What the field holds when it is given `value`: numbers are checked, tensors are taken as they are."""
        if self.check is not None:
            return self.check(value, name)
        if self.kind == "parts":
            if not value:
                raise ValueError("a sum or product of kernels must have at least one part.")
            return tuple(value)
        if self.kind == "part" or (self.kind == "vector" and value is None):
            return value
        if not isinstance(value, Tensor):
            value = self._tensor(value, f"{owner}'s {name}")
        if self.kind == "vector" and value.ndim == 0:
            raise ValueError(f"{owner}'s {name} must be a list of numbers, one for each column, got one number.")
        return value.unsqueeze(0) if self.kind == "columns" and value.ndim == 0 else value

    def _tensor(self, value: Any, what: str) -> Tensor:
        """A number or nested lists of numbers as a tensor."""
        try:
            array = np.asarray(value)
        except ValueError:
            array = np.asarray(None)
        if array.dtype.kind not in "fiu" or not array.size or not np.isfinite(array).all():
            raise ValueError(f"{what} must be finite numbers in lists of equal lengths, got {value!r}."[:300])
        if self.is_parameter and not ((array > 0) & (array <= self.upper)).all():
            upper = "" if math.isinf(self.upper) else f" and at most {self.upper:g}"
            raise ValueError(f"{what} must be positive{upper}, got {value!r}."[:300])
        return torch.tensor(array, dtype=torch.float64)


def scalar(*, upper: float = math.inf, trailing: int = 1, **default: Any) -> Any:
    """A positive parameter (...)."""
    return field(metadata={"role": Role("scalar", upper=upper, trailing=trailing)}, **default)


def columns(*, natural: Callable[[int], float] | None = None, **default: Any) -> Any:
    """A positive parameter for each column (..., D), or for all of them (..., 1)."""
    return field(metadata={"role": Role("columns", natural)}, **default)


def vector(**default: Any) -> Any:
    """A constant (D,), or None."""
    return field(metadata={"role": Role("vector")}, **default)


def setting(check: Callable[[Any, str], Any], **default: Any) -> Any:
    """A plain value of the formula, such as a degree."""
    return field(metadata={"role": Role("setting", check=check)}, **default)


def part() -> Any:
    """The one kernel that another is made of."""
    return field(metadata={"role": Role("part")})


def parts() -> Any:
    """The kernels that another is made of, at least one."""
    return field(metadata={"role": Role("parts")})


def format_value(value: Any) -> str:
    """The value of a field as it is printed."""
    if isinstance(value, Tensor):
        if value.numel() == 1:
            return f"{value.item():.3g}"
        if value.numel() > 6:
            return f"[{value.min().item():.3g} ... {value.max().item():.3g}, {' x '.join(map(str, value.shape))}]"
        return str(np.round(value.detach().cpu().double().numpy(), 3).tolist())
    return f"{value:g}" if isinstance(value, float) else str(value)


def same_value(first: Any, second: Any) -> bool:
    """Whether two values of a field are the same; NaN equals nothing."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    return type(first) is type(second) and bool(first == second)
