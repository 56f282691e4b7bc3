"""GPyTorch kernels as data: a JSON configuration and a dictionary of tensors, so that a model file needs no pickle.

A configuration is either a preset, ``{"name": "rbf", "n_features": 8, "ard": false, "constant": true,
"center": false}``, or a tree of classes, ``{"class": "ScaleKernel", "base_kernel": {...}}``. `kernel_config`
writes the second form for every kernel composed of the classes that have an expression; `kernel_from_config` reads
both.
Whatever a file says, only these classes are built, and sizes are checked before memory is taken for them.

Beside an expression's values this keeps what learning needs: raw parameters, their constraints, which are frozen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gpytorch.kernels as gk
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.kernels.checks import MAX_SIZE, integer, integers, limit_parts, listing, mapping, only_keys
from sureshot.kernels.constraints import constraint_config, constraint_from_config
from sureshot.kernels.expression import GPYTORCH_CLASSES
from sureshot.kernels.gpytorch_kernels import ScaledPolynomialKernel
from sureshot.kernels.presets import make_kernel

Config = dict[str, Any]

_OPTIONAL_KEYS = {"active_dims", "ard_num_dims", "batch_shape", "constraints", "frozen"}


def _classes() -> dict[str, type[Kernel]]:
    """The classes that a file may name."""
    return {kind.__name__: kind for kind in GPYTORCH_CLASSES}


def _arguments(kind: type[Kernel]) -> tuple[str, ...]:
    """What the constructor of a class needs of its own."""
    return GPYTORCH_CLASSES[kind].gpytorch_classes[kind]


def kernel_config(kernel: Kernel) -> Config:
    """The structure of `kernel` as JSON-serialisable data; its parameters' values are in `kernel_state`.

    A ValueError says which part cannot be written down: one of a class without an expression, with a prior or a
    constraint of another kind, or a part that appears twice.
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
    if kind not in GPYTORCH_CLASSES:
        raise ValueError(
            f"kernels of class {kind.__module__}.{name} cannot be saved, only those composed of "
            f"{', '.join(sorted(_classes()))}. Keep the training rows and fit again, or use these classes."
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
    constraints = {
        key.removesuffix("_constraint"): constraint_config(name, value) for key, value in kernel._constraints.items()
    }
    if any(constraints.values()):
        config["constraints"] = {key: value for key, value in constraints.items() if value}
    if frozen := [key for key, value in kernel._parameters.items() if not value.requires_grad]:
        config["frozen"] = frozen
    for argument in _arguments(kind):
        value = getattr(kernel, argument)
        if argument == "center":
            if value is not None:
                config["center"] = value.shape[-1]
        elif argument == "base_kernel":
            config["base_kernel"] = _write(value)
        elif argument == "kernels":
            config["kernels"] = [_write(part) for part in value]
        else:
            config[argument] = value
    return config


def kernel_state(kernel: Kernel) -> dict[str, Tensor]:
    """The values that the structure lacks: raw parameters and centres, by name, as detached copies."""
    return {name: value.detach().clone() for name, value in _named_values(kernel).items()}


def load_kernel_state(kernel: Kernel, state: Mapping[str, Tensor]) -> None:
    """Put the tensors of `kernel_state` into `kernel`, which takes on their dtype.

    A ValueError says what does not fit; `kernel` is then unchanged.
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
    state: Mapping[str, Tensor] | None = None,  # without it parameters start at their initial values
    dtype: torch.dtype = torch.float64,  # of the parameters; a state brings its own
) -> Kernel:
    """Build the kernel that a configuration describes: a preset, or what `kernel_config` wrote.

    With ``"center": true`` the centre of a preset is zero until the state sets it. Whatever is malformed, unknown or
    does not fit the state is a ValueError.
    """
    if not isinstance(config, Mapping):
        raise ValueError(f"a kernel configuration must be a mapping, got {type(config).__name__}.")
    if "name" in config:
        kernel = _preset(config, dtype)
    else:
        limit_parts(config, "class")
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
    only_keys(config, {"name", "n_features", "ard", "constant", "center"})
    name = config["name"]
    if not isinstance(name, str):
        raise ValueError(f"the kernel's name must be a string, got {name!r}.")
    flags = {key: config.get(key, key == "constant") for key in ("ard", "constant", "center")}
    for key, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"the kernel's {key!r} must be true or false, got {flag!r}.")
    width = integer(config.get("n_features"), "n_features")
    center = torch.zeros(width, dtype=dtype) if flags.pop("center") else None
    return make_kernel(name, width, **flags, center=center, dtype=dtype)


def _read(config: Mapping[str, Any]) -> Kernel:
    """Build a tree of classes, at the default dtype."""
    kind = _classes().get(config["class"])
    if kind is None:
        raise ValueError(f"unknown kernel class {config['class']!r}: expected one of {', '.join(sorted(_classes()))}.")
    needed = {"class", *_arguments(kind)} - {"center"}
    if "center" in config and "center" not in _arguments(kind):
        raise ValueError(f"{kind.__name__} has no center.")
    only_keys(config, needed | _OPTIONAL_KEYS | {"center"}, needed)
    kernel = _construct(kind, config)
    if "active_dims" in config:
        kernel.active_dims = torch.tensor(integers(config["active_dims"], "active_dims", low=0))
    for name, bounds in mapping(config.get("constraints", {}), "constraints").items():
        if name not in kernel._parameters:
            raise ValueError(f"{kind.__name__} has no parameter {name!r} to constrain.")
        kernel.register_constraint(name, constraint_from_config(bounds))
    for name in listing(config.get("frozen", []), "frozen"):
        if not isinstance(name, str) or name not in kernel._parameters:
            raise ValueError(f"{kind.__name__} has no parameter {name!r} to freeze.")
        kernel._parameters[name].requires_grad_(False)
    return kernel


def _construct(kind: type[Kernel], config: Mapping[str, Any]) -> Kernel:
    """Call the constructor of `kind` with checked arguments."""
    options: dict[str, Any] = {}
    if "batch_shape" in config:
        options["batch_shape"] = torch.Size(integers(config["batch_shape"], "batch_shape"))
    if "ard_num_dims" in config:
        options["ard_num_dims"] = integer(config["ard_num_dims"], "ard_num_dims")
    if math.prod((*options.get("batch_shape", ()), options.get("ard_num_dims", 1))) > MAX_SIZE:
        raise ValueError(f"a kernel's parameter must not have more than {MAX_SIZE} numbers.")
    if kind is gk.ConstantKernel and "ard_num_dims" in options:
        raise ValueError("ConstantKernel has no ard_num_dims.")
    parts: list[Kernel] = []
    for argument in _arguments(kind):
        if argument == "base_kernel":
            parts = [_read(config["base_kernel"])]
        elif argument == "kernels":
            parts = [_read(part) for part in listing(config["kernels"], "kernels")]
            if not parts:
                raise ValueError("a sum or product of kernels must have at least one part.")
        elif argument == "center":
            options["center"] = (
                torch.zeros(integer(config["center"], "center"), dtype=torch.float64) if "center" in config else None
            )
        else:
            check = GPYTORCH_CLASSES[kind].roles[argument].check
            assert check is not None
            options[argument] = check(config[argument], argument)
    if kind is not ScaledPolynomialKernel:
        return kind(*parts, **options)
    (base,) = parts
    if type(base) is not gk.PolynomialKernel or options.keys() != {"n_features"}:
        raise ValueError("ScaledPolynomialKernel scales the inputs of a PolynomialKernel and takes no options.")
    kernel = ScaledPolynomialKernel(base.power, options["n_features"])
    kernel.base_kernel = base
    return kernel
