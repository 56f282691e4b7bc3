"""Classes and numbers are asked the same."""

from __future__ import annotations

import inspect

from sureshot.cli import classes, numbers


def test_both_tasks_have_the_same_functions() -> None:
    found = [
        {
            name: list(inspect.signature(one).parameters)
            for name, one in vars(task).items()
            if inspect.isfunction(one) and one.__module__ == task.__name__ and not name.startswith("_")
        }
        for task in (classes, numbers)
    ]
    shared = found[0].keys() & found[1].keys()
    used = {"reporting", "unfitted", "learnt", "print_fitted", "answerable", "columns", "answers", "cells", "reasons"}
    assert shared == used | {"evaluated", "print_evaluated", "suggested"}
    assert all(found[0][name] == found[1][name] for name in shared)
    for task in (classes, numbers):
        assert all(isinstance(names, tuple) for names in (task.SUGGESTED, task.REASONS))
