"""Backbones: the networks that turn images, embeddings and sequences into features for a kernel.

`make_backbone` builds one by name, `backbone_from_config` builds it again from its ``config``. Weights are drawn
from the option ``seed``; no global generator is touched. Backbones of other packages, and those that a script has
registered (`register_backbone`), count like ours (`sureshot.plugins`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from sureshot.members import members, stated_name
from sureshot.networks.backbones.base import Backbone, as_inputs
from sureshot.networks.backbones.conv4 import Conv4
from sureshot.networks.backbones.lstm import LSTM
from sureshot.networks.backbones.projections import Identity, LinearProjection, MLPProjection
from sureshot.networks.backbones.resnet import ResNet12, ResNet18
from sureshot.networks.backbones.timm_models import TimmModel
from sureshot.plugins import Registry

BACKBONES: Registry[type[Backbone]] = Registry("backbone", members(Backbone, __name__), stated_name, Backbone)
BACKBONE_NAMES = tuple(BACKBONES.ours)

register_backbone = BACKBONES.register


def make_backbone(
    name: str,  # one of ``BACKBONES``
    input_shape: Sequence[int],  # of one input: (channels, height, width), (length, channels) or (width,)
    **options: Any,  # of the backbone, such as ``seed``; see its class
) -> Backbone:
    """A backbone by name."""
    check_backbone(name, options)
    backbone: Backbone = BACKBONES.make(name, input_shape, **options)
    if package := BACKBONES.package(name):
        backbone.config["package"] = package
    return backbone


def check_backbone(name: str, options: Mapping[str, Any]) -> None:
    """Refuse an unknown name or option, or a seed that is none, as `make_backbone` does."""
    BACKBONES.require(name)
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
    name = options.pop("name")
    BACKBONES.require(name, options.pop("package", None))
    return make_backbone(name, options.pop("input_shape"), **options)


__all__ = [
    "BACKBONES",
    "BACKBONE_NAMES",
    "LSTM",
    "Backbone",
    "Conv4",
    "Identity",
    "LinearProjection",
    "MLPProjection",
    "ResNet12",
    "ResNet18",
    "TimmModel",
    "as_inputs",
    "backbone_from_config",
    "check_backbone",
    "draws_weights",
    "make_backbone",
    "register_backbone",
]
