"""The grammar: a prior over structures, and over the kernels that they are with parameters.

A structure is a leaf, or two structures that are added or multiplied, each with a probability (a context-free grammar);
a path from the root has at most so many nodes, and at the last there are leaves only. `Grammar` says how probable what
is; `KernelPrior` is a grammar on rows of a width.

>>> prior = KernelPrior(Grammar(), width=4)
>>> k = Structure.parse("LINEAR + SQUARED-EXPONENTIAL")
>>> round(float(torch.tensor(prior.log_probability(k)).exp()), 6)
0.001506
>>> print(prior.kernel(k, torch.zeros(prior.size(k), dtype=torch.float64)))
3 x (1 + Linear(0.25) + 1 x RBF(2))

Reference: Huang & Wang 2025, eqs. 5 to 14, with priors of the parameters that are proper.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, get_type_hints

import torch
from torch import Tensor

from sureshot.data.checks import listed, near
from sureshot.data.typed_values import typed_value
from sureshot.kernels import Columns, Expression
from sureshot.ranges import check_counts, check_positive
from sureshot.structure.leaves import LEAVES, STANDARD, LeafKind, LogNormal, Scales
from sureshot.structure.structure import PRODUCT, SUM, Structure

_PAPER = ("LINEAR", "SQUARED-EXPONENTIAL", "GAMMA-EXPONENTIAL")
_ALL = (*_PAPER, "PERIODIC", "CONSTANT", "MATERN", "BROWNIAN")
_NUGGET = LogNormal(math.log(1e-2))


def _even(names: tuple[str, ...]) -> dict[str, float]:
    return dict.fromkeys(names, 1.0)


@dataclass(frozen=True)
class Grammar:
    """Probabilities of structures and priors of parameters; ValueError for values of another type or out of range.

    Probabilities are those of the released code of AutoGP: operators have probability 5/28 each, and what is left is
    shared by the leaves. Latents are logits, so the mean is wider than there and kernels are larger; by one factor, so
    that it does not depend on how many are multiplied.
    """

    leaves: Mapping[str, float] = field(default_factory=lambda: _even(_ALL))  # weights by name
    p_sum: float = 5 / 28
    p_product: float = 5 / 28
    max_depth: int = 5
    p_one_column: float = 0.0  # that a leaf looks at one column, any with the same probability
    per_column: bool = False  # a length-scale for each column
    linear_offset: bool = False  # that LINEAR has an offset w, N(0, I)
    scale: float = 3.0  # by which every kernel is multiplied
    amplitude: LogNormal = STANDARD
    relative_lengthscale: LogNormal = STANDARD
    mean_variance: float = 30.0  # of the mean of all latents, N(0, this)
    nugget: LogNormal = _NUGGET
    least_nugget: float = 1e-6  # added to it
    period: LogNormal = STANDARD  # in standard deviations of a column

    def __post_init__(self) -> None:
        self._check_types()
        if not self.leaves:
            raise ValueError("a grammar must have a leaf at least")
        weights = {}
        for name, weight in self.leaves.items():
            if name not in LEAVES:
                raise ValueError(f"there is no leaf {name!r}{near(str(name), LEAVES)}; leaves: {', '.join(LEAVES)}")
            weights[name] = typed_value(f"the weight of {name}", float, weight)
            if not 0 < weights[name] < math.inf:
                raise ValueError(f"the weight of {name} must be positive and finite, got {weight}")
        object.__setattr__(self, "leaves", weights)
        if not (self.p_sum >= 0 and self.p_product >= 0 and self.p_sum + self.p_product < 1):
            raise ValueError(
                "p_sum and p_product must not be negative, and together less than 1, got "
                f"{self.p_sum:g} and {self.p_product:g}"
            )
        check_counts(1, max_depth=self.max_depth)
        if not 0 <= self.p_one_column <= 1:
            raise ValueError(f"p_one_column must lie between 0 and 1, got {self.p_one_column}")
        check_positive(scale=self.scale)
        if not 0 <= self.mean_variance < math.inf:
            raise ValueError(f"mean_variance must not be negative, got {self.mean_variance}")
        if not 0 <= self.least_nugget < math.inf:
            raise ValueError(f"least_nugget must not be negative, got {self.least_nugget}")

    def _check_types(self) -> None:
        for name, kind in get_type_hints(Grammar).items():
            value = getattr(self, name)
            if kind is LogNormal:
                if not isinstance(value, LogNormal):
                    raise ValueError(f"{name} must be a LogNormal, which has mean and sd, got {reprlib.repr(value)}")
            elif name != "leaves":
                object.__setattr__(self, name, typed_value(name, kind, value))
            elif not isinstance(value, Mapping):
                raise ValueError(f"leaves must be weights by name, as in {{'LINEAR': 1.0}}, got {reprlib.repr(value)}")

    @classmethod
    def preset(cls, name: str) -> Grammar:
        """``"default"``, or ``"paper"``: the three leaves of its eq. 5, the offset of eq. 8, and a mean N(0, 1).

        ``"series"`` is for standardised numbers: periods from a hundredth of a series to all of it, noise from a
        hundredth to three quarters of their deviation, no leaf for two columns at least.
        """
        if name not in GRAMMARS:
            raise ValueError(f"there is no grammar {name!r}{near(name, GRAMMARS)}; grammars: {', '.join(GRAMMARS)}")
        return cls(**GRAMMARS[name])

    def to_json(self) -> dict[str, Any]:
        """JSON values, for `from_json`; leaves as pairs, as kernels are drawn by their order."""
        return {**asdict(self), "leaves": [[name, weight] for name, weight in self.leaves.items()]}

    @classmethod
    def from_json(cls, values: Any) -> Grammar:
        """What `to_json` wrote; ValueError for anything else."""
        if isinstance(values, Mapping):  # older files have no period
            values = {**values, "period": values.get("period", asdict(STANDARD))}
        _check_entries("a grammar", values, [item.name for item in fields(cls)])
        pairs = values["leaves"]
        if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            raise ValueError("the leaves of a grammar are pairs of a name and a weight")
        found = {**values, "leaves": dict(pairs)}
        for name in (name for name, kind in get_type_hints(cls).items() if kind is LogNormal):
            _check_entries(name, values[name], [item.name for item in fields(LogNormal)])
            try:
                found[name] = LogNormal(**values[name])
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return cls(**found)


GRAMMARS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"leaves": _even(_PAPER), "linear_offset": True, "scale": 1.0, "mean_variance": 1.0},
    "series": {
        "leaves": _even((*_PAPER, "PERIODIC")),
        "scale": 1.0,
        "mean_variance": 1.0,
        "nugget": LogNormal(math.log(1e-2), 2.0),
        "period": LogNormal(math.log(0.3), 1.25),
    },
}
"""Arguments of `Grammar` by name of the preset."""


@dataclass(frozen=True)
class KernelPrior:
    """A prior over kernels of rows of a width."""

    grammar: Grammar
    width: int  # D

    @cached_property
    def leaf_probabilities(self) -> dict[str, float]:
        """Of every symbol of a leaf, given that there is a leaf."""
        one_column, found = self.grammar.p_one_column, {}
        whole, single = self._shares(self.width), self._shares(1)
        for name in self.grammar.leaves:
            if one_column < 1 and name in whole:
                found[name] = (1 - one_column) * whole[name]
            if one_column > 0 and name in single:
                found |= {f"{name}[{d}]": one_column * single[name] / self.width for d in range(self.width)}
        return found

    def _shares(self, n_columns: int) -> dict[str, float]:
        """Of kinds among leaves that look at so many columns: of those for which these are enough, if there are any."""
        weights = self.grammar.leaves
        known = {name: w for name, w in weights.items() if LEAVES[name].least_columns <= n_columns} or dict(weights)
        total = sum(known.values())
        return {name: weight / total for name, weight in known.items()}

    def operator_probabilities(self, depth: int) -> dict[str, float]:
        """Of the operators at a node of a depth, the root's is 1; what is left is that of a leaf."""
        if depth >= self.grammar.max_depth:
            return {}
        both = {SUM: self.grammar.p_sum, PRODUCT: self.grammar.p_product}
        return {operator: p for operator, p in both.items() if p > 0}

    def sample(
        self,
        generator: torch.Generator,
        depth: int = 1,  # of the node whose subtree is drawn
    ) -> Structure:
        """A structure, or a subtree of one."""
        return Structure(self._drawn(generator, depth))

    def sample_leaf(self, generator: torch.Generator) -> str:
        """The symbol of a leaf."""
        return _choice(self.leaf_probabilities, generator)

    def sample_operator(self, generator: torch.Generator) -> str:
        """An operator, given that there is one."""
        return _choice(self.operator_probabilities(0), generator)

    def log_probability(
        self,
        structure: Structure,
        depth: int = 1,  # of its root
    ) -> float:
        """Of a structure, or of a subtree given where it is; minus infinity for what the grammar cannot make."""
        found = 0.0
        for symbol, below in zip(structure.symbols, structure.depths, strict=True):
            operators = self.operator_probabilities(depth + below - 1)
            leaf = self.leaf_probabilities.get(symbol)
            p = operators.get(symbol, 0.0) if leaf is None else (1 - sum(operators.values())) * leaf
            if p <= 0 or depth + below - 1 > self.grammar.max_depth:
                return -math.inf
            found += math.log(p)
        return found

    def check(self, structure: Structure) -> None:
        """ValueError for leaves that are not known and columns that are not there."""
        for leaf in structure.leaves:
            name, column = split_symbol(structure.symbols[leaf])
            if name not in LEAVES:
                raise ValueError(f"there is no leaf {name!r}{near(name, LEAVES)}; leaves: {', '.join(LEAVES)}")
            if column is not None and column >= self.width:
                raise ValueError(f"{structure} looks at column {column}, but rows have {self.width} columns")

    def size(self, structure: Structure) -> int:
        """How many numbers its parameters are."""
        return sum(self.leaf_sizes(structure))

    def leaf_sizes(self, structure: Structure) -> list[int]:
        """The same for each leaf, in the order of `Structure.leaves`."""
        found = (self._leaf(structure.symbols[leaf]) for leaf in structure.leaves)
        return [kind.size(scales) for kind, scales in found]

    def kernel(
        self,
        structure: Structure,
        z: Tensor,  # (..., P), standard normal a priori: those of each leaf in turn
    ) -> Expression:
        """The kernel that a structure is with parameters, which have the leading dimensions."""
        parts = iter(z.split(self.leaf_sizes(structure), dim=-1))

        def built(i: int) -> Expression:
            if structure.is_leaf(i):
                return self._leaf_kernel(structure.symbols[i], next(parts))
            first, second = (built(child) for child in structure.children(i))
            return first + second if structure.symbols[i] == SUM else first * second

        if self.grammar.scale == 1:
            return built(0)
        return z.new_tensor(self.grammar.scale) * built(0)  # a number would be checked anew for each kernel

    def leaf(
        self,
        symbol: str,
        z: Tensor,  # (..., P), its own
    ) -> tuple[Expression, Tensor]:
        """The kernel of a leaf, not multiplied by the grammar's scale, and the constant (...) that is in it."""
        kind, scales = self._leaf(symbol)
        constant = z.new_zeros(z.shape[:-1]) if kind.constant is None else kind.constant(z, scales)
        return self._leaf_kernel(symbol, z), constant

    def nugget(
        self,
        z: Tensor,  # (...)
    ) -> Tensor:
        """The variance that belongs to a row alone."""
        return self.grammar.nugget(z) + self.grammar.least_nugget

    def _drawn(self, generator: torch.Generator, depth: int) -> tuple[str, ...]:
        operators = self.operator_probabilities(depth)
        symbol = _choice({**operators, "": 1 - sum(operators.values())}, generator)
        if not symbol:
            return (self.sample_leaf(generator),)
        return (symbol, *self._drawn(generator, depth + 1), *self._drawn(generator, depth + 1))

    def _leaf(self, symbol: str) -> tuple[LeafKind, Scales]:
        name, column = split_symbol(symbol)
        grammar, width = self.grammar, self.width if column is None else 1
        return LEAVES[name], Scales(
            *(width, grammar.amplitude, grammar.relative_lengthscale, grammar.per_column, grammar.linear_offset),
            grammar.period,
        )

    def _leaf_kernel(self, symbol: str, z: Tensor) -> Expression:
        kind, scales = self._leaf(symbol)
        column = split_symbol(symbol)[1]
        kernel = kind.kernel(z, scales)
        return kernel if column is None else Columns((column,), kernel)


def split_symbol(symbol: str) -> tuple[str, int | None]:
    """The name of a leaf, and the column that it looks at, if it is one."""
    name, _, column = symbol.removesuffix("]").partition("[")
    return name, int(column) if column else None


def _check_entries(what: str, values: Any, names: Sequence[str]) -> None:
    if not isinstance(values, Mapping):
        raise ValueError(f"{what} must have the entries {', '.join(names)}, got {reprlib.repr(values)}")
    if set(values) != set(names):
        raise ValueError(f"{what} must have the entries {', '.join(names)}, got {listed(list(values)) or 'none'}")


def _choice(probabilities: Mapping[str, float], generator: torch.Generator) -> str:
    weights = torch.tensor(list(probabilities.values()), dtype=torch.float64)
    return list(probabilities)[int(torch.multinomial(weights, 1, generator=generator))]
