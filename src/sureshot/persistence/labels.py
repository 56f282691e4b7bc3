"""Class labels as JSON values: safetensors holds numbers only, and classes are often strings."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from sureshot.persistence.target import ArtifactError

_DTYPE_KINDS = "buifUO"  # NumPy's letters for bool, unsigned, signed, floating, string, object
_MAX_CHARACTERS = 250_000_000  # of all labels together, so that a file cannot ask for unbounded memory


def encode_labels(labels: np.ndarray) -> dict[str, Any]:
    """Label array (C,) of strings, integers, floats, booleans, or objects of these, as JSON values.

    Labels of other types, which JSON would change, are refused, and NaN.
    """
    labels = np.asarray(labels)
    values = [value.item() if isinstance(value, np.generic) else value for value in labels.tolist()]
    values = [str.__str__(value) if isinstance(value, str) else value for value in values]  # as StrEnum's are
    kinds = {type(value) for value in values}
    if labels.ndim != 1 or labels.dtype.kind not in _DTYPE_KINDS or not kinds <= {str, int, float, bool}:
        raise ArtifactError(
            f"labels can be saved when they are strings, integers, floats or booleans, not {labels.dtype} "
            f"holding {', '.join(sorted(kind.__name__ for kind in kinds)) or 'nothing'}: "
            "convert them before fitting, for example with astype(str)."
        )
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        raise ArtifactError("labels must not be NaN or infinite.")
    return {"dtype": labels.dtype.newbyteorder("<").str, "values": values}


def decode_labels(encoded: Any) -> np.ndarray:
    """The label array (C,) that `encode_labels` wrote, in the same dtype."""
    if not isinstance(encoded, dict) or set(encoded) != {"dtype", "values"}:
        raise ArtifactError("malformed labels in the model file: expected a dtype and values.")
    name, values = encoded["dtype"], encoded["values"]
    if not isinstance(values, list) or not {type(value) for value in values} <= {str, int, float, bool}:
        raise ArtifactError("malformed labels in the model file: expected a list of strings or numbers.")
    dtype = _label_dtype(name, len(values))
    labels = np.empty(len(values), dtype=dtype)
    try:
        labels[:] = values
    except (TypeError, ValueError, OverflowError) as error:
        raise ArtifactError(f"malformed labels in the model file: they do not fit the dtype {name!r}.") from error
    if [(type(label), label) for label in labels.tolist()] != [(type(value), value) for value in values]:
        raise ArtifactError(f"malformed labels in the model file: they do not fit the dtype {name!r}.")
    return labels


def _label_dtype(name: Any, count: int) -> np.dtype:
    """The dtype called `name`, in this machine's byte order, if `count` labels may have it."""
    pattern = r"[|<](b1|[iu][1248]|f[248]|U\d{1,9}|O)"
    if not isinstance(name, str) or re.fullmatch(pattern, name) is None:
        raise ArtifactError(f"malformed labels in the model file: unexpected dtype {str(name)[:40]!r}.")
    try:
        dtype = np.dtype(name).newbyteorder("=")
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"malformed labels in the model file: unexpected dtype {name!r}.") from error
    if dtype.itemsize // 4 * count > _MAX_CHARACTERS:
        raise ArtifactError("malformed labels in the model file: they would take more than a gigabyte.")
    return dtype
