"""CLINC150: sentence embeddings of 150 intents, and of queries that have none of them (Larson et al. 2019).

Shapes and counts are checked, so that a wrong or partial file is noticed here and not as an odd number in a table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sureshot.data.archives import read_arrays
from sureshot.data.root import DataError, Root, data_file

CLINC150_FILE = "clinc150_minilm.npz"
_CLINC150_SIZES = {"train": 15000, "val": 3000, "test": 4500, "oos_train": 100, "oos_val": 100, "oos_test": 1000}
_CLINC150_LAYOUT = (
    "expected an NPZ file with embedding (23700, 384), label (23700,) 0 to 149 or -1 out of scope, split (23700,) as "
    "places in split_names (train, val, test, oos_train, oos_val, oos_test) and intent_names (150,): the queries of "
    "CLINC150 (data/data_full.json of github.com/clinc/oos-eval, Larson et al. 2019), embedded with all-MiniLM-L6-v2 "
    "of sentence-transformers (www.sbert.net) and normalised to unit length"
)


@dataclass(frozen=True)
class Clinc150:
    """Sentence embeddings of 150 intents, and of queries that have none of them (Larson et al. 2019)."""

    x_train: np.ndarray  # (15000, 384), 100 of each intent
    y_train: np.ndarray  # (15000,) int64, 0 to 149
    x_val: np.ndarray  # (3000, 384)
    y_val: np.ndarray  # (3000,)
    x_test: np.ndarray  # (4500, 384), 30 of each intent
    y_test: np.ndarray  # (4500,)
    x_oos: np.ndarray  # (1000, 384) out of scope, the test queries
    intent_names: tuple[str, ...]  # 150


def load_clinc150(root: Root = None, dtype: type[np.floating] = np.float64) -> Clinc150:
    """CLINC150 as embeddings of the encoder all-MiniLM-L6-v2, unit length up to rounding to float16."""
    path = data_file(CLINC150_FILE, root, _CLINC150_LAYOUT)
    try:
        arrays = read_arrays(path, ("embedding", "label", "split", "split_names", "intent_names"))
    except DataError as error:
        raise DataError(f"{error}; {_CLINC150_LAYOUT}") from None
    X, y, split = arrays["embedding"], arrays["label"], arrays["split"]
    split_names = [str(name) for name in arrays["split_names"]]
    intents = tuple(str(name) for name in arrays["intent_names"])
    if X.shape != (23700, 384) or len(intents) != 150 or set(split_names) != set(_CLINC150_SIZES):
        raise DataError(f"{path}: shape {X.shape} with {len(intents)} intents, expected (23700, 384) with 150")
    rows = {name: np.flatnonzero(split == i) for i, name in enumerate(split_names)}
    for name, size in _CLINC150_SIZES.items():
        inside = (y[rows[name]] >= 0) & (y[rows[name]] < 150)
        if len(rows[name]) != size or (inside.any() if name.startswith("oos") else not inside.all()):
            raise DataError(
                f"{path}: split {name} has {len(rows[name])} rows, {int(inside.sum())} with an intent, expected {size}"
            )
    x = {name: X[index].astype(dtype) for name, index in rows.items()}
    labels = {name: y[index].astype(np.int64) for name, index in rows.items()}
    return Clinc150(
        x_train=x["train"],
        y_train=labels["train"],
        x_val=x["val"],
        y_val=labels["val"],
        x_test=x["test"],
        y_test=labels["test"],
        x_oos=x["oos_test"],
        intent_names=intents,
    )
