"""Docstrings of the estimators name the arguments and attributes that there are."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import sureshot

ESTIMATORS = [getattr(sureshot, name) for name in sureshot.__all__ if name.endswith("Classifier")]


def public_methods(estimator: type) -> list[Callable[..., Any]]:
    found = inspect.getmembers(estimator, inspect.isroutine)
    return [
        method
        for name, method in found
        if not name.startswith("_") and inspect.unwrap(method).__module__.startswith("sureshot.")
    ]


def named_in(section: str, docstring: str) -> list[str]:
    """Names that a numpydoc section explains."""
    parts = re.split(r"^(\w+)\n-+$", docstring, flags=re.MULTILINE)
    body = dict(zip(parts[1::2], parts[2::2], strict=True)).get(section, "")
    heads = re.findall(r"^(\w[\w, ]*?)(?: :.*)?$", body, flags=re.MULTILINE)
    return [name for head in heads for name in head.split(", ")]


CASES = [(estimator, method) for estimator in ESTIMATORS for method in public_methods(estimator)]


@pytest.mark.parametrize(("estimator", "method"), CASES, ids=[f"{e.__name__}.{m.__name__}" for e, m in CASES])
def test_arguments_of_methods(estimator: type, method: Callable[..., Any]) -> None:
    docstring = inspect.getdoc(method)
    assert docstring
    arguments = [name for name in inspect.signature(method).parameters if name not in ("self", "cls")]
    assert named_in("Parameters", docstring) == arguments


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_arguments_and_attributes_of_classes(estimator: type) -> None:
    docstring = inspect.getdoc(estimator)
    assert docstring
    assert sorted(named_in("Parameters", docstring)) == sorted(inspect.signature(estimator).parameters)
    for name in named_in("Attributes", docstring):
        assert isinstance(inspect.getattr_static(estimator, name), property) or hasattr(
            inspect.getattr_static(estimator, name), "__get__"
        )
