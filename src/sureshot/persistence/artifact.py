"""The layout of a model file, and writing and reading it.

A file holds a *kind* (what wrote it, such as "gp_classifier"), a *header* of JSON values (configuration,
classes) and named numeric *arrays*, kept bit for bit. Pickle would be shorter, but a pickle runs whatever its
author put into it; here reading is parsing and nothing else.

The layout is that of safetensors, so other tools can look inside. Its metadata entry "sureshot" is the JSON
text ``{"format_version", "kind", "package_version", "digest", "header"}``. The digest (SHA-256) finds damage
that would otherwise load as a different model. It is no signature: a file from a stranger can hold anything of
the right format. So whoever writes a kind of artefact checks it on loading with `sureshot.persistence.require`
(arrays) and `sureshot.persistence.require_header` (JSON values).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from sureshot.persistence.target import ArtifactError, check_target, file_path
from sureshot.persistence.whole import written_whole

if TYPE_CHECKING:
    import torch

FORMAT = "sureshot"
FORMAT_VERSION = 2

_KINDS_OF_ARRAYS = "buif"  # NumPy's letters for bool, unsigned, signed, floating


@dataclass(frozen=True)
class Artifact:
    """What a model file holds."""

    path: str  # where it was read from, or what it is of, for error messages
    kind: str  # what wrote it
    package_version: str  # version of sureshot that wrote it
    header: dict[str, Any]  # JSON values
    arrays: dict[str, np.ndarray]  # writable copies, in their stored dtypes


def artifact_of(
    kind: str,  # what is being saved; `load_artifact` asks for it by this name
    header: Mapping[str, Any],  # JSON values; for class labels see `sureshot.persistence.encode_labels`
    arrays: Mapping[str, np.ndarray | torch.Tensor],  # boolean, integer and floating-point, of any shape
) -> Artifact:
    """What a model file would hold, in memory; `ArtifactError` for what none can hold."""
    stored = {_array_name(name): _storable(name, value) for name, value in arrays.items()}
    try:
        canonical = json.dumps(dict(header), allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArtifactError(
            f"the header of {kind!r} must hold only JSON values with finite numbers: {_one_line(error)}."
        ) from error
    read_back = json.loads(canonical)
    if read_back != dict(header):
        raise ArtifactError(
            f"the header of {kind!r} would change on saving: use strings as keys and lists instead of tuples."
        )
    return Artifact(f"this {kind}", kind, _package_version(), read_back, stored)


def save_artifact(
    path: str | os.PathLike[str], kind: str, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray | torch.Tensor]
) -> None:
    """Write what `artifact_of` makes: to a temporary name beside `path`, flushed to disk, then renamed over it.

    A process killed on the way leaves the old file as it was. The same content gives the same bytes. Whatever keeps the
    file from being written is an `ArtifactError`.
    """
    target = check_target(path)
    artifact = artifact_of(kind, header, arrays)
    stored = artifact.arrays
    content: dict[str, Any] = {key: getattr(artifact, key) for key in ("kind", "package_version", "header")}
    digest = _digest(json.dumps(content, sort_keys=True), stored)
    content |= {"format_version": FORMAT_VERSION, "digest": digest}
    try:
        # Opened here and not by safetensors, so that the user's umask decides who may read the file.
        with written_whole(target) as temporary, open(temporary, "xb") as file:
            file.write(save(stored, metadata={FORMAT: json.dumps(content, sort_keys=True)}))
            file.flush()
            os.fsync(file.fileno())
        _flush_folder(target.parent)
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"cannot save to {target}: {_one_line(error)}.") from error


def load_artifact(
    path: str | os.PathLike[str],
    *kinds: str,  # those expected; any if none is said
) -> Artifact:
    """Read a model file that `save_artifact` wrote.

    An `ArtifactError` says if it is missing, truncated, damaged, from another program, of a newer format or another
    kind.
    """
    place = file_path(path)
    _check_beginning(place)
    try:
        with safe_open(place, framework="numpy") as file:
            text = (file.metadata() or {}).get(FORMAT)
            if text is None:
                raise ArtifactError(
                    f"{place} is a safetensors file of another program, not a model that sureshot saved."
                )
            content = _parse(place, text)
            if kinds and content["kind"] not in kinds:
                raise ArtifactError(
                    f"{place} holds a model of kind {content['kind'][:40]!r}, expected {kinds[0]!r}: "
                    "load it with the class that saved it."
                )
            arrays = {name: np.array(file.get_tensor(name)) for name in sorted(file.keys())}
    except SafetensorError as error:
        raise ArtifactError(_damaged(place, _one_line(error))) from error
    except (OSError, TypeError, KeyError, AttributeError, OverflowError, MemoryError) as error:
        raise ArtifactError(f"cannot read {place}: {_one_line(error)}.") from error
    stated = {key: content[key] for key in ("kind", "package_version", "header")}
    try:
        digest = _digest(json.dumps(stated, sort_keys=True), arrays)
    except RecursionError as error:
        raise ArtifactError(_damaged(place, "its header is nested too deeply")) from error
    if digest != content["digest"]:
        raise ArtifactError(_damaged(place, "its content does not match its digest"))
    return Artifact(place, content["kind"], content["package_version"], content["header"], arrays)


def _array_name(name: Any) -> str:
    if not isinstance(name, str) or not name or name == "__metadata__":
        raise ArtifactError(f"the name of an array must be a non-empty string, got {name!r}.")
    return name


def _storable(name: str, value: np.ndarray | torch.Tensor) -> np.ndarray:
    """The array as safetensors wants it: contiguous, in this machine's byte order."""
    import torch  # which reading does not need, and which takes long to import

    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bfloat16:
            raise ArtifactError(f"the array {name!r} is bfloat16, which NumPy lacks: convert it to float32.")
        value = value.detach().cpu().numpy()
    array = np.asarray(value)
    if array.dtype.kind not in _KINDS_OF_ARRAYS or array.dtype.itemsize > 8:
        raise ArtifactError(
            f"the array {name!r} must be boolean, integer or floating-point of at most 64 bits, "
            f"it is {array.dtype}: put labels and text into the header."
        )
    return np.require(array, dtype=array.dtype.newbyteorder("="), requirements=["C"])


