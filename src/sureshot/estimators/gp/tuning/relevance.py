"""One length-scale for each column: weights of columns, learnt from the support, under which noise stops to count.

The logarithms of the weights climb the leave-one-out log density of least squares, whose gradient is in closed
form, from the best kernel with one length-scale. A normal prior shrinks them towards that kernel, whose strength is
chosen of a few.

So many numbers overfit the rows they are learnt from, and leave-one-out predictions of these are too good. Hence
weights are learnt again without each fold of the rows (cross-fitting), and leave-one-out predictions use the weights
that have not seen the row: the prior's strength, whether there is a gain at all, the scales under every likelihood, and
a member's share of an average.

References: MacKay 1994 and Neal 1996 (automatic relevance determination); Rasmussen & Williams 2006, section 5.4.2
(leave-one-out density); Cawley & Talbot 2010 (how many length-scales overfit such a criterion).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from sureshot.estimators.rows.support import FEW_ROWS, Support
from sureshot.inference.least_squares import leave_one_out_residuals
from sureshot.kernels import Expression, evaluate, is_unit_norm

MAX_COLUMNS = 300
FOLDS = 3
SPREADS = (0.6, 2.0)
"""Prior standard deviations of the logarithms of weights, of which left-out folds choose: where most columns are noise
the narrow one holds back those that count."""
MAX_STEPS = 10  # of each climb; later ones fit what is random
_LARGEST_LOG_WEIGHT = 8.0
_NOISE_RATIOS = (1e-4, 32.0)  # the least and the largest

Gram = Callable[[Tensor], Tensor]
"""The kernel matrix (N, N) of rows, differentiable in the logarithms (D,) of their columns' weights."""


@dataclass(frozen=True)
class Relevance:
    """Factors of columns, their mean square 1."""

    weights: Tensor  # (D,)
    level: float  # of the weights before their mean square was 1, relative to columns that count alike
    left_out: Tensor  # (F, D), learnt without the rows of a fold
    folds: Tensor  # (N,), from 0

    def views(self, x: Tensor) -> tuple[Tensor, ...]:
        """Columns (N, D) weighted as each fold is to be scored."""
        return tuple(x * weights for weights in self.left_out)


def can_be_learnt(support: Support) -> bool:
    """Whether targets differ, and rows are enough to choose among columns; directions are no columns."""
    n_columns = support.x.shape[1]
    return (
        support.varies and 1 < n_columns <= MAX_COLUMNS and support.n_able >= FEW_ROWS and not is_unit_norm(support.x)
    )


def weighted_by(kernel: Expression) -> Callable[[Tensor], Gram]:
    """For rows (N, D) the matrix of a kernel of the weighted columns."""
    return lambda x: lambda log_weights: evaluate(kernel, x * log_weights.exp())


def learn_relevance(
    support: Support,  # its rows as the kernel sees them
    gram_of: Callable[[Tensor], Gram],  # for rows (N, D), see `weighted_by`
    noise_ratio: float,  # noise variance divided by output scale, where the climb starts
) -> Relevance:
    """Weights of the columns, by all rows and without each fold of them, by the spread that predicts folds best."""
    folds = support.folds(FOLDS)
    start = np.append(np.zeros(support.x.shape[1]), math.log(noise_ratio))
    of_folds: list[list[np.ndarray]] = []
    for fold in range(FOLDS):
        seen, reached = support.part(folds != fold), [start]
        gram = gram_of(seen.x)
        for spread in SPREADS:  # a weaker prior starts where the stronger one has led to
            reached.append(_climbed(seen, gram, reached[-1], spread))
        of_folds.append(reached[1:])
    gram, paths = gram_of(support.x), list(zip(*of_folds, strict=True))
    best = int(np.argmax([_of_left_out_folds(support, gram, points, folds) for points in paths]))
    whole = _climbed(support, gram, np.mean(paths[best], axis=0), SPREADS[best])
    weights = torch.from_numpy(np.stack([whole, *paths[best]]))[:, :-1].to(support.x).exp()
    level = weights.square().mean(1, keepdim=True).sqrt()
    weights = weights / level
    return Relevance(weights[0], float(level[0]), weights[1:], folds)


def left_out_density(
    support: Support,
    gram: Gram,  # of its rows
    point: Tensor,  # (D + 1,), logarithms of the weights and of the ratio of noise to output scale
) -> Tensor:
    """Leave-one-out log density of the targets, the mean over each row's, at the best output scale."""
    return _density(*_residuals(support, gram, point), support.usable)


def _climbed(support: Support, gram: Gram, start: np.ndarray, spread: float) -> np.ndarray:
    """A point (D + 1,) uphill from another, by density and prior; see `left_out_density`."""

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.from_numpy(point).to(support.x).requires_grad_()
        with torch.enable_grad():
            value = 0.5 * (free[:-1] / spread).square().sum() - left_out_density(support, gram, free)
        (gradient,) = torch.autograd.grad(value, free)
        return value.item(), gradient.cpu().numpy()

    heaviest = max(1.0, float(support.weight.max()))  # a row that counts for many has less noise than others
    noise = [math.log(ratio * heaviest) for ratio in _NOISE_RATIOS]
    # Were all bounded on both sides, the first step would be the whole gradient, which is far too long.
    bounds = [(None, _LARGEST_LOG_WEIGHT)] * (len(start) - 1) + [(noise[0], noise[1])]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": MAX_STEPS})
    return np.asarray(found.x)


def _of_left_out_folds(support: Support, gram: Gram, points: Sequence[np.ndarray], folds: Tensor) -> float:
    """The density where each row meets the point that was found without its fold."""
    residual, variance = torch.empty_like(support.targets[0]), torch.empty_like(support.weight)
    for fold, point in enumerate(points):
        inside = folds == fold
        found = _residuals(support, gram, torch.from_numpy(point).to(support.x))
        residual[:, inside], variance[inside] = found[0][:, inside], found[1][inside]
    return float(_density(residual, variance, support.usable))


def _residuals(support: Support, gram: Gram, point: Tensor) -> tuple[Tensor, Tensor]:
    kernel, noise = gram(point[:-1]), point[-1].exp()
    return leave_one_out_residuals(kernel, noise, *support.targets, support.weight, support.left_out)


def _density(residual: Tensor, variance: Tensor, usable: Tensor) -> Tensor:
    """Of normal residuals (P, N) whose variances (N,) are known but for a factor, which is the best.

    The factor is zero where all targets are alike, as without a fold that has the only other one.
    """
    total = usable.sum()
    least = torch.finfo(residual.dtype).tiny
    scale = ((usable * residual.square().mean(0) / variance).sum() / total).clamp_min(least)
    return -0.5 * ((usable * variance.log()).sum() + total * (1 + (2 * math.pi * scale).log()))
