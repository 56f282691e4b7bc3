"""A kernel is a value: an immutable expression of leaves, sums, products, scales, columns and the unit sphere.

>>> from sureshot.kernels import RBF, Linear
>>> kernel = 2.3 * RBF(0.7) + 0.1
>>> print(kernel)
2.3 x RBF(0.7) + 0.1
>>> kernel(torch.zeros(1, 4, dtype=torch.float64)).item()
2.4
>>> list(kernel.parameters)
['kernels.0.outputscale', 'kernels.0.base_kernel.lengthscale', 'kernels.1.constant']
>>> print(kernel.replace(**{"kernels.1.constant": 5.0}) * Linear())
(2.3 x RBF(0.7) + 5) x Linear(1)

Every kind of kernel is one class with the decorator `kernel`, which makes it a frozen dataclass and enters it in the
registries `KINDS` (by name) and `GPYTORCH_CLASSES` (by the GPyTorch class that computes the same). Its fields are
declared with their roles (`sureshot.kernels.fields`) under GPyTorch's names; the rest follows.

Parameters are tensors with any leading batch dimensions, which broadcast with those of the rows. A scalar has nothing
behind them, (...); a parameter for each column has (..., D), or (..., 1) where all columns share it. Numbers are
checked and become float64; tensors are taken as they are, so that gradients flow to whatever made them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import gpytorch.kernels as gk
import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.kernels import checks
from sureshot.kernels.fields import Role, columns, format_value, part, parts, same_value, scalar, setting, vector
from sureshot.kernels.gpytorch_kernels import set_values
from sureshot.kernels.shared_rows import SharedRows


class Expression(ABC):
    """A kernel; see the module's docstring.

    A kind of kernel gives its formula in `values` and, if its rank is finite, `rank` and `features`.
    """

    roles: ClassVar[dict[str, Role]]
    gpytorch_classes: ClassVar[dict[type[Kernel], tuple[str, ...]]]
    """Those that compute the same, with their constructors' own arguments."""
    in_files: ClassVar[bool] = True
    """Whether JSON can hold it."""
    in_units_of_columns: ClassVar[bool] = False
    """Whether its numbers are periods or frequencies, which say nothing of columns that are scaled."""

    def __post_init__(self) -> None:
        for name, role in self.roles.items():
            value = getattr(self, name)
            members = {"part": (value,), "parts": value}.get(role.kind, ())
            if not isinstance(members, tuple | list) or not all(isinstance(one, Expression) for one in members):
                raise ValueError(
                    f"{type(self).__name__} is made of kernels of `sureshot.kernels`, got {value!r}."[:300]
                )
            held = role.value(value, type(self).__name__, name)
            if held is not value:
                object.__setattr__(self, name, held)

    @abstractmethod
    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        """The kernel of all pairs (..., N, M) of rows (..., N, D) and (..., M, D), or of `paired` rows (..., N).

        `x2` is the same object as `x1` when they are the same rows.
        """

    def on(self, rows: SharedRows) -> Tensor:
        """The kernel (..., N, M) of rows that share what kernels are made of; not exactly symmetric, as `values`."""
        return self.values(rows.x1, rows.x2, False)

    def rank(self, width: int) -> int | None:
        """Number of features R on rows of this width; None where no finite features are known."""
        return None

    def features(self, x: Tensor) -> Tensor | None:
        """``Phi`` (..., N, R) with ``Phi(x) Phi(x')' = K(x, x')``, or None as for `rank`."""
        return None

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """The matrix (..., N, M); of `x1` with itself exactly symmetric, its diagonal free of rounding.

        Pass the training rows as `x1` and the queries as `x2`: the first rows set the origin of distances, so that a
        query's values do not depend on the queries beside it.
        """
        self._check(x1, x2)
        if x2 is not None:
            return self.values(x1, x2, False)
        gram = self.values(x1, x1, False)
        gram = (gram + gram.mT).mul_(0.5)
        gram.diagonal(dim1=-2, dim2=-1).copy_(self.values(x1, x1, True))
        return gram

    def diagonal(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """The values of paired rows (..., N): ``k(x1[i], x1[i])``, or ``k(x1[i], x2[i])``."""
        self._check(x1, x2)
        if x2 is not None and x1.shape[-2] != x2.shape[-2]:
            raise ValueError(f"diag=True pairs row i with row i: x1 has {x1.shape[-2]} rows and x2 has {x2.shape[-2]}.")
        return self.values(x1, x1 if x2 is None else x2, True)

    @property
    def width(self) -> int | None:
        """The number of columns that the parameters were made for, where they say."""
        for name, role in self.roles.items():
            value = getattr(self, name)
            if (role.kind == "vector" and value is not None) or (role.kind == "columns" and value.shape[-1] > 1):
                return int(value.shape[-1])
        return next((width for _, part in self._parts() if (width := part.width) is not None), None)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading dimensions of the parameters, broadcast."""
        own = ((getattr(self, name), role.kind) for name, role in self.roles.items() if role.is_parameter)
        shapes = [value.shape[:-1] if kind == "columns" else value.shape for value, kind in own]
        return tuple(np.broadcast_shapes(*shapes, *(part.batch_shape for _, part in self._parts())))

    @property
    def has_periods(self) -> bool:
        """Whether it, or a part of it, is `in_units_of_columns`."""
        return self.in_units_of_columns or any(part.has_periods for _, part in self._parts())

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The parameters by name, those of parts behind the part's name and a dot."""
        found = {name: getattr(self, name) for name, role in self.roles.items() if role.is_parameter}
        for prefix, member in self._parts():
            for name, value in member.parameters.items():
                found[f"{prefix}.{name}"] = value
        return found

    def replace(self, **values: Any) -> Self:
        """The same kernel with other values of some `parameters`."""
        if unknown := values.keys() - self.parameters.keys():
            raise ValueError(f"{self} has no parameters {sorted(unknown)}, only {list(self.parameters)}.")
        return self.map(lambda name, value: values.get(name, value))

    def to(self, *arguments: Any, **options: Any) -> Self:
        """The same kernel with tensors of another dtype or device; takes what `torch.Tensor.to` does."""
        return self.map(lambda _, value: value.to(*arguments, **options))

    def map(self, function: Callable[[str, Tensor], Any], prefix: str = "") -> Self:
        """The same kernel with ``function(name, tensor)`` in the place of every parameter and constant."""
        values = {}
        for name, role in self.roles.items():
            value = getattr(self, name)
            if isinstance(value, Tensor):
                value = function(prefix + name, value)
            elif role.kind == "part":
                value = value.map(function, f"{prefix}{name}.")
            elif role.kind == "parts":
                value = tuple(part.map(function, f"{prefix}{name}.{k}.") for k, part in enumerate(value))
            values[name] = value
        return type(self)(**values)

    @classmethod
    def from_gpytorch(cls, kernel: Kernel) -> Expression:
        """The expression of a GPyTorch kernel, with its parameters as they are now: gradients flow to them.

        A class without an expression is kept as it is, in a `GPyTorchKernel`. Types are compared exactly, since a
        subclass may compute anything.
        """
        kind = GPYTORCH_CLASSES.get(type(kernel))
        if kind is None:
            return KINDS["GPyTorchKernel"](kernel)
        expression, chosen = kind.from_gpytorch_class(kernel), kernel.active_dims
        # GPyTorch's scale kernel takes over the active dimensions of its base, which are selected once.
        if chosen is None or (type(kernel) is gk.ScaleKernel and kernel.base_kernel.active_dims is not None):
            return expression
        return KINDS["Columns"](tuple(chosen.tolist()), expression)

    @classmethod
    def from_gpytorch_class(cls, kernel: Kernel) -> Expression:
        """This kind of kernel from a GPyTorch kernel of one of its classes, active dimensions aside."""
        values = {}
        for name, role in cls.roles.items():
            value = getattr(kernel, name)
            if role.kind == "columns":
                value = value.squeeze(-2)
            elif role.kind == "scalar":
                value = value.squeeze(-1) if role.trailing else value
            elif role.kind == "part":
                value = cls.from_gpytorch(value)
            elif role.kind == "parts":
                value = tuple(map(cls.from_gpytorch, value))
            values[name] = value
        return cls(**values)

    def to_gpytorch(self) -> Kernel:
        """A GPyTorch kernel with these values, whose parameters are learned through GPyTorch's default constraints."""
        if not self.gpytorch_classes:
            raise NotImplementedError(f"{type(self).__name__} has no twin in GPyTorch.")
        kind, arguments = next(iter(self.gpytorch_classes.items()))
        options = {name: getattr(self, name) for name in arguments if self.roles[name].kind in ("setting", "vector")}
        values, batches = {}, []
        for name, role in self.roles.items():
            if role.is_parameter:
                value = getattr(self, name)
                batches.append(value.shape[:-1] if role.kind == "columns" else value.shape)
                if role.kind == "columns" and value.shape[-1] > 1:
                    options["ard_num_dims"] = value.shape[-1]
                values[name] = value.unsqueeze(-2) if role.kind == "columns" else value[(..., *[None] * role.trailing)]
        if batches:
            options["batch_shape"] = np.broadcast_shapes(*batches)
        return set_values(kind(*(part.to_gpytorch() for _, part in self._parts()), **options), **values)

    @classmethod
    def from_json(cls, config: Any) -> Expression:
        return kernel_from_json(config)

    def to_json(self) -> dict[str, Any]:
        """The kernel with its values as JSON-serialisable data; see `kernel_from_json`."""
        config: dict[str, Any] = {"kernel": type(self).__name__}
        for name, role in self.roles.items():
            value = getattr(self, name)
            if isinstance(value, Tensor):
                value = value.tolist()
            elif role.kind == "part":
                value = value.to_json()
            elif role.kind == "parts":
                value = [part.to_json() for part in value]
            config[name] = list(value) if isinstance(value, tuple) else value
        return config

    def __str__(self) -> str:
        """As mathematics."""
        values = [format_value(getattr(self, name)) for name in self.roles if getattr(self, name) is not None]
        return f"{type(self).__name__}({', '.join(values)})"

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(same_value(getattr(self, name), getattr(other, name)) for name in self.roles)

    def __hash__(self) -> int:
        values = (getattr(self, name) for name in self.roles)
        return hash((type(self), *(value for value in values if not isinstance(value, Tensor))))

    def __add__(self, other: Expression | float | Tensor) -> Expression:
        other = other if isinstance(other, Expression) else KINDS["Constant"](other)
        return KINDS["Sum"](_members(self, "Sum") + _members(other, "Sum"))

    __radd__ = __add__

    def __mul__(self, other: Expression | float | Tensor) -> Expression:
        if not isinstance(other, Expression):
            return KINDS["Scale"](other, self)
        return KINDS["Product"](_members(self, "Product") + _members(other, "Product"))

    __rmul__ = __mul__

    def _parts(self) -> Iterator[tuple[str, Expression]]:
        for name, role in self.roles.items():
            if role.kind == "part":
                yield name, getattr(self, name)
            elif role.kind == "parts":
                yield from ((f"{name}.{k}", part) for k, part in enumerate(getattr(self, name)))

    def _check(self, x1: Tensor, x2: Tensor | None) -> None:
        for name, x in (("x1", x1), ("x2", x2)):
            if x is not None and (x.ndim < 2 or not x.is_floating_point()):
                raise ValueError(
                    f"{name} must be a floating-point tensor (..., rows, features), "
                    f"got {x.dtype} of shape {tuple(x.shape)}."
                )
        if x2 is not None and x1.shape[-1] != x2.shape[-1]:
            raise ValueError(f"x1 has {x1.shape[-1]} features and x2 has {x2.shape[-1]}: they must agree.")
        if self.width not in (None, x1.shape[-1]):
            raise ValueError(f"{self} was made for {self.width} features, the inputs have {x1.shape[-1]}.")
        for name, value in self.parameters.items():
            if value.dtype != x1.dtype or (x2 is not None and value.dtype != x2.dtype):
                raise ValueError(
                    f"the kernel's {name} is {value.dtype} and the inputs are {x1.dtype}"
                    + ("" if x2 is None or x2.dtype == x1.dtype else f" and {x2.dtype}")
                    + f": convert one of them, for example with kernel.to({x1.dtype})."
                )


KINDS: dict[str, type[Any]] = {}
"""Every kind of kernel by its name, which is also its name in JSON."""
GPYTORCH_CLASSES: dict[type[Kernel], type[Expression]] = {}
"""The kind of kernel for each GPyTorch class."""

_Kind = TypeVar("_Kind", bound=Expression)


@dataclass_transform(
    frozen_default=True, eq_default=False, field_specifiers=(scalar, columns, vector, setting, part, parts)
)
def kernel(gpytorch_classes: dict[type[Kernel], tuple[str, ...]]) -> Callable[[type[_Kind]], type[_Kind]]:
    """Make a class a kind of kernel: a frozen dataclass with its place in the registries.

    Its GPyTorch classes are those that compute the same, the first for conversion, each with its constructor's own
    arguments.
    """

    def register(kind: type[_Kind]) -> type[_Kind]:
        made: Any = dataclass(frozen=True, eq=False, repr=False)(kind)
        made.roles = {item.name: item.metadata["role"] for item in dataclass_fields(made)}
        made.gpytorch_classes = gpytorch_classes
        KINDS[made.__name__] = made
        GPYTORCH_CLASSES.update(dict.fromkeys(gpytorch_classes, made))
        return made

    return register


def _members(expression: Expression, kind: str) -> tuple[Expression, ...]:
    """The terms of a sum or factors of a product, else the expression alone."""
    if type(expression) is not KINDS[kind]:
        return (expression,)
    return tuple(part for _, part in expression._parts())


def kernel_from_json(config: Any, dtype: torch.dtype = torch.float64) -> Expression:
    """The kernel that `Expression.to_json` wrote, its tensors of `dtype`; fields may be left at their defaults.

    Only registered kinds of kernels are built, and their fields are checked as when they are constructed. Malformed
    data and unknown kernels are a ValueError.

    >>> kernel = kernel_from_json({"kernel": "Scale", "outputscale": 2, "base_kernel": {"kernel": "RBF"}})
    >>> print(kernel)
    2 x RBF(1)
    >>> kernel.to_json()
    {'kernel': 'Scale', 'outputscale': 2.0, 'base_kernel': {'kernel': 'RBF', 'lengthscale': [1.0]}}
    """
    checks.limit_parts(config, "kernel")
    return _read(config).to(dtype)


def _read(config: Mapping[str, Any]) -> Expression:
    known = {name: kind for name, kind in KINDS.items() if kind.in_files}
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
