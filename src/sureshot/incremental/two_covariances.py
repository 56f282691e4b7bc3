"""Classes as draws from a Gaussian: what the classes known already say about one that arrives with a few rows.

In learned coordinates ``z = A' (x - mu)`` the rows of a class are ``z ~ N(m_c, diag w)``, and the means of the classes
are ``m_c ~ N(0, diag b)``. Both covariances, and the coordinates in which they are diagonal, are shared by all classes
and come from those that have many rows. A class is then known by how many rows it has and what they add up to: a new
one is added in O(D) for each row, no other class's probability ratio moves, and with few rows its predictive density
``N(M_c, w + V_c)`` is as wide as it should be.

Rows of tables have longer tails than that. So rows may have scales of their own: their densities are Student's t with
the same means and shapes, whose logarithms differ by a bounded amount however far a row is.

This is the two-covariance form of probabilistic linear discriminant analysis (Ioffe 2006; Brummer & de Villiers 2010),
a Gaussian process over classes, and the empirical-Bayes Gaussian classifier where `estimated` is all that is learnt.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from sureshot.incremental.temperature import left_out_temperature

LEAST_SHRINKAGE = 0.5
"""Share of the isotropic part in the covariance within classes: the larger, the better outliers are detected."""

LEAST_BETWEEN = 0.01
"""Variance between classes in units of that within, at least: classes that come later may differ where these do not."""

_NO_SPREAD = 1e-8  # within classes, relative to that of all rows
_UNKNOWN_WITHIN = 0.25  # of the variance of all rows, where no class shows any spread


@dataclass(frozen=True)
class ClassSums:
    """All that the model keeps of the classes' rows."""

    sums: Tensor  # (C, D), of the rows of each class
    counts: Tensor  # (C,), their weights' sums

    @classmethod
    def of_rows(cls, x: Tensor, y: Tensor, n_classes: int, weight: Tensor | None = None) -> ClassSums:
        """Of rows (N, D) of classes (N,) below `n_classes`, with weights (N,) or one each."""
        weight = torch.ones_like(x[:, 0]) if weight is None else weight
        sums = x.new_zeros(n_classes, x.shape[1]).index_add(0, y, weight.unsqueeze(-1) * x)
        return cls(sums, x.new_zeros(n_classes).index_add(0, y, weight))

    def plus(self, other: ClassSums) -> ClassSums:
        """With the rows of another, which may know further classes after the same ones."""
        more = len(other.counts) - len(self.counts)
        sums = torch.cat([self.sums, self.sums.new_zeros(more, self.sums.shape[1])])
        return ClassSums(sums + other.sums, torch.cat([self.counts, self.counts.new_zeros(more)]) + other.counts)

    @classmethod
    def none(cls, like: Tensor) -> ClassSums:
        """Of one class without rows, as wide as the rows of `like`."""
        return cls(like.new_zeros(1, like.shape[-1]), like.new_zeros(1))


@dataclass(frozen=True)
class PredictiveDensities:
    """A Gaussian for each class, in the learned coordinates; all (C, R)."""

    mean: Tensor
    variance: Tensor  # of a new row
    mean_variance: Tensor  # the part of it that more rows would take away


@dataclass(frozen=True)
class Discriminants:
    """Log densities of classes over that of a reference, by quadratic functions of the learned coordinates.

    Differences are formed before anything is multiplied by a row, so that a far row keeps its digits.
    """

    square: Tensor  # (C, R), of squared distances less that from the reference; so are the next two
    straight: Tensor  # (C, R)
    alone: Tensor  # (C,)
    volume: Tensor  # (C,), half of the log determinants' difference
    mean: Tensor  # (R,), of the reference
    precision: Tensor  # (R,)
    tail: Tensor  # scalar, see `TwoCovariances`

    def at(self, z: Tensor) -> Tensor:
        """At rows (Q, R) of coordinates, (Q, C); both may have leading dimensions."""
        return self._log_ratios(self._farther(z), z)

    def each(self, z: Tensor) -> Tensor:
        """The same, added up in an order that does not depend on how many rows and classes there are."""
        one = z.unsqueeze(1)
        return self._log_ratios((one.square() * self.square - 2 * one * self.straight).sum(-1) + self.alone, z)

    def steepness(self, z: Tensor) -> Tensor:
        """What differences of squared distances count for at rows (Q, R), (Q, 1): 1 if rows are Gaussian.

        Elsewhere less for rows that are far from every class.
        """
        nearest = (self._from_reference(z) + self._farther(z).amin(-1, keepdim=True)).clamp_min(0)
        return (1 + self.tail * z.shape[-1]) / (1 + self.tail * nearest)

    def of(self, classes: Tensor) -> Discriminants:
        """Those of some classes, numbers of any shape."""
        own = {name: getattr(self, name)[classes] for name in ("square", "straight", "alone", "volume")}
        return replace(self, **own)

    def _farther(self, z: Tensor) -> Tensor:
        return z.square() @ self.square.mT - 2 * z @ self.straight.mT + self.alone.unsqueeze(-2)

    def _from_reference(self, z: Tensor) -> Tensor:
        return ((z - self.mean).square() * self.precision).sum(-1, keepdim=True)

    def _log_ratios(self, farther: Tensor, z: Tensor) -> Tensor:
        if bool(self.tail > 0):
            whole = 1 + self.tail * self._from_reference(z)
            relative = torch.maximum(self.tail * farther / whole, 1 / whole - 1)  # no squared distance is below zero
            farther = (1 / self.tail + z.shape[-1]) * relative.log1p()
        return -0.5 * farther - self.volume.unsqueeze(-2)


