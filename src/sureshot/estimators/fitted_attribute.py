"""What an estimator has learnt, as attributes that are there once it is fitted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sureshot.computing.surroundings import own_surroundings


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
        with own_surroundings():  # what is put off until it is asked for
            for part in self.path.split("."):
                value = None if value is None else getattr(value, part, None)
        if value is None:
            fitted = "_fitted" in estimator.__dict__
            why = ": what it has learnt has none." if fitted else " (yet); fit() gives it to an estimator."
            raise AttributeError(f"{owner.__name__} has no {self.name}{why}")
        return value

    def __set__(self, estimator: Any, value: Any) -> None:
        raise AttributeError(f"{self.name} is learnt and cannot be set: fit() and calibrate() do that.")

    def __delete__(self, estimator: Any) -> None:
        raise AttributeError(f"{self.name} is learnt and cannot be deleted.")


class ColumnNames(FittedAttribute):
    """``feature_names_in_``, which other tools set, and take away so that arrays are taken without a warning."""

    def __set__(self, estimator: Any, value: Any) -> None:
        fitted = estimator.__dict__.get("_fitted")
        if fitted is None:
            super().__set__(estimator, value)
        names = None if value is None else np.array(value, dtype=object)
        if names is not None and names.shape != (fitted.columns.n_features,):
            raise ValueError(f"{self.name} must name {fitted.columns.n_features} columns, or be None; got {value!r}.")
        estimator._fitted = replace(fitted, columns=replace(fitted.columns, names=names))

    def __delete__(self, estimator: Any) -> None:
        self.__get__(estimator, type(estimator))  # an AttributeError if there are none
        self.__set__(estimator, None)
