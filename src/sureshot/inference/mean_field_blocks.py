"""Mean field for one large support set: the same steps as for a batch of tasks, a block of classes at a time."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.gram_blocks import GramBlockPosterior, condition_by_blocks
from sureshot.inference.mean_field import VariationalState, unrolled_sites
from sureshot.likelihoods.sites import MeanFieldLikelihood


def mean_field_by_blocks(
    prior: GramPrior,  # gram (..., 1 or C, N, N), mean (..., C, 1)
    likelihood: MeanFieldLikelihood,
    y: Tensor,  # (..., N) int64
    n_classes: int,
    weight: Tensor | None,  # (..., N), one by default
    n_steps: int,  # at least 1
    tolerance: float | None = None,  # see `unrolled_sites`
) -> GramBlockPosterior:
    """Mean field with a fixed number of steps from the prior."""
    start = VariationalState.of_prior(prior, (*y.shape[:-1], n_classes, y.shape[-1]))
    found = unrolled_sites(partial(condition_by_blocks, prior), likelihood, start, y, weight, n_steps, tolerance)
    return condition_by_blocks(prior, found.sites)
