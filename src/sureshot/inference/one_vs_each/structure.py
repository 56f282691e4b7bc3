"""The one-vs-each posterior given Polya-Gamma variables, without its M x M matrix.

The one-vs-each likelihood is a binary logistic model on the differences ``psi[c, n] = f_y[n] - f_c[n]``
between the latent of a datum's own class y and that of another class c. With C classes and N data there are
``M = N (C - 1)`` differences, and given the Polya-Gamma variables ``omega`` their posterior needs

``B = I + W^1/2 S W^1/2``,   ``W = diag(omega)``,   ``S = Cov(psi)``  (M x M).

A dense Cholesky factor of B costs ``O(C^3 N^3)`` per draw. The differences are a star graph around the own
latents ``h[n] = f_y[n]``, and *given h* the other classes' latents are independent between classes. So, with one K
shared by the classes,

``S = V V' + blockdiag(Q_1 ... Q_C)``,

where ``V`` (M x N) is the regression of the differences on the whitened h, and ``Q_c = K - K[:, c] K[c,
c]^-1 K[c, :]`` the covariance of f_c at the data of other classes given its values at its own data. Both
depend on the labels and the kernel only: they are computed once for a whole run, in float64. Each draw then
takes C Cholesky factors of the blocks ``I + W_c^1/2 Q_c W_c^1/2`` and one of the N x N matrix ``I + X' X``:
``O(C N^3)``, all eigenvalues at least 1. ``K[c, c]`` may be singular: it receives a jitter of a few N machine
epsilons (float64).

Small problems are faster with the dense factor (`PairPrior.condition`). Rows are laid out by the class compared with:
(C, R), R the largest number of data of other classes that a class has; unused rows have precision zero.

References: the star structure is that of Snell & Zemel 2021, Bayesian few-shot classification with
one-vs-each Polya-Gamma augmented Gaussian processes, appendix B; the block elimination used here is the
Woodbury identity on S.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sureshot.gaussian.algebra import factor_plus_identity, symmetric_root

Factorisation = Literal["auto", "dense", "star"]

_LARGEST_DENSE = 32  # rows; measured: above it the star factor wins
_LARGEST_SUBSTITUTION = 48  # rows; measured: above it halving wins


@dataclass(frozen=True)
class Pairs:
    """Which datum and which other class every row stands for; task dimensions flattened to T."""

    point: Tensor  # (T, C, R) int64, the datum
    own: Tensor  # (T, C, R) int64, the datum's own class
    count: Tensor  # (T, C, R), how often the pair is observed: the datum's weight; 0 for an unused row

    @classmethod
    def of_labels(cls, y: Tensor, n_classes: int, weight: Tensor | None, dtype: torch.dtype) -> Pairs:
        """Lay out the pairs of labels (T, N), with weights (T, N) or ones."""
        classes = torch.arange(n_classes, device=y.device).unsqueeze(-1)
        is_own = y.unsqueeze(-2) == classes  # (T, C, N)
        rows = max(int((~is_own).sum(-1).max()), 1)
        point = is_own.to(torch.int8).argsort(dim=-1, stable=True)[..., :rows]
        used = ~is_own.gather(-1, point)
        weight = torch.ones(y.shape, dtype=dtype, device=y.device) if weight is None else weight.to(dtype)
        spread = weight.unsqueeze(-2).expand(is_own.shape)
        own = y.unsqueeze(-2).expand(is_own.shape)
        return cls(point, own.gather(-1, point), spread.gather(-1, point) * used)

    def differences(self, f: Tensor) -> Tensor:
        """``psi = A f``: from latents (T, S, C, N) to rows (T, S, C, R)."""
        n = f.shape[-1]
        other = f.gather(-1, self.point.unsqueeze(1).expand(*f.shape[:-1], -1))
        centre = (self.own * n + self.point).flatten(1).unsqueeze(1).expand(*f.shape[:2], -1)
        return f.flatten(2).gather(-1, centre).view_as(other) - other

    def to_latents(self, values: Tensor, n: int) -> Tensor:
        """``A' values``: from rows (T, S, C, R) to latents (T, S, C, N). Unused rows must hold 0."""
        shape = values.shape
        latents = torch.zeros(*shape[:2], shape[2] * n, dtype=values.dtype, device=values.device)
        flat = values.flatten(2)
        others = torch.arange(shape[2], device=values.device).view(-1, 1) * n + self.point
        latents.scatter_add_(-1, others.flatten(1).unsqueeze(1).expand_as(flat), flat.neg())
        centre = self.own * n + self.point
        latents.scatter_add_(-1, centre.flatten(1).unsqueeze(1).expand_as(flat), flat)
        return latents.view(*shape[:2], shape[2], n)

    def to_classes(self, values: Tensor, n: int) -> Tensor:
        """Spread row values (T, S, C, R) over the data, zero at each datum's own class: (T, S, C, N)."""
        zeros = torch.zeros(*values.shape[:-1], n, dtype=values.dtype, device=values.device)
        return zeros.scatter_(-1, self.point.unsqueeze(1).expand_as(values), values)


