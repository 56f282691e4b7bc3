"""What an estimator holds, and calls that are made to fail."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from sureshot.estimators import base


def content(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """What an estimator is, down to the last bit, for comparisons."""
    if id(value) in seen:
        return "again"
    seen = (*seen, id(value))
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, value.shape, value.stride(), value.detach().contiguous().numpy().tobytes())
    if isinstance(value, np.ndarray):
        kept = value.tobytes() if value.dtype != object else tuple(value.ravel().tolist())
        return ("array", value.dtype, value.shape, value.strides, kept)
    if isinstance(value, np.random.RandomState):
        return content(value.get_state(), seen)
    if isinstance(value, torch.nn.Module):
        return (type(value), tuple((k, content(v, seen)) for k, v in value.state_dict().items()))
    if isinstance(value, dict):
        return tuple((k, content(v, seen)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return (type(value), *(content(v, seen) for v in value))
    if isinstance(value, str | bytes | int | float | bool | type(None) | type | Path | np.generic):
        return repr(value)
    if dataclasses.is_dataclass(value):  # what it has computed for who asked is no part of it
        return (
            type(value),
            content({part.name: getattr(value, part.name) for part in dataclasses.fields(value)}, seen),
        )
    return (type(value), content(vars(value), seen)) if hasattr(value, "__dict__") else repr(value)


@contextmanager
def interrupted(at: int, error: type[BaseException]) -> Iterator[list[int]]:
    """Raise `error` at the `at`-th call of a function of ours; a list that counts the calls.

    Generators are left out: one that is closed early is called once more, and an error has nowhere to go from there.
    """
    ours, calls = str(Path(base.__file__).parents[1]), [0]

    def watch(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ours) and not code.co_flags & inspect.CO_GENERATOR:
            calls[0] += 1
            if calls[0] == at:
                raise error("injected")

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield calls
    finally:
        sys.setprofile(before)
