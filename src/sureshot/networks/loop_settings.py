"""How long a training takes, and what it does in between."""

from __future__ import annotations

from dataclasses import dataclass

from sureshot.ranges import check_counts, check_positive


@dataclass(frozen=True)
class LoopSettings:
    """How long to train, and what to do in between; all intervals are in units of the trainee."""

    length: int  # units in all
    seed: int = 0  # of the noise; the trainee draws its own
    checkpoint_every: int = 1000
    log_every: int = 100
    validate_every: int = 0  # 0 for no validation (the last checkpoint is then the best one)
    patience: int | None = None  # stop after so many validations in a row without a better one; never by default
    gradient_bound: float = 1e3  # a larger norm of the gradient is counted and reported in the log; nothing is clipped
    tensorboard: bool = False  # write the metrics for TensorBoard too

    def __post_init__(self) -> None:
        names = ("length", "checkpoint_every", "log_every", "patience")
        check_counts(1, **{name: getattr(self, name) for name in names})
        check_counts(0, seed=self.seed, validate_every=self.validate_every)
        check_positive(gradient_bound=self.gradient_bound)