class PairFactor(ABC):
    """Factorised ``B = I + W^1/2 S W^1/2`` for precisions omega (T, S, C, R)."""

    root: Tensor  # (T, S, C, R), W^1/2

    @abstractmethod
    def solve(self, values: Tensor) -> Tensor:
        """``B^-1 values`` for rows (T, S, C, R)."""

    @abstractmethod
    def quadratic(self, columns: Tensor) -> Tensor:
        """``U' W^1/2 B^-1 W^1/2 U`` for each query, (T, S, Q, D, D), of columns U (T, C, R, Q, D)."""

    @abstractmethod
    def log_det(self) -> Tensor:
        """``log |B|``, (T, S)."""


@dataclass(frozen=True)
class DenseFactor(PairFactor):
    """One Cholesky factor of B, M x M."""

    root: Tensor
    factor: Tensor  # (T, S, M, M)

    def solve(self, values: Tensor) -> Tensor:
        return torch.cholesky_solve(values.flatten(2).unsqueeze(-1), self.factor).view_as(values)

    def quadratic(self, columns: Tensor) -> Tensor:
        n_queries, width = columns.shape[-2:]
        scaled = self.root.flatten(2).unsqueeze(-1) * columns.flatten(3).flatten(1, 2).unsqueeze(1)
        half = torch.linalg.solve_triangular(self.factor, scaled, upper=False)
        return _gram_by_query(half, n_queries, width)

    def log_det(self) -> Tensor:
        return 2 * self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


@dataclass(frozen=True)
class StarFactor(PairFactor):
    """Inverse Cholesky factors of the C blocks of other classes and of one N x N matrix for the own latents.

    Inverses of triangles, not the triangles: a batch of small products is several times as fast as a batch of
    substitutions, and both are backward stable here, where no eigenvalue is below 1.
    """

    root: Tensor
    inverse: Tensor  # (T, S, C, R, R), of the factors of I + W_c^1/2 Q_c W_c^1/2
    loading: Tensor  # (T, S, M, N), X = blockdiag(inverse) W^1/2 V
    centre: Tensor  # (T, S, N, N), of the factor of I + X' X
    half_log_det: Tensor  # (T, S)

    def solve(self, values: Tensor) -> Tensor:
        half = self.inverse @ values.unsqueeze(-1)
        flat = half.flatten(2, 3)
        shared = self.centre.mT @ (self.centre @ (self.loading.mT @ flat))
        half = (flat - self.loading @ shared).view_as(half)
        return (self.inverse.mT @ half).squeeze(-1)

    def quadratic(self, columns: Tensor) -> Tensor:
        n_queries, width = columns.shape[-2:]
        scaled = self.root.unsqueeze(-1) * columns.flatten(3).unsqueeze(1)
        half = (self.inverse @ scaled).flatten(2, 3)
        shared = self.centre @ (self.loading.mT @ half)
        return _gram_by_query(half, n_queries, width) - _gram_by_query(shared, n_queries, width)

    def log_det(self) -> Tensor:
        return 2 * self.half_log_det


