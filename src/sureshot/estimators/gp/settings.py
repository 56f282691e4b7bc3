"""The arguments of `GPClassifier`, checked and definite.

Every argument is checked here for itself; what depends on the data or on two arguments together is checked where
it is used (`options`, and `class_weights` and `class_prior` of `estimators/classes`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_args

import numpy as np
import torch
from gpytorch.kernels import Kernel

from sureshot.approximations.by_name import BY_NAME
from sureshot.computing.memory import memory_budget
from sureshot.estimators.arguments import check_choice, check_count, check_jobs
from sureshot.estimators.devices import device_for
from sureshot.estimators.gp.options import LOCAL_KERNELS, NEAREST_NEIGHBOURS
from sureshot.inference import INFERENCE_NAMES
from sureshot.kernels import KERNEL_NAMES, Expression
from sureshot.likelihoods import LIKELIHOODS, GaussianLabels
from sureshot.likelihoods.base import PredictiveRule

OBJECTIVES = ("auto", "leave_one_out", "evidence", None)
APPROXIMATIONS = ("auto", "exact", "low_rank", "inducing", NEAREST_NEIGHBOURS)

BESIDE = ("random_state", "columns", "time", "window", "verbose")
"""Arguments that are no setting of a fit: its seed, how rows are read and kept, what is said meanwhile."""


@dataclass(frozen=True)
class Settings:
    """What the user asked for; the names are those of `GPClassifier`."""

    kernel: Any
    likelihood: str
    inference: str
    objective: str | None
    approximation: str
    predictive: PredictiveRule
    standardize: bool | str
    likelihood_temperature: float
    prior_mean: float
    ensemble: bool
    relevance: bool | str
    class_weight: Any
    class_prior: Any
    n_chains: int
    n_sweeps: int
    n_inducing: int | None
    n_neighbours: int
    memory_limit: float | str
    n_jobs: int | None
    device: torch.device
    seed: int
    noise: float | None = None  # variance of numbers on the target's scale, where it is stated

    @classmethod
    def checked(
        cls,
        arguments: Mapping[str, Any],
        seed: int,
        n_rows: int,  # that are to be learnt from; by these "auto" chooses the device
        approximations: tuple[str, ...] = (*APPROXIMATIONS, *BY_NAME),  # that there are
    ) -> Settings:
        """The settings that the constructor's arguments stand for, all checked."""
        given = {name: value for name, value in arguments.items() if name not in BESIDE}
        for name in ("n_chains", "n_sweeps", "n_inducing", "n_neighbours"):
            value = given[name]
            if name == "n_inducing" and value is None:
                continue
            given[name] = check_count(name, value)
        temperature, mean = given["likelihood_temperature"], given["prior_mean"]
        if not (isinstance(temperature, int | float | np.floating | np.integer) and 1e-6 <= temperature <= 1e6):
            raise ValueError(f"likelihood_temperature must be a number from 1e-6 to 1e6; got {temperature!r}.")
        if not isinstance(mean, int | float | np.floating | np.integer) or not math.isfinite(mean):
            raise ValueError(
                f"prior_mean must be a finite number; got {mean!r}. It is not learned: softmax and one-vs-each do not "
                "depend on it; for the others compare a few values by leave_one_out_score_."
            )
        given["ensemble"] = bool(check_choice("ensemble", given["ensemble"], (True, False)))
        check_jobs(given["n_jobs"])
        weights = given["class_weight"]
        if not (
            isinstance(weights, Mapping | NoneType) or (isinstance(weights, str) and weights in ("auto", "balanced"))
        ):
            raise ValueError(
                "class_weight must be None, 'auto', 'balanced' or a dict that gives labels their weights; "
                f"got {weights!r}."
            )
        _check_kernel(given["kernel"])
        check_choice("likelihood", given["likelihood"], ("auto", *LIKELIHOODS))
        check_choice("inference", given["inference"], ("auto", *INFERENCE_NAMES))
        for name in ("standardize", "relevance"):
            chosen = check_choice(name, given[name], (True, False, "auto"))
            given[name] = chosen if isinstance(chosen, str) else bool(chosen)
        check_choice("objective", given["objective"], OBJECTIVES)
        check_choice("approximation", given["approximation"], approximations)
        check_choice("predictive", given["predictive"], ("auto", *get_args(PredictiveRule)))
        if arguments["time"] is not None:
            _check_local(given, f"time={arguments['time']!r}")
        elif given["approximation"] == NEAREST_NEIGHBOURS:
            _check_local(given, f"approximation={NEAREST_NEIGHBOURS!r}")
        if given["predictive"] == "auto":
            given["predictive"] = "plug_in"
        memory_budget(given["memory_limit"])
        given |= {"likelihood_temperature": float(temperature), "prior_mean": float(mean)}
        return cls(**{**given, "device": device_for(given["device"], n_rows)}, seed=seed)

    @property
    def model_settings(self) -> dict[str, Any]:
        """Those that every `sureshot.estimators.gp.model.Model` takes."""
        return {name: getattr(self, name) for name in ("likelihood_temperature", "prior_mean", "n_chains", "n_sweeps")}

    @property
    def averages(self) -> bool:
        """Whether several settings may be averaged: with a named kernel there is one."""
        return self.ensemble and self._free

    @property
    def weighs_columns(self) -> bool:
        """Whether columns may have length-scales of their own: a named kernel is left as it is, unless asked for."""
        return self.relevance is True or (self.relevance == "auto" and self._free)

    @property
    def _free(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "auto"

    @property
    def precomputed(self) -> bool:
        """Whether X is the kernel matrix."""
        return is_precomputed(self.kernel)

    def generator(self) -> torch.Generator:
        """A fresh one; equal settings draw equal numbers."""
        return torch.Generator(device=self.device).manual_seed(self.seed)


def is_precomputed(kernel: Any) -> bool:
    """Whether a kernel argument says that X is the kernel matrix."""
    return isinstance(kernel, str) and kernel == "precomputed"


def _check_local(given: Mapping[str, Any], what: str) -> None:
    """Refuse what local members do not have."""
    possible = {
        "approximation": ("auto", NEAREST_NEIGHBOURS),
        "kernel": ("auto", *LOCAL_KERNELS),
        "likelihood": ("auto", GaussianLabels.name),
        "inference": ("auto",),
        "objective": ("auto", "leave_one_out"),
        "predictive": ("auto", "plug_in"),
    }
    for name, values in possible.items():
        if not (isinstance(given[name], str) and given[name] in values):
            raise ValueError(f"{what} goes with {name} {' or '.join(map(repr, values))}; got {given[name]!r}.")


def _check_kernel(kernel: Any) -> None:
    if isinstance(kernel, str):
        check_choice("kernel", kernel, ("auto", *KERNEL_NAMES, "precomputed"))
    elif isinstance(kernel, type) and issubclass(kernel, Kernel | Expression):
        raise ValueError(f"kernel must be an instance, not the class {kernel.__name__}: try {kernel.__name__}(...).")
    elif not isinstance(kernel, Kernel | Expression):
        raise ValueError(
            "kernel must be a name or a gpytorch.kernels.Kernel or a sureshot.kernels.Expression; "
            f"got {kernel!r}. Names are 'auto', {', '.join(map(repr, KERNEL_NAMES))} and 'precomputed'."
        )
    elif kernel.batch_shape:
        raise ValueError(
            f"kernel must be a single one, but its parameters have batch dimensions {tuple(kernel.batch_shape)}: give "
            "numbers, or tensors of no dimension, as in RBF(0.7); only a length-scale for each column is a list."
        )
