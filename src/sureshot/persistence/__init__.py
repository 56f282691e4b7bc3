"""Model files: safetensors with a JSON header, written whole or not at all; loading runs nothing."""

from sureshot.persistence.artifact import (
    Artifact,
    ArtifactError,
    artifact_of,
    check_target,
    load_artifact,
    save_artifact,
)
from sureshot.persistence.checks import require, require_header
from sureshot.persistence.labels import decode_labels, encode_labels
from sureshot.persistence.whole import is_special, written_whole

__all__ = [
    "Artifact",
    "ArtifactError",
    "artifact_of",
    "check_target",
    "decode_labels",
    "encode_labels",
    "is_special",
    "load_artifact",
    "require",
    "require_header",
    "save_artifact",
    "written_whole",
]
