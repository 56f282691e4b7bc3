"""`KernelSearchClassifier` as a model file: rows, and of each particle its structure, numbers and weight.

Matrices are functions of these, and are computed again on loading.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from sureshot.estimators.fitted import Format, TrainingSet
from sureshot.estimators.gp.settings import check_choice
from sureshot.estimators.search.fitted import SearchFitted, SearchStep, fitted_of, inputs_of
from sureshot.estimators.search.rule import RULES, Chosen, Stack
from sureshot.estimators.search.settings import SearchSettings
from sureshot.estimators.stored_rows import (
    HEADER,
    arrays_of,
    header_of,
    read_columns,
    read_rows,
    read_scaling,
    reader_of_rows,
    that_predicts,
)
from sureshot.persistence import Artifact, ArtifactError, require, require_header
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import GRAMMARS, Grammar, KernelPrior
from sureshot.structure.particles import Particles
from sureshot.structure.smc import SmcState, empty_latents
from sureshot.structure.structure import Structure

KIND = "kernel_search_classifier"
_PREFIX = "latents."
_VARIABLES: dict[str, dict[str, tuple[int | str | None, ...]]] = {
    "collapsed": {"omega": ("M", "P")},
    "whitened": {"eta": ("M", "P"), "step": ("M",)},
}
_INDUCING: dict[str, tuple[str, tuple[int | str | None, ...]]] = {
    "inducing": ("float64", ("R", "D")),
    "inducing_for": ("int64", (1,)),
}
_STACK = ("posterior", "regression", "scale")
_SETTINGS: dict[str, Any] = {
    "n_particles": int,
    "grammar": dict,
    "representation": str,
    "n_rejuvenation": (int, str),
    "schedule": (str, list),
    "structure": (str, type(None)),
    "window": (int, type(None)),
    "n_inducing": (int, type(None)),
    "standardize": bool,
    "predictive": str,
}


def _write(parameters: Mapping[str, Any], fitted: SearchFitted) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a fitted estimator."""
    random_state, settings, state = parameters["random_state"], fitted.settings, fitted.state
    stack = fitted.chosen.stack
    header: dict[str, Any] = {
        **header_of(fitted),
        "random_state": int(random_state) if isinstance(random_state, int | np.integer) else None,
        "seed": fitted.seed,
        "settings": {
            **{name: getattr(settings, name) for name in _SETTINGS},
            "grammar": _grammar_as_json(settings.grammar),
            "n_rejuvenation": "auto" if settings.n_rejuvenation is None else settings.n_rejuvenation,
            "structure": None if settings.structure is None else str(settings.structure),
            "schedule": settings.schedule if isinstance(settings.schedule, str) else list(settings.schedule),
        },
        "structures": [list(structure.symbols) for structure in state.particles.structures],
        "steps": json.loads(json.dumps([asdict(step) for step in fitted.steps])),
        "log_evidence": fitted.log_evidence,
        "evidence_error": {"settled_variance": state.settled_variance, "eves": list(state.eves)},
        "rule": fitted.rule,
        "stack": None
        if stack is None
        else dict(zip(_STACK, (stack.posterior, stack.regression, stack.of_labels.scale), strict=True)),
    }
    arrays = arrays_of(fitted.rows, fitted.scaling)
    contrasts = state.contrasts
    arrays |= {
        "particles.numbers": torch.cat(state.particles.z).numpy(),
        "particles.log_weights": state.log_weights.numpy(),
        "contrasts": torch.stack([contrasts.row, contrasts.own, contrasts.other]).numpy(),
    }
    arrays |= {_PREFIX + name: part.numpy() for name, part in state.latent.variables.items()}
    if state.inducing is not None:
        arrays |= {"inducing": state.inducing.numpy(), "inducing_for": np.array([fitted.inducing_for])}
    return header, arrays


