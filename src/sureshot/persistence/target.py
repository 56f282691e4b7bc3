"""Where a model file is written, and errors of model files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

OTHER_ENDINGS = frozenset(
    f".{ending}"
    for ending in (
        *("csv", "tsv", "txt", "xls", "xlsx", "parquet", "npy", "npz", "h5", "json", "toml", "html", "md", "py"),
        *("pkl", "pickle", "joblib", "skops", "pt", "pth", "ckpt", "onnx", "png", "jpg", "jpeg", "svg", "pdf", "zip"),
    )
)
"""What a model file is not called: whoever opens one expects something else, and it may be the data."""


class ArtifactError(ValueError):
    """A model file that cannot be written or read; the message is one line that says why and what to do."""


def check_target(path: str | os.PathLike[str]) -> Path:
    """The file that a model would be saved to, if one can be (`ArtifactError`)."""
    target = Path(os.path.realpath(file_path(path)))
    if (ending := target.suffix.lower()) in OTHER_ENDINGS:
        raise ArtifactError(
            f"cannot save to {target}: {ending} is the ending of other files, and this would be a safetensors file; "
            f"try {target.with_suffix('.safetensors').name}."
        )
    if os.path.isdir(target):
        raise ArtifactError(f"cannot save to {target}: it is a folder; give the name of a file inside it.")
    if not os.path.isdir(target.parent):
        raise ArtifactError(f"cannot save to {target}: there is no folder {target.parent}; create it first.")
    return target


def file_path(path: Any) -> str:
    """The name of a file as text (`ArtifactError`)."""
    if not isinstance(path, str | os.PathLike):
        raise ArtifactError(f"path must name a model file, as text or a pathlib.Path; got {path!r}.")
    return os.fspath(path)
