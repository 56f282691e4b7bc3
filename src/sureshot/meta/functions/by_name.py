"""Functions by name, as settings of `sureshot meta-train` call them.

============= ===================================================================================
name          functions
============= ===================================================================================
``functions`` draws of Gaussian processes of a family (`sureshot.meta.functions.gaussian`)
``sinusoids`` of random amplitude and phase
``images``    images of a few-shot set (`sureshot.data.few_shot`), of classes apart
``groups``    rows of a table that belong together, of groups apart
============= ===================================================================================

Options are the keyword arguments of the function of that name. To add one, write a `FunctionSource` in a file of its
own and enter here what makes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sureshot.data.few_shot import load_few_shot
from sureshot.data.root import Root
from sureshot.data.typed_values import assembled
from sureshot.meta.functions.gaussian import Family, GaussianFunctions
from sureshot.meta.functions.groups import read_groups
from sureshot.meta.functions.images import Images
from sureshot.meta.functions.sinusoids import Sinusoids
from sureshot.meta.functions.source import FunctionSource


@dataclass(frozen=True)
class FunctionData:
    """Functions to learn from, to choose a checkpoint by, and to test on."""

    train: FunctionSource
    val: FunctionSource
    test: FunctionSource
    description: str  # one line for tables and reports


def load_functions(name: str, root: Root = None, **options: Any) -> FunctionData:
    """Functions by a name of the table above, with its options."""
    return assembled("functions", _ASSEMBLERS, name, root, options)


def functions(
    root: Root = None,
    *,
    family: Family = "rbf",
    lengthscale: tuple[float, ...] = (0.25, 1.0),
    period: tuple[float, ...] = (0.5, 2.0),
    decay: tuple[float, ...] = (1.0, 4.0),
    inputs: tuple[float, ...] = (-2.0, 2.0),
    noise: float = 0.05,
) -> FunctionData:
    """Draws of Gaussian processes, of which there is no end: all three parts are one."""
    source = GaussianFunctions(family, lengthscale, period, decay, inputs, noise)
    return FunctionData(source, source, source, f"draws of Gaussian processes, {family}, noise {noise:g}")


def sinusoids(root: Root = None, *, inputs: tuple[float, ...] = (-5.0, 5.0), noise: float = 0.05) -> FunctionData:
    """Sinusoids of amplitude 0.1 to 5 and phase 0 to pi."""
    source = Sinusoids(inputs=inputs, noise=noise)
    return FunctionData(source, source, source, f"sinusoids, noise {noise:g}")


def images(root: Root = None, *, data: str, options: Mapping[str, Any] | None = None) -> FunctionData:
    """Images of a few-shot set, such as "omniglot-vinyals" or "miniimagenet32"."""
    found = load_few_shot(data, root, **(options or {}))
    return FunctionData(Images(found.train), Images(found.val), Images(found.test), f"pixels of {found.description}")


def groups(
    root: Root = None,
    *,
    path: str | os.PathLike[str],
    group: str,  # the column that says which rows belong together
    target: str,
    inputs: Sequence[str] | None = None,  # all other columns by default
    fractions: Sequence[float] = (0.6, 0.2, 0.2),  # of the groups, to train on, to choose by, to test on
    seed: int = 0,  # of the split
) -> FunctionData:
    """Groups of rows of a table (CSV, Excel, Parquet), shared out by a seed; a relative path starts at ``root``."""
    parts = read_groups(root, path, group, target, inputs, fractions, seed)
    text = f"{target} of each {group} in {os.path.basename(path)}, groups shared out by seed {seed}"
    return FunctionData(*parts, text)


_ASSEMBLERS: dict[str, Callable[..., FunctionData]] = {
    "functions": functions,
    "sinusoids": sinusoids,
    "images": images,
    "groups": groups,
}

FUNCTION_NAMES = tuple(_ASSEMBLERS)
