"""Checkpoints: a module that can be used, and what is needed to train it further.

A checkpoint is a model file (`sureshot.persistence`). Its header has the settings of the run, what builds the module
again, and how far the run got; its arrays are the module's parameters and buffers and, in the checkpoint that training
resumes from, the optimiser's moments (of Adam, or of gradient descent with momentum). Loading runs nothing and checks
every array against the module that it is for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.persistence import Artifact, ArtifactError, load_artifact, require, require_header, save_artifact

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

LAST_NAME = "last.safetensors"
BEST_NAME = "best.safetensors"

_MODEL, _OPTIMISER, _CARRIED = "model.", "optimiser.", "carried."


def save_checkpoint(
    path: Path,
    kind: str,
    header: Mapping[str, Any],  # JSON values: the run's config and what builds the module
    module: nn.Module,
    progress: Mapping[str, Any],  # JSON values
    metrics: Mapping[str, Any],  # scores that it was chosen by, empty if there are none
    optimiser: torch.optim.Optimizer | None = None,  # leave out for a checkpoint that is only to be used
    carried: Mapping[str, Tensor] | None = None,  # of all units; see `Trainable.carried`
) -> None:
    """Write a checkpoint, whole or not at all."""
    content = {**header, "progress": dict(progress), "metrics": dict(metrics)}
    left = {_CARRIED + name: value for name, value in (carried or {}).items()}
    save_artifact(path, kind, content, arrays_of(module, optimiser) | left)


def load_checkpoint(path: Path, kind: str) -> Artifact:
    """Read a checkpoint of this kind, to resume from.

    Raises
    ------
    ArtifactError
        If the file is damaged or something else; the message says which.
    """
    artifact = load_artifact(path, kind)
    require_header(artifact, "config", "progress", "metrics")
    return artifact


def best_of(path: str | os.PathLike[str], trained_by: str) -> Path:
    """A checkpoint, or the best one in the folder of a run.

    Raises
    ------
    ArtifactError
        If the folder has none; `trained_by` is what would write one.
    """
    found = Path(path)
    if not found.is_dir():
        return found
    if (found / BEST_NAME).is_file():
        return found / BEST_NAME
    advice = f"name a folder that {trained_by} wrote"
    if (found / LAST_NAME).is_file():
        advice = f"no validation has chosen one yet, go on with {trained_by}"
    raise ArtifactError(f"{found} has no {BEST_NAME}: {advice}.")


def arrays_of(module: nn.Module, optimiser: torch.optim.Optimizer | None = None) -> dict[str, Tensor]:
    """What a checkpoint holds by name: parameters and buffers and, if an optimiser is given, its moments."""
    arrays = {_MODEL + name: value for name, value in module.state_dict().items()}
    if optimiser is not None:
        arrays |= dict(_moments(module, optimiser))
    return arrays


def restore(checkpoint: Artifact, module: nn.Module) -> None:
    """Copy the saved state into a module of the same architecture.

    Raises
    ------
    ArtifactError
        If it has another architecture.
    """
    import torch

    state = module.state_dict()
    # What is infinite before training is a constant, the bound of a constraint, and stays as it is.
    learnt = {name: value for name, value in state.items() if bool(torch.isfinite(value).all())}
    expected = {_MODEL + name: _described(value) for name, value in learnt.items()}
    saved = {name for name in checkpoint.arrays if name.startswith(_MODEL)}
    foreign = sorted(saved - {_MODEL + name for name in state})
    if foreign:
        name = foreign[0].removeprefix(_MODEL)
        raise ArtifactError(
            f"{checkpoint.path} is a checkpoint of another architecture: it has {name!r}, which the learner lacks"
        )
    try:
        arrays = require(checkpoint, expected)
    except ArtifactError as error:
        raise ArtifactError(f"the checkpoint does not fit the learner that it is loaded into: {error}") from error
    module.load_state_dict(state | {name: torch.from_numpy(arrays[_MODEL + name]) for name in learnt})


def restore_optimiser(checkpoint: Artifact, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Give an optimiser the moments that it had.

    Raises
    ------
    ArtifactError
        If the checkpoint is one to use, not one to resume from, or is of another optimiser.
    """
    import torch

    arrays, names = checkpoint.arrays, moment_names(optimiser)
    if not names:
        return
    if not any(name.startswith(_OPTIMISER) for name in arrays):
        raise ArtifactError(f"{checkpoint.path} has no state of an optimiser: resume from {LAST_NAME}")
    moved = {key.removeprefix(_OPTIMISER).partition(".")[2] for key in arrays if key.startswith(_OPTIMISER)}
    for name, parameter in module.named_parameters():
        if name not in moved:
            continue  # it had no gradient
        shape = tuple(parameter.shape)
        wanted = {f"{_OPTIMISER}{moment}.{name}": ("float", () if moment == "step" else shape) for moment in names}
        found = {key: torch.from_numpy(value) for key, value in require(checkpoint, wanted).items()}
        # Same memory format as the parameter, so that the same arithmetic follows.
        optimiser.state[parameter] = {
            moment: value if moment == "step" else torch.empty_like(parameter).copy_(value)
            for moment, value in zip(names, found.values(), strict=True)
        }


def moment_names(optimiser: torch.optim.Optimizer) -> tuple[str, ...]:
    """What an optimiser keeps for each parameter.

    Raises
    ------
    ValueError
        For an optimiser whose state is not known here.
    """
    import torch

    if type(optimiser) in (torch.optim.Adam, torch.optim.AdamW):
        return ("step", "exp_avg", "exp_avg_sq")
    if type(optimiser) is torch.optim.SGD:
        return ("momentum_buffer",) if any(group["momentum"] for group in optimiser.param_groups) else ()
    raise ValueError(
        f"the state of {type(optimiser).__name__} cannot be saved: use Adam, AdamW or SGD, or say in "
        "sureshot.networks.checkpoint what it keeps for each parameter"
    )


def carried_of(checkpoint: Artifact, share: slice) -> dict[str, Tensor]:
    """What the step before the checkpoint left for a share of the units; see `Trainable.carried`."""
    import torch

    return {
        name.removeprefix(_CARRIED): torch.from_numpy(value[share])
        for name, value in checkpoint.arrays.items()
        if name.startswith(_CARRIED)
    }


def _described(value: Tensor) -> tuple[str, tuple[int, ...]]:
    return str(value.dtype).removeprefix("torch."), tuple(value.shape)


def _moments(module: nn.Module, optimiser: torch.optim.Optimizer) -> Iterable[tuple[str, Tensor]]:
    for name, parameter in module.named_parameters():
        state = optimiser.state.get(parameter, {})
        for moment in moment_names(optimiser):
            if moment in state:
                yield f"{_OPTIMISER}{moment}.{name}", state[moment]
