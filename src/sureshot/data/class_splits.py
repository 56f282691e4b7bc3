"""Which classes are for training, validation and testing: by lists of names or by chance.

The classes that are named go where they are named for, all others are shuffled by a seed and shared out by fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np

from sureshot.data.checks import listed, near
from sureshot.data.root import DataError

ClassSplit = tuple[list[int], list[int], list[int]]
"""Numbers of the classes for training, validation and testing."""


def split_by_seed(
    class_names: Sequence[str],
    fractions: Sequence[float],  # three, in proportion: training, validation, testing
    seed: int,
) -> ClassSplit:
    """Numbers of at least three classes, shared out by chance; increasing, at least one in each set."""
    try:
        shares = np.asarray(fractions, dtype=np.float64)
    except (TypeError, ValueError):
        shares = np.empty(0)
    if shares.shape != (3,) or not (np.isfinite(shares) & (shares > 0)).all():
        raise DataError(f"fractions={fractions!r}, expected three positive numbers: training, validation, testing")
    n_classes = len(class_names)
    if n_classes < 3:
        raise DataError(
            f"{n_classes} classes ({listed(class_names)}), expected at least 3: one each for training, validation "
            "and testing"
        )
    val, test = (max(1, round(n_classes * share)) for share in (shares / shares.sum())[1:])
    test = min(test, n_classes - 2)
    val = min(val, n_classes - 1 - test)
    order = shuffled(n_classes, seed)
    train = n_classes - val - test
    return (
        sorted(order[:train].tolist()),
        sorted(order[train : train + val].tolist()),
        sorted(order[train + val :].tolist()),
    )


def shuffled(items: int | np.ndarray, seed: int) -> np.ndarray:
    """Items, or the numbers from 0 to below a number, in an order that the seed decides."""
    if not isinstance(seed, Integral) or isinstance(seed, bool) or seed < 0:
        raise DataError(f"seed={seed!r}, expected a whole number, 0 or more")
    return np.random.default_rng(seed).permutation(items)


def split_by_names(
    class_names: Sequence[str], train: Sequence[str | int] | None, val: Sequence[str | int], test: Sequence[str | int]
) -> ClassSplit:
    """Classes by lists of their names, in that order; ``train=None`` takes all that are on neither other list.

    Names that are unknown or twice on the lists are refused, and so is an empty list.
    """
    if train is None:
        elsewhere = {str(name) for name in (*val, *test)}
        train = [name for name in class_names if name not in elsewhere]
    number = {name: k for k, name in enumerate(class_names)}
    seen: set[str] = set()
    for part, names in (("train", train), ("val", val), ("test", test)):
        if len(names) == 0:
            raise DataError(f"no class for {part}: name at least one of {listed(class_names)}")
        for name in map(str, names):
            if name not in number:
                raise DataError(
                    f"class {name!r} for {part} is not in the data{near(name, class_names)}; "
                    f"classes: {listed(class_names)}"
                )
            if name in seen:
                raise DataError(f"class {name!r} is listed twice: the classes of the three sets must be different")
            seen.add(name)
    numbers = [[number[str(name)] for name in names] for names in (train, val, test)]
    return numbers[0], numbers[1], numbers[2]
