"""What an estimator has learnt, as attributes that are there once it is fitted."""

from __future__ import annotations

from typing import Any


class FittedAttribute:
    """An attribute of an estimator that is there once it is fitted: one of its `Fitted`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, estimator: Any, owner: type) -> Any:
        if estimator is None:
            return self
        value = estimator.__dict__.get("_fitted")
        for part in self.path.split("."):
            value = None if value is None else getattr(value, part, None)
        if value is None:
            fitted = "_fitted" in estimator.__dict__
            why = ": what it has learnt has none." if fitted else " (yet); fit() gives it to an estimator."
            raise AttributeError(f"{owner.__name__} has no {self.name}{why}")
        return value

    def __set__(self, estimator: Any, value: Any) -> None:
        raise AttributeError(f"{self.name} is learnt and cannot be set: fit() and calibrate() do that.")
