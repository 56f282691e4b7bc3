"""A made-up data set: each class is a spot in a space of a few dimensions."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from sureshot.data import FewShotData, LabelledSet
from sureshot.data.root import Root


def spots(root: Root = None, *, n_classes: int = 30, rows: int = 20, width: int = 8, seed: int = 0) -> FewShotData:
    """Spots of deviation .4 about centres of deviation 1.

    Three fifths of the classes are to train on, a fifth each to validate and to test on. A set that is read from files
    finds them below ``root``, see `sureshot.data.root.data_file`.
    """
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_classes, 1, width))
    x = centres + 0.4 * rng.normal(size=(n_classes, rows, width))
    at = (0, 3 * n_classes // 5, 4 * n_classes // 5, n_classes)
    parts = []
    for first, last in pairwise(at):
        names = np.repeat([f"spot {k:03d}" for k in range(first, last)], rows)
        parts.append(LabelledSet.from_arrays(x[first:last].reshape(-1, width), names))
    return FewShotData.of_parts("spots", f"{n_classes} spots by seed {seed}", parts)
