"""Model files: safetensors with a JSON header, written whole or not at all; loading runs nothing."""

from typing import TYPE_CHECKING

from sureshot.lazy import imported_when_asked_for

if TYPE_CHECKING:
    from sureshot.persistence.artifact import Artifact, artifact_of, load_artifact, save_artifact
    from sureshot.persistence.checks import require, require_header
    from sureshot.persistence.labels import decode_labels, encode_labels
    from sureshot.persistence.target import ArtifactError, check_target
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

__getattr__ = imported_when_asked_for(__name__)
