"""Any image model of timm, pretrained or not, without its classifier: the extra ``timm``.

timm knows its models' arithmetic, their initial weights and the layout of files of pretrained ones; images come here as
everywhere, in [0, 1], and are normalised as the model expects. Where the weights came from is no part of the config:
a checkpoint holds all of them, and needs no other file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sureshot.networks.backbones.base import Backbone, image_shape


class TimmModel(Backbone):
    """A model of timm."""

    name = "timm"

    mean: Tensor  # (channels, 1, 1), of images as the model expects them
    std: Tensor

    def __init__(
        self,
        input_shape: Sequence[int],
        *,
        model: str,  # as `timm.create_model` takes it, such as "resnet18" or "vit_small_patch14_dinov2"
        weights: str | os.PathLike[str] | None = None,  # a file of a state dict of that model; drawn if None
        arguments: Mapping[str, Any] | None = None,  # further ones of the model, such as ``{"img_size": 84}``
        seed: int = 0,
    ) -> None:
        channels, height, width = image_shape(f"timm's {model}", input_shape, 1)
        network = _network(model, weights, {"in_chans": channels, **(arguments or {})}, seed).eval()
        try:
            with torch.no_grad():
                n_features = network(torch.zeros(1, channels, height, width, dtype=torch.float32)).shape[-1]
        except (RuntimeError, AssertionError, ValueError) as error:
            size = f"{height}x{width} pixels ({error}): resize them, or give arguments, such as img_size"
            raise ValueError(f"timm's {model} takes no images of {size}") from error
        super().__init__(input_shape, n_features, {"model": model, "arguments": dict(arguments or {}), "seed": seed})
        self.network = network.train()
        for name in ("mean", "std"):
            of_channels = torch.tensor(network.pretrained_cfg[name], dtype=torch.float32)
            if len(of_channels) != channels:
                of_channels = of_channels.mean().expand(channels)
            self.register_buffer(name, of_channels[:, None, None].clone(), persistent=False)

    def encode(self, x: Tensor) -> Tensor:
        features: Tensor = self.network((x - self.mean) / self.std)
        return features


def _network(model: str, weights: str | os.PathLike[str] | None, arguments: dict[str, Any], seed: int) -> Any:
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision is of another build than torch
        raise ImportError(
            f"the backbone 'timm' needs timm, and torchvision built for torch {torch.__version__} ({error}): "
            "python -m pip install 'sureshot[timm]'"
        ) from error
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(seed)  # from which timm draws
        try:
            if weights is not None:
                state = timm.models.load_state_dict(os.fspath(weights), weights_only=True)  # executes nothing
                names = timm.get_pretrained_cfg(model).classifier or ()
                heads = (names,) if isinstance(names, str) else names
                kept = {key: value for key, value in state.items() if key.rpartition(".")[0] not in heads}
                # With as many classes as the model has, none, timm refuses weights that do not fit.
                overlay = {"state_dict": kept, "num_classes": 0, "label_offset": 0}
                arguments = {**arguments, "pretrained": True, "pretrained_cfg_overlay": overlay}
            return timm.create_model(model, num_classes=0, dtype=torch.float32, **arguments)
        except Exception as error:  # of any kind, from as many authors as there are models
            of = "" if weights is None else f" with the weights {os.fspath(weights)}"
            reason = f"{type(error).__name__} {str(error).strip()}".splitlines()[0].strip()
            raise ValueError(f"timm cannot make the model {model!r}{of}: {reason}") from error
