"""The mode of a softmax model in weight space to full precision, from weights that are near it.

Newton's method whose steps are found by conjugate gradients: the Hessian ``I + Phi' W Phi``, with all classes coupled
in W, is only multiplied with, for the price of a gradient, and in single precision, as the next step makes up for what
a step is off. Few classes are preconditioned by a matrix each, the Hessian without the coupling. Of many classes these
would take longer than they save: one matrix for all of them, the Hessian as if every datum were curved like the mean of
them, preconditions, and the few rows of a class itself, which are curved much more. From the mode of all rows but one,
a few steps of two to ten products are enough. Classes lead: a product with few columns takes several times as long.

Reference: Nocedal & Wright 2006, section 7.1 (inexact Newton steps).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sureshot.gaussian.recomputed import weight_precision_factor
from sureshot.likelihoods.auxiliary import one_hot

TOLERANCE = 1e-8
"""Of the length of the gradient: as the Hessian is at least the identity, weights are off by no more."""

_ROUNDING = 1e-5  # length of a gradient that may be all rounding, where a step has not made it shorter
_MOST_STEPS, _MOST_PRODUCTS = 30, 200
_SHARE = 0.1  # of the gradient's length, down to which a step is solved for,
_LEAST_SHARE = 1e-3  # but not below what single precision is good for
_FEW_CLASSES = 6  # up to which each has a matrix of its own; with ten that took twice as long
_SMALL_CLASS = 32  # rows of a class up to which they are in the preconditioner one by one
_WORTH = 100  # products that a matrix of all features may cost in place of its diagonal


def newton_mode(
    features: Tensor,  # (N, R)
    y: Tensor,  # (N,)
    weight: Tensor,  # (N,)
    temperature: float,
    start: Tensor,  # (C, R)
) -> tuple[Tensor, Tensor] | None:
    """Weights (C, R) at the mode and the negative log joint there; None where steps from the start lead nowhere."""

    def negative_log_joint(w: Tensor, latent: Tensor) -> Tensor:
        log_p = torch.log_softmax(latent / temperature, 0)
        return 0.5 * w.square().sum() - weight @ log_p.gather(0, y[None])[0]

    w, latent = start, start @ features.mT
    value = negative_log_joint(w, latent)
    if not bool(value.isfinite()):
        return None
    labels = one_hot(y, len(start), features.dtype)  # (C, N)
    rough = features.float()
    precondition: Callable[[Tensor], Tensor] | None = None
    scaled, before = weight / temperature, float("inf")
    for _ in range(_MOST_STEPS):
        p = torch.softmax(latent / temperature, 0)
        gradient = ((p - labels) * scaled) @ features + w
        length = float(gradient.norm())
        if length < TOLERANCE or before / 2 < length < _ROUNDING:
            return w, value
        before = length
        curved = scaled / temperature
        if precondition is None:
            precondition = _preconditioner(rough, y, weight.float(), (curved * p * (1 - p)).float())
        p, curved = p.float(), curved.float()

        def product(v: Tensor, p: Tensor = p, curved: Tensor = curved) -> Tensor:
            moved = p * (v @ rough.mT)
            return ((moved - p * moved.sum(0)) * curved) @ rough + v

        right, share = (-gradient / length).float(), min(_SHARE, max(length, _LEAST_SHARE, 0.3 * TOLERANCE / length))
        step = _solved(product, right, precondition, share).to(w) * length
        along, size = step @ features.mT, 1.0
        while True:
            found = negative_log_joint(w + size * step, latent + size * along)
            if found <= value + 1e-10 * (1 + value.abs()):
                break
            size /= 2
            if size < 1e-3:
                return None
        w, latent, value = w + size * step, latent + size * along, found
    return None


def _preconditioner(
    features: Tensor,
    y: Tensor,
    weight: Tensor,
    curvature: Tensor,  # (C, N), of every datum in every class
) -> Callable[[Tensor], Tensor]:
    """The inverse of ``I + h Phi' S Phi`` and, where classes are small, of each class's own rows as they are curved.

    Of few classes see `_of_few_classes`.
    """
    (n, rank), n_classes = features.shape, len(curvature)
    if n_classes <= _FEW_CLASSES:
        return _of_few_classes(features, curvature)
    mean = curvature.sum() / (n_classes * weight.sum())
    if rank * (n + rank) > _WORTH * n * n_classes:
        diagonal = (1 + mean * (weight @ features.square())).reciprocal()

        def shared(v: Tensor) -> Tensor:
            return v * diagonal
    else:
        matrix = mean * (features.mT @ (features * weight[:, None]))
        matrix.diagonal().add_(1)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(matrix))

        def shared(v: Tensor) -> Tensor:
            return v @ inverse

    counts = torch.bincount(y, minlength=n_classes)
    width = int(counts.max())
    if width > _SMALL_CLASS:
        return shared
    order = y.argsort(stable=True)
    place = torch.arange(n, device=y.device) - (counts.cumsum(0) - counts)[y[order]]
    own, root = features.new_zeros(n_classes, width, rank), features.new_zeros(n_classes, width)
    own[y[order], place] = features[order]
    excess = curvature.gather(0, y[None])[0] - mean * weight
    root[y[order], place] = excess.clamp_min(0).sqrt()[order]
    own = own * root.unsqueeze(-1)
    solved = shared(own)  # (C, K, R)
    inner = own @ solved.mT
    inner.diagonal(dim1=-2, dim2=-1).add_(1)
    back = torch.linalg.solve(inner, solved)

    def with_own_rows(residual: Tensor) -> Tensor:
        found = shared(residual)  # (C, R)
        along = (own * found.unsqueeze(-2)).sum(-1)  # (C, K), five times as quick as a product of each class's own
        return found - (along.unsqueeze(-2) @ back).squeeze(-2)

    return with_own_rows


def _of_few_classes(features: Tensor, curvature: Tensor) -> Callable[[Tensor], Tensor]:
    """The inverses of ``I + Phi' W_c Phi`` where classes differ; what they have in common meets the prior alone."""
    factors = (weight_precision_factor(features, of_class) for of_class in curvature)
    inverse = torch.stack([torch.cholesky_inverse(factor) for factor in factors])

    def solved(residual: Tensor) -> Tensor:
        common = residual.mean(0)
        found = (inverse @ (residual - common).unsqueeze(-1)).squeeze(-1)
        return found - found.mean(0) + common

    return solved


def _solved(
    product: Callable[[Tensor], Tensor],
    right: Tensor,
    precondition: Callable[[Tensor], Tensor],
    tolerance: float,
) -> Tensor:
    """By preconditioned conjugate gradients, until the residual is no longer than the tolerance."""
    found, residual = torch.zeros_like(right), right
    direction = precondition(residual)
    inner = (residual * direction).sum()
    for _ in range(_MOST_PRODUCTS):
        changed = product(direction)
        size = inner / (direction * changed).sum()
        found, residual = found + size * direction, residual - size * changed
        if float(residual.norm()) <= tolerance:
            break
        toward = precondition(residual)
        before, inner = inner, (residual * toward).sum()
        direction = toward + inner / before * direction
    return found
