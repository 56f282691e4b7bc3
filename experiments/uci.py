"""The small tables that studies of many tables go over, most of them sets of the UCI Machine Learning Repository."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from sureshot.data import DataError, DataTable, data_root, load_table
from sureshot.data.checks import near
from sureshot.data.root import Root

TABLES = (
    *("balance_scale", "breast_wisconsin", "credit_australian", "glass", "haberman", "heart_cleveland"),
    *("heart_cleveland_5class", "heart_statlog", "ida_banana", "ida_breast_cancer", "ida_flare_solar", "ida_image"),
    *("ida_splice", "ida_titanic", "ionosphere", "iris", "letter", "musk1", "optdigits", "pendigits"),
    *("pima_diabetes", "satimage", "spambase", "wine", "zoo"),
)
_UCI_LAYOUT = (
    "expected CSV files with a header, the class in the column label and numbers in all others: most are sets of the "
    "UCI Machine Learning Repository (archive.ics.uci.edu)"
)


def load_uci(
    name: str,  # such as ``"ionosphere"``: the name of the file without ``.csv`` or ``.csv.gz``
    root: Root = None,
) -> DataTable:
    """One of the small classification sets in the folder ``uci`` of the data root.

    Rows are in the file's order, often sorted by class; text stays text, and missing cells are NaN, to be filled in
    inside the training fold.
    """
    folder = data_root(root, f"uci/{name}.csv", _UCI_LAYOUT) / "uci"
    for suffix in (".csv", ".csv.gz"):
        if (folder / f"{name}{suffix}").is_file():
            return load_table(folder / f"{name}{suffix}", "label", mixed=True)
    known = sorted(path.name.split(".csv")[0] for path in folder.glob("*.csv*"))
    raise DataError(f"{folder} has no {name}.csv or {name}.csv.gz{near(name, known)}; {_UCI_LAYOUT}")


def load(name: str, data_root: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Features with their gaps as NaN, text as a column of zeros and ones for each of its levels, and labels."""
    table = load_uci(name, data_root)
    assert isinstance(table.X, pd.DataFrame)
    return pd.get_dummies(table.X, dtype=float).to_numpy(), np.asarray(table.y).astype(str)
