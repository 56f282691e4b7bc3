"""Labelled sets of inputs, and the three with disjoint classes that few-shot learning needs.

A `LabelledSet` is a tensor of inputs and a class number for each: images stay bytes (the sampler turns a drawn batch
into floats), embeddings and sequences are floats.

A few-shot learner is trained on some classes, its settings are chosen on others, and it is tested on classes that
neither has seen. `FewShotData` holds the three sets. Each numbers its own classes from 0.
"""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from sureshot.data.arrays import number_classes, to_inputs
from sureshot.data.checks import listed
from sureshot.data.root import DataError

# Pixels scaled in float32 miss 0 and 1 by about 1e-7 for each step of arithmetic.
_ROUNDING = 1e-5


def check_class_numbers(y: np.ndarray, n_rows: int, class_names: Sequence[str], what: str) -> None:
    """Refuse class numbers that do not fit the rows and names, and classes with no row."""
    if y.shape != (n_rows,):
        raise DataError(f"{what}: {n_rows} rows but class numbers of shape {y.shape}, expected ({n_rows},)")
    if n_rows == 0 or not class_names:
        raise DataError(f"{what}: no rows or no classes; expected at least one of each")
    if y.min() < 0 or y.max() >= len(class_names):
        raise DataError(
            f"{what}: class numbers from {y.min()} to {y.max()}, expected 0 to {len(class_names) - 1} for "
            f"{len(class_names)} classes"
        )
    empty = np.flatnonzero(np.bincount(y, minlength=len(class_names)) == 0)
    if len(empty):
        raise DataError(
            f"{what}: no row of {'class' if len(empty) == 1 else f'{len(empty)} classes:'} "
            f"{listed([class_names[int(i)] for i in empty])}; add rows or leave the class out"
        )


def digest(parts: Iterable[Tensor], text: str = "") -> str:
    """What tells tensors, and a text, from all others: 64 hexadecimal digits."""
    found = hashlib.sha256(text.encode())
    for part in parts:
        found.update(f"{part.dtype} {tuple(part.shape)}".encode())
        found.update(part.cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


@dataclass(frozen=True, eq=False)
class LabelledSet:
    """N inputs of K classes, checked when made; `from_arrays` makes one of NumPy arrays and any labels.

    Refused (`DataError`) are shapes or numbers that do not fit, a class without a row, inputs that are not finite, and
    images of floats with values outside [0, 1].
    """

    # Images (N, channels, H, W), bytes or floats in [0, 1]; embeddings (N, D) or sequences (N, length, D) as floats.
    x: Tensor
    y: Tensor  # (N,) int64, class numbers 0..K-1, every class at least once
    class_names: tuple[str, ...]  # K names

    def __post_init__(self) -> None:
        for what, value in (("inputs", self.x), ("class numbers", self.y)):
            if not isinstance(value, Tensor):
                raise DataError(
                    f"{what} of type {type(value).__name__}, expected a tensor; LabelledSet.from_arrays(x, y) takes "
                    "NumPy arrays and any labels"
                )
        expected = "bytes (N, channels, H, W), or floats (N, D), (N, length, D) or (N, channels, H, W)"
        dimensions = (4,) if self.x.dtype == torch.uint8 else (2, 3, 4)
        known = self.x.dtype == torch.uint8 or self.x.is_floating_point()
        if not known or self.x.dim() not in dimensions or 0 in self.x.shape[1:]:
            raise DataError(f"inputs of shape {tuple(self.x.shape)} and dtype {self.x.dtype}, expected {expected}")
        if self.y.dtype != torch.int64:
            raise DataError(f"class numbers of dtype {self.y.dtype}, expected torch.int64")
        y = self.y.detach().cpu().numpy()
        check_class_numbers(y, len(self.x), self.class_names, "labelled set")
        if self.x.is_floating_point():
            self._check_finite(y)
            if self.x.dim() == 4:
                self._check_range()

    def _check_finite(self, y: np.ndarray) -> None:
        bad = ~torch.isfinite(self.x).flatten(1).all(1)
        if bool(bad.any()):
            rows = torch.nonzero(bad).flatten().cpu().numpy()
            raise DataError(
                f"NaN or infinite numbers in {len(rows)} of {len(self.x)} inputs (the first is row {rows[0]}, counted "
                f"from 0, of class {self.class_names[y[rows[0]]]}): fill them in, drop those rows, or scale numbers "
                "beyond 3e38, which single precision cannot hold"
            )

    def _check_range(self) -> None:
        low, high = (float(value) for value in self.x.aminmax())
        if low < -_ROUNDING or high > 1 + _ROUNDING:
            raise DataError(
                f"images must be uint8 (0 to 255) or lie in [0, 1], but these have {self.x.dtype} values from {low:g} "
                f"to {high:g}: make them uint8, or scale them to [0, 1]"
            )

    @classmethod
    def from_arrays(
        cls,
        x: ArrayLike | Tensor,  # images (N, channels, H, W), embeddings (N, D) or sequences (N, length, D)
        y: ArrayLike | Tensor,  # (N,), text, whole numbers or booleans
        class_names: Sequence[str] | None = None,  # in the sorted order of the labels; by default the labels as text
    ) -> LabelledSet:
        """A labelled set of NumPy arrays or tensors with any labels; classes are numbered in the labels' sorted order.

        Bytes (uint8) stay bytes, which only images may be; all other numbers become float32, which backbones take. For
        images with channels last use ``x.transpose(0, 3, 1, 2)``.

        Examples
        --------
        Tasks of two classes from twelve embeddings:

        >>> import numpy as np
        >>> import torch
        >>> from sureshot.data import LabelledSet
        >>> from sureshot.meta.episodes import EpisodeProtocol, EpisodeSampler
        >>> x = np.random.default_rng(0).normal(size=(12, 8))
        >>> data = LabelledSet.from_arrays(x, ["owl", "cat", "dog"] * 4)
        >>> data.class_names
        ('cat', 'dog', 'owl')
        >>> sampler = EpisodeSampler(data, EpisodeProtocol(way=2, shots=1, queries=3))
        >>> tasks = sampler.sample(5, torch.Generator().manual_seed(0))
        >>> tasks.support_x.shape, tasks.query_x.shape
        (torch.Size([5, 2, 8]), torch.Size([5, 6, 8]))
        """
        inputs = to_inputs(x)
        numbers, names = number_classes(y, len(inputs))
        if class_names is not None:
            if isinstance(class_names, str) or len(class_names) != len(names):
                raise DataError(
                    f"class_names={reprlib.repr(class_names)} for the {len(names)} labels {listed(names)}, expected a "
                    "list of one name for each, in this order"
                )
            names = tuple(str(name) for name in class_names)
        return cls(inputs, torch.from_numpy(numbers), names)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.class_names)

    @property
    def class_sizes(self) -> Tensor:
        """Rows of each class, (K,) int64."""
        return torch.bincount(self.y, minlength=self.n_classes)

    def select_classes(self, classes: Sequence[int]) -> LabelledSet:
        """Only these classes, numbered from 0 in the order given; rows keep their order."""
        chosen = torch.as_tensor(classes, dtype=torch.int64, device=self.y.device)
        if len(chosen.unique()) != len(chosen):
            raise DataError("a class is chosen more than once; name each class once")
        if len(chosen) == 0 or chosen.min() < 0 or chosen.max() >= self.n_classes:
            which = listed(list(classes)) or "(none)"
            raise DataError(f"classes {which} chosen, expected some of 0 to {self.n_classes - 1}")
        new = chosen.new_full((self.n_classes,), -1)
        new[chosen] = torch.arange(len(chosen), device=chosen.device)
        keep = new[self.y] >= 0
        return LabelledSet(
            self.x[keep.to(self.x.device)], new[self.y][keep], tuple(self.class_names[c] for c in classes)
        )

    def select_rows(self, keep: Tensor) -> LabelledSet:
        """Only some rows (a mask (N,) or row numbers), of the same classes, each of which must keep one."""
        return LabelledSet(self.x[keep], self.y[keep], self.class_names)


