"""A saved model and the files it is asked about: columns in the model's order, labels of the model's kind."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sureshot.cli.console import check_no_target, note
from sureshot.cli.reading import Reading, naming
from sureshot.data import DataTable
from sureshot.data.cells import IGNORE, in_one_way, is_object
from sureshot.data.checks import listed
from sureshot.data.file_kinds import is_image_source, table_suffix
from sureshot.data.image_tables import load_image_table
from sureshot.data.parquet_files import parquet_columns, parquet_parts
from sureshot.data.remembered import Remembered, folded
from sureshot.data.root import DataError
from sureshot.data.tables import META_PREFIX, columns_of_classes, named_rows
from sureshot.data.written_numbers import WayOfWriting, bare_number

if TYPE_CHECKING:
    from sureshot.data.mixed_columns import ColumnEncoder
    from sureshot.estimators.base import IncrementalEstimator

_WHOLE_NUMBER = re.compile(r"0|-?[1-9]\d*")  # 007 and 1_0 are text


def read_for_model(
    model: IncrementalEstimator,
    path: Path,
    target: str | None,
    how: Reading,
    *,
    with_labels: bool,
    ignored: Sequence[str] = (),
    mixed: bool = False,
    part: pd.DataFrame | None = None,  # of a Parquet file, in place of all rows
) -> DataTable:
    """Rows of a file, or images, as the model wants them, without the columns that are ignored.

    Where no labels are wanted, the column of labels (`target`) is left out. Columns may be other than numbers if they
    are the model's, or `mixed` says so.
    """
    names = how.check(path, target, part)
    if is_image_source(path):
        check_no_target(path, target)
        try:
            return _read_images(model, path, with_labels)
        except DataError as error:
            if _feature_names(model) is None:
                raise
            raise DataError(f"{error}; the model was fitted on a table: name a file of rows") from None
    classes: np.ndarray | None = getattr(model, "classes_", None)  # None of numbers
    text_labels = classes is not None and classes.dtype.kind not in "iufb"
    features = _feature_names(model)
    ignore = list(ignored)
    found: list[str] = []
    if names is not None and not with_labels:
        known = target is not None or part is not None  # a part does not tell, and it would be left out anyway
        found = [] if known or classes is None else _label_column(path, names, features, classes, how)
        ignore += found if target is None else [target]
        target = None
    if names is not None and with_labels and target is None:
        raise DataError(f"{path}: name the column of labels with --target; columns: {listed(names)}")
    if names is None and not with_labels and target is not None:
        target = None  # the labels of an NPZ file are an array of their own
    encoder: ColumnEncoder | None = getattr(model, "encoder_", None)
    kinds: dict[str, str] = {} if encoder is None else encoder.kinds
    options: dict[str, Any] = {} if encoder is None else {"as_text": encoder.as_written}
    if not mixed:  # else what is compared with a model, which knows no way of writing
        options["written"] = _written(model)
    mixed = mixed or bool(kinds)
    if features is not None and names is not None:  # what is ignored may be missing, or name rows
        there = set(names) - {target, how.row_id, *ignore, *how.dropped(names)}
        features = [name for name in features if name in there or kinds.get(name) != IGNORE]
    table = how.load(
        path,
        target,
        names,
        ignore,
        features=features,
        text_labels=text_labels,
        task="numbers" if classes is None else "classes",
        mixed=mixed,
        allow_missing=mixed or (features is not None and not hasattr(model, "learner_")),
        part=part,
        **options,
    )
    for name in found:
        note(f"{path}: left out the column {name} (it holds the model's classes)")
    if with_labels and table.y is None:
        raise DataError(f"{path} has no array y or label: name the array of labels with --target")
    if with_labels and table.y is not None and classes is not None:
        _check_same_kind(path, table.y, classes)
        if how.fold_case:
            table = table._replace(y=folded(table.y, map(str, classes.tolist())))
    X = table.X
    if features is None and isinstance(X, pd.DataFrame):
        X = X.to_numpy()  # a model of bare columns takes them by position
    elif encoder is not None and isinstance(X, pd.DataFrame):
        X = encoder.with_ignored(X)
    if X.shape[1] != model.n_features_in_:
        hint = ""
        if names is not None and X.shape[1] == model.n_features_in_ + 1:
            hint = " (a column of labels can be named with --target)"
        raise DataError(f"{path} has {X.shape[1]} feature columns, the model wants {model.n_features_in_}{hint}")
    if encoder is not None and isinstance(X, pd.DataFrame):
        with naming(path):  # a cell that is none of its column is an error before anything is written
            encoder(X)
    return table._replace(X=X)


def tables_for_model(
    model: IncrementalEstimator, path: Path, target: str | None, how: Reading, at_once: bool
) -> tuple[int, Callable[[], Iterator[DataTable]]]:
    """How many rows without labels there are, all of them checked, and what reads them: Parquet a part at a time.

    Numbers that are text there are read at once, as is what must be: some say how others are written.
    """
    read = partial(read_for_model, model, path, target, how, with_labels=False)
    at_once = at_once or is_image_source(path) or table_suffix(path) != ".parquet"
    written = _written(model)
    if at_once or any(is_object(cells) for name, cells in parquet_columns(path).items() if name in written):
        table = read()
        return len(table.row_ids), lambda: iter([table])
    n, hashes = 0, []
    for part in parquet_parts(path):
        try:
            table = read(part=part)
        except DataError as error:
            raise DataError(f"{error}{f'; row 0 of these is row {n} of all' if n else ''}") from None
        n += len(part)
        hashes += [] if how.row_id is None else [pd.util.hash_array(table.row_ids)]
    if hashes and len(np.unique(np.concatenate(hashes))) < n:  # two names, perhaps, and else the same one
        names = [read(part=part).row_ids for part in parquet_parts(path)]
        named_rows(path, pd.Series(np.concatenate(names), name=how.row_id))
    return n, lambda: (read(part=part) for part in parquet_parts(path))


def _written(model: IncrementalEstimator) -> dict[str, WayOfWriting]:
    """How numbers were written, by column."""
    reading: Remembered | None = getattr(model, "reading_", None)
    encoder: ColumnEncoder | None = getattr(model, "encoder_", None)
    comma = () if reading is None else reading.comma
    known = {} if encoder is None else encoder.written
    return {**{name: WayOfWriting(",", False) for name in comma}, **known}


def taught_ids(model: IncrementalEstimator, table: DataTable, how: Reading) -> np.ndarray | None:
    """Ids of rows that a model is to learn: those of the column that was named, if the model keeps rows."""
    if how.row_id is None:
        return None
    if not keeps_ids(model):
        note(
            f"a {type(model).__name__} that does not keep all rows keeps no ids (--id): rows cannot be replaced, and "
            "those that are sent twice count twice"
        )
        return None
    return as_known([in_one_way(str(name)) for name in table.row_ids.tolist()], getattr(model, "row_ids_", None))


def keeps_ids(model: IncrementalEstimator) -> bool:
    """Whether rows that the model learns can have ids."""
    from sureshot.estimators.search.classifier import KernelSearchClassifier
    from sureshot.estimators.tree.classifier import TreeGPClassifier

    if isinstance(model, KernelSearchClassifier):
        return model.window is None
    return not isinstance(model, TreeGPClassifier)


def as_known(names: Sequence[str], known: np.ndarray | None) -> np.ndarray:
    """Names of the command line, which are text, as what they name: ids or classes, which may be numbers."""
    text = np.asarray(names, dtype=str)
    if known is None or known.dtype.kind not in "biuf":
        return text
    by_text = {str(name): name for name in known.tolist()}
    if not all(name in by_text or _WHOLE_NUMBER.fullmatch(name) for name in names):
        return text
    return np.asarray([by_text[name] if name in by_text else int(name) for name in names])


def _read_images(model: Any, path: Path, with_labels: bool) -> DataTable:
    from sureshot.estimators.few_shot.classifier import FewShotClassifier

    shape = model.input_shape_ if isinstance(model, FewShotClassifier) else (int(model.n_features_in_),)
    table = load_image_table(path, shape, with_labels=with_labels)
    if table.y is None:
        return table
    classes = np.asarray(model.classes_)
    labels = table.y
    if classes.dtype.kind in "iu" and all(label.isdecimal() for label in labels.tolist()):
        labels = labels.astype(np.int64)  # a folder's name is text, whatever it stands for
    _check_same_kind(path, labels, classes)
    return table._replace(y=labels)


def _feature_names(model: IncrementalEstimator) -> list[str] | None:
    names = getattr(model, "feature_names_in_", None)  # absent, by scikit-learn's rule, without names
    return None if names is None else [str(name) for name in names]


def _label_column(
    path: Path, names: list[str], features: list[str] | None, classes: np.ndarray, how: Reading
) -> list[str]:
    """The one column that is no feature of the model and holds nothing but its classes: the labels of the file."""
    if features is None:
        return []
    left_out = {*features, *how.dropped(names), how.row_id}
    extra = [name for name in names if name not in left_out and not name.startswith(META_PREFIX)]
    found = columns_of_classes(path, extra, classes.tolist(), how.text, how.fold_case) if extra else []
    return found if len(found) == 1 else []


def _instance(labels: np.ndarray) -> str:
    """One of the labels, of text the first that is no number."""
    names = list(map(str, labels.tolist()))
    return next((name for name in names if not _WHOLE_NUMBER.fullmatch(name)), names[0])


def _is_number(label: str) -> bool:
    return math.isfinite(math.nan if (number := bare_number(label)) is None else number)


def _check_same_kind(path: Path, labels: np.ndarray, classes: np.ndarray) -> None:
    kinds = {"i": "whole numbers", "u": "whole numbers", "f": "numbers", "b": "true or false"}
    given, known = kinds.get(labels.dtype.kind, "text"), kinds.get(classes.dtype.kind, "text")
    if given == known == "text" and all(map(_is_number, labels)) and not any(map(_is_number, classes.tolist())):
        given = "numbers"  # read as text, as the classes are
    if {given, known} <= {"whole numbers", "numbers"} or given == known:
        return
    raise DataError(
        f"{path}: the labels are {given} (for instance {_instance(labels)}) but the model's classes are {known} "
        f"(for instance {classes[0]!s}): name the same classes in the same way"
    )
