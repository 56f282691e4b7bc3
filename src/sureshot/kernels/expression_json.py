"""Expressions from JSON; `Expression.to_json` writes them.

>>> from sureshot.kernels import RBF
>>> (2.0 * RBF(0.5)).to_json()
{'kernel': 'Scale', 'outputscale': 2.0, 'base_kernel': {'kernel': 'RBF', 'lengthscale': [0.5]}}
>>> print(kernel_from_json({"kernel": "Scale", "outputscale": 2, "base_kernel": {"kernel": "RBF"}}))
2 x RBF(1)

Only registered kinds of kernels are built, and their fields are checked as when they are constructed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from sureshot.kernels import checks
from sureshot.kernels.dense import GPyTorchKernel
from sureshot.kernels.expression import KINDS, Expression


def kernel_from_json(config: Any, dtype: torch.dtype = torch.float64) -> Expression:
    """The kernel that `Expression.to_json` wrote, its tensors of `dtype`; fields may be left at their defaults.

    Malformed data and unknown kernels are a ValueError.
    """
    checks.limit_parts(config, "kernel")
    return _read(config).to(dtype)


def _read(config: Mapping[str, Any]) -> Expression:
    known = {name: kind for name, kind in KINDS.items() if kind is not GPyTorchKernel}
    kind = known.get(config["kernel"])
    if kind is None:
        raise ValueError(f"unknown kernel {config['kernel']!r}: expected one of {', '.join(sorted(known))}.")
    checks.only_keys(config, {"kernel", *kind.roles}, {"kernel"})
    values: dict[str, Any] = {}
    for name, role in kind.roles.items():
        if name not in config:
            continue
        if role.kind == "part":
            values[name] = _read(config[name])
        elif role.kind == "parts":
            values[name] = tuple(_read(item) for item in checks.listing(config[name], name))
        else:
            values[name] = config[name]
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"malformed kernel configuration: {error}") from error
