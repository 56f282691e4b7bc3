"""All numbers of a kernel that was given as an object, from where they are, uphill on what rows say of them.

That is the evidence or the log density of left-out rows, as the objective is, by gradients (L-BFGS on logarithms). Only
the nearest maximum is found: where it starts is the user's.
"""

from __future__ import annotations

import logging

from torch import Tensor

from sureshot.computing.threads import threads_for
from sureshot.estimators.gp.tuning.family_search import scaled
from sureshot.estimators.rows.support import EXACT_LIMIT, Support, sampled_rows
from sureshot.inference.by_evidence import LEAST_NOISE, climb
from sureshot.inference.least_squares import mean_log_density
from sureshot.kernels import Expression
from sureshot.kernels.dense import own_kernel

logger = logging.getLogger(__name__)

STEPS = 200  # at most
FIRST_NOISE = 0.1  # of the variance of the targets
PERIODS = ("period_length", "mixture_means")  # that are learnt last: while others are far off, steps leave their peaks


def learnt_kernel(given: Expression, support: Support, by_evidence: bool) -> Expression:
    """With an overall scale, all numbers learnt, by 1500 rows at most; as it is, where nothing varies."""
    rows = sampled_rows(support, EXACT_LIMIT)[1]
    if rows.n_able == 0 or not rows.varies:
        return given
    (targets, mean), kernel = rows.targets, own_kernel(given).to(rows.x)
    variance = (targets - mean[:, None]).square().mean()
    kernel = scaled(kernel, float(variance / kernel.diagonal(rows.x).mean()))
    numbers = {name: value.detach().log().requires_grad_() for name, value in kernel.parameters.items()}
    numbers["noise"] = (FIRST_NOISE * variance).log().requires_grad_()

    def height() -> Tensor:
        at = {name: value.exp() for name, value in numbers.items()}
        noise = at.pop("noise") + LEAST_NOISE
        return density_of(rows, kernel.replace(**at)(rows.x), noise, by_evidence)

    with threads_for(len(rows.y)):
        climb(height, [value for name, value in numbers.items() if not name.endswith(PERIODS)], STEPS)
        reached = climb(height, list(numbers.values()), STEPS)
    kernel = kernel.replace(**{name: numbers[name].detach().exp() for name in kernel.parameters})
    logger.info("%.3f nats a row by %s", reached, kernel)
    return kernel


def density_of(rows: Support, gram: Tensor, noise: Tensor, by_evidence: bool) -> Tensor:
    """Of a number of the rows, in nats."""
    share = None if by_evidence else rows.left_out
    return mean_log_density(gram, noise, *rows.targets, rows.weight, share, rows.usable)
