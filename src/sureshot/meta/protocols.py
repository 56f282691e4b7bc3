"""What an episode looks like, and the papers' protocols by name.

An *episode* is a small classification task drawn from a labelled set: ``way`` classes, ``shots`` labelled rows of
each (the support) and ``queries`` rows of each to be classified. Counts are numbers or ranges. A range is drawn
anew for every task; with ``unbalanced=True`` the shots are drawn anew for every class of a task.

`PROTOCOLS` names the episodes of the papers that this library reimplements, and `TRAINING_PRESETS` their budgets
and learning rates, including where the released code does something else than the text says. The one-vs-each paper
is Snell & Zemel, "Bayesian Few-Shot Classification with One-vs-Each Polya-Gamma Augmented Gaussian Processes" (ICLR
2021); the logistic-softmax paper is Ke et al., "Revisiting Logistic-softmax Likelihood in Bayesian Meta-Learning for
Few-Shot Classification" (NeurIPS 2023); both follow Chen et al., "A Closer Look at Few-shot Classification" (2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sureshot.ranges import check_counts

Count = int | tuple[int, int]
"""A number, or the lowest and the highest of a range (both included)."""


@dataclass(frozen=True)
class EpisodeProtocol:
    """The sizes of episodes."""

    way: Count = 5  # classes of a task; at least 2
    shots: Count = 1  # labelled rows of each class
    queries: Count = 16  # rows of each class to be classified
    # Draw the shots of every class by themselves, from a range. By default all classes of a task have the same number.
    unbalanced: bool = False

    def __post_init__(self) -> None:
        for name, least in (("way", 2), ("shots", 1), ("queries", 1)):
            object.__setattr__(self, name, _checked(name, getattr(self, name), least))
        if self.unbalanced and isinstance(self.shots, int):
            raise ValueError(
                f"unbalanced=True needs a range of shots such as shots=(1, 5), got shots={self.shots}: give a range, "
                "or leave unbalanced out"
            )

    @property
    def ways(self) -> tuple[int, int]:
        """Fewest and most classes."""
        return _range(self.way)

    @property
    def shot_range(self) -> tuple[int, int]:
        """Fewest and most support rows of a class."""
        return _range(self.shots)

    @property
    def query_range(self) -> tuple[int, int]:
        """Fewest and most query rows of a class."""
        return _range(self.queries)

    @property
    def rows_per_class(self) -> int:
        """How many rows a class must have."""
        return self.shot_range[1] + self.query_range[1]

    @property
    def rows_per_task(self) -> int:
        """Support and query rows of the largest task."""
        return self.ways[1] * self.rows_per_class


@dataclass(frozen=True)
class FunctionProtocol:
    """The sizes of tasks of numbers."""

    context: Count = (1, 50)  # rows to learn a function from, drawn anew for every task from a range; 0 is allowed
    targets: int = 50  # rows to be predicted

    def __post_init__(self) -> None:
        object.__setattr__(self, "context", _checked("context", self.context, 0))
        check_counts(1, targets=self.targets)

    @property
    def context_range(self) -> tuple[int, int]:
        """Fewest and most context rows."""
        return _range(self.context)


@dataclass(frozen=True)
class TrainingPreset:
    """How a paper meta-trains and tests."""

    train: EpisodeProtocol
    test: EpisodeProtocol
    episodes: int  # one for each step of the optimiser, 100 to an "epoch" of the papers
    learning_rate: float  # Adam's for the network
    learning_rate_kernel: float  # and for all other parameters
    # By few-shot data set, the options of `sureshot.data.few_shot.load_few_shot` by which it is as in the text or as in
    # the released code, where those differ.
    data_options: Mapping[str, Mapping[str, bool]]
    note: str  # the same in words, and what else to know


def _range(count: Count) -> tuple[int, int]:
    return (count, count) if isinstance(count, int) else count


def _checked(name: str, value: object, least: int) -> Count:
    """The count as an int or a pair of ints in order."""
    pair = [value, value] if type(value) is int else value
    if not isinstance(pair, list | tuple) or len(pair) != 2 or any(type(number) is not int for number in pair):
        raise ValueError(f"{name} must be a whole number or a range of two, such as 5 or (1, 5), got {value!r}")
    low, high = pair
    if low < least or high < low:
        raise ValueError(f"{name} must be at least {least} and a range must rise, got {value!r}")
    return low if type(value) is int else (low, high)


PROTOCOLS: Mapping[str, EpisodeProtocol] = MappingProxyType(
    {
        "5way-1shot-train": EpisodeProtocol(5, 1, 16),
        "5way-5shot-train": EpisodeProtocol(5, 5, 16),
        # A character has 20 drawings, too few for 5 shots and 16 queries.
        "5way-5shot-train-omniglot": EpisodeProtocol(5, 5, 15),
        "5way-1shot-test": EpisodeProtocol(5, 1, 15),
        "5way-5shot-test": EpisodeProtocol(5, 5, 15),
    }
)
"""Episodes of the papers: 16 queries of each class in training (15 where a class has 20 rows), 15 in tests."""


_TEXT = (
    "In the text transfer trains on 64 classes of mini-ImageNet, or on 4114 of the 6492 rotated characters of "
    "Omniglot. It does not say which: here they are the 6388 that are not Latin."
)
_CODE = (
    "As released: transfer trains on all 100 classes of mini-ImageNet, and on Omniglot's 1597 non-Latin characters "
    "without rotations."
)
_LONG = "Its predictive-likelihood objective, and marginal likelihood in transfer, train for 800 epochs."


def _data_options(released: bool) -> Mapping[str, Mapping[str, bool]]:
    rotations = MappingProxyType({"rotations": not released})
    all_classes = MappingProxyType({"all_classes": released})
    options = {"omniglot-emnist": rotations, "omniglot-choice": rotations, "miniimagenet-cub": all_classes}
    return MappingProxyType(options)


def _presets() -> dict[str, TrainingPreset]:
    presets = {}
    for shots, episodes in ((1, 60_000), (5, 40_000)):
        train, test = PROTOCOLS[f"5way-{shots}shot-train"], PROTOCOLS[f"5way-{shots}shot-test"]
        for paper, kernel_rate in (("one-vs-each", 1e-3), ("logistic-softmax", 1e-4)):
            for source, released, note in (("paper", False, _TEXT), ("released-code", True, _CODE)):
                presets[f"{paper}-{shots}shot-{source}"] = TrainingPreset(
                    train, test, episodes, 1e-3, kernel_rate, _data_options(released), note
                )
        presets[f"logistic-softmax-{shots}shot-long"] = TrainingPreset(
            train, test, 80_000, 1e-3, 1e-4, _data_options(True), f"{_LONG} {_CODE}"
        )
    return presets


TRAINING_PRESETS: Mapping[str, TrainingPreset] = MappingProxyType(_presets())
"""How the papers train, by paper, shots and source; the campaigns are built on those of the released code.

On Omniglot five shots leave 15 queries, as a character has 20 drawings: ``PROTOCOLS["5way-5shot-train-omniglot"]``.
"""
