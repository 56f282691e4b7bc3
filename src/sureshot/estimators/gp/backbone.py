"""A network in front of a regressor: which one an argument means, how it is trained on a first fit, what files hold.

A fit trains the network together with a kernel (`sureshot.deep.kernel_regression`). Rows are kept as its features from
then on, and everything else is that of any rows. But rows that have taught the network lie where their numbers want
them, and are predicted too well when they are left out: how far off those rows are that were kept aside is part of the
reader, and widens what is said of new ones.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sureshot.data.remembered import Remembered
from sureshot.deep.kernel_regression import KernelTraining, TrainedKernel, train_kernel
from sureshot.estimators.devices import device_for
from sureshot.estimators.gp.number_fitted import GPNumbersFitted
from sureshot.estimators.numbers.mixture import NormalMixture
from sureshot.estimators.numbers.number_fitted import judges
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.encoder import Encoder, as_rows
from sureshot.estimators.rows.labelled_rows import merge_rows, places_among
from sureshot.networks.backbones import BACKBONE_NAMES, BACKBONES, Backbone, backbone_from_config, draws_weights

FEWEST = 10
"""Rows: a fifth of fewer chooses nothing."""

PRESETS: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": [32]},
    "lstm": {"hidden": 32, "pooling": "last"},
    "conv4": {"n_filters": 32},
}
"""Options of backbones that are asked for by a name alone, small, as rows are few."""

DOUBTS = (0.0, *np.geomspace(1e-4, 1.0, 33).tolist())
"""Variances of numbers of variance one, of which that is added that rows kept aside like best."""

_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class NetworkEncoder(Encoder):
    """A trained network, from rows to features in units of the kernel's length-scale."""

    network: nn.Module  # in evaluation mode and double precision
    input_shape: tuple[int, ...]
    mean: Tensor  # (channels,), subtracted from the last dimension of rows; () of images
    scale: Tensor  # as the mean, then divided by
    lengthscale: float
    doubt: float = 0.0
    unseen_errors: np.ndarray | None = None
    unseen: np.ndarray | None = field(default=None, compare=False)  # (K, D), features of rows that were kept aside

    @property
    def shape(self) -> tuple[int, ...]:
        return self.input_shape

    @property
    def device(self) -> torch.device:
        return self.mean.device

    @property
    def has_columns(self) -> bool:
        """One feature alone means nothing."""
        return False

    def inputs(self, rows: Tensor) -> Tensor:
        """What the network sees of rows."""
        return (rows - self.mean) / self.scale

    def embed(self, rows: Tensor) -> Tensor:
        features: Tensor = self.network(self.inputs(rows)) / self.lengthscale
        if bool(features.isnan().any()):
            raise ValueError(
                f"the network gives NaN for {int(features.isnan().any(1).sum())} of {len(rows)} rows: see what it "
                "makes of values as large as theirs."
            )
        return features


@dataclass(frozen=True)
class StoredNetwork:
    """What a model file holds of a `NetworkEncoder`."""

    config: dict[str, Any]
    state: dict[str, Tensor]
    mean: Tensor
    scale: Tensor
    lengthscale: float
    doubt: float
    unseen_errors: np.ndarray
    reading: Remembered | None

    as_learnt: ClassVar = ("lengthscale", "doubt", "unseen_errors", "reading")

    def check_parts(self) -> None:
        """ValueError for scales or errors that are none."""
        if not (self.lengthscale > 0 and self.doubt >= 0 and bool((self.scale > 0).all())):
            raise ValueError("malformed scales of a network")
        if self.unseen_errors.ndim != 2 or not (self.unseen_errors >= 0).all():
            raise ValueError("malformed errors of rows that a network has not seen")

    @classmethod
    def of(cls, encoder: NetworkEncoder) -> StoredNetwork:
        """`ValueError` for a network that nothing but its own code can build."""
        if not isinstance(encoder.network, Backbone):
            raise ValueError(
                f"no file can hold the code of a {type(encoder.network).__name__}: pickle the model, or take a "
                f"backbone of sureshot.networks.backbones ({', '.join(BACKBONE_NAMES)})"
            )
        parts = {name: getattr(encoder, name) for name in ("mean", "scale", *cls.as_learnt)}
        return cls(dict(encoder.network.config), dict(encoder.network.state_dict()), **parts)

    @property
    def encoder(self) -> NetworkEncoder:
        """As it was."""
        network = backbone_from_config(self.config).double()
        network.load_state_dict(self.state)
        device = device_for("auto")
        ready = network.to(device).eval().requires_grad_(False)
        parts = {name: getattr(self, name) for name in self.as_learnt}
        return NetworkEncoder(ready, network.input_shape, self.mean.to(device), self.scale.to(device), **parts)


