"""Kernels as data: a JSON configuration and a dictionary of tensors, so that a model file needs no pickle.

A configuration is either a preset, ``{"name": "rbf", "n_features": 8, "ard": false, "constant": true,
"center": false}``, or a tree of classes, ``{"class": "ScaleKernel", "base_kernel": {...}}``. `kernel_config`
writes the second form for every kernel composed of the classes named here; `kernel_from_config` reads both.
Whatever a file says, only these classes are built, and sizes are checked before memory is taken for them.

To make a kernel class of your own savable, add it to `_LEAVES` with its constructor arguments, and each of
those to `_NUMBERS` with its check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import gpytorch.kernels as gk
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.kernels.constraints import constraint_config, constraint_from_config
from sureshot.kernels.presets import ScaledPolynomialKernel, make_kernel
from sureshot.kernels.unit_sphere import CosineKernel, UnitSphereKernel

Config = dict[str, Any]

# Far above any real kernel, far below harm: a file cannot make loading take memory or time for nothing.
_MAX_SIZE = 1_000_000  # numbers in one parameter
_MAX_DEPTH = 20
_MAX_PARTS = 200

# Classes without parts, and the numbers that their constructors need.
_LEAVES: dict[type[Kernel], tuple[str, ...]] = {
    gk.ConstantKernel: (),
    gk.LinearKernel: (),
    gk.MaternKernel: ("nu",),
    gk.PeriodicKernel: (),
    gk.PolynomialKernel: ("power",),
    gk.RBFKernel: (),
    gk.RQKernel: (),
    CosineKernel: (),
}
_SUMS_AND_PRODUCTS = (gk.AdditiveKernel, gk.ProductKernel)
_WRAPPERS = (gk.ScaleKernel, ScaledPolynomialKernel, UnitSphereKernel)
_CLASSES: dict[str, type[Kernel]] = {kind.__name__: kind for kind in (*_LEAVES, *_SUMS_AND_PRODUCTS, *_WRAPPERS)}
_OPTIONAL_KEYS = {"active_dims", "ard_num_dims", "batch_shape", "center", "constraints", "frozen"}


def kernel_config(kernel: Kernel) -> Config:
    """The structure of `kernel` as JSON-serialisable data; its parameters' values are in `kernel_state`.

    Raises
    ------
    ValueError
        When a part is of a class that is not named here, has a prior, has a constraint that cannot be written
        down, or appears twice.
    """
    parts = [part for _, part in kernel.named_modules(remove_duplicate=False) if isinstance(part, Kernel)]
    if len({id(part) for part in parts}) < len(parts):
        raise ValueError(
            "the kernel uses the same part twice and cannot be saved: a loaded model would not learn the two "
            "as one. Give each place its own copy (copy.deepcopy)."
        )
    return _write(kernel)


def _write(kernel: Kernel) -> Config:
    kind = type(kernel)
    name = kind.__name__
    if _CLASSES.get(name) is not kind:
        raise ValueError(
            f"kernels of class {kind.__module__}.{name} cannot be saved, only those composed of "
            f"{', '.join(sorted(_CLASSES))}. Keep the training rows and fit again, or use these classes."
        )
    if kernel._priors:
        raise ValueError(
            f"the {name} has the prior {next(iter(kernel._priors))!r}, which a model file cannot hold: "
            "build the kernel without priors, or with constraints instead."
        )
    config: Config = {"class": name}
    if kernel.active_dims is not None:
        config["active_dims"] = kernel.active_dims.tolist()
    if kernel.ard_num_dims is not None:
        config["ard_num_dims"] = kernel.ard_num_dims
    if kernel._batch_shape:
        config["batch_shape"] = list(kernel._batch_shape)
    if isinstance(kernel, CosineKernel | UnitSphereKernel) and kernel.center is not None:
        config["center"] = kernel.center.shape[-1]
    for attribute in _LEAVES.get(kind, ()):
        config[attribute] = getattr(kernel, attribute)
    constraints = {
        key.removesuffix("_constraint"): constraint_config(name, value) for key, value in kernel._constraints.items()
    }
    if any(constraints.values()):
        config["constraints"] = {key: value for key, value in constraints.items() if value}
    if frozen := [key for key, value in kernel._parameters.items() if not value.requires_grad]:
        config["frozen"] = frozen
    if kind is ScaledPolynomialKernel:
        config["n_features"] = kernel.n_features
    if kind in _WRAPPERS:
        config["base_kernel"] = _write(kernel.base_kernel)
    if kind in _SUMS_AND_PRODUCTS:
        config["kernels"] = [_write(part) for part in kernel.kernels]
    return config


def kernel_state(kernel: Kernel) -> dict[str, Tensor]:
    """The values that the structure lacks: raw parameters and centres, by name, as detached copies."""
    return {name: value.detach().clone() for name, value in _named_values(kernel).items()}


def load_kernel_state(kernel: Kernel, state: Mapping[str, Tensor]) -> None:
    """Put the tensors of `kernel_state` into `kernel`, which takes on their dtype.

    Raises
    ------
    ValueError
        When names, shapes or dtypes do not fit, or a value is not finite; `kernel` is then unchanged.
    """
    own = _named_values(kernel)
    if own.keys() != state.keys():
        raise ValueError(
            f"the kernel needs the tensors {sorted(own)}, got {sorted(map(str, state))}: "
            "the configuration and the tensors belong to different kernels."
        )
    if not own:
        return
    for name, value in state.items():
        if not value.is_floating_point() or not bool(value.isfinite().all()):
            raise ValueError(f"the kernel's tensor {name!r} must hold finite floating-point numbers.")
        if value.shape != own[name].shape:
            raise ValueError(
                f"the kernel's tensor {name!r} must have shape {tuple(own[name].shape)}, got {tuple(value.shape)}."
            )
    dtypes = {value.dtype for value in state.values()}
    if len(dtypes) > 1:
        raise ValueError(f"the kernel's tensors must share one dtype, got {sorted(map(str, dtypes))}.")
    kernel.to(dtype=dtypes.pop())
    with torch.no_grad():
        for name, value in _named_values(kernel).items():
            value.copy_(state[name])


def kernel_from_config(
    config: Mapping[str, Any],
    state: Mapping[str, Tensor] | None = None,
    dtype: torch.dtype = torch.float64,
) -> Kernel:
    """Build the kernel that a configuration describes.

    Parameters
    ----------
    config : mapping
        A preset (``name``, ``n_features`` and optionally ``ard``, ``constant``, ``center``) or what
        `kernel_config` wrote. With ``"center": true`` the centre is zero until the state sets it.
    state : mapping of Tensor, optional
        What `kernel_state` gave; without it parameters start at their initial values.
    dtype : torch.dtype
        Of the parameters; a state brings its own.

    Raises
    ------
    ValueError
        When the configuration is malformed, names an unknown class, or does not fit the state.
    """
    if not isinstance(config, Mapping):
        raise ValueError(f"a kernel configuration must be a mapping, got {type(config).__name__}.")
    if "name" in config:
        kernel = _preset(config, dtype)
    else:
        if _count(config, 0) > _MAX_PARTS:
            raise ValueError(f"the kernel configuration has more than {_MAX_PARTS} parts.")
        kernel = _read(config).to(dtype=dtype)
    if state is not None:
        load_kernel_state(kernel, state)
    return kernel


def _named_values(kernel: Kernel) -> dict[str, Tensor]:
    """Raw parameters and centres by their dotted names; bounds and active dimensions are configuration."""
    values: dict[str, Tensor] = dict(kernel.named_parameters())
    values |= {name: value for name, value in kernel.named_buffers() if name.split(".")[-1] == "center"}
    return values


def _preset(config: Mapping[str, Any], dtype: torch.dtype) -> Kernel:
    """The preset of a named configuration."""
    _only_keys(config, {"name", "n_features", "ard", "constant", "center"})
    name = config["name"]
    if not isinstance(name, str):
        raise ValueError(f"the kernel's name must be a string, got {name!r}.")
    flags = {key: config.get(key, key == "constant") for key in ("ard", "constant", "center")}
    for key, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"the kernel's {key!r} must be true or false, got {flag!r}.")
    width = _integer(config.get("n_features"), "n_features")
    center = torch.zeros(width, dtype=dtype) if flags.pop("center") else None
    return make_kernel(name, width, **flags, center=center, dtype=dtype)


def _count(config: Any, depth: int) -> int:
    """Number of parts of a tree, before anything is built."""
    if not isinstance(config, Mapping) or not isinstance(config.get("class"), str):
        raise ValueError('each part of a kernel configuration must be a mapping with the name of a "class".')
    if depth > _MAX_DEPTH:
        raise ValueError(f"the kernel configuration is nested more than {_MAX_DEPTH} deep.")
    parts = _list(config.get("kernels", []), "kernels")
    if "base_kernel" in config:
        parts = [*parts, config["base_kernel"]]
    return 1 + sum(_count(part, depth + 1) for part in parts)


def _read(config: Mapping[str, Any]) -> Kernel:
    """Build a tree of classes, at the default dtype."""
    kind = _CLASSES.get(config["class"])
    if kind is None:
        raise ValueError(f"unknown kernel class {config['class']!r}: expected one of {', '.join(sorted(_CLASSES))}.")
    needed = {"class", *_LEAVES.get(kind, ())}
    if kind in _WRAPPERS:
        needed.add("base_kernel")
    if kind in _SUMS_AND_PRODUCTS:
        needed.add("kernels")
    if kind is ScaledPolynomialKernel:
        needed.add("n_features")
    _only_keys(config, needed | _OPTIONAL_KEYS, needed)
    kernel = _construct(kind, config)
    for name, bounds in _mapping(config.get("constraints", {}), "constraints").items():
        if name not in kernel._parameters:
            raise ValueError(f"{kind.__name__} has no parameter {name!r} to constrain.")
        kernel.register_constraint(name, constraint_from_config(bounds))
    for name in _list(config.get("frozen", []), "frozen"):
        if not isinstance(name, str) or name not in kernel._parameters:
            raise ValueError(f"{kind.__name__} has no parameter {name!r} to freeze.")
        kernel._parameters[name].requires_grad_(False)
    return kernel


def _construct(kind: type[Kernel], config: Mapping[str, Any]) -> Kernel:
    """Call the constructor of `kind` with checked arguments."""
    if kind in _SUMS_AND_PRODUCTS:
        parts = _list(config["kernels"], "kernels")
        if not parts:
            raise ValueError("a sum or product of kernels must have at least one part.")
        return kind(*(_read(part) for part in parts))
    options: dict[str, Any] = {}
    if "batch_shape" in config:
        options["batch_shape"] = torch.Size(_integers(config["batch_shape"], "batch_shape"))
    if "active_dims" in config:
        options["active_dims"] = tuple(_integers(config["active_dims"], "active_dims", low=0))
    if "ard_num_dims" in config:
        options["ard_num_dims"] = _integer(config["ard_num_dims"], "ard_num_dims")
    if math.prod((*options.get("batch_shape", ()), options.get("ard_num_dims", 1))) > _MAX_SIZE:
        raise ValueError(f"a kernel's parameter must not have more than {_MAX_SIZE} numbers.")
    for key in _LEAVES.get(kind, ()):
        options[key] = _NUMBERS[key](config[key])
    if "center" in config:
        if kind not in (CosineKernel, UnitSphereKernel):
            raise ValueError(f"{kind.__name__} has no center.")
        options["center"] = torch.zeros(_integer(config["center"], "center"))
    if kind not in _WRAPPERS:
        if kind is gk.ConstantKernel and "ard_num_dims" in options:
            raise ValueError("ConstantKernel has no ard_num_dims.")
        return kind(**options)
    base = _read(config["base_kernel"])
    if kind is not ScaledPolynomialKernel:
        if kind is gk.ScaleKernel and base.active_dims is not None:
            options.pop("active_dims", None)  # the constructor takes the base's
        return kind(base, **options)
    if type(base) is not gk.PolynomialKernel or options:
        raise ValueError("ScaledPolynomialKernel scales the inputs of a PolynomialKernel and takes no options.")
    kernel = ScaledPolynomialKernel(base.power, _integer(config["n_features"], "n_features"))
    kernel.base_kernel = base
    return kernel


def _only_keys(config: Mapping[str, Any], known: set[str], needed: set[str] | None = None) -> None:
    unknown = [key for key in config if key not in known]
    missing = sorted((needed or set()) - config.keys())
    if unknown or missing:
        raise ValueError(
            "malformed kernel configuration: "
            + (f"unknown entries {unknown}" if unknown else f"missing entries {missing}")
            + "."
        )


def _integer(value: Any, name: str, low: int = 1, high: int = _MAX_SIZE) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"the kernel's {name} must be an integer from {low} to {high}, got {value!r}.")
    return value


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"the kernel's {name} must be a list, got {value!r}.")
    return value


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"the kernel's {name} must be a mapping, got {value!r}.")
    return value


def _integers(value: Any, name: str, low: int = 1) -> list[int]:
    values = [_integer(item, name, low) for item in _list(value, name)]
    if not values:
        raise ValueError(f"the kernel's {name} must not be empty.")
    return values


def _smoothness(value: Any) -> float:
    if isinstance(value, bool) or value not in (0.5, 1.5, 2.5):
        raise ValueError(f"the kernel's nu must be 0.5, 1.5 or 2.5, got {value!r}.")
    return float(value)


_NUMBERS: dict[str, Callable[[Any], float]] = {
    "nu": _smoothness,
    "power": lambda value: _integer(value, "power", 1, 20),
}
