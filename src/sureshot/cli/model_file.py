"""A saved model by the name of its file: what can be refused is, before anything is imported that takes long."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sureshot.data.checks import near
from sureshot.data.file_kinds import check_source, table_suffix

if TYPE_CHECKING:
    from sureshot.cli.options import Files
    from sureshot.cli.reading import Reading
    from sureshot.estimators.base import IncrementalEstimator
    from sureshot.persistence import Artifact


def _read_model_file(path: Path, data: Path | None) -> Artifact:
    """What a model's file holds; the data that the model is asked about are at least files of a known kind."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a model's file, such as `sureshot fit` writes")
    if not path.exists():
        beside = [p.name for p in path.parent.glob("*.safetensors")] if path.parent.is_dir() else []
        raise ValueError(f"{path} does not exist{near(path.name, beside)}: write a model with `sureshot fit`")
    if table_suffix(path) is not None:
        raise ValueError(f"{path} is a table, and the model comes first: sureshot COMMAND MODEL DATA")
    from sureshot.estimators.saved import check_estimator
    from sureshot.persistence import load_artifact

    artifact = load_artifact(path)
    check_estimator(artifact)
    if data is not None:
        check_source(data)
    return artifact


def load_model(path: Path, data: Path | None, files: Files) -> tuple[IncrementalEstimator, Reading]:
    """The saved model, and how files are read that it is asked about: as the one was that it was fitted on."""
    from sureshot.cli.reading import Reading

    how = Reading.of(files)
    artifact = _read_model_file(path, data)
    from sureshot.estimators.saved import estimator_of

    model = estimator_of(artifact)
    if hasattr(model, "usual_") and (n_targets := model.usual_.mean.shape[1]) > 1:
        raise ValueError(f"{path} predicts {n_targets} numbers a row, as Python can: sureshot.load({str(path)!r})")
    return model, how.completed(getattr(model, "reading_", None))
