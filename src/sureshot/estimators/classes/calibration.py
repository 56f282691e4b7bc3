"""The temperature under which held-out labels are most probable, for `calibrate`."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.classes.temperature import TEMPERATURE_SPREAD

MAX_CACHED_MOMENTS = 2**27  # numbers that are kept, 1 GB; the others are computed for every temperature


@torch.no_grad()
def calibrated_temperature(
    fitted: ClassFitted,
    blocks: list[Tensor],  # of queries, n in all
    codes: np.ndarray,  # (n,), their classes
) -> float:
    """What to divide the latents by; see `IncrementalClassifier.calibrate`."""
    usual = math.log(fitted.usual_temperature)
    kept = _cached_moments(MAX_CACHED_MOMENTS, fitted, blocks)

    def loss(log_temperature: float) -> float:
        parts = [
            fitted.answers(fitted.predictor.moments(block) if known is None else known, math.exp(log_temperature))
            for block, known in zip(blocks, kept, strict=True)
        ]
        chosen = torch.cat(parts).cpu().numpy()[np.arange(len(codes)), codes]
        beforehand = 0.5 * ((log_temperature - usual) / TEMPERATURE_SPREAD) ** 2
        return -float(np.log(np.maximum(chosen, 1e-300)).mean()) + beforehand / len(codes)

    found = minimize_scalar(loss, bounds=(usual - 6.0, usual + 6.0), method="bounded", options={"xatol": 1e-4})
    return math.exp(found.x)


def _cached_moments(budget: int, fitted: ClassFitted, blocks: list[Tensor]) -> list[tuple[Tensor, ...] | None]:
    """The moments of each block of queries, in about `budget` numbers; None for blocks that find no room."""
    kept: list[tuple[Tensor, ...] | None] = []
    for block in blocks:
        moments = fitted.predictor.moments(block) if budget > 0 else None
        budget -= sum(part.numel() for part in moments or ())
        kept.append(moments)
    return kept
