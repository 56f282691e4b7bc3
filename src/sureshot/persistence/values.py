"""Frozen dataclasses in model files, by their annotations.

What a model file keeps is a value: a frozen dataclass of numbers, text, arrays and further such values. `pack` takes
one apart into JSON entries and named arrays, `unpack` puts it together again and checks what the annotations promise:
types, and that numbers are finite where nothing else is said. What only the value itself can know, such as sizes that
belong together, its own method ``check_parts()`` says, by a ValueError.

========================================  ==========================================================================
annotation                                in the file
========================================  ==========================================================================
bool, int, float, str, None, ``Literal``  a JSON value; NaN and infinities as text
``Any``                                   a JSON value, as it is
ndarray, Tensor                           an array, in the smallest type that holds it to the last bit, and the type;
                                          an array of text or objects as `sureshot.persistence.encode_labels` has it
tuple[T, ...], tuple[A, B], list[T]       a list
dict[str, T]                              a mapping
a dataclass                               a mapping by field; not those with ``metadata={"stored": False}``
a class with ``to_json``, ``from_json``   what these say
A | B                                     the first that fits; of several dataclasses, with the name of the class
========================================  ==========================================================================

To keep one more value write one more field: its annotation is its format.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from sureshot.persistence.labels import decode_labels, encode_labels
from sureshot.persistence.target import ArtifactError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INTEGERS = (np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32)
_CLASS = "is a"  # the entry that names the class of a value, where several are possible


def pack(value: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """JSON entries and named arrays of a frozen dataclass; `ArtifactError` for what none can hold."""
    arrays: dict[str, np.ndarray] = {}
    header = _pack_fields(value, "", arrays)
    return header, arrays


def unpack(kind: type[T], header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], place: str) -> T:
    """The value that `pack` took apart; whatever is malformed is one `ArtifactError`, which names the file `place`."""
    try:
        return _unpack_fields(kind, header, "", arrays)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ArtifactError(f"{place} is malformed: {reason}; save the model again.") from error


def _pack_fields(value: Any, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    hints = get_type_hints(type(value))
    return {
        field.name: _pack(hints[field.name], getattr(value, field.name), prefix + field.name, arrays)
        for field in _stored(type(value))
    }


def _pack(hint: Any, value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """The JSON entry of a value that is annotated so; its arrays go to `arrays`, by `name` and what it leads to."""
    origin, of = get_origin(hint), get_args(hint)
    if value is None:
        return None
    if origin in (UnionType, Union):
        several = [kind for kind in of if is_dataclass(kind)]
        if len(several) > 1 and type(value) in several:
            return {_CLASS: type(value).__name__, **_pack_fields(value, name + ".", arrays)}
        return _pack(next(kind for kind in of if _may_be(kind, value)), value, name, arrays)
    if origin in (tuple, list):
        hints = _entries(hint, len(value))
        return [
            _pack(one, entry, f"{name}.{k}", arrays) for k, (one, entry) in enumerate(zip(hints, value, strict=True))
        ]
    if origin is dict:
        return {key: _pack(of[1], entry, f"{name}.{key}", arrays) for key, entry in value.items()}
    if _is_array(hint):
        return _pack_array(value, name, arrays)
    if hasattr(hint, "to_json"):
        return value.to_json()
    if is_dataclass(hint):
        return _pack_fields(value, name + ".", arrays)
    if hint is float:
        number = float(value)
        return number if math.isfinite(number) else next(k for k, v in _NOT_FINITE.items() if repr(v) == repr(number))
    return value.item() if isinstance(value, np.generic) else value


def _pack_array(value: np.ndarray | Tensor, name: str, arrays: dict[str, np.ndarray]) -> Any:
    array = value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
    if array.dtype.kind not in "buif":
        return {"labels": encode_labels(array)}
    arrays[name] = _narrow(array)
    return array.dtype.name


def _narrow(array: np.ndarray) -> np.ndarray:
    """In the smallest type that holds it to the last bit: embeddings often are of half precision, pixels whole."""
    if array.dtype.kind in "iu":
        smaller = (dtype for dtype in _INTEGERS if np.dtype(dtype).itemsize < array.dtype.itemsize)
        return array.astype(next((dtype for dtype in smaller if _fits(array, np.dtype(dtype))), array.dtype))
    if array.dtype.kind == "f":
        for dtype in (np.float16, np.float32):
            with np.errstate(over="ignore"):
                narrow = array.astype(dtype)
            if narrow.dtype.itemsize < array.dtype.itemsize and np.array_equal(narrow, array):
                return narrow
    return array


def _unpack_fields(kind: type[T], header: Any, prefix: str, arrays: Mapping[str, np.ndarray]) -> T:
    stored, hints = _stored(kind), get_type_hints(kind)
    if not isinstance(header, Mapping) or set(header) - {_CLASS} != {field.name for field in stored}:
        raise ValueError(f"{prefix[:-1] or 'the header'} must have the entries {', '.join(f.name for f in stored)}")
    found = kind(
        **{field.name: _unpack(hints[field.name], header[field.name], prefix + field.name, arrays) for field in stored}
    )
    check = getattr(found, "check_parts", None)
    if check is not None:
        check()
    return found


def _unpack(hint: Any, entry: Any, name: str, arrays: Mapping[str, np.ndarray]) -> Any:
    """The value of an entry that is annotated so; a ValueError that names it if it cannot be."""
    origin, of = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return _unpack_one_of(of, entry, name, arrays)
    if hint is Any:
        return entry
    if origin is Literal:
        if entry in of and type(entry) in {type(one) for one in of}:
            return entry
    elif origin in (tuple, list):
        if isinstance(entry, list) and len(hints := _entries(hint, len(entry))) == len(entry):
            pairs = enumerate(zip(hints, entry, strict=True))
            return origin(_unpack(one, part, f"{name}.{k}", arrays) for k, (one, part) in pairs)
    elif origin is dict:
        if isinstance(entry, dict):
            return {key: _unpack(of[1], part, f"{name}.{key}", arrays) for key, part in entry.items()}
    elif _is_array(hint):
        return _unpack_array(hint, entry, name, arrays)
    elif hasattr(hint, "from_json"):
        return hint.from_json(entry)
    elif is_dataclass(hint):
        return _unpack_fields(hint, entry, name + ".", arrays)  # type: ignore[arg-type]
    elif hint is float:
        number = _NOT_FINITE.get(entry, entry) if isinstance(entry, str) else entry
        if type(number) in (int, float):
            return float(number)
    elif type(entry) is hint:
        return entry
    raise ValueError(f"{name} must be {getattr(hint, '__name__', hint)}, it is {repr(entry)[:40]}")


def _unpack_one_of(kinds: tuple[Any, ...], entry: Any, name: str, arrays: Mapping[str, np.ndarray]) -> Any:
    if entry is None and NoneType in kinds:
        return None
    if isinstance(entry, dict) and _CLASS in entry:
        kinds = tuple(kind for kind in kinds if getattr(kind, "__name__", "") == entry[_CLASS])
    failures = []
    for kind in kinds:
        if kind is NoneType:
            continue
        try:
            return _unpack(kind, entry, name, arrays)
        except (ValueError, TypeError, KeyError) as error:
            failures.append(error)
    raise failures[0] if failures else ValueError(f"{name} is of a class that is not known")


def _unpack_array(hint: Any, entry: Any, name: str, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(entry, dict) and set(entry) == {"labels"}:
        return decode_labels(entry["labels"])
    if not isinstance(entry, str) or name not in arrays:
        raise ValueError(f"the array {name} is missing")
    stored, dtype = arrays[name], np.dtype(entry)
    if not np.can_cast(stored.dtype, dtype, "safe") and not (
        stored.dtype.kind in "iu" and dtype.kind in "iu" and _fits(stored, dtype)
    ):
        raise ValueError(f"the array {name} is {stored.dtype}, which is no {dtype}")
    if stored.dtype.kind == "f" and not np.isfinite(stored).all():
        raise ValueError(f"the array {name} holds NaN or infinite values")
    array = np.array(stored, dtype=dtype, order="C")
    if hint is np.ndarray or get_origin(hint) is np.ndarray:
        return array
    from sureshot.computing.layout import aligned  # with torch, which a value without tensors does not need

    return aligned(array)


def _fits(array: np.ndarray, dtype: np.dtype) -> bool:
    bounds = np.iinfo(dtype)
    return not array.size or (int(array.min()) >= bounds.min and int(array.max()) <= bounds.max)


def _stored(kind: type) -> tuple[Field[Any], ...]:
    """The fields that are kept; the others need defaults."""
    found = tuple(field for field in fields(kind) if field.init and field.metadata.get("stored", True))
    for field in set(fields(kind)) - set(found):
        assert not field.init or field.default is not MISSING or field.default_factory is not MISSING, field.name
    return found


def _entries(hint: Any, count: int) -> tuple[Any, ...]:
    """The annotations of so many entries of a tuple or list."""
    of = get_args(hint)
    return of[:1] * count if get_origin(hint) is list or of[-1] is Ellipsis else of


def _is_array(hint: Any) -> bool:
    kind = get_origin(hint) or hint
    return kind is np.ndarray or (getattr(kind, "__module__", "") == "torch" and kind.__name__ == "Tensor")


def _may_be(hint: Any, value: Any) -> bool:
    kind = get_origin(hint) or hint
    if kind is Any:
        return True
    if kind is Literal:
        return value in get_args(hint)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return True
    return isinstance(value, kind)
