"""Parts that others write: backbones, learners of classes and numbers, and data sets by name, wherever their code is.

A `Registry` holds the parts of one kind. Ours are known from the start. A script adds its own by `Registry.register`;
an installed package by *entry points*, lines of its ``pyproject.toml`` that lead from names to modules:

    [project.entry-points."sureshot.backbones"]
    waves = "waves.network:Waves"

Names cost no import: a package is imported when one of its parts is asked for. One that does not import says so then,
and is in nobody else's way. What a file needs of a package is recorded with the part (`Registry.package`), so that it
can be named where it is missing.
"""

from __future__ import annotations

import inspect
import logging
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, packages_distributions, version
from shlex import quote
from typing import Any, Generic, TypeVar

from sureshot.data.checks import near
from sureshot.warned import warn

Part = TypeVar("Part", bound=Callable[..., Any])

_GROUPS = {
    "backbone": "sureshot.backbones",
    "learner": "sureshot.learners",
    "learner of numbers": "sureshot.processes",
    "data set": "sureshot.datasets",
}
"""Kinds of parts, and the groups of their entry points."""

_log = logging.getLogger(__name__)
_warn_once = cache(warn)


def offered_names(kind: str) -> list[str]:
    """Names of a kind that installed packages offer, without importing anything."""
    return sorted({entry.name for entry in entry_points(group=_GROUPS[kind])})


