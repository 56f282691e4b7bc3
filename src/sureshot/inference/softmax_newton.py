"""The mode of a softmax model in weight space to full precision, from weights that are near it.

Newton's method whose steps are found by conjugate gradients: the Hessian ``I + Phi' W Phi``, with all classes coupled
in W, is only multiplied with, for the price of a gradient. One matrix for all classes, the Hessian as if every datum
were curved like the mean of them, preconditions, and the few rows of a class itself, which are curved much more.
From the mode of all rows but one, two or three steps of some ten products are enough.

Reference: Nocedal & Wright 2006, section 7.1 (inexact Newton steps).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

TOLERANCE = 1e-8
"""Of the length of the gradient: as the Hessian is at least the identity, weights are off by no more."""

_ROUNDING = 1e-5  # length of a gradient that may be all rounding, where a step has not made it shorter
_MOST_STEPS, _MOST_PRODUCTS = 30, 200
_SHARE = 0.1  # of the gradient's length, down to which a step is solved for
_SMALL_CLASS = 32  # rows of a class up to which they are in the preconditioner one by one
_WORTH = 100  # products that a matrix of all features may cost in place of its diagonal


def newton_mode(
    features: Tensor,  # (N, R)
    y: Tensor,  # (N,)
    weight: Tensor,  # (N,)
    temperature: float,
    start: Tensor,  # (R, C)
) -> tuple[Tensor, Tensor] | None:
    """Weights (R, C) at the mode and the negative log joint there; None where steps from the start lead nowhere."""
    w, value = start, _negative_log_joint(features, y, weight, temperature, start)
    if not bool(value.isfinite()):
        return None
    one_hot = torch.nn.functional.one_hot(y, start.shape[1]).to(features.dtype)
    precondition: Callable[[Tensor], Tensor] | None = None
    scaled, before = (weight / temperature)[:, None], float("inf")
    for _ in range(_MOST_STEPS):
        p = torch.softmax(features @ w / temperature, 1)
        gradient = features.mT @ ((p - one_hot) * scaled) + w
        length = float(gradient.norm())
        if length < TOLERANCE or before / 2 < length < _ROUNDING:
            return w, value
        before = length
        curved = scaled / temperature
        if precondition is None:
            precondition = _preconditioner(features, y, weight, curved * p * (1 - p))

        def product(v: Tensor, p: Tensor = p, curved: Tensor = curved) -> Tensor:
            latent = p * (features @ v)
            return features.mT @ ((latent - p * latent.sum(1, keepdim=True)) * curved) + v

        step = _solved(product, -gradient, precondition, max(min(_SHARE, length) * length, 0.3 * TOLERANCE))
        size = 1.0
        while True:
            found = _negative_log_joint(features, y, weight, temperature, w + size * step)
            if found <= value + 1e-10 * (1 + value.abs()):
                break
            size /= 2
            if size < 1e-3:
                return None
        w, value = w + size * step, found
    return None


def _negative_log_joint(features: Tensor, y: Tensor, weight: Tensor, temperature: float, w: Tensor) -> Tensor:
    log_p = torch.log_softmax(features @ w / temperature, 1)
    return 0.5 * w.square().sum() - (weight * log_p.gather(1, y[:, None]).squeeze(1)).sum()


def _preconditioner(
    features: Tensor,
    y: Tensor,
    weight: Tensor,
    curvature: Tensor,  # (N, C), of every datum in every class
) -> Callable[[Tensor], Tensor]:
    """The inverse of ``I + h Phi' S Phi`` and, where classes are small, of each class's own rows as they are curved."""
    (n, rank), n_classes = features.shape, curvature.shape[1]
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
        return lambda residual: shared(residual.mT).mT
    order = y.argsort(stable=True)
    place = torch.arange(n, device=y.device) - (counts.cumsum(0) - counts)[y[order]]
    own, root = features.new_zeros(n_classes, width, rank), features.new_zeros(n_classes, width)
    own[y[order], place] = features[order]
    excess = curvature.gather(1, y[:, None]).squeeze(1) - mean * weight
    root[y[order], place] = excess.clamp_min(0).sqrt()[order]
    own = own * root.unsqueeze(-1)
    solved = shared(own)  # (C, K, R)
    inner = own @ solved.mT
    inner.diagonal(dim1=-2, dim2=-1).add_(1)
    back = torch.linalg.solve(inner, solved)

    def with_own_rows(residual: Tensor) -> Tensor:
        found = shared(residual.mT)  # (C, R)
        return (found - (torch.einsum("ckr,cr->ck", own, found).unsqueeze(-2) @ back).squeeze(-2)).mT

    return with_own_rows


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