@dataclass(frozen=True)
class TwoCovariances:
    """Covariances between and within classes."""

    centre: Tensor  # (D,), mean of the classes' means
    basis: Tensor  # (D, R), A
    between: Tensor  # (R,), b
    within: Tensor  # (R,), w
    temperature: Tensor  # scalar; divides log densities, whose coordinates are not as independent as the model says
    tail: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    """One over the degrees of freedom of rows, scalar; zero if they are Gaussian.

    Else a row's density is Student's t: rows have scales of their own, and one far from every class says little.
    """

    @classmethod
    def estimated(
        cls,
        x: Tensor,  # (N, D)
        y: Tensor,  # (N,), each of C classes has a row
        shrinkage: float = LEAST_SHRINKAGE,
    ) -> TwoCovariances:
        """From moments, with as much shrinkage as few rows or few classes ask for.

        The covariance within classes is shrunk to a multiple of the identity by ``max(shrinkage, D / (D + N - C))``;
        in the coordinates that make it the identity, the variances between classes are shrunk to their mean by
        ``D / (D + C)``. Where no class shows any spread, because each has one row, say, rows are taken to lie half as
        far from their class's mean as from the centre; and so they are where there is one class only, or no class
        differs from another.

        Of columns that outnumber the rows most directions are such that no row differs in them. They are not worked
        with, so this takes ``O(D^2 N)`` and no ``O(D^3)``.
        """
        n_classes, (n_rows, width) = int(y.max()) + 1, x.shape
        classes = ClassSums.of_rows(x, y, n_classes)
        means = classes.sums / classes.counts.unsqueeze(-1)
        centre = means.mean(0)
        apart, spread = x - means[y], means - centre
        total, freedom = (x - centre).square().mean(), n_rows - n_classes
        nothing_between = bool(spread.square().mean() <= _NO_SPREAD**2 * total)  # one class, or all have equal rows
        inside, outside = _directions(apart, spread)
        apart, spread = apart @ inside, spread @ inside
        within = apart.mT @ apart / max(freedom, 1)
        size = within.trace() / width
        if float(total) == 0:  # one row, or equal ones: the scale of rows is taken to be one
            total = torch.ones_like(total)
        if freedom == 0 or bool(size <= _NO_SPREAD * total):
            size = (_UNKNOWN_WITHIN * total).clamp_min(torch.finfo(x.dtype).tiny ** 0.5)
        share = max(shrinkage, width / (width + freedom))
        alike = share * size  # the variance within classes where no row differs
        within = (1 - share) * within + alike * torch.eye(len(within), dtype=x.dtype, device=x.device)
        between = spread.mT @ spread / max(n_classes - 1, 1) - within * (1 / classes.counts).mean()
        root = torch.linalg.cholesky(within)
        half = torch.linalg.solve_triangular(root, between, upper=False)
        white = torch.linalg.solve_triangular(root, half.mT, upper=False)
        variances, directions = torch.linalg.eigh((white + white.mT) / 2)
        variances = torch.cat([variances.new_zeros(outside.shape[1]), variances.clamp_min(0)])
        share = width / (width + n_classes)
        variances = ((1 - share) * variances + share * variances.mean()).clamp_min(LEAST_BETWEEN)
        if nothing_between:
            variances = torch.full_like(variances, 1 / _UNKNOWN_WITHIN - 1)
        found = torch.linalg.solve_triangular(root.mT, directions, upper=True)
        basis = torch.cat([outside / alike.sqrt(), inside @ found], 1)
        one = torch.ones((), dtype=x.dtype, device=x.device)
        return cls(centre, basis, variances, torch.ones_like(variances), one)

    @classmethod
    def estimated_and_tempered(cls, x: Tensor, y: Tensor, shrinkage: float = LEAST_SHRINKAGE) -> TwoCovariances:
        """Those `estimated`, with the temperature that left-out rows ask for.

        Where no row can be left out it is ``sqrt(D)``, about what classes of embeddings ask for.
        """

        def scores_of_others(queries: Tensor, rows: Tensor, classes: Tensor) -> Tensor:
            found = cls.estimated(rows, classes, shrinkage)
            return found.scores(found.densities(ClassSums.of_rows(rows, classes, int(y.max()) + 1)), queries)

        temperature = left_out_temperature(x, y, scores_of_others, x.shape[-1] ** 0.5)
        return cls.estimated(x, y, shrinkage).tempered(temperature)

    def densities(self, classes: ClassSums) -> PredictiveDensities:
        """Of a new row of each class, given its rows; that of the prior for a class without rows."""
        count = classes.counts.unsqueeze(-1)
        total = (classes.sums - count * self.centre) @ self.basis
        scale = self.between / (self.within + count * self.between)
        return PredictiveDensities(scale * total, self.within * (1 + scale), self.within * scale)

    def discriminants(self, densities: PredictiveDensities, reference: PredictiveDensities) -> Discriminants:
        """What tells these classes from the first one of `reference`."""
        first = PredictiveDensities(*(part[:1] for part in _parts(reference)))
        square, straight, alone, volume = (
            own - other for own, other in zip(_coefficients(densities), _coefficients(first), strict=True)
        )
        tail = self.tail.to(first.mean)
        return Discriminants(square, straight, alone, volume, first.mean[0], 1 / first.variance[0], tail)

    def coordinates(self, x: Tensor) -> Tensor:
        """Rows (Q, D) in the learned coordinates, (Q, R)."""
        return (x - self.centre) @ self.basis

    def scores(self, densities: PredictiveDensities, x: Tensor) -> Tensor:
        """Log densities of rows (Q, D) under each class over that of the first, by `temperature`, (Q, C)."""
        return self.discriminants(densities, densities).at(self.coordinates(x)) / self.temperature

    def first_over_prior(self, densities: PredictiveDensities, x: Tensor) -> Tensor:
        """Log density of rows (Q, D) under the first class over that under a class without rows, (Q,)."""
        prior = self.densities(ClassSums.none(x))
        found = self.discriminants(PredictiveDensities(*(part[:1] for part in _parts(densities))), prior)
        return found.each(self.coordinates(x)).squeeze(-1) / self.temperature

    def with_freedom(self, share: float) -> TwoCovariances:
        """With so many degrees of freedom for each coordinate, rather than none counted."""
        return replace(self, tail=torch.full_like(self.temperature, 1 / (share * len(self.within))))

    def tempered(self, factor: float) -> TwoCovariances:
        """With log densities divided by a further factor."""
        return replace(self, temperature=self.temperature * factor)

    def to(self, dtype: torch.dtype) -> TwoCovariances:
        """The same numbers in another type."""
        return TwoCovariances(*(getattr(self, part.name).to(dtype) for part in fields(self)))


def _coefficients(densities: PredictiveDensities) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of squared distances: of z^2, of -2 z, and alone; and half of the log determinants."""
    precision = 1 / densities.variance
    straight = densities.mean * precision
    return precision, straight, (densities.mean * straight).sum(-1), 0.5 * densities.variance.log().sum(-1)


def _parts(densities: PredictiveDensities) -> tuple[Tensor, Tensor, Tensor]:
    return densities.mean, densities.variance, densities.mean_variance


def _directions(apart: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal columns (D, K) that span these rows, and those of all else (D, D - K); all are, of many rows."""
    rows = torch.cat([apart, spread])
    n_rows, width = rows.shape
    if n_rows >= width:
        identity = torch.eye(width, dtype=rows.dtype, device=rows.device)
        return identity, identity[:, width:]
    frame = torch.linalg.qr(rows.mT, mode="complete").Q
    return frame[:, :n_rows], frame[:, n_rows:]
