"""Backbones: the networks that turn images, embeddings and sequences into features for a kernel.

`make_backbone` builds one by name, `backbone_from_config` builds it again from its ``config``. Weights are drawn
from the option ``seed``; no global generator is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

from sureshot.members import members
from sureshot.networks.backbones.base import Backbone, as_inputs
from sureshot.networks.backbones.conv4 import Conv4
from sureshot.networks.backbones.lstm import LSTM
from sureshot.networks.backbones.projections import Identity, LinearProjection, MLPProjection
from sureshot.networks.backbones.resnet import ResNet12, ResNet18

BACKBONES: dict[str, Callable[..., Backbone]] = members(Backbone, __name__)
BACKBONE_NAMES = tuple(BACKBONES)


def make_backbone(
    name: str,  # one of ``BACKBONE_NAMES``
    input_shape: Sequence[int],  # of one input: (channels, height, width), (length, channels) or (width,)
    **options: Any,  # of the backbone, such as ``seed``; see its class
) -> Backbone:
    """A backbone by name."""
    check_backbone(name, options)
    try:
        return BACKBONES[name](input_shape, **options)
    except TypeError as error:
        given = ", ".join(f"{option} = {value!r}" for option, value in options.items())
        raise ValueError(f"backbone {name!r} does not take these options ({given}): {error}") from error


def check_backbone(name: str, options: Mapping[str, Any]) -> None:
    """Refuse an unknown name or option, or a seed that is none, as `make_backbone` does."""
    if name not in BACKBONES:
        raise ValueError(f"there is no backbone {name!r}; choose one of {', '.join(BACKBONE_NAMES)}")
    known = [option for option in signature(BACKBONES[name]).parameters if option != "input_shape"]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(f"backbone {name!r} has no option {unknown[0]!r}; it has {', '.join(known) or 'none'}")
    seed = options.get("seed", 0)
    if type(seed) is not int or seed < 0:
        raise ValueError(f"the seed of backbone {name!r} must be a whole number from 0, got {seed!r}")


def draws_weights(name: str) -> bool:
    """Whether a backbone has initial weights to draw, and so an option ``seed``."""
    return name in BACKBONES and "seed" in signature(BACKBONES[name]).parameters


def backbone_from_config(config: Mapping[str, Any]) -> Backbone:
    """The network that has this ``config``, with its initial weights; load a ``state_dict`` for trained ones."""
    options = dict(config)
    missing = [key for key in ("name", "input_shape") if key not in options]
    if missing:
        raise ValueError(f"the config of a backbone must have 'name' and 'input_shape', {missing[0]!r} is missing")
    return make_backbone(options.pop("name"), options.pop("input_shape"), **options)


__all__ = [
    "BACKBONE_NAMES",
    "LSTM",
    "Backbone",
    "Conv4",
    "Identity",
    "LinearProjection",
    "MLPProjection",
    "ResNet12",
    "ResNet18",
    "as_inputs",
    "backbone_from_config",
    "check_backbone",
    "draws_weights",
    "make_backbone",
]
