"""How tables are read, as the options of a command say; options are refused before anything slow is imported."""

from __future__ import annotations

import csv
import io
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.cli.console import note
from sureshot.data.checks import listed, near
from sureshot.data.delimited import ANY, STANDARD_INPUT, TextFormat
from sureshot.data.file_kinds import EXCEL, is_image_source, table_suffix
from sureshot.data.root import DataError
from sureshot.data.written_numbers import bare_number

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from sureshot.cli.options import Files
    from sureshot.data import DataTable
    from sureshot.data.remembered import Remembered
    from sureshot.estimators.base import IncrementalEstimator

KINDS = ("number", "category", "date", "text", "ignore", "day_first", "month_first")
AS_TEXT = ("category", "date", "text", "day_first", "month_first")
"""Kinds of columns whose cells are taken as they are written, 01 and 1 apart."""
MANY_CLASSES = 20
"""Rows from which on a label for each of them is questioned, and a column that says them all."""


@dataclass(frozen=True)
class Reading:
    """Options that all commands on tables share."""

    text: TextFormat = ANY
    drop: tuple[str, ...] = ()  # names of columns, which may stand together with commas between them
    row_id: str | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)  # of columns, by name
    fold_case: bool = False  # whether labels that differ in case only are one class

    @classmethod
    def of(cls, files: Files, kind: Sequence[str] | None = None) -> Reading:
        """From what was given on the command line; names of columns may stand together, with commas between them."""
        kinds: dict[str, str] = {}
        for name, one in map(_kind, kind or ()):
            if kinds.setdefault(name, one) != one:
                raise ValueError(f"--kind: {name!r} cannot be {kinds[name]} and {one}: state one of them")
        text = TextFormat.checked(
            files.encoding, files.separator, files.decimal, files.header, files.missing, files.sheet
        )
        return cls(text, tuple(files.drop or ()), files.row_id, kinds, files.fold_case)

    def completed(self, known: Remembered | None) -> Reading:
        """With what holds for the files of a model."""
        if known is None:
            return self
        return replace(self, text=known.completing(self.text), fold_case=self.fold_case or known.fold_case)

    def check(self, path: Path, target: str | None, part: pd.DataFrame | None = None) -> list[str] | None:
        """Names of the file's columns, or None of arrays and images; `DataError` for one that is dropped in vain."""
        from sureshot.data.tables import META_PREFIX, column_names, doubt_of_header

        ending = None if is_image_source(path) else table_suffix(path)
        if self.text.of_text and ending in (None, ".parquet", ".npz", *EXCEL) and path != STANDARD_INPUT:
            raise DataError(f"{path} is no text: leave --separator, --encoding and --decimal out")
        if self.text.sheet is not None and ending not in EXCEL:
            raise DataError(f"{path} is no Excel file: leave --sheet out")
        if self.text.header is not None and self.text.header and ending in (".parquet", ".npz"):
            raise DataError(f"{path} has no lines: leave --header out")
        names = None if is_image_source(path) else column_names(path, self.text, part)
        dropped = self.dropped(names)
        for name in dropped:
            if names is None:
                raise DataError(f"{path} has no columns with names, so there is no {name!r} to drop")
            if name not in names:
                raise DataError(f"{path}: no column {name!r} to drop{near(name, names)}; columns: {listed(names)}")
            if name in (target, self.row_id):
                raise DataError(f"{path}: column {name!r} is to be dropped, and to be {_use(name == target)}")
        for name, kind in self.kinds.items():
            if names is None:
                raise DataError(f"{path} has no columns with names, so {name!r} can be no {kind}")
            if name not in names:
                raise DataError(f"{path}: no column {name!r} (--kind){near(name, names)}; columns: {listed(names)}")
            if name.startswith(META_PREFIX):
                raise DataError(f"{path}: column {name!r} has a kind (--kind), but {META_PREFIX}* is never learnt from")
            if name in (target, self.row_id, *dropped):
                raise DataError(f"{path}: column {name!r} has a kind (--kind), but is not learnt from")
        if names is not None and target is not None and target not in names:
            doubt = doubt_of_header(path, self.text)
            raise DataError(f"{path}: no column {target!r}{near(target, names)}; columns: {listed(names)}{doubt}")
        if self.row_id is not None and self.row_id == target:
            raise DataError(f"{path}: column {target!r} is to be {_use(True)}, and {_use(False)}")
        return names

    def dropped(self, names: Sequence[str] | None) -> list[str]:
        """Names of columns to leave out, of a file with columns of these names."""
        return names_together(self.drop, names or ())

    def load(
        self,
        path: Path,
        target: str | None,
        names: Sequence[str] | None,  # of the file's columns, as `check` has found them
        ignore: Sequence[str] = (),
        **options: Any,
    ) -> DataTable:
        """`sureshot.data.load_table` with these options."""
        from sureshot.data.tables import load_table

        everything = [*ignore, *self.dropped(names)]
        options.setdefault("as_text", [name for name, kind in self.kinds.items() if kind in AS_TEXT])
        options["as_numbers"] = [name for name, kind in self.kinds.items() if kind not in AS_TEXT]
        options |= {"text": self.text, "fold_case": self.fold_case}
        return load_table(path, target, ignore=everything, row_id=self.row_id, **options)