@dataclass(frozen=True)
class PairPrior:
    """Prior of all differences of a batch of tasks and what every draw reuses. Build it with `of_kernel`."""

    pairs: Pairs
    gram: Tensor  # (T, N, N)
    gram_root: Tensor  # (T, N, N), a factor of the kernel matrix
    class_mean: Tensor  # (T, C)
    mean: Tensor  # (T, C, R), A a
    dense: Tensor | None  # (T, M, M), S
    loading: Tensor | None  # (T, C, R, N), V
    residual: Tensor | None  # (T, C, R, R), Q

    @classmethod
    def of_kernel(cls, Kxx: Tensor, class_mean: Tensor, pairs: Pairs, method: Factorisation) -> PairPrior:
        """Prepare kernel matrices (T, N, N) and prior means (T, C) for the pairs of their labels."""
        n_rows = pairs.point.shape[1] * pairs.point.shape[2]
        root = symmetric_root(Kxx)
        wide = root @ root.mT  # positive semi-definite to the last digit of float64
        other_mean = class_mean.unsqueeze(-1).expand(pairs.own.shape)
        mean = class_mean.gather(-1, pairs.own.flatten(1)).view_as(other_mean) - other_mean
        dense = loading = residual = None
        if method == "dense" or (method == "auto" and n_rows <= _LARGEST_DENSE):
            dense = _dense_covariance(wide, pairs).to(Kxx.dtype)
        else:
            loading, residual = (part.to(Kxx.dtype) for part in _star_covariance(wide, pairs))
        gram = wide.to(Kxx.dtype)
        return cls(pairs, gram, root.to(Kxx.dtype), class_mean, mean, dense, loading, residual)

    def star(self) -> PairPrior:
        """The same prior with the star factorisation."""
        return self if self.dense is None else self.of_kernel(self.gram, self.class_mean, self.pairs, "star")

    def apply(self, values: Tensor) -> Tensor:
        """``S values`` for rows (T, S, C, R), through ``A (I x K) A'``; unused rows must hold 0."""
        latents = self.pairs.to_latents(values, self.gram.shape[-1])
        return self.pairs.differences((latents.flatten(1, 2) @ self.gram).view_as(latents))

    def sample(self, n_chains: int, generator: torch.Generator | None) -> Tensor:
        """Prior draws of ``psi``, (T, S, C, R)."""
        tasks, n = self.gram.shape[:2]
        n_classes = self.class_mean.shape[-1]
        noise = torch.randn(
            tasks,
            n_chains * n_classes,
            n,
            generator=generator,
            dtype=self.gram.dtype,
            device=self.gram.device,
        )
        centred = (noise @ self.gram_root.mT).view(tasks, n_chains, n_classes, n)
        return self.mean.unsqueeze(1) + self.pairs.differences(centred)

    def condition(self, omega: Tensor) -> PairFactor:
        """Factorise ``B`` for precisions (T, S, C, R)."""
        root = omega.sqrt()
        if self.dense is not None:
            flat = root.flatten(2)
            scaled = self.dense.unsqueeze(1) * flat.unsqueeze(-1) * flat.unsqueeze(-2)
            return DenseFactor(root, factor_plus_identity(scaled))
        assert self.loading is not None
        assert self.residual is not None
        blocks = self.residual.unsqueeze(1) * root.unsqueeze(-1)
        inverse, half_log_det = _inverse_factor_plus_identity(blocks.mul_(root.unsqueeze(-2)))
        scaled = self.loading.unsqueeze(1) * root.unsqueeze(-1)
        loading = (inverse @ scaled).flatten(2, 3)
        centre, centre_log_det = _inverse_factor_plus_identity(loading.mT @ loading)
        return StarFactor(root, inverse, loading, centre, half_log_det.sum(-1) + centre_log_det)

    def draw(self, omega: Tensor, generator: torch.Generator | None) -> Tensor:
        """One exact draw of ``psi`` given precisions omega (T, S, C, R), by Matheron's rule."""
        factor = self.condition(omega)
        start = self.sample(omega.shape[1], generator)
        noise = torch.randn(omega.shape, generator=generator, dtype=omega.dtype, device=omega.device)
        shift = 0.5 * self.pairs.count.unsqueeze(1)
        residual = shift - omega * start - factor.root * noise
        return start + self.apply(self._whitened(factor, residual))

    def weights(self, omega: Tensor, factor: PairFactor) -> Tensor:
        """``beta`` with ``E[psi | omega] = A a + S beta``, (T, S, C, R)."""
        shift = 0.5 * self.pairs.count.unsqueeze(1)
        return self._whitened(factor, shift - omega * self.mean.unsqueeze(1))

    def _whitened(self, factor: PairFactor, residual: Tensor) -> Tensor:
        """``(I - W^1/2 B^-1 W^1/2 S) residual``."""
        return residual - factor.root * factor.solve(factor.root * self.apply(residual))


