"""A function of unknown kernel as a sum of parts: products are distributed over sums, and each product is a part.

A sum of kernels is a sum of independent functions, so ``f = c + f_1 + ... + f_K`` with one function for each product of
leaves, and given numbers y of f with noise, with covariance S,

    E[f_k(x) | y] = k_k(x, X) S^-1 y,   var[f_k(x) | y] = k_k(x, x) - k_k(x, X) S^-1 k_k(X, x).

A leaf that contains a constant is the sum of this and of what is left, so that ``LINEAR x PERIODIC``, whose leaves have
an offset and a mean, is a line, a period, a period that grows, and a constant. To which part a constant belongs numbers
cannot tell. So every part is taken without its mean over the rows that have numbers, and the constant has these means:
CONSTANT is the level of the numbers, and the others vary around zero. The means of the parts add up to that of the
function.

Reference: Duvenaud, Lloyd, Grosse, Tenenbaum & Ghahramani 2013, section 2.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.canonical import canonical
from sureshot.structure.grammar import split_symbol
from sureshot.structure.numbers import Numbers
from sureshot.structure.smc import SmcState
from sureshot.structure.structure import PRODUCT, SUM, Structure, joined

CONSTANT = "CONSTANT"


@dataclass(frozen=True)
class AdditivePart:
    """One of the functions that add up, over n rows."""

    formula: str  # a product of leaves; "CONSTANT" is the level, around which the others vary
    mean: np.ndarray  # (n,)
    deviation: np.ndarray  # (n,), noise not included


@dataclass(frozen=True)
class AdditiveForm:
    """All kernels that are sums of the same products, and the functions that belong to these."""

    weight: float  # posterior probability
    formula: str
    parts: tuple[AdditivePart, ...]  # the shortest formula first; CONSTANT is the last

    @property
    def mean(self) -> np.ndarray:
        """Of the whole (n,): the sum of those of the parts."""
        found: np.ndarray = np.sum([part.mean for part in self.parts], axis=0)
        return found


def decomposed(
    state: SmcState,  # of numbers
    x: Tensor,  # (Q, D)
    unit: float = 1.0,  # of the numbers
    centre: float = 0.0,
) -> list[AdditiveForm]:
    """The posterior of the parts of each additive form, the most probable form first."""
    found: dict[tuple[str, ...], list[tuple[float, Tensor, Tensor]]] = {}
    for k, weight in enumerate(state.log_weights.exp().tolist()):
        if weight > 0:
            names, *moments = _of_particle(state, k, x)
            found.setdefault(names, []).append((weight, *moments))
    forms = []
    for names, particles in found.items():
        weights, means, variances = (np.stack(part) for part in zip(*particles, strict=True))  # (M',), (M', K, Q)
        mean = np.average(means, axis=0, weights=weights)
        deviation = unit * np.sqrt(np.average(variances + (means - mean) ** 2, axis=0, weights=weights))
        mean = unit * mean
        mean[-1] += centre
        parts = tuple(map(AdditivePart, names, mean, deviation))
        forms.append(AdditiveForm(float(weights.sum()), " + ".join(names[:-1]) or CONSTANT, parts))
    return sorted(forms, key=lambda form: -form.weight)


Covariances = tuple[Tensor, Tensor, Tensor]
"""Of the rows (N, N), of rows with queries (N, Q), and variances of queries (Q,)."""


def _of_particle(state: SmcState, k: int, x: Tensor) -> tuple[tuple[str, ...], Tensor, Tensor]:
    """Names of the K parts of one particle, their means and variances (K, Q)."""
    prior, numbers = state.prior, cast(Numbers, state.latent).chosen(slice(k, k + 1))
    level, parts = x.new_tensor(prior.grammar.mean_variance), dict[str, Covariances]()
    for leaves, (own, cross, variance) in _products(state, k, x).items():
        name = str(canonical(joined(PRODUCT, [Structure((leaf,)) for leaf in leaves]))) if leaves else CONSTANT
        own, cross, variance = (prior.grammar.scale * part for part in (own, cross, variance))
        if name != CONSTANT:
            shared, overall = own.mean(0), own.mean()  # of a row with the mean over rows, and of this with itself
            _add(parts, CONSTANT, (own, shared.unsqueeze(-1).expand_as(cross), overall.expand_as(variance)))
            variance = variance - 2 * cross.mean(0) + overall
            cross = cross - shared.unsqueeze(-1)
        _add(parts, name, (own, cross, variance))
    _add(parts, CONSTANT, (level, level.expand(len(state.x), len(x)), level.expand(len(x))))
    names = sorted(parts, key=lambda name: (name == CONSTANT, len(Structure.parse(name)), name))
    found = []
    for name in names:
        _, cross, variance = parts[name]
        mean, taken = numbers.predicted(cross.unsqueeze(0))
        found.append((mean[0], (variance - taken[0].square().sum(0)).clamp_min(0)))
    means, variances = (torch.stack(part) for part in zip(*found, strict=True))
    return tuple(names), means, variances


def _products(state: SmcState, k: int, x: Tensor) -> dict[tuple[str, ...], Covariances]:
    """Of a particle's kernel the products of leaves, by their sorted symbols; of none, the constants."""
    structure, z, prior = state.particles.structures[k], state.particles.z[k][1:], state.prior
    numbers = dict(zip(structure.leaves, z.split(prior.leaf_sizes(structure)), strict=True))
    seen, asked = SharedRows(state.x), SharedRows(state.x, x)

    def terms(i: int) -> dict[tuple[str, ...], Covariances]:
        found: dict[tuple[str, ...], Covariances] = {}
        if structure.is_leaf(i):
            kernel, constant = prior.leaf(structure.symbols[i], numbers[i])
            own, cross, variance = kernel.on(seen), kernel.on(asked), kernel.diagonal(x)
            rest = (own - constant, cross - constant, variance - constant)
            if split_symbol(structure.symbols[i])[0] != CONSTANT:
                found[(structure.symbols[i],)] = rest
            if float(constant) > 0:
                found[()] = constant.expand_as(own), constant.expand_as(cross), constant.expand_as(variance)
            return found
        first, second = (terms(child) for child in structure.children(i))
        if structure.symbols[i] == SUM:
            for key, part in second.items():
                _add(first, key, part)
            return first
        for (key, part), (other_key, other) in itertools.product(first.items(), second.items()):
            _add(found, tuple(sorted(key + other_key)), (part[0] * other[0], part[1] * other[1], part[2] * other[2]))
        return found

    return terms(0)


def _add(parts: dict[Any, Covariances], name: Any, more: Covariances) -> None:
    """To those of a part."""
    if name in parts:
        own, cross, variance = parts[name]
        more = own + more[0], cross + more[1], variance + more[2]
    parts[name] = more
