"""What a model file of `KernelSearchClassifier` holds: rows, and of each particle its structure, numbers and weight.

Matrices are functions of these, and are computed again on loading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sureshot.estimators.classes.stored_classes import StoredClasses
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.estimators.search.fitted import SearchFitted, fitted_of
from sureshot.estimators.search.results import SearchStep, inputs_of
from sureshot.estimators.search.rule import Chosen, SearchRule, Stack
from sureshot.estimators.search.settings import SearchSettings
from sureshot.estimators.stored import Format
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import KernelPrior
from sureshot.structure.particles import Particles
from sureshot.structure.smc import SmcState, empty_latents
from sureshot.structure.structure import Structure

VARIABLES = {"collapsed": ("omega",), "whitened": ("eta", "step")}
"""Of the latents of each representation; the first has a value for each particle and comparison."""


@dataclass(frozen=True)
class StoredStack:
    """What a file keeps of a `Stack`."""

    posterior: float
    regression: float
    scale: float

    def check_parts(self) -> None:
        if not min(self.posterior, self.regression, self.scale) > 0:
            raise ValueError("a stack has positive numbers")


@dataclass(frozen=True, kw_only=True)
class StoredSearch(StoredClasses):
    """What a file keeps of a `SearchFitted` and its `SmcState`."""

    settings: SearchSettings
    scaling: Scaling
    seed: int
    steps: tuple[SearchStep, ...]
    rule: SearchRule
    stack: StoredStack | None
    structures: tuple[tuple[str, ...], ...]  # M words
    numbers: Tensor  # of all particles, one behind the other
    log_weights: Tensor  # (M,)
    log_evidence: float
    settled_variance: float
    eves: tuple[int, ...]
    contrasts: Tensor  # (3, P)
    variables: dict[str, Tensor]
    inducing: Tensor | None  # (R, D)
    inducing_for: int

    def check_parts(self) -> None:
        super().check_parts()
        self.scaling.check_columns(self.rows.x.shape[1])
        check_particles(self)
        n_particles, n_contrasts = len(self.structures), self.contrasts.shape[-1]
        if self.contrasts.shape != (3, n_contrasts):
            raise ValueError("malformed comparisons")
        first, *others = names = VARIABLES[self.settings.representation]
        if set(self.variables) != set(names) or self.variables[first].shape != (n_particles, n_contrasts):
            raise ValueError("malformed latents")
        if any(self.variables[name].shape != (n_particles,) for name in others):
            raise ValueError("malformed latents")
        if (self.inducing is not None) != (self.settings.n_inducing is not None):
            raise ValueError("inducing inputs do not fit the settings")
        if self.inducing is not None and (self.inducing.ndim != 2 or self.inducing.shape[1] != len(self.scaling.kept)):
            raise ValueError("malformed inducing inputs")


def check_particles(stored: Any) -> None:
    """ValueError for fields of a file that are no weighted particles."""
    n_particles = len(stored.structures)
    if not n_particles or stored.log_weights.shape != (n_particles,):
        raise ValueError("malformed particles")
    if not 0 <= stored.settled_variance < float("inf"):
        raise ValueError("the variance of the log evidence must be a number from 0")
    if len(stored.eves) not in (0, n_particles) or not all(0 <= eve < n_particles for eve in stored.eves):
        raise ValueError("eves must be a particle for each particle")


def restored_particles(prior: KernelPrior, words: Sequence[tuple[str, ...]], numbers: Tensor) -> Particles:
    """Of their structures, and the numbers of all of them; ValueError for what the prior does not know."""
    structures = tuple(map(Structure, words))
    for structure in structures:
        prior.check(structure)
    return Particles(structures, tuple(numbers.split([1 + prior.size(one) for one in structures])))


def _own(fitted: SearchFitted) -> dict[str, Any]:
    state, stack = fitted.state, fitted.predictor.chosen.stack
    contrasts = state.contrasts
    return {
        **{name: getattr(fitted, name) for name in ("settings", "scaling", "seed", "steps", "rule", "inducing_for")},
        "stack": None if stack is None else StoredStack(stack.posterior, stack.regression, stack.of_labels.scale),
        "structures": tuple(structure.symbols for structure in state.particles.structures),
        "numbers": torch.cat(state.particles.z),
        "log_weights": state.log_weights,
        "log_evidence": fitted.log_evidence,
        "settled_variance": state.settled_variance,
        "eves": state.eves,
        "contrasts": torch.stack([contrasts.row, contrasts.own, contrasts.other]),
        "variables": dict(state.latent.variables),
        "inducing": state.inducing,
    }


def _fitted(stored: StoredSearch) -> SearchFitted:
    settings, rows, n_classes = stored.settings, stored.rows, len(stored.classes)
    prior = KernelPrior(settings.grammar, len(stored.scaling.kept))
    particles = restored_particles(prior, stored.structures, stored.numbers)
    is_sparse = stored.inducing is not None
    nothing = empty_latents(len(particles), settings.representation, "logistic", n_classes, is_sparse)
    if bool((stored.contrasts < 0).any()) or bool((stored.contrasts[1:] >= n_classes).any()):
        raise ValueError("comparisons out of range")
    state = SmcState(
        prior,
        inputs_of(rows.x, stored.scaling),
        torch.from_numpy(rows.y),
        n_classes,
        Contrasts(*stored.contrasts),
        particles,
        nothing.restored(stored.variables),
        stored.log_weights,
        stored.log_evidence,
        settled_variance=stored.settled_variance,
        eves=stored.eves,
        inducing=stored.inducing,
    )
    fitted = fitted_of(stored.training, stored.scaling, settings, state, stored.steps, stored.seed)
    fitted = replace(fitted, temperature=stored.temperature, inducing_for=stored.inducing_for).with_state(state)
    stack = stored.stack
    made = None if stack is None else Stack.of(fitted.state, stack.posterior, stack.regression, stack.scale)
    predictor = replace(fitted.predictor, chosen=Chosen(stored.rule, stack=made))
    return replace(fitted, predictor=predictor, has_rule=True)


SEARCH_FORMAT = Format("kernel_search_classifier", SearchFitted, StoredSearch, _own, _fitted)
