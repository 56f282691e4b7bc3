"""How far long work has come, said by whoever does it to whoever wants to know.

Code that takes long calls `report` (or `tracked`, `stage`) and knows nothing of who listens; by default nobody does.
`reported_to` listens for the length of a block, in this thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TextIO, TypeVar

Progress = Callable[[str, float], None]
"""``progress(what, fraction)``: what is being done, and how much of everything is done, from 0 to 1."""

SECONDS_BETWEEN_LINES = 10.0

ENOUGH_TO_TELL = 0.02
"""Share of the work after which the rest is estimated: the first steps of a long chain say little of its length."""

T = TypeVar("T")


@dataclass(frozen=True)
class _Listener:
    progress: Progress
    begin: float = 0.0
    end: float = 1.0


_listener: ContextVar[_Listener | None] = ContextVar("listener", default=None)


@contextmanager
def reported_to(progress: Progress | None) -> Iterator[None]:
    """Hear what is reported in the block; None is deaf to it."""
    token = _listener.set(None if progress is None else _Listener(progress))
    try:
        yield
    finally:
        _listener.reset(token)


def within(progress: Progress, label: str, begin: float, width: float) -> Progress:
    """What hears of a part that begins at a fraction of the whole and is so much of it."""
    return lambda what, fraction: progress(f"{label}: {what}", begin + width * fraction)


@contextmanager
def stage(begin: float, end: float) -> Iterator[None]:
    """What is reported in the block is a part of the whole, from one fraction to another."""
    outer = _listener.get()
    if outer is None:
        yield
        return
    width = outer.end - outer.begin
    token = _listener.set(_Listener(outer.progress, outer.begin + begin * width, outer.begin + end * width))
    try:
        yield
    finally:
        _listener.reset(token)


def report(what: str, fraction: float) -> None:
    """Say what is being done and how much of it is done, from 0 to 1."""
    listener = _listener.get()
    if listener is not None:
        listener.progress(what, listener.begin + fraction * (listener.end - listener.begin))


def tracked(items: Iterable[T], what: str, count: int) -> Iterator[T]:
    """The items, each reported when it is done with: when the next is asked for."""
    for number, item in enumerate(items, 1):
        yield item
        report(what, number / count)


class ProgressLines:
    """Progress as lines of text with an estimate of the time left, at most one every ten seconds.

    The estimate takes the rest to be as fast as what is done, and waits for `ENOUGH_TO_TELL` of it. Work that ends
    within ten seconds says nothing.
    """

    def __init__(
        self,
        name: str,  # what each line begins with
        stream: TextIO | Callable[[], TextIO],
        every: float = SECONDS_BETWEEN_LINES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.every, self.clock = name, every, clock
        self._stream = stream
        self._begin = self._last = clock()

    def __call__(self, what: str, fraction: float) -> None:
        now = self.clock()
        if now - self._last < self.every or fraction >= 1:
            return
        self._last = now
        left = ""
        if fraction >= ENOUGH_TO_TELL:
            left = f", about {duration((now - self._begin) * (1 - fraction) / fraction)} left"
        what = " ".join(what.split())
        stream = self._stream() if callable(self._stream) else self._stream
        stream.write(f"{self.name}: {what}{', ' if what else ''}{fraction:.0%} done{left}\n")
        stream.flush()


def duration(seconds: float) -> str:
    """A time for people, such as "40 s", "12 min" or "3 h 20 min"."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