def names_together(given: Sequence[str], known: Iterable[str]) -> list[str]:
    """Names that may stand together, with commas between them; a known name may have commas itself."""
    whole = set(known)
    parts = [[part] if part in whole else part.split(",") for part in given]
    return [name for names in parts for one in names if (name := one.strip())]


def remark(path: Path, table: DataTable) -> None:
    """Notes about what looks like a mistake in labelled rows: a column that names rows, or says the label of each."""
    import pandas as pd

    from sureshot.data.tables import names_rows

    if isinstance(table.X, pd.DataFrame):
        for name, column in table.X.items():
            if not names_rows(column):
                continue
            quoted = shlex.quote(str(name))
            note(
                f"{path}: column {name} has another whole number in every row and a name like one that says which row "
                f"it is; it is learnt from unless you leave it out (--id {quoted} or --drop {quoted})"
            )
        for name in _copies_of_labels(table.X, table.y):
            note(
                f"{path}: column {name} says the label of every row: is it a copy of {_use(True)}? "
                f"--drop {shlex.quote(str(name))} leaves it out"
            )
    if table.y is None or table.numbers:
        return
    remark_on_spelling(path, table.y.tolist())
    if len(table.y) >= MANY_CLASSES and 2 * len(set(table.y.tolist())) > len(table.y):
        n_labels = len(set(table.y.tolist()))
        what = "every row has a label of its own" if n_labels == len(table.y) else f"{n_labels} labels in so few rows"
        note(
            f"{path}: {what} ({listed(table.y.tolist()[:3])}, ...): is this the column of classes? A model can only "
            "say which row is most alike"
        )


def remark_on_task(path: Path, table: DataTable) -> None:
    """A note on what numbers of a target were taken for, where nobody said it."""
    y = table.y
    if y is not None and (table.numbers or (y.dtype.kind in "iuf" and len(set(y.tolist())) > 2)):
        found, other = ("numbers", "classes") if table.numbers else ("classes", "numbers")
        may_be = not table.numbers or bool((y == y.round()).all())
        note(f"{path}: the target is learnt as {found}{f'; --task {other} learns {other}' if may_be else ''}")


def remark_on_spelling(path: Path, labels: Iterable[Any], known: Iterable[Any] = ()) -> None:
    """A note on new labels that may be one class, with each other or a known one: they differ in case or as 1 and 1.0.

    Those that are known already are not mentioned.
    """
    old = dict.fromkeys(map(str, known))
    alike: dict[str | float, list[str]] = {}
    for label in dict.fromkeys([*old, *map(str, labels)]):
        alike.setdefault(_spelt(label), []).append(label)
    if pairs := [given for given in alike.values() if len(given) > 1 and not old.keys() >= set(given)]:
        note(
            f"{path}: {' and '.join(map(repr, pairs[0]))} are learnt as different classes: if they are one, write them "
            f"alike{_folding(pairs)}{f' (and so {len(pairs) - 1} more)' if len(pairs) > 1 else ''}"
        )


def _folding(pairs: Sequence[Sequence[str]]) -> str:
    """Advice where labels differ in case."""
    from sureshot.data.remembered import spelt

    return ", or give --fold-case" if any(len(set(map(spelt, given))) < len(given) for given in pairs) else ""


def _spelt(label: str) -> str | float:
    from sureshot.data.remembered import spelt

    number = bare_number(label)
    return spelt(label) if number is None else number if math.isfinite(number) else label


