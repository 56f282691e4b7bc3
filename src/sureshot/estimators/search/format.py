"""What a model file of `KernelSearchClassifier` holds: rows, and of each particle its structure, numbers and weight.

Matrices are functions of these, and are computed again on loading.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

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
class StoredParticles:
    """What a file keeps of the particles of a search, whatever its targets are."""

    settings: SearchSettings
    scaling: Scaling
    seed: int
    steps: tuple[SearchStep, ...]
    structures: tuple[tuple[str, ...], ...]  # M words
    numbers: Tensor  # of all particles, one behind the other
    log_weights: Tensor  # (M,)
    log_evidence: float
    settled_variance: float
    eves: tuple[int, ...]

    of_particles: ClassVar = ("settings", "scaling", "seed", "steps", "log_evidence")  # as they were learnt

    def check_particles(self) -> None:
        """ValueError for fields that are no weighted particles."""
        n_particles = len(self.structures)
        if not n_particles or self.log_weights.shape != (n_particles,):
            raise ValueError("malformed particles")
        if not 0 <= self.settled_variance < float("inf"):
            raise ValueError("the variance of the log evidence must be a number from 0")
        if len(self.eves) not in (0, n_particles) or not all(0 <= eve < n_particles for eve in self.eves):
            raise ValueError("eves must be a particle for each particle")

    @property
    def prior(self) -> KernelPrior:
        """Of their kernels."""
        return KernelPrior(self.settings.grammar, len(self.scaling.kept))

    @property
    def particles(self) -> Particles:
        """ValueError for leaves that are not known."""
        structures = tuple(map(Structure, self.structures))
        for structure in structures:
            self.prior.check(structure)
        return Particles(structures, tuple(self.numbers.split([1 + self.prior.size(one) for one in structures])))


def particles_of(fitted: Any) -> dict[str, Any]:
    """The fields of `StoredParticles` of what was learnt."""
    state = fitted.state
    return {
        **{name: getattr(state, name) for name in ("log_weights", "settled_variance", "eves")},
        "structures": tuple(structure.symbols for structure in state.particles.structures),
        "numbers": torch.cat(state.particles.z),
    }


@dataclass(frozen=True, kw_only=True)
class StoredSearch(StoredParticles, StoredClasses):
    """What a file keeps of a `SearchFitted` and its `SmcState`."""

    rule: SearchRule
    stack: StoredStack | None
    contrasts: Tensor  # (3, P)
    variables: dict[str, Tensor]
    inducing: Tensor | None  # (R, D)
    inducing_for: int

    as_learnt = (*StoredClasses.as_learnt, *StoredParticles.of_particles, "rule", "inducing_for")

    def check_parts(self) -> None:
        super().check_parts()
        self.scaling.check_columns(self.rows.x.shape[1])
        self.check_particles()
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


def _own(fitted: SearchFitted) -> dict[str, Any]:
    state, stack = fitted.state, fitted.predictor.chosen.stack
    contrasts = state.contrasts
    return {
        **particles_of(fitted),
        "stack": None if stack is None else StoredStack(stack.posterior, stack.regression, stack.of_labels.scale),
        "contrasts": torch.stack([contrasts.row, contrasts.own, contrasts.other]),
        "variables": dict(state.latent.variables),
        "inducing": state.inducing,
    }


def _fitted(stored: StoredSearch) -> SearchFitted:
    settings, rows, n_classes = stored.settings, stored.rows, len(stored.classes)
    particles = stored.particles
    is_sparse = stored.inducing is not None
    nothing = empty_latents(len(particles), settings.representation, "logistic", n_classes, is_sparse)
    if bool((stored.contrasts < 0).any()) or bool((stored.contrasts[1:] >= n_classes).any()):
        raise ValueError("comparisons out of range")
    state = SmcState(
        stored.prior,
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
    fitted = replace(fitted, temperature=stored.temperature).with_state(state)
    stack = stored.stack
    made = None if stack is None else Stack.of(fitted.state, stack.posterior, stack.regression, stack.scale)
    predictor = replace(fitted.predictor, chosen=Chosen(stored.rule, stack=made))
    return replace(fitted, predictor=predictor, has_rule=True)


SEARCH_FORMAT = Format("kernel_search_classifier", SearchFitted, StoredSearch, _own, _fitted)
