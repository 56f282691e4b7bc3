"""GPyTorch's parameter constraints as data, for saving kernels.

A kernel's raw parameter means nothing without the transform that its constraint applies to it, so a
constraint other than the default `Positive` is part of a kernel's configuration: class, bounds and transform.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import Tensor

# Bounds that each class takes.
_CLASSES: dict[str, tuple[type[Interval], tuple[str, ...]]] = {
    "Positive": (Positive, ()),
    "GreaterThan": (GreaterThan, ("lower_bound",)),
    "LessThan": (LessThan, ("upper_bound",)),
    "Interval": (Interval, ("lower_bound", "upper_bound")),
}
_TRANSFORMS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "softplus": (torch.nn.Softplus(), inv_softplus),
    "sigmoid": (torch.sigmoid, inv_sigmoid),
    "exp": (torch.exp, torch.log),
}


def constraint_config(owner: str, constraint: Interval) -> dict[str, Any] | None:
    """The constraint as JSON-serialisable data, or None for the default, `Positive` with softplus.

    A class, transform or bounds that cannot be written down are a ValueError, which names `owner`, the kernel's class.
    """
    name = type(constraint).__name__
    transform = _transform_name(constraint)
    if name not in _CLASSES or type(constraint) is not _CLASSES[name][0] or transform is None:
        raise ValueError(
            f"the {owner} has a constraint ({name}) of a class or transform that a model file cannot hold: "
            f"use {', '.join(_CLASSES)} with the transform {', '.join(_TRANSFORMS)}."
        )
    if name == "Positive" and transform == "softplus":
        return None
    config: dict[str, Any] = {"class": name, "transform": transform}
    for bound in _CLASSES[name][1]:
        value = getattr(constraint, bound)
        if value.numel() != 1:
            raise ValueError(f"the {owner} has a constraint with one bound per feature: use a single bound.")
        config[bound] = value.item()
    return config


def constraint_from_config(config: Any) -> Interval:
    """Build a constraint from what `constraint_config` wrote; malformed data are a ValueError."""
    if not isinstance(config, Mapping):
        raise ValueError(f"a kernel's constraint must be a mapping, got {config!r}.")
    name, transform = config.get("class"), config.get("transform")
    if not isinstance(name, str) or name not in _CLASSES:
        raise ValueError(f"unknown constraint {name!r}: expected one of {', '.join(_CLASSES)}.")
    if not isinstance(transform, str) or transform not in _TRANSFORMS:
        raise ValueError(f"unknown transform {transform!r}: expected one of {', '.join(_TRANSFORMS)}.")
    kind, needed = _CLASSES[name]
    if set(config) != {"class", "transform", *needed}:
        raise ValueError(f"a {name} constraint needs the bounds {list(needed)}, got {sorted(config)}.")
    bounds = {bound: _bound(config[bound]) for bound in needed}
    if len(bounds) == 2 and bounds["lower_bound"] >= bounds["upper_bound"]:
        raise ValueError(f"a constraint's lower bound must be below its upper bound, got {bounds}.")
    forward, inverse = _TRANSFORMS[transform]
    constraint = kind(**bounds, transform=forward, inv_transform=inverse)
    for bound, value in bounds.items():
        # The constructor rounds bounds to the default dtype.
        setattr(constraint, bound, torch.tensor(value, dtype=torch.float64))
    return constraint


def _bound(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"a constraint's bound must be a finite number, got {value!r}.")
    return float(value)


def _transform_name(constraint: Interval) -> str | None:
    transform = constraint._transform
    if isinstance(transform, torch.nn.Softplus):
        return "softplus" if transform.beta == 1 else None
    for name, (forward, _) in _TRANSFORMS.items():
        if transform is forward:
            return name
    return None
