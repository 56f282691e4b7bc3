"""Which errors are of numbers, and which checkpoint is named when a run has diverged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from sureshot.networks.divergence import Saved, is_about_numbers, last_good_checkpoint, not_finite


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.linalg.LinAlgError("singular"), True),
        (ValueError("the embedding of 3 inputs is not finite"), True),
        (ValueError("h must be a whole number, got nan"), True),
        (ValueError("the kernel matrix is not positive semi-definite"), True),
        (RuntimeError("value cannot be converted to type float without overflow"), True),
        (ValueError("validation classes: 3-way tasks need at least 3 classes"), False),
        (RuntimeError("CUDA out of memory"), False),
        (ValueError("information on finance is not defined"), False),
    ],
)
def test_errors_of_numbers_and_mistakes(error: Exception, expected: bool) -> None:
    assert is_about_numbers(error) is expected


def test_names_of_what_is_not_finite() -> None:
    arrays = {"a": torch.tensor([1.0, math.inf]), "b": torch.tensor(3), "c": torch.tensor(math.nan), "d": torch.ones(2)}
    assert not_finite(arrays) == ["a", "c"]


@pytest.mark.parametrize(
    ("best", "last", "expected"),
    [
        (4, 6, "the last good checkpoint is last (after 6 episodes)"),
        (6, 4, "the last good checkpoint is best (after 6 episodes)"),
        (6, 6, "the last good checkpoint is last (after 6 episodes)"),
        (4, 8, "the last good checkpoint is best (after 4 episodes)"),
        (8, 8, "the last checkpoint, last, is of the state that failed, so it may be affected already"),
        (None, None, "no checkpoint was written yet"),
    ],
)
def test_which_checkpoint_is_named(best: int | None, last: int | None, expected: str) -> None:
    written = (("best", best), ("last", last))
    saved = [Saved(Path(name), units) for name, units in written if units is not None]
    assert last_good_checkpoint(saved, 8, "episodes") == expected
