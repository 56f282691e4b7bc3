"""The temperature under which held-out labels are most probable, for `calibrate`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.classes.temperature import TEMPERATURE_SPREAD
from sureshot.metrics import likeliest_temperature

MAX_CACHED_MOMENTS = 2**27  # numbers that are kept, 1 GB; the others are computed for every temperature


@torch.no_grad()
def calibrated_temperature(
    fitted: ClassFitted,
    blocks: list[Tensor],  # of queries, n in all
    codes: np.ndarray,  # (n,), their classes
) -> float:
    """What to divide the latents by; see `IncrementalClassifier.calibrate`."""
    kept = _cached_moments(MAX_CACHED_MOMENTS, fitted, blocks)

    def loss(temperature: float) -> float:
        parts = [
            fitted.answers(fitted.predictor.moments(block) if known is None else known, temperature)
            for block, known in zip(blocks, kept, strict=True)
        ]
        chosen = torch.cat(parts).cpu().numpy()[np.arange(len(codes)), codes]
        return -float(np.log(np.maximum(chosen, 1e-300)).sum())

    return likeliest_temperature(loss, fitted.usual_temperature, TEMPERATURE_SPREAD)


def _cached_moments(budget: int, fitted: ClassFitted, blocks: list[Tensor]) -> list[tuple[Tensor, ...] | None]:
    """The moments of each block of queries, in about `budget` numbers; None for blocks that find no room."""
    kept: list[tuple[Tensor, ...] | None] = []
    for block in blocks:
        moments = fitted.predictor.moments(block) if budget > 0 else None
        budget -= sum(part.numel() for part in moments or ())
        kept.append(moments)
    return kept