def network_for(backbone: Any, X: Any, seed: int) -> tuple[nn.Module, tuple[int, ...]]:
    """The network that an argument ``backbone`` means for rows X, untrained, and the shape that it takes of a row."""
    if isinstance(backbone, Backbone):
        return copy.deepcopy(backbone), backbone.input_shape
    try:
        came = tuple(np.shape(X))[1:]
    except ValueError as error:
        raise ValueError("X has rows of different lengths: cut, pad or resample them to one.") from error
    if isinstance(backbone, nn.Module):
        return copy.deepcopy(backbone), came
    config = {"name": backbone, **PRESETS.get(backbone, {})} if isinstance(backbone, str) else backbone
    if not isinstance(config, Mapping) or config.get("name") not in BACKBONES:
        raise ValueError(
            f"backbone must be one of {', '.join(map(repr, BACKBONES))}, a dict of such a name and its options, "
            f"as {{'name': 'mlp', 'hidden': [64]}}, or a torch.nn.Module; got {backbone!r}."
        )
    config = {"input_shape": _shape_for(config["name"], came), **config}
    if draws_weights(config["name"]):
        config.setdefault("seed", seed)
    return backbone_from_config(config), tuple(config["input_shape"])


def _shape_for(name: str, came: tuple[int, ...]) -> tuple[int, ...]:
    """Of a row as the backbone of that name takes it; images have their channels first, sequences last."""
    if name == "lstm" and len(came) == 1:
        return (*came, 1)
    if name in ("conv4", "resnet12", "resnet18", "timm"):
        if len(came) == 2:
            return (1, *came)
        if len(came) == 3 and came[0] not in _CHANNELS and came[2] in _CHANNELS:
            return came[2], *came[:2]
    return came


def untrained(backbone: Any, X: Any, seed: int, device: str) -> NetworkEncoder:
    """What reads the rows of a first fit for a network that is yet to be trained."""
    network, shape = network_for(backbone, X, seed)
    nothing = torch.zeros((), dtype=torch.float64, device=device_for(device))
    return NetworkEncoder(network, shape, nothing, nothing + 1, 1.0)


def trained(
    encoder: NetworkEncoder,
    checked: np.ndarray,  # (n, width), as `Encoder.check` has rows
    y: np.ndarray,  # (n, P)
    weight: np.ndarray,  # (n,)
    transform: str,  # of the target, "auto" for none
    settings: KernelTraining,
) -> NetworkEncoder:
    """The encoder with its network trained on rows, those of weight zero left out."""
    counted = weight > 0
    inputs = as_rows(checked[counted], encoder.shape).flatten(1).numpy()
    merged = merge_rows(inputs, y[counted], weight[counted])
    if len(merged.y) < FEWEST:
        raise ValueError(
            f"backbone needs {FEWEST} different rows at least, of which a fifth says when to stop, but {len(merged.y)} "
            "came: fit more, or leave backbone out."
        )
    rows = as_rows(merged.x, encoder.shape).to(encoder.device)
    if len(encoder.shape) != 3:
        dims = tuple(range(rows.ndim - 1))
        mean, scale = rows.mean(dims), rows.std(dims, correction=0)
        encoder = replace(encoder, mean=mean, scale=torch.where(scale > 1e-12 * mean.abs(), scale, 1.0))
    if transform == "auto" or (transform == "log" and (merged.y <= 0).any()):  # which the fit then refuses
        transform = "none"
    numbers = TargetScale.of(merged.y, merged.weight, transform)(merged.y)
    targets, weights = (torch.from_numpy(part).to(encoder.device) for part in (numbers.T.copy(), merged.weight))
    found = _taught(encoder, rows, targets, weights, settings)
    network = found.kernel.network.double().requires_grad_(False)
    encoder = replace(encoder, network=network, lengthscale=float(found.kernel.lengthscale))
    return replace(encoder, unseen=encoder.keep(merged.x[found.aside.cpu().numpy()], True))


def _taught(
    encoder: NetworkEncoder, rows: Tensor, targets: Tensor, weights: Tensor, settings: KernelTraining
) -> TrainedKernel:
    """In single precision, the network's own errors named as such."""
    try:
        with torch.no_grad():
            encoder.network.float().to(encoder.device).eval()(encoder.inputs(rows[:2]).float())
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"the backbone cannot take rows of shape {encoder.shape}: {reason}") from error
    return train_kernel(encoder.network, encoder.inputs(rows).float(), targets, weights, settings)


def widened(fitted: GPNumbersFitted) -> GPNumbersFitted:
    """With the doubt by which those rows are most probable, left out, that the network was not trained on."""
    encoder = fitted.reader
    if not isinstance(encoder, NetworkEncoder) or encoder.unseen is None:
        return fitted
    place = places_among(encoder.unseen, fitted.rows.x[judges(fitted.rows)]) >= 0
    numbers, found = fitted.target(fitted.left_out[0][place]), fitted.left_out[1].scaled
    means, variances = found.means[:, place], found.deviations[:, place] ** 2

    def with_doubt(doubt: float) -> NormalMixture:
        return NormalMixture(found.weight, means, np.sqrt(variances + doubt))

    doubt = max(DOUBTS, key=lambda doubt: float(with_doubt(doubt).log_density(numbers).sum()))
    errors = np.sort(np.abs(with_doubt(doubt).errors(numbers)).T, axis=1)
    return replace(fitted, reader=replace(encoder, doubt=doubt, unseen_errors=errors, unseen=None))
