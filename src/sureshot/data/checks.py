"""Checks that files of every kind share, and the wording of lists and near names in messages."""

from __future__ import annotations

import difflib
import logging
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.data.root import DataError, WrongTask

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

MISSING = (
    *("", "NA", "N/A", "n/a", "n.a.", "N.A.", "NaN", "nan", "NAN", "NULL", "null", "None", "<NA>", "NaT"),
    *("?", "-", "--"),
    *("#N/A", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?", "#NULL!"),
)
"""Cells that are empty, and what programs write for that."""
ERRORS_OF_CELLS = tuple(token for token in MISSING if token.startswith("#"))
"""What spreadsheets write for a cell that could not be computed, of which no class is called."""

_log = logging.getLogger(__name__)

_LISTED = 8
_LONGEST = 60  # characters of a name in a message


def listed(names: Sequence[object]) -> str:
    """Names joined by commas, the first few of a long list and a count of the others."""
    shown = ", ".join(_shortened(str(name)) for name in names[:_LISTED])
    return shown + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."


def near(name: str, names: Iterable[str]) -> str:
    """``" (did you mean 'a' or 'b'?)"`` from the names most like the one given, or nothing."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    found = difflib.get_close_matches(name.lower(), list(by_lower), n=3, cutoff=0.6)
    if not found:
        return ""
    return " (did you mean " + " or ".join(repr(by_lower[key]) for key in found) + "?)"


def in_one_form(text: str) -> str:
    """Text without blanks around it, accents in the one of Unicode's forms that keyboards write."""
    return unicodedata.normalize("NFC", text.strip())


def label_kind(labels: np.ndarray) -> str:
    """What labels are, for messages; labels of different kinds are not compared."""
    return {"b": "truth value"}.get(labels.dtype.kind, "text" if labels.dtype.kind in "USO" else "number")


def reason(error: Exception) -> str:
    """What an error says, in its first line."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def check_exists(path: Path) -> None:
    """Refuse a path that is not there; the message has the names beside it that are most like it."""
    if not path.exists():
        beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(f"{path} does not exist{near(path.name, beside)}")


def check_names(path: Path, names: Sequence[str]) -> None:
    """Refuse two columns of the same name (`DataError`)."""
    twice = [name or "(no name)" for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path}: more than one column is called {listed(twice)}; rename them")


def check_class_labels(source: Path | str, labels: pd.Series, where: str, as_text: bool) -> np.ndarray:
    """Labels as an array of integers, floats (whole numbers only), booleans or text, none missing.

    Messages begin with the source, a file or what else the labels come from.
    """
    import numpy as np  # here, as paths and names are checked before anything is imported that takes long
    import pandas as pd

    missing = labels.isna().to_numpy(dtype=bool) | labels.isin(ERRORS_OF_CELLS).to_numpy(dtype=bool)
    if missing.any():
        raise DataError(
            f"{source}: {where} has no label in {int(missing.sum())} of {len(labels)} rows (the first is row "
            f"{int(np.flatnonzero(missing)[0])}, counted from 0); label or drop them"
        )
    kinds = pd.api.types
    if kinds.is_bool_dtype(labels.dtype):
        values = labels.to_numpy(dtype=bool)
    elif kinds.is_integer_dtype(labels.dtype):
        values = labels.to_numpy(dtype=np.uint64 if str(labels.dtype) == "uint64" else np.int64)
    elif kinds.is_float_dtype(labels.dtype):
        values = labels.to_numpy(dtype=np.float64)
        if np.isinf(values).any():
            raise DataError(
                f"{source}: {where} holds infinite numbers, so it is not a class: name the column of classes"
            )
        if (values != np.round(values)).any():
            odd = values[values != np.round(values)][0]
            raise WrongTask(
                f"{source}: {where} holds numbers with fractions (for instance {odd:g}), so it is not a class",
                "name the column of classes, or group the numbers into classes first",
            )
        values = values.astype(np.int64) if np.abs(values).max() < 2**53 else values
    elif kinds.is_datetime64_any_dtype(labels.dtype) and (labels.dt.normalize() == labels).all():
        values = labels.dt.strftime("%Y-%m-%d").to_numpy(dtype=str)  # as text has them
    else:
        values = np.asarray([in_one_form(_text(source, where, label)) for label in labels])
        if gaps := [text for text in MISSING if (values == text).any()]:
            counts = listed([f"{text!r} is a class, of {int((values == text).sum())} rows" for text in gaps])
            _log.info("%s: in %s %s: if it stands for no label, leave these rows out", source, where, counts)
    return values.astype(str) if as_text else values


def _text(source: Path | str, where: str, label: object) -> str:
    """A label as text; bytes are taken for UTF-8."""
    if not isinstance(label, bytes):
        return str(label)
    try:
        return label.decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{source}: {where} holds bytes that are no text, {label!r}: write labels as text") from None


def check_share(name: str, given: Any) -> float:
    """A number between 0 and 1, both excluded."""
    if isinstance(given, bool) or not isinstance(given, Real):  # as numbers of NumPy are
        raise TypeError(f"{name} must be a number between 0 and 1; got {given!r}.")
    value = float(given)
    if not 0 < value < 1:
        hint = f": for {value:g} % give {value / 100:g}" if 1 < value < 100 else ""
        raise ValueError(f"{name} must lie between 0 and 1, both excluded; got {value:g}{hint}.")
    return value
