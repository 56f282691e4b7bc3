"""Whether embeddings are seen through a spectral scaling: if left-out rows gain by it.

It gains on intents, and loses as much where two classes differ in what varies little (junk among messages). Least
squares says which, by an even average of a kernel that is linear in embeddings and one that bends. A map that has
seen a row makes the row's own direction count more, which no query's does. So a row is asked of a map without its fold
(cross-fitting), and predicted by all other rows as that map shows them.

Length-scales are the natural ones: they and all else are chosen afterwards, from rows as they are seen then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sureshot.estimators.gp import options
from sureshot.estimators.gp.tuning.family_search import Search
from sureshot.estimators.gp.tuning.objective import Objective
from sureshot.estimators.rows.folds import FOLDS
from sureshot.estimators.rows.spectral_scaling import SpectralScaling
from sureshot.estimators.rows.support import Support

MIN_GAIN = 3.0  # standard errors of a gain from which on directions count more
KERNELS = ("cosine", "unit_rbf")


def clear_spectral_scaling(support: Support, objective: Objective) -> SpectralScaling | None:
    """By all rows of a support, embeddings; None where left-out rows do not clearly gain by it."""
    if not support.n_able:
        return None
    plain = _searches(support, objective)
    found = [search.natural_regression() for search in plain]
    folds, before = support.folds(), average_of([candidate.pointwise for candidate in found])
    after = torch.empty_like(before)
    for fold in range(FOLDS):
        inside = folds == fold
        seen = _seen_by(spectral_scaling_of(support, ~inside), support)
        after[inside] = average_of(
            [b.regressed_like(c) for b, c in zip(_searches(seen, objective), found, strict=True)]
        )[inside]
    return spectral_scaling_of(support) if is_clear_gain(after - before, support.usable) else None


def is_clear_gain(difference: Tensor, usable: Tensor) -> bool:
    """Whether log probabilities (N,) of left-out rows are larger by more than `MIN_GAIN` standard errors."""
    gains = (usable * difference)[usable > 0]
    return float(gains.sum()) > MIN_GAIN * float(gains.std()) * math.sqrt(len(gains))


def spectral_scaling_of(support: Support, rows: Tensor | None = None) -> SpectralScaling:
    """By some rows, a mask (N,), or all; how many rows share a target is that of all."""
    part = support if rows is None else support.part(rows)
    return SpectralScaling.of(part.x.cpu().numpy(), part.weight.cpu().numpy(), support.rows_per_target)


def _searches(support: Support, objective: Objective) -> list[Search]:
    """Of a kernel that is linear in embeddings and one that bends."""
    families = [options.named_family(name, support) for name in KERNELS]
    return [Search(support, k, family, objective) for k, family in enumerate(families)]


def average_of(scores: Sequence[Tensor]) -> Tensor:
    """Log probabilities (N,) of an even average."""
    return torch.stack(list(scores)).logsumexp(0) - math.log(len(scores))


def _seen_by(spectral: SpectralScaling, support: Support) -> Support:
    return replace(support, x=torch.from_numpy(spectral(support.x.cpu().numpy())).to(support.x))
