"""The arguments of `TreeGPClassifier`, and the strategy that they stand for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from sureshot.estimators.arguments import check_choice, check_count
from sureshot.incremental.gaussian_classes import GaussianClasses
from sureshot.incremental.strategy import Strategy
from sureshot.incremental.tree_sessions import (
    KERNELS,
    TreeConstruction,
    TreeInference,
    TreeSessions,
    TreeStrategyName,
)

RECOMMENDED = "recommended"
STRATEGIES = (RECOMMENDED, *get_args(TreeStrategyName))

TREE_PRESETS: dict[str, dict[str, Any]] = {
    "released": {
        "strategy": "shared_root",
        "n_representatives": 5,
        "kernel": "unit_rbf",
        "inference": "auto",
        "base_scale": 4.0,
        "novel_scale": 8.0,
        "n_chains": 30,
        "n_sweeps": 10,
    },
    "supplement": {
        "strategy": "shared_root",
        "n_representatives": 5,
        "kernel": "unit_rbf",
        "inference": "auto",
        "base_scale": 4.0,
        "novel_scale": 8.0,
        "n_chains": 20,
        "n_sweeps": 1,
    },
}
"""Arguments of `TreeGPClassifier` as published: of the released code, and of the paper's supplement.

The supplement says nothing of sweeps and chains in sessions; where it does (C.1) one sweep of 20 chains was taken.
"""


def strategy_of(arguments: Mapping[str, Any]) -> Strategy:
    """The strategy that the constructor's arguments stand for, all checked."""
    name = check_choice("strategy", arguments["strategy"], STRATEGIES)
    n_representatives, n_chains, n_sweeps = (
        check_count(each, arguments[each]) for each in ("n_representatives", "n_chains", "n_sweeps")
    )
    base_scale, novel_scale = (_scale(each, arguments[each]) for each in ("base_scale", "novel_scale"))
    kernel = check_choice("kernel", arguments["kernel"], ("auto", *KERNELS))
    inference = check_choice("inference", arguments["inference"], get_args(TreeInference))
    construction = check_choice("construction", arguments["construction"], get_args(TreeConstruction))
    if name != RECOMMENDED:
        kernel = "unit_rbf" if kernel == "auto" else kernel
        scales = base_scale, novel_scale
        return TreeSessions(name, kernel, inference, n_representatives, *scales, n_chains, n_sweeps, construction)
    chosen = {"kernel": (kernel, "auto"), "inference": (inference, "auto"), "construction": (construction, "two_means")}
    for each, (value, default) in chosen.items():
        if value != default:
            raise ValueError(
                f"{each}={value!r} is for the strategies of trees, {', '.join(get_args(TreeStrategyName))}: with "
                f"strategy='recommended' leave {each} on {default!r}."
            )
    return GaussianClasses()


def _scale(name: str, value: Any) -> float:
    known = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not known or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive number; got {value!r}.")
    return float(value)
