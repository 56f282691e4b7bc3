"""How long a training takes, and what it does in between."""

from __future__ import annotations

from dataclasses import dataclass


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
        least = {"length": 1, "seed": 0, "checkpoint_every": 1, "log_every": 1, "validate_every": 0}
        for name, bound in (least if self.patience is None else least | {"patience": 1}).items():
            if getattr(self, name) < bound:
                raise ValueError(f"{name} must be at least {bound}, got {getattr(self, name)}")
        if not 0 < self.gradient_bound < float("inf"):
            raise ValueError(f"gradient_bound must be positive and finite, got {self.gradient_bound}")
