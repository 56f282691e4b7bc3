"""How tables are read, as the options of a command say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from sureshot.cli.console import note
from sureshot.data import DataTable, column_names, load_table
from sureshot.data.checks import listed, near
from sureshot.data.delimited import ANY, TextFormat
from sureshot.data.image_tables import is_image_source
from sureshot.data.root import DataError
from sureshot.data.tables import names_rows

MANY_CLASSES = 20
"""Rows from which on a label for each of them is questioned."""


@dataclass(frozen=True)
class Reading:
    """Options that all commands on tables share."""

    text: TextFormat = ANY
    drop: tuple[str, ...] = ()
    row_id: str | None = None

    @classmethod
    def of(
        cls,
        separator: str | None,
        encoding: str | None,
        decimal: str | None,
        drop: Sequence[str] | None,
        row_id: str | None,
    ) -> Reading:
        """From what was given on the command line; names of columns may stand together, with commas between them."""
        names = [name.strip() for part in drop or () for name in part.split(",")]
        return cls(TextFormat.checked(encoding, separator, decimal), tuple(filter(None, names)), row_id)

    def check(self, path: Path, target: str | None) -> list[str] | None:
        """Names of the file's columns, or None of arrays and images; `DataError` for one that is dropped in vain."""
        names = None if is_image_source(path) else column_names(path, self.text)
        for name in self.drop:
            if names is None:
                raise DataError(f"{path} has no columns with names, so there is no {name!r} to drop")
            if name not in names:
                raise DataError(f"{path}: no column {name!r} to drop{near(name, names)}; columns: {listed(names)}")
            if name in (target, self.row_id):
                raise DataError(f"{path}: column {name!r} is to be dropped, and to be {_use(name == target)}")
        if self.row_id is not None and self.row_id == target:
            raise DataError(f"{path}: column {target!r} is to be {_use(True)}, and {_use(False)}")
        return names

    def load(self, path: Path, target: str | None, ignore: Sequence[str] = (), **options: Any) -> DataTable:
        """`sureshot.data.load_table` with these options."""
        everything = [*ignore, *self.drop]
        return load_table(path, target, ignore=everything, row_id=self.row_id, text=self.text, **options)


def remark(path: Path, table: DataTable) -> None:
    """Notes about what looks like a mistake in labelled rows: a column that names rows, a label for every row."""
    if isinstance(table.X, pd.DataFrame):
        for name, column in table.X.items():
            if not names_rows(column):
                continue
            note(
                f"{path}: column {name} has another whole number in every row and a name like one that says which row "
                f"it is; it is learnt from unless you leave it out (--id {name} or --drop {name})"
            )
    if table.y is not None and len(table.y) >= MANY_CLASSES and len(set(table.y.tolist())) == len(table.y):
        note(
            f"{path}: every row has a label of its own ({listed(table.y.tolist()[:3])}, ...): is this the column of "
            "classes? A model can only say which row is most alike"
        )


def _use(as_target: bool) -> str:
    return "the labels (--target)" if as_target else "the names of rows (--id)"