def concatenate(sets: Sequence[LabelledSet]) -> LabelledSet:
    """The rows of several sets in one, of inputs of one shape and kind.

    Classes stay apart even if they have the same name.
    """
    kinds = {(tuple(part.x.shape[1:]), part.x.dtype) for part in sets}
    if len(kinds) != 1:
        raise DataError("sets of different inputs: " + ", ".join(f"{shape} {dtype}" for shape, dtype in kinds))
    starts = [sum(part.n_classes for part in sets[:i]) for i in range(len(sets))]
    return LabelledSet(
        torch.cat([part.x for part in sets]),
        torch.cat([part.y + start for part, start in zip(sets, starts, strict=True)]),
        tuple(name for part in sets for name in part.class_names),
    )


@dataclass(frozen=True, eq=False)
class FewShotData:
    """Three labelled sets with classes of their own: to learn from, to choose settings on, to test on.

    Their inputs have one shape and kind.
    """

    train: LabelledSet  # each set numbers its classes from 0
    val: LabelledSet
    test: LabelledSet
    name: str  # as in `sureshot.data.few_shot.FEW_SHOT_NAMES`
    description: str  # one line for tables and reports: sources, splits, options
    out_of_scope: Tensor | None = None  # (M, ...), inputs that belong to no class, for detection

    def __post_init__(self) -> None:
        kinds = {part: (tuple(s.x.shape[1:]), s.x.dtype) for part, s in self.parts.items()}
        if self.out_of_scope is not None:
            kinds["out_of_scope"] = (tuple(self.out_of_scope.shape[1:]), self.out_of_scope.dtype)
        if len(set(kinds.values())) > 1:
            raise DataError(
                f"{self.name}: the sets differ in the shape or kind of their inputs: "
                + ", ".join(f"{part} {shape} {dtype}" for part, (shape, dtype) in kinds.items())
                + "; read them at one size (option side) and with the same channels"
            )

    @classmethod
    def of_parts(cls, name: str, description: str, parts: Iterable[LabelledSet]) -> FewShotData:
        """Of the three sets in their order."""
        train, val, test = parts
        return cls(train, val, test, name, description)

    @property
    def parts(self) -> dict[str, LabelledSet]:
        """The three sets by name."""
        return {"train": self.train, "val": self.val, "test": self.test}


def places_within_classes(
    y: Tensor,  # (N,) int64
    order: Tensor,  # (N,), all rows once
) -> Tensor:
    """Place of each row among its class's rows when they are taken in this order, from 0; (N,)."""
    by_class = order[y[order].argsort(stable=True)]
    counts = torch.bincount(y)
    first = torch.cumsum(counts, 0) - counts
    return torch.empty_like(y).scatter(0, by_class, torch.arange(len(y), device=y.device) - first[y[by_class]])