def _read(artifact: Artifact) -> tuple[dict[str, Any], SearchFitted]:
    """The constructor's arguments and what was learnt; every malformed entry is one `ArtifactError`."""
    wanted: dict[str, Any] = {
        **HEADER,
        "random_state": (int, type(None)),
        "seed": int,
        "settings": dict,
        "structures": list,
        "steps": list,
        "log_evidence": float,
        "rule": str,
        "stack": (dict, type(None)),
    }
    header = require_header(artifact, wanted)
    classes, rows = read_rows(artifact, header)
    reader = reader_of_rows(artifact, rows)
    scaling = read_scaling(artifact, rows.x.shape[1])
    parameters = _parameters(artifact, header["settings"])
    variables, is_sparse = _VARIABLES[parameters["representation"]], parameters["n_inducing"] is not None
    arrays = require(
        artifact,
        {
            "particles.numbers": ("float64", ("Z",)),
            "particles.log_weights": ("float64", ("M",)),
            **{_PREFIX + name: ("float64", shape) for name, shape in variables.items()},
            "contrasts": ("int64", (3, "P")),
            **(_INDUCING if is_sparse else {}),
        },
        {"M": len(header["structures"]), "D": len(scaling.kept)},
    )

    def build() -> SearchFitted:
        settings = SearchSettings.checked(parameters)
        training = TrainingSet(reader, read_columns(artifact.header), classes, rows, None)
        prior = KernelPrior(settings.grammar, len(scaling.kept))
        structures = tuple(Structure(tuple(symbols)) for symbols in header["structures"])
        for structure in structures:
            prior.check(structure)
        numbers = torch.from_numpy(arrays["particles.numbers"]).split([1 + prior.size(one) for one in structures])
        contrasts = torch.from_numpy(arrays["contrasts"])
        nothing = empty_latents(len(structures), settings.representation, "logistic", len(classes), is_sparse)
        latent = nothing.restored({name: torch.from_numpy(arrays[_PREFIX + name]) for name in variables})
        if (contrasts < 0).any() or (contrasts[1:] >= len(classes)).any():
            raise ValueError("comparisons out of range")
        state = SmcState(
            prior,
            inputs_of(rows.x, scaling),
            torch.from_numpy(rows.y),
            len(classes),
            Contrasts(*contrasts),
            Particles(structures, tuple(numbers)),
            latent,
            torch.from_numpy(arrays["particles.log_weights"]),
            header["log_evidence"],
            **_error_of(artifact.header.get("evidence_error", {}), len(structures)),
            inducing=torch.from_numpy(arrays["inducing"]) if is_sparse else None,
        )
        steps = tuple(_step(step) for step in header["steps"])
        fitted = fitted_of(training, scaling, settings, state, steps, header["seed"])
        inducing_for = int(arrays["inducing_for"][0]) if is_sparse else 0
        fitted = replace(fitted, temperature=header["temperature"], inducing_for=inducing_for)
        fitted = fitted.with_state(state)
        return replace(fitted, chosen=_chosen(fitted.state, header["rule"], header["stack"]), has_rule=True)

    fitted = that_predicts(artifact.path, build)
    calibrated = bool(artifact.header.get("calibrated", False))
    return {**parameters, "random_state": header["random_state"]}, replace(fitted, calibrated=calibrated)


def _error_of(values: Any, n_particles: int) -> dict[str, Any]:
    """What the error of the evidence is made of; files from before it was kept have nothing."""
    if not isinstance(values, dict) or not isinstance(values.get("eves", []), list):
        raise ValueError("malformed error of the log evidence")
    settled, eves = values.get("settled_variance", 0.0), values.get("eves", [])
    if not isinstance(settled, float) or not 0 <= settled < math.inf:
        raise ValueError("the variance of the log evidence must be a number from 0")
    if len(eves) not in (0, n_particles) or not all(type(eve) is int and 0 <= eve < n_particles for eve in eves):
        raise ValueError("eves must be a particle for each particle")
    return {"settled_variance": settled, "eves": tuple(eves)}


SEARCH_FORMAT = Format(KIND, _write, _read)


def _parameters(artifact: Artifact, values: dict[str, Any]) -> dict[str, Any]:
    """The constructor's arguments; files from before there was `n_inducing` have none."""
    values = {"n_inducing": None, **values}
    if set(values) != set(_SETTINGS) or not all(isinstance(values[name], kind) for name, kind in _SETTINGS.items()):
        raise ArtifactError(f"{artifact.path}: malformed settings of the search; save the model again.")
    try:
        found = {**values, "grammar": _grammar_of_json(values["grammar"])}
        SearchSettings.checked(found)
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"{artifact.path}: {error}") from error
    return found


def _grammar_as_json(grammar: Grammar) -> dict[str, Any]:
    """Its leaves as pairs: names in a header are sorted, and kernels are drawn by the order of the leaves."""
    return {**grammar.to_json(), "leaves": [[name, weight] for name, weight in grammar.leaves.items()]}


def _grammar_of_json(values: dict[str, Any]) -> str | Grammar:
    """A preset's name, or a grammar. In older files leaves are sorted, of which presets alone are known otherwise."""
    leaves: Any = values.get("leaves")
    in_order = isinstance(leaves, list)
    if in_order:
        if not all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in leaves):
            raise ValueError("the leaves of a grammar are pairs of a name and a weight")
        values = {**values, "leaves": dict(leaves)}
    grammar = Grammar.from_json(values)
    for name in GRAMMARS:
        preset = Grammar.preset(name)
        if preset == grammar and (not in_order or list(preset.leaves) == list(grammar.leaves)):
            return name
    return grammar


def _chosen(state: SmcState, name: str, values: dict[str, Any] | None) -> Chosen:
    """The rule of the header."""
    rule = check_choice("rule", name, RULES)
    if values is None:
        return Chosen(rule)
    if set(values) != set(_STACK) or not all(isinstance(one, float) and 0 < one < math.inf for one in values.values()):
        raise ValueError(f"a stack has the numbers {', '.join(_STACK)}, all positive")
    return Chosen(rule, stack=Stack.of(state, **values))


def _step(values: Any) -> SearchStep:
    try:
        return SearchStep(
            **{
                **values,
                "effective_sample_sizes": tuple(values["effective_sample_sizes"]),
                "ancestors": tuple(values["ancestors"]),
                "structures": tuple((mass, structure) for mass, structure in values["structures"]),
            }
        )
    except (TypeError, KeyError) as error:
        raise ValueError(f"malformed step: {error}") from error
