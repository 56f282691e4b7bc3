"""Calls compute in surroundings of their own, whatever else the process has set in torch, NumPy or scikit-learn.

What belongs to the calling thread is set for the time of a call and then given back: modes of gradients and of
autocast, the default device, what NumPy does about overflow, scikit-learn's configuration. What all threads of a
process share is left alone, as others would see it change: the library states dtypes, and draws from generators of its
own.

The threads of OpenMP do not survive a fork, and the child would wait for them for ever: there one thread does all the
work of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import sklearn
import torch

from sureshot.computing.threads import surviving_threads

Class = TypeVar("Class", bound=type)


@contextmanager
def own_surroundings() -> Iterator[None]:
    """As in a process in which nobody has set anything."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"))
        stack.enter_context(
            sklearn.config_context(assume_finite=False, array_api_dispatch=False, transform_output="default")
        )
        stack.enter_context(surviving_threads())
        yield


def undisturbed(estimator: Class) -> Class:
    """Have the class's own public methods, and pickling both ways, run in `own_surroundings`."""
    for name, member in list(vars(estimator).items()):
        if name.startswith("_") and name not in ("__getstate__", "__setstate__"):
            continue
        if isinstance(member, classmethod):
            setattr(estimator, name, classmethod(_undisturbed(member.__func__)))
        elif callable(member):
            setattr(estimator, name, _undisturbed(member))
    return estimator


def _undisturbed(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with own_surroundings():
            return method(*args, **kwargs)

    return call
