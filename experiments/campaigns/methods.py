"""Cells of methods on small tables and streams: a method, a data set, and the protocol with its seeds.

A cell takes seconds to minutes, so it has no checkpoint: after an interruption it starts again. The arguments of the
estimator are part of the settings, so changed defaults make a result stale.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from experiments.campaigns.cells import FAILED, Cell, json_values
from experiments.experiment import Table
from sureshot.data.checks import near
from sureshot.estimators import KernelSearchClassifier
from sureshot.estimators.search.settings import SearchSettings

Record = Mapping[str, Any]


@dataclass(frozen=True)
class MethodCell(Cell):
    """A method on a data set under a protocol."""

    data: str
    method: str  # as tables call it
    protocol: Mapping[str, str | int]  # its name and what distinguishes its runs, such as ``{"protocol": "offline"}``
    estimator: Mapping[str, Any]  # `described`
    further: Mapping[str, Any] = field(default_factory=dict)  # settings that all cells of the campaign share

    @property
    def key(self) -> str:  # type: ignore[override]
        """Data, method and protocol."""
        protocol = [value if isinstance(value, str) else f"{name}{value}" for name, value in self.protocol.items()]
        return "-".join(slug(part) for part in (self.data, self.method, *protocol))

    @property
    def labels(self) -> dict[str, str | int]:  # type: ignore[override]
        """The same by name."""
        return {"data": self.data, "method": self.method, **self.protocol}

    def settings(self) -> dict[str, Any]:
        """Everything that determines the result."""
        return json_values({**self.labels, "estimator": dict(self.estimator), **self.further})


def described(estimator: Any) -> dict[str, Any]:
    """An estimator as JSON values: its class and the arguments that are not None, a grammar with its numbers.

    `verbose` is left out, as it changes no result.
    """
    arguments = estimator.get_params(deep=False)
    beside = {"verbose"} | ({"columns"} if arguments.get("columns") == "auto" else set())
    found = {name: repr(value) for name, value in arguments.items() if value is not None and name not in beside}
    if isinstance(estimator, KernelSearchClassifier):
        settings = SearchSettings.checked(arguments)
        found["grammar"] = json.dumps({**settings.grammar.to_json(), "leaves": dict(settings.grammar.leaves)})
        found["rejuvenation"] = repr(settings.smc(None).rejuvenation)
    return {"class": type(estimator).__name__, **found}


def check_names(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """ValueError for a name that is not known."""
    known = list(known)
    for name in names:
        if name not in known:
            raise ValueError(f"there is no {what} {name!r}{near(name, known)}; choose from: {'; '.join(known)}")


def paired(
    frame: pd.DataFrame,  # a row for each method and run
    column: str,
    ours: str,
    other: str,
    by: str = "run",  # the column that says which rows are a pair
) -> tuple[float, float, int]:
    """Mean paired difference, ours less other, its standard error, and the number of common runs."""
    wide = frame.pivot_table(index=by, columns="method", values=column)
    if ours not in wide or other not in wide:
        return np.nan, np.nan, 0
    gap = (wide[ours] - wide[other]).dropna()
    error = float(gap.std(ddof=1) / np.sqrt(len(gap))) if len(gap) > 1 else np.nan
    return float(gap.mean()), error, len(gap)


def by_split(splits: pd.DataFrame, column: str) -> pd.DataFrame:
    """A row for each set and seed, a column for each method."""
    wide = splits.pivot_table(index=["data", "seed"], columns="method", values=column, sort=False)
    return wide.rename_axis(columns=None)


def tables_of_sets(
    by_measure: Mapping[str, pd.DataFrame],  # as `by_split` gives them
    captions: Mapping[str, str],
    judged: str,  # the measure that has standard errors
    significant: Sequence[str] = (),  # measures whose sizes differ between sets; see `Table`
) -> list[Table]:
    """For each measure its means over splits, a row for each set."""
    found = []
    for name, caption in captions.items():
        sets = by_measure[name].groupby("data", sort=False)
        wide = sets.mean()
        if name == judged:
            wide = wide.join(sets.sem().add_suffix(" s.e."))
        text = f"{caption}."
        found.append(Table(name.lower().replace(" ", "-"), text, wide.reset_index(), significant=name in significant))
    return found


def what_is_missing(records: Sequence[Record], cells: Sequence[Cell]) -> list[str]:
    """How many cells have a result, and why the others have none, in sentences for the page."""
    there = [record for record in records if FAILED not in record]
    why = Counter(
        f"{record['labels']['data']}, {record['labels']['method']}: {record[FAILED]}"
        for record in records
        if FAILED in record
    )
    told = [f"{text.rstrip('.')} ({n} cell{'s' * (n > 1)})." for text, n in why.items()]
    return [f"{len(there)} of {len(cells)} cells have a result.", *told]


def slug(text: str | int) -> str:
    """What keys of cells and names of files have for a text."""
    return "-".join("".join(c if c.isalnum() or c == "_" else " " for c in str(text)).split())