class Registry(Mapping[str, Part], Generic[Part]):
    """The parts of one kind by name; to go through it is to go through ours, the registered and the offered."""

    def __init__(
        self,
        kind: str,  # such as "backbone", one of those above
        ours: Mapping[str, Part],
        name_of: Callable[[Any], str | None],  # what a part calls itself
        base: type | None = None,  # what a part derives from, if it is a class
    ) -> None:
        self.kind, self.ours = kind, dict(ours)
        self._name_of, self._base = name_of, base
        self._registered: dict[str, Part] = {}
        self._here = ChainMap(self.ours, self._registered)

    def register(self, part: Part) -> Part:
        """Know a part by the name that it states; `ValueError` if it is none, or if its name is taken.

        One of the same module and name in it takes the place of the one before, as when a cell runs again.
        """
        self._check(part)
        name = str(self._name_of(part))
        place = self._place_of(name)
        if place is not None and not (name in self._registered and place == _place(part)):
            raise ValueError(
                f"{_place(part)} cannot be the {self.kind} {name!r}, which is {place}: give it another name"
            )
        self._registered[name] = part
        return part

    def __getitem__(self, name: str) -> Part:
        """`KeyError` for a name that is not there, `ValueError` for one whose package gives no such part."""
        if name in self._here:
            return self._here[name]
        entries = self._entries()[name]
        places = " and ".join(map(_told, entries))
        if len(entries) > 1:
            raise ValueError(f"two packages offer the {self.kind} {name!r}, {places}: uninstall one of them")
        try:
            part: Part = entries[0].load()
            self._check(part, name)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise ValueError(f"the {self.kind} {name!r} of {places} cannot be used: {what}") from error
        return part

    def make(self, name: str, *inputs: Any, **options: Any) -> Any:
        """What a part makes of inputs and options; `ValueError` for options that it does not take."""
        try:
            return self[name](*inputs, **options)
        except TypeError as error:
            raise ValueError(f"{self.kind} {name!r} does not take these options: {error}") from error

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.ours, *self._registered, *sorted(self._entries())]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        """Whether there is a part of that name; whether its package works is told by asking for it."""
        return isinstance(name, str) and (name in self._here or name in self._entries())

    def require(self, name: str, package: Any = None) -> None:
        """Refuse a name that is not there (`ValueError`), with those most like it.

        `package` is what a file records of it: a missing one is named, and a line of the log tells of another version.
        """
        stated = package if isinstance(package, Mapping) else {}
        was = " ".join(str(stated[key]) for key in ("name", "version") if "name" in stated and key in stated)
        if name not in self:
            raise ValueError(f"unknown {self.kind} {name!r}{self._advice(name, stated, was)}")
        if was and stated != (here := self.package(name)):
            now = " ".join(here.values()) or "sureshot"
            _log.warning("%s %r is of %s here, and was of %s when it was saved", self.kind, name, now, was)

    def _advice(self, name: str, stated: Mapping[str, Any], was: str) -> str:
        if was:
            try:
                there = f"of which {version(str(stated['name']))} is installed, without it"
            except PackageNotFoundError:
                there = "which is not installed here"
            return f": it is of {was}, {there}: python -m pip install {quote(was.replace(' ', '=='))}"
        if "module" in stated:
            return f": the module {stated['module']!r} had registered it: import that, or register it, first"
        return f"{near(str(name), self)}; choose one of {', '.join(self)}"

    def package(self, name: str) -> dict[str, str]:
        """What a file records of where a part is from: ``name`` and ``version`` of its package; nothing of ours.

        Of a part that a module of no installed package has registered it is that ``module``.
        """
        if name in self.ours:
            return {}
        if name not in self._registered:
            return next(map(_package, self._entries().get(name, [])), {})
        module: str = self._registered[name].__module__
        found = packages_distributions().get(module.partition(".")[0], [])
        return {"name": found[0], "version": version(found[0])} if found else {"module": module}

    def offers(self) -> list[dict[str, str | None]]:
        """All that installed packages offer, each imported to see whether it can be used; if not, with the problem."""
        found = []
        for entry in sorted(entry_points(group=_GROUPS[self.kind]), key=lambda entry: entry.name):
            name, package, problem = entry.name, " ".join(_package(entry).values()), None
            if name in self._here:
                problem = f"the name is taken by {self._place_of(name)}"
            else:
                try:
                    self[name]
                except ValueError as error:
                    problem = str(error)
            of = {"kind": self.kind, "name": name, "package": package, "place": entry.value, "problem": problem}
            found.append(of)
        return found

    def _place_of(self, name: str) -> str | None:
        """Where the part of a name is from, if there is one."""
        if name in self._here:
            return _place(self._here[name])
        return next((_told(entry) for entry in self._entries().get(name, [])), None)

    def _entries(self) -> dict[str, list[EntryPoint]]:
        """Entry points by name; those of names that are taken are left out, which is told once."""
        found: dict[str, list[EntryPoint]] = {}
        for entry in entry_points(group=_GROUPS[self.kind]):
            if entry.name in self.ours:
                place = self._place_of(entry.name)
                _warn_once(f"{_told(entry)} offers the {self.kind} {entry.name!r}, which is {place}: it is left out")
            else:
                found.setdefault(entry.name, []).append(entry)
        return found

    def _check(self, part: Any, name: str | None = None) -> None:
        """`ValueError` for what is no part, or states another name than it is offered by."""
        if self._base is not None and not (isinstance(part, type) and issubclass(part, self._base)):
            raise ValueError(f"a {self.kind} is a class derived from {_place(self._base)}, got {part!r}")
        if not callable(part) or inspect.isabstract(part):
            lacks = ", ".join(sorted(getattr(part, "__abstractmethods__", ()))) or "no call"
            raise ValueError(f"{part!r} is no {self.kind} that can be made: it lacks {lacks}")
        stated = self._name_of(part)
        if not stated or stated != (name or stated):
            raise ValueError(f"{_place(part)} calls itself {stated!r}: parts state a name, and are offered by it")


def _place(part: Any) -> str:
    return f"{part.__module__}.{getattr(part, '__qualname__', repr(part))}"


def _package(entry: EntryPoint) -> dict[str, str]:
    """Name and version of what was installed; entry points that were found in it have both."""
    assert entry.dist is not None
    return {"name": entry.dist.name, "version": entry.dist.version}


def _told(entry: EntryPoint) -> str:
    return f"{' '.join(_package(entry).values())} ({entry.value})"