@dataclass(frozen=True)
class Beside:
    """The columns of a file, as they are written there, beside which others are to be written likewise."""

    cells: pd.DataFrame
    separator: str
    decimal: str

    @classmethod
    def of(cls, path: Path, how: Reading, written: Sequence[str]) -> Beside:
        """Those of a file that has none of the names of the columns to write."""
        if is_image_source(path):
            raise DataError(f"{path}: images have no columns to write beside predictions: leave out --join")
        from sureshot.data.tables import cells_as_written

        cells, found = cells_as_written(path, how.text)
        if taken := [name for name in written if name in cells]:
            raise DataError(f"{path} has a column {taken[0]!r} already: rename it, or leave out --join")
        assert found.separator is not None
        assert found.decimal is not None
        return cls(cells, found.separator, found.decimal)

    def rows(self, which: np.ndarray | slice = slice(None)) -> Iterator[tuple[Any, ...]]:
        """Cells of all rows or some, each of its own type; nothing where one is missing."""
        cells = self.cells.iloc[which]
        for row, gaps in zip(cells.itertuples(index=False, name=None), cells.isna().to_numpy(), strict=True):
            yield tuple("" if gap else cell for cell, gap in zip(row, gaps, strict=True))


def as_head(path: Path | None, beside: Beside | None, row_id: str | None, columns: Sequence[str]) -> str:
    """The line with the names of columns: that of the names of rows, or those of the file beside, then others."""
    first = ["row" if row_id is None else row_id] if beside is None else beside.cells.columns
    return _as_text(path, beside, [[*first, *columns]])


def as_lines(
    path: Path | None,
    beside: Beside | None,
    names: Sequence[Any],  # of the rows
    which: Any,  # their numbers
    cells: Iterable[Sequence[Any]],  # of the other columns, row by row
) -> str:
    """A line for each row: cells behind its name, or behind those of its file."""
    known = ((name,) for name in names) if beside is None else beside.rows(which)
    return _as_text(path, beside, ([*row, *others] for row, others in zip(known, cells, strict=True)))


def _as_text(path: Path | None, beside: Beside | None, rows: Iterable[Sequence[Any]]) -> str:
    """Cells parted as the name of their file says, else as those beside are, or by commas."""
    by_tabs = path is not None and table_suffix(path) == ".tsv"
    separator = "\t" if by_tabs else "," if beside is None else beside.separator
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", delimiter=separator).writerows(rows)
    return text.getvalue()


def written_number(value: float, beside: Beside | None) -> str:
    """Six digits, with the decimal sign of the columns beside it."""
    text = f"{value:.6g}"
    return text if beside is None else text.replace(".", beside.decimal)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors about cells of a table tell the file that it was read from."""
    from sureshot.data.cells import CellError

    try:
        yield
    except CellError as error:
        raise DataError(f"{path}: {error}") from None


def take(X: Any, rows: np.ndarray) -> Any:
    """Rows of a table, by numbers or by a mask."""
    import numpy as np

    return X[rows] if isinstance(X, np.ndarray) else X.iloc[np.flatnonzero(rows) if rows.dtype == bool else rows]


def remark_on_columns(path: Path, model: IncrementalEstimator) -> None:
    """A note on what was made of columns that are not all numbers without gaps."""
    encoder = getattr(model, "encoder_", None)
    if encoder is not None:
        note(f"{path}: {encoder}")


def _kind(text: str) -> tuple[str, str]:
    name, equals, kind = text.rpartition("=")
    if not equals or not name:
        raise ValueError(f"--kind: expected COLUMN=KIND, such as zip=category; got {text!r}")
    if kind not in KINDS:
        raise ValueError(f"--kind: expected one of {', '.join(KINDS)} for {name!r}; got {kind!r}{near(kind, KINDS)}")
    return name, kind


def _copies_of_labels(frame: pd.DataFrame, y: np.ndarray | None) -> list[str]:
    """Columns with one value for each class, which none but its rows have."""
    import numpy as np
    import pandas as pd

    if y is None or len(y) < MANY_CLASSES:
        return []
    labels = pd.factorize(y)[0]
    n_classes, found = labels.max() + 1, []
    if n_classes == len(y):  # any column without two equal cells would be one
        return []
    for name, column in frame.items():
        try:
            values = pd.factorize(column)[0]
        except TypeError:  # lists in cells, which whoever reads the columns refuses
            continue
        as_many = n_classes > 1 and values.min() >= 0 and values.max() + 1 == n_classes
        if as_many and len(np.unique(values * n_classes + labels)) == n_classes:
            found.append(str(name))
    return found


def _use(as_target: bool) -> str:
    return "the labels (--target)" if as_target else "the names of rows (--id)"