def _digest(canonical: str, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the canonical header and, by name, of every array with its dtype and shape."""
    digest = hashlib.sha256(canonical.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _check_beginning(place: str) -> None:
    """Refuse what is plainly not a model, with a message for each kind."""
    try:
        status = os.stat(place)
        beginning = b""
        if stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its other end
            with open(place, "rb") as file:
                beginning = file.read(8)
    except FileNotFoundError:
        raise ArtifactError(f"there is no file {place}: check the path.") from None
    except (OSError, ValueError) as error:
        raise ArtifactError(f"cannot read {place}: {_one_line(error)}.") from error
    if stat.S_ISDIR(status.st_mode):
        raise ArtifactError(f"{place} is a folder, not a model file.")
    if not stat.S_ISREG(status.st_mode):
        raise ArtifactError(f"{place} is not a regular file, so not a model file.")
    if not beginning:
        raise ArtifactError(f"{place} is empty, not a model file.")
    if len(beginning) == 8 and int.from_bytes(beginning, "little") <= status.st_size - 8:
        return
    if beginning[:1] == b"\x80":
        raise ArtifactError(
            f"{place} looks like a pickle, not like a model that sureshot saved; it is not opened, because a "
            "pickle can run code."
        )
    if beginning[:4] == b"PK\x03\x04":
        raise ArtifactError(
            f"{place} is a zip archive (such as PyTorch and NumPy write), not a model that sureshot saved."
        )
    raise ArtifactError(f"{place} is not a model that sureshot saved, or it is truncated: copy or save it again.")


def _parse(place: str, text: str) -> dict[str, Any]:
    """The content of the metadata entry, once its format is found to be right."""
    try:
        content = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(_damaged(place, f"its header is not valid JSON ({_one_line(error)})")) from error
    if not isinstance(content, dict):
        raise ArtifactError(_damaged(place, "its header is not a mapping"))
    version = content.get("format_version")
    if type(version) is not int or version < 1:
        raise ArtifactError(_damaged(place, "its header states no format version"))
    if version > FORMAT_VERSION:
        writer = content.get("package_version")
        raise ArtifactError(
            f"{place} has format version {version}"
            + (f" (written by sureshot {writer[:40]!r})" if isinstance(writer, str) else "")
            + f", and sureshot {_package_version()} reads versions up to {FORMAT_VERSION}: upgrade sureshot."
        )
    types = {"kind": str, "package_version": str, "digest": str, "header": dict, "format_version": int}
    if content.keys() != types.keys() or any(type(content[key]) is not kind for key, kind in types.items()):
        raise ArtifactError(_damaged(place, "its header lacks entries or has entries of the wrong type"))
    return content


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    pairs = list(pairs)
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("an entry appears twice")
    return mapping


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _damaged(place: str, reason: str) -> str:
    return f"{place} is damaged or was not saved by sureshot: {reason}; copy or save it again."


def _one_line(error: BaseException) -> str:
    """The message of an error, on one line of bounded length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def _flush_folder(folder: Path) -> None:
    """Wait until a rename in `folder` is on disk; only POSIX systems can open a folder."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _package_version() -> str:
    return metadata.version("sureshot")
