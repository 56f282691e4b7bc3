"""A function of unknown kernel as a sum of parts: products are distributed over sums, and each product is a part.

A sum of kernels is a sum of independent functions, so ``f = c + f_1 + ... + f_K`` with one function for each product of
leaves, and given numbers y of f with noise, with covariance S,

    E[f_k(x) | y] = k_k(x, X) S^-1 y,   var[f_k(x) | y] = k_k(x, x) - k_k(x, X) S^-1 k_k(X, x).

What the numbers cannot tell is which part a constant belongs to. So every part is taken without its mean over the rows
that have numbers, and the constant has these means: CONSTANT is the level of the numbers, and the others vary around
zero. The means of the parts add up to that of the function.

>>> from sureshot.structure.structure import Structure
>>> print([str(part) for part, _ in products(Structure.parse("(LINEAR + PERIODIC) x SQUARED-EXPONENTIAL"))])
['LINEAR x SQUARED-EXPONENTIAL', 'PERIODIC x SQUARED-EXPONENTIAL']

Reference: Duvenaud, Lloyd, Grosse, Tenenbaum & Ghahramani 2013, section 2.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor

from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.canonical import canonical
from sureshot.structure.numbers import Numbers
from sureshot.structure.smc import SmcState
from sureshot.structure.structure import PRODUCT, SUM, Structure, joined

CONSTANT = "CONSTANT"


class Part(NamedTuple):
    """Of one additive form, over its particles."""

    formula: str
    mean: Tensor  # (Q,)
    variance: Tensor  # (Q,)


class Decomposition(NamedTuple):
    """The particles whose kernels are sums of the same products."""

    weight: float
    formula: str
    parts: tuple[Part, ...]  # sorted by their formulas, the shortest first; CONSTANT is the last


def products(structure: Structure) -> list[tuple[Structure, list[int]]]:
    """The products that a structure is a sum of, each with its leaves among `Structure.leaves`."""
    number = {leaf: k for k, leaf in enumerate(structure.leaves)}

    def terms(i: int) -> list[list[int]]:
        if structure.is_leaf(i):
            return [[number[i]]]
        first, second = (terms(child) for child in structure.children(i))
        return first + second if structure.symbols[i] == SUM else [one + other for one in first for other in second]

    symbols = [structure.symbols[leaf] for leaf in structure.leaves]
    return [(joined(PRODUCT, [Structure((symbols[k],)) for k in term]), term) for term in terms(0)]


def decomposed(
    state: SmcState,  # of numbers
    x: Tensor,  # (Q, D)
) -> list[Decomposition]:
    """The posterior of the parts of each additive form, the most probable form first."""
    found: dict[tuple[str, ...], list[tuple[float, Tensor, Tensor]]] = {}
    for k, weight in enumerate(state.log_weights.exp().tolist()):
        if weight > 0:
            names, mean, variance = _of_particle(state, k, x)
            found.setdefault(names, []).append((weight, mean, variance))
    forms = []
    for names, particles in found.items():
        weights = x.new_tensor([weight for weight, _, _ in particles])
        share = weights / weights.sum()
        means = torch.stack([mean for _, mean, _ in particles])  # (M', K, Q)
        variances = torch.stack([variance for _, _, variance in particles])
        mean = torch.einsum("m,mkq->kq", share, means)
        variance = torch.einsum("m,mkq->kq", share, variances + (means - mean).square())
        parts = tuple(map(Part, names, mean, variance))
        forms.append(Decomposition(float(weights.sum()), " + ".join(names[:-1]) or CONSTANT, parts))
    return sorted(forms, key=lambda form: -form.weight)


def _of_particle(state: SmcState, k: int, x: Tensor) -> tuple[tuple[str, ...], Tensor, Tensor]:
    """Names of the K parts of one particle, their means and variances (K, Q)."""
    structure, z, prior = state.particles.structures[k], state.particles.z[k][1:], state.prior
    numbers, leaves = cast(Numbers, state.latent).chosen(slice(k, k + 1)), z.split(prior.leaf_sizes(structure))
    seen, asked, level = SharedRows(state.x), SharedRows(state.x, x), x.new_tensor(prior.grammar.mean_variance)
    covariances = {CONSTANT: (level.expand(len(state.x), len(x)), level.expand(len(x)))}
    for product, places in products(structure):
        kernel = prior.kernel(product, torch.cat([leaves[place] for place in places]))
        name = str(canonical(product))
        own, cross, variance = kernel.on(seen), kernel.on(asked), kernel.diagonal(x)
        if name != CONSTANT:
            shared, overall = own.mean(0), own.mean()  # of a row with the mean over rows, and of this with itself
            _add(covariances, CONSTANT, shared.unsqueeze(-1).expand(-1, len(x)), overall)
            variance = variance - 2 * cross.mean(0) + overall
            cross = cross - shared.unsqueeze(-1)
        _add(covariances, name, cross, variance)
    names = sorted(covariances, key=lambda name: (name == CONSTANT, len(name), name))
    found = []
    for name in names:
        cross, variance = covariances[name]
        mean, own = numbers.predicted(cross.unsqueeze(0))
        found.append((mean[0], (variance - own[0].square().sum(0)).clamp_min(0)))
    means, variances = (torch.stack(part) for part in zip(*found, strict=True))
    return tuple(names), means, variances


def _add(covariances: dict[str, tuple[Tensor, Tensor]], name: str, cross: Tensor, variance: Tensor) -> None:
    """To covariances (N, Q) of data with a part, and its variances (Q,)."""
    if name in covariances:
        cross, variance = covariances[name][0] + cross, covariances[name][1] + variance
    covariances[name] = cross, variance