def _inverse_factor_plus_identity(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """``L^-1`` and ``log|L|`` with ``L L' = I + matrix``; overwrites the argument."""
    matrix.diagonal(dim1=-2, dim2=-1).add_(1)
    inverse = _inverse_factor(matrix)
    return inverse, -inverse.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _inverse_factor(matrix: Tensor) -> Tensor:
    """``L^-1`` with ``L L' = matrix``, by halves: most of the work becomes matrix products."""
    n = matrix.shape[-1]
    if n <= _LARGEST_SUBSTITUTION:
        factor = torch.linalg.cholesky(matrix)
        eye = torch.eye(n, dtype=matrix.dtype, device=matrix.device).expand_as(factor)
        return torch.linalg.solve_triangular(factor, eye, upper=False)
    cut = n // 2
    inverse = torch.zeros_like(matrix)
    first = _inverse_factor(matrix[..., :cut, :cut])
    below = matrix[..., cut:, :cut] @ first.mT
    second = _inverse_factor(matrix[..., cut:, cut:] - below @ below.mT)
    inverse[..., :cut, :cut] = first
    inverse[..., cut:, cut:] = second
    inverse[..., cut:, :cut] = (second @ (below @ first)).neg_()
    return inverse


def _gram_by_query(half: Tensor, n_queries: int, width: int) -> Tensor:
    """From (T, S, M, Q * D) to the Gram matrices of each query's D columns, (T, S, Q, D, D)."""
    by_query = half.unflatten(-1, (n_queries, width)).transpose(-3, -2)  # (T, S, Q, M, D)
    return by_query.mT @ by_query


def _dense_covariance(gram: Tensor, pairs: Pairs) -> Tensor:
    """S (T, M, M) of the rows."""
    tasks, n_classes, rows = pairs.point.shape
    identity = torch.eye(n_classes, dtype=gram.dtype, device=gram.device)
    other = torch.arange(n_classes, device=gram.device).view(-1, 1).expand(n_classes, rows)
    coefficients = (identity[pairs.own] - identity[other]).flatten(1, 2)  # (T, M, C)
    point = pairs.point.flatten(1)
    task = torch.arange(tasks, device=gram.device).view(-1, 1, 1)
    return (coefficients @ coefficients.mT) * gram[task, point.unsqueeze(-1), point.unsqueeze(-2)]


def _star_covariance(gram: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """V (T, C, R, N) and Q (T, C, R, R) with ``S = V V' + blockdiag(Q)``."""
    tasks, n = gram.shape[:2]
    n_classes = pairs.point.shape[1]
    task = torch.arange(tasks, device=gram.device).view(-1, 1, 1)
    labels = torch.empty(tasks, n, dtype=torch.int64, device=gram.device)
    labels.scatter_(-1, pairs.point.flatten(1), pairs.own.flatten(1))
    same = labels.unsqueeze(-1) == labels.unsqueeze(-2)
    limits = torch.finfo(gram.dtype)
    jitter = 10 * n * limits.eps * gram.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(limits.tiny)
    own = gram * same + jitter[:, None, None] * torch.eye(n, dtype=gram.dtype, device=gram.device)
    factor = torch.linalg.cholesky(own)  # of the own latents; block diagonal up to the order of the data
    regression = torch.linalg.solve_triangular(factor, gram, upper=False).mT  # K factor^-T
    classes = torch.arange(n_classes, device=gram.device).view(-1, 1)
    of_class = (labels.unsqueeze(1) == classes).to(gram.dtype).unsqueeze(-2)  # (T, C, 1, N)
    other = regression[task, pairs.point] * of_class  # (T, C, R, N)
    loading = factor[task, pairs.point] - other
    point = pairs.point
    between = gram[task.unsqueeze(-1), point.unsqueeze(-1), point.unsqueeze(-2)]
    return loading, between - other @ other.mT
