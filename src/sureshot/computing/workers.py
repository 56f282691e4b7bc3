"""Work for the workers of a joblib backend that the user has named: other processes, here or on other machines.

Under ``joblib.parallel_config("dask")`` or ``("ray", n_jobs=-1)`` they make the same calls as this process would. What
is lost with a worker is done again, by the backend or, where it gives up, by asking once more.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, TypeVar

from joblib import Parallel, delayed
from joblib.parallel import get_active_backend

logger = logging.getLogger(__name__)

_BACKENDS = "distributed", "ray", "joblib"  # packages whose errors say that workers are gone; not those of the work

Result = TypeVar("Result")


def are_workers() -> bool:
    """Whether the user has named a backend of several processes."""
    backend, n_jobs = get_active_backend(prefer="threads")
    return not getattr(backend, "supports_sharedmem", False) and backend.effective_n_jobs(n_jobs) > 1


def at_once(calls: Iterable[Any], n_jobs: int | None = None, attempts: int = 3) -> Iterable[Any]:
    """Results of `joblib.delayed` calls in their order, by workers or by as many threads, each when it is there."""
    if not are_workers():
        return Parallel(n_jobs=n_jobs, prefer="threads", require="sharedmem", return_as="generator")(calls)
    calls = list(calls)
    try:
        return Parallel(require="sharedmem" if len(calls) < 2 else None)(calls)
    except Exception as error:
        if attempts == 1 or type(error).__module__.partition(".")[0] not in _BACKENDS:
            raise
        logger.warning("a worker was lost, others are asked once more: %s", error)
    return at_once(calls, n_jobs, attempts - 1)


def each(function: Callable[[Any, Any], Result], value: Any, items: Sequence[Any]) -> list[Result]:
    """What a function says of a value and of each item, by workers, who get the value once and keep the last one."""
    backend, pickled = get_active_backend()[0], pickle.dumps(value)
    digest, kept = hashlib.sha256(pickled).hexdigest(), pickled
    if type(backend).__name__ == "RayBackend":
        kept = import_module("ray").put(pickled)
    elif type(backend).__name__ == "DaskDistributedBackend":
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            kept = backend.client.submit(bytes, pickled, key=f"value-{digest}")
    # An array that is an argument itself Dask would keep on one worker, and lose with it.
    return list(at_once(delayed(_asked)(function, digest, kept, (item,)) for item in items))


_last: dict[str, Any] = {}
"""The value that this worker was given last, by its digest."""


def _asked(function: Callable[[Any, Any], Result], digest: str, kept: Any, item: tuple[Any]) -> Result:
    if (value := _last.get(digest)) is None:
        value = pickle.loads(kept if isinstance(kept, bytes) else import_module("ray").get(kept))
        _last.clear()
        _last[digest] = value
    return function(value, *item)
