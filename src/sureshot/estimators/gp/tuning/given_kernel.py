"""All numbers of a kernel that was given as an object, from where they are, uphill on what rows say of them.

That is the evidence or the log density of left-out rows, as the objective is, by gradients (L-BFGS on logarithms). Only
the nearest maximum is found: where it starts is the user's.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from sureshot.computing.threads import threads_for
from sureshot.estimators.gp.tuning.family_search import scaled
from sureshot.estimators.rows.support import EXACT_LIMIT, Support, sampled_rows
from sureshot.gaussian.gram import GramPrior
from sureshot.inference.by_evidence import LEAST_NOISE, NO_FACTOR
from sureshot.inference.least_squares import leave_one_out_residuals, regression_log_evidence
from sureshot.kernels import Expression
from sureshot.kernels.dense import own_kernel

logger = logging.getLogger(__name__)

STEPS = 200  # at most
FIRST_NOISE = 0.1  # of the variance of the targets
PERIODS = ("period_length", "mixture_means")  # that are learnt last: while others are far off, steps leave their peaks
FARTHEST = math.log(1e6)  # that a number may go, in either direction


def learnt_kernel(given: Expression, support: Support, by_evidence: bool) -> Expression:
    """With an overall scale, all numbers learnt, by 1500 rows at most; as it is, where nothing varies."""
    rows = sampled_rows(support, EXACT_LIMIT)[1]
    if rows.n_able == 0 or not rows.varies:
        return given
    (targets, mean), kernel = rows.targets, own_kernel(given).to(rows.x)
    variance = (targets - mean[:, None]).square().mean()
    kernel = scaled(kernel, float(variance / kernel.diagonal(rows.x).mean()))
    numbers = {name: value.detach().log() for name, value in kernel.parameters.items()}
    numbers["noise"] = (FIRST_NOISE * variance).log()
    objective = _log_evidence if by_evidence else _left_out_density

    def of_rows(at: dict[str, Tensor]) -> Tensor:
        positive = {name: value.exp() for name, value in at.items()}
        noise = positive.pop("noise") + LEAST_NOISE
        return objective(kernel.replace(**positive)(rows.x), noise, rows, targets, mean)

    with threads_for(len(rows.y)):
        for chosen in ({name for name in numbers if not name.endswith(PERIODS)}, numbers.keys()):
            numbers = _uphill(of_rows, numbers, sorted(chosen))
    kernel = kernel.replace(**{name: numbers[name].exp() for name in kernel.parameters})
    logger.info("the kernel that was learnt: %s", kernel)
    return kernel


def _uphill(
    of_rows: Callable[[dict[str, Tensor]], Tensor], start: dict[str, Tensor], names: list[str]
) -> dict[str, Tensor]:
    """Numbers from where they are, those of these names moved."""
    parts = [start[name].clone().requires_grad_() for name in names]
    numbers = {**start, **dict(zip(names, parts, strict=True))}

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        vector_to_parameters(torch.from_numpy(point).to(parts[0]), parts)
        try:
            with torch.enable_grad():
                value = -of_rows(numbers)
            gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(value, parts)])
        except torch.linalg.LinAlgError:
            return NO_FACTOR, np.zeros_like(point)
        return value.item(), gradient.cpu().numpy()

    point = parameters_to_vector(parts).detach().cpu().numpy()
    bounds = list(zip(point - FARTHEST, point + FARTHEST, strict=True))
    found = minimize(loss, point, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": STEPS})
    vector_to_parameters(torch.from_numpy(found.x).to(parts[0]), parts)
    logger.info("%.3f nats per row after %d steps", -found.fun, found.nit)
    return {name: value.detach() for name, value in numbers.items()}


def _log_evidence(gram: Tensor, noise: Tensor, rows: Support, targets: Tensor, mean: Tensor) -> Tensor:
    """For each number, in nats."""
    evidence = regression_log_evidence(GramPrior(gram[None], mean[:, None]), targets, rows.weight, noise)
    return evidence.mean() / rows.weight.sum()


def _left_out_density(gram: Tensor, noise: Tensor, rows: Support, targets: Tensor, mean: Tensor) -> Tensor:
    """For each number, in nats."""
    residual, variance = leave_one_out_residuals(gram, noise, targets, mean, rows.weight, rows.left_out)
    pointwise = -0.5 * (residual.square() / variance + (2 * math.pi * variance).log())
    return (pointwise @ rows.usable).mean() / rows.usable.sum()
