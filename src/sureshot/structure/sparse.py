"""Latents integrated out under kernels that are seen through inducing inputs: cost in proportion to the rows.

As in `sureshot.structure.collapsed` particles hold Polya-Gamma variables, given which contrasts are Gaussian. What is
kept beside them is the posterior of the weights w of the features (`sureshot.structure.inducing`), of each latent its
own. The G contrasts of a row are ``s (f + e)`` with the row's latents f, of the weights, and a residual e of the row
alone. A pair of contrasts of a row shares a latent, so with h half of the residual's variance

    noise of a row  N = W^-1 + h (I + 1 1'),   N^-1 = Lambda - h lambda lambda' / (1 + h sum lambda),
    lambda = 1 / (1 / omega + h),

and all rows together give the weights the precision ``A = I + sum (s' N^-1 s) x phi phi'`` and the likelihood

    log p(y | omega) = (|L^-1 sum (s' N^-1 t) x phi|^2 - sum t' N^-1 t - sum log |W N| - log |A|) / 2,   A = L L'

with ``t = 1 / (2 omega)``. New data are weighed and drawn by the code of collapsed latents, some rows at a time, so
that one more costs what it costs to extend A, whatever the number of rows before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.computing.blocks import IN_CACHE, blocks
from sureshot.gaussian.algebra import factors, solve_vectors, times_vector
from sureshot.structure.collapsed import SHIFT, Drawn, seen_in_turn, unseen_in_turn
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.copies import Copies

_AT_ONCE = 64  # contrasts; or a quarter of the weights, so that factorising anew costs little for each


class Features(NamedTuple):
    """Prior of the contrasts by each kernel: features of their rows, and the variances that belong to a row alone."""

    phi: Tensor  # (M, N, m)
    own: Tensor  # (M, N)
    signs: Tensor  # (N, G, L), of a row's contrasts with its latents: with C classes G = C - 1; L = C, of two classes 1
    places: Tensor  # (P,), of the contrasts that are data, among those of all rows

    @classmethod
    def of(cls, phi: Tensor, own: Tensor, y: Tensor, n_classes: int, contrasts: Contrasts) -> Features:
        """Of rows with labels y (N,)."""
        every = Contrasts.of_labels(y, n_classes)
        signs = 2.0 * every.own.unsqueeze(-1) - 1 if n_classes == 2 else every.of_classes(n_classes)
        signs = signs.to(phi).view(len(y), n_classes - 1, signs.shape[-1])
        places = contrasts.row * (n_classes - 1) + contrasts.other - (contrasts.other > contrasts.own).long()
        return cls(phi, own, signs, places)

    def slots(self, omega: Tensor) -> Tensor:
        """Variables of the data (M, P) among all contrasts (M, N, G), zero for those that are no data."""
        found = omega.new_zeros(len(omega), self.signs.shape[0] * self.signs.shape[1])
        found[:, self.places] = omega
        return found.view(len(omega), *self.signs.shape[:2])

    def of_rows(self, rows: Tensor) -> Features:
        """Of some of the rows; no data."""
        return Features(self.phi[:, rows], self.own[:, rows], self.signs[rows], self.places[:0])


class _Seen(NamedTuple):
    """The data of each row as Gaussian observations."""

    covariance: Tensor  # (M, N, G, G), of the residuals
    precision: Tensor  # (M, N, G, G), N^-1
    pulled: Tensor  # (M, N, G), ``N^-1 t``
    constant: Tensor  # (M, N), of the logarithm of the likelihood

    @classmethod
    def of(cls, features: Features, omega: Tensor) -> _Seen:
        """Given the variables (M, N, G)."""
        half = features.own.unsqueeze(-1) / 2
        weight = omega / (1 + omega * half)
        total = 1 + half * weight.sum(-1, keepdim=True)
        seen = torch.where(omega > 0, SHIFT / (1 + omega * half), 0)  # Lambda t
        both = seen.sum(-1, keepdim=True) * half / total
        precision = torch.diag_embed(weight) - (half / total * weight).unsqueeze(-1) * weight.unsqueeze(-2)
        square = torch.where(omega > 0, SHIFT * seen / omega, 0).sum(-1) - (seen.sum(-1, keepdim=True) * both).sum(-1)
        volume = (omega * half).log1p().sum(-1) + total.squeeze(-1).log()
        ones = torch.eye(omega.shape[-1], dtype=omega.dtype) + 1
        return cls(half.unsqueeze(-1) * ones, precision, seen - weight * both, -0.5 * (square + volume))

    def of_latents(self, signs: Tensor) -> tuple[Tensor, Tensor]:
        """Precision (M, N, L, L) of the rows' latents, and what they are pulled to times it (M, N, L)."""
        return signs.mT @ self.precision @ signs, torch.einsum("ngl,mng->mnl", signs, self.pulled)


Turn = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""From means (M, B), covariances (M, B, B) and variables (M, B) of some contrasts, in their order, to the variables
that they have then, zero for what is no data, and the logarithms of weights (M, B)."""


@dataclass(frozen=True)
class Sparse(Drawn):
    """By R = L m weights of features: L is (M, R, R), u = L' E[w] (M, R)."""

    constant: Tensor  # (M,), of the logarithm of the likelihood

    @classmethod
    def empty(cls, n_particles: int) -> Sparse:
        """Without data."""
        zeros = torch.zeros(n_particles, 0, dtype=torch.float64)
        return cls(zeros, torch.zeros(n_particles, 0, 0, dtype=torch.float64), zeros, zeros.sum(-1))

    @classmethod
    def of(cls, omega: Tensor, covariance: Features, out: Tensor | None = None) -> Sparse:
        seen = _Seen.of(covariance, covariance.slots(omega))
        precision, pulled = _summed(covariance.phi, *seen.of_latents(covariance.signs))
        precision.diagonal(dim1=-2, dim2=-1).add_(1)
        return _solved(omega, precision, pulled, seen.constant.sum(-1))

    @property
    def log_likelihood(self) -> Tensor:
        volume = self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        found = self.constant + 0.5 * self.whitened.square().sum(-1) - volume
        return torch.where(found.isfinite(), found, -math.inf)

    def first(self, n: int) -> Sparse:
        """With the variables of the first n data; `given` makes the rest."""
        return replace(self, omega=self.omega[:, :n])

    def moments(self, phi: Tensor, own: Tensor, n_latents: int) -> tuple[Tensor, Tensor]:
        """Means (M, Q, L) and covariances (M, Q, L, L) of the latents of rows that are no data.

        From their features (M, Q, m) and the variances of their own (M, Q).
        """
        each = torch.eye(n_latents, dtype=phi.dtype).expand(*own.shape, -1, -1)
        solved = torch.linalg.solve_triangular(self.factor, _weighted(each, phi).flatten(1, 2).mT, upper=False)
        mean = times_vector(solved.mT, self.whitened).view(*own.shape, n_latents)
        solved = solved.unflatten(-1, (-1, n_latents))
        covariance = torch.einsum("mrqk,mrql->mqkl", solved, solved)
        covariance.diagonal(dim1=-2, dim2=-1).add_(own.unsqueeze(-1))
        return mean, covariance

    def left_out(self, features: Features, copies: Copies) -> tuple[Tensor, Tensor]:
        """The same of the latents of the K rows of the data that differ, each without its own data."""
        n_latents, asked = features.signs.shape[-1], features.of_rows(copies.first)
        parts = [
            self.moments(asked.phi[:, part], torch.zeros_like(asked.own[:, part]), n_latents)
            for part in blocks(len(copies.first), self.whitened.numel() * n_latents)
        ]
        mean, covariance = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        of_rows = _Seen.of(features, features.slots(self.omega)).of_latents(features.signs)
        precision, pulled = (copies.leaving(part) for part in of_rows)
        rest = torch.eye(covariance.shape[-1], dtype=covariance.dtype) - covariance @ precision
        mean = torch.linalg.solve(rest, (mean - times_vector(covariance, pulled)).unsqueeze(-1)).squeeze(-1)
        covariance = torch.linalg.solve(rest, covariance)
        covariance.diagonal(dim1=-2, dim2=-1).add_(asked.own.unsqueeze(-1))
        return mean, covariance

    def weights_left_out(self, features: Features, copies: Copies) -> Tensor:
        """Logarithms of the weights (M, K) of never having seen the data of each of the K rows that differ."""
        slots = features.slots(self.omega)
        found = slots.new_empty(len(slots), len(copies.first))
        for those, rows in copies.sets():
            each = rows.shape[1] * slots.shape[-1]  # contrasts that leave together
            at_once = max(1, _AT_ONCE // max(1, each))
            for some, leaving in zip(those.split(at_once), rows.split(at_once), strict=True):
                omega = slots[:, leaving.flatten()]
                mean, covariance = self._contrasts(features.of_rows(leaving.flatten()), omega)
                mean, omega = (part.flatten(1).view(-1, each) for part in (mean, omega))
                covariance = covariance.unflatten(2, (-1, each)).unflatten(1, (-1, each))
                covariance = covariance.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2).reshape(-1, each, each)
                found[:, some] = unseen_in_turn(mean, covariance, omega).sum(-1).view(len(slots), -1)
        return found

    def extended(self, cross: Features, corner: Features, generator: torch.Generator) -> tuple[Sparse, Tensor]:
        """With new data, in their order, which `corner` names, and the logarithms of their weights (M, B).

        Both have the new rows and, if classes are new, all rows: `cross` names the data so far then, else none.
        """

        def turn(mean: Tensor, covariance: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
            taken = seen_in_turn(mean, covariance, generator)
            return taken.omega, taken.log_weights

        afresh = len(cross.places) == self.omega.shape[-1]
        slots = cross.slots(self.omega[:, : len(cross.places)])
        found, new, log_weights = (Sparse.of(self.omega, cross) if afresh else self)._taken(corner, slots, turn)
        return replace(found, omega=torch.cat([self.omega, new], -1)), log_weights

    def without(self, kept: Tensor, covariance: Features, left: Features) -> tuple[Sparse, Tensor]:
        """With some data (P,) bool only, and the logarithms of the weights (M,) of never having seen the others."""

        def turn(mean: Tensor, covariance: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
            return torch.zeros_like(omega), unseen_in_turn(mean, covariance, omega)

        gone = covariance._replace(places=covariance.places[~kept].sort().values)
        _, _, log_weights = self._taken(gone, covariance.slots(self.omega), turn)
        return Sparse.of(self.omega[:, kept], left), log_weights.sum(-1)

    def drawn(self, covariance: Features, generator: torch.Generator) -> Tensor:
        """Weights, and residuals by Matheron's rule."""
        noise = torch.randn(self.whitened.shape, generator=generator, dtype=torch.float64)
        weights = solve_vectors(self.factor.mT, self.whitened + noise, upper=True)
        n, g, n_latents = covariance.signs.shape
        residual = torch.randn(len(weights), n, n_latents, generator=generator, dtype=torch.float64)
        latents = torch.einsum("mni,mli->mnl", covariance.phi, weights.unflatten(-1, (n_latents, -1)))
        latents = latents + covariance.own.sqrt().unsqueeze(-1) * residual
        psi = torch.einsum("ngl,mnl->mng", covariance.signs, latents)
        omega = covariance.slots(self.omega)
        observed = psi + torch.randn(len(weights), n, g, generator=generator, dtype=torch.float64) / omega.sqrt()
        seen = _Seen.of(covariance, omega)
        psi = psi + times_vector(seen.covariance, seen.pulled - times_vector(seen.precision, observed))
        return psi.flatten(1)[:, covariance.places]

    def _taken(self, features: Features, slots: Tensor, turn: Turn) -> tuple[Sparse, Tensor, Tensor]:
        """After a turn of each of the data that `features` name, in rising order: the posterior of the weights.

        And the variables of these data, and the logarithms of weights, both (M, B). Changes `slots`.
        """
        n_slots = features.signs.shape[1]
        rows = (features.places // max(1, n_slots)).unique()
        at_once = max(_AT_ONCE, self.whitened.shape[-1] // 4) // max(1, n_slots)
        found, pulled = self, times_vector(self.factor, self.whitened)
        precision = self.factor @ self.factor.mT
        variables, log_weights = [self.omega[:, :0]], [self.omega[:, :0]]
        for part in rows.split(max(1, at_once)) if len(rows) else ():
            block, omega = features.of_rows(part), slots[:, part]
            mean, covariance = found._contrasts(block, omega)
            inside = features.places[torch.isin(features.places // n_slots, part)]
            own = torch.searchsorted(part, inside // n_slots) * n_slots + inside % n_slots
            changed = omega.flatten(1).clone()
            changed[:, own], weighed = turn(mean[:, own], covariance[:, own][:, :, own], changed[:, own])
            before, after = (_Seen.of(block, one) for one in (omega, changed.view_as(omega)))
            (less, less_pulled), (more, more_pulled) = (one.of_latents(block.signs) for one in (before, after))
            added, towards = _summed(block.phi, more - less, more_pulled - less_pulled)
            precision, pulled = precision + added, pulled + towards
            constant = found.constant + (after.constant - before.constant).sum(-1)
            found = _solved(found.omega, precision, pulled, constant)
            slots[:, part] = changed.view_as(omega)
            variables.append(changed[:, own])
            log_weights.append(weighed)
        return found, torch.cat(variables, -1), torch.cat(log_weights, -1)

    def _contrasts(self, features: Features, omega: Tensor) -> tuple[Tensor, Tensor]:
        """Means (M, N G) and covariances (M, N G, N G) of all contrasts of some rows, given the variables (M, N, G)."""
        seen = _Seen.of(features, omega)
        kept = torch.eye(omega.shape[-1], dtype=omega.dtype) - seen.covariance @ seen.precision
        weighted = _weighted(kept @ features.signs, features.phi).flatten(1, 2)
        solved = torch.linalg.solve_triangular(self.factor, weighted.mT, upper=False)
        mean = times_vector(solved.mT, self.whitened) + times_vector(seen.covariance, seen.pulled).flatten(1)
        covariance = (solved.mT @ solved).unflatten(-1, omega.shape[1:]).unflatten(1, omega.shape[1:])
        covariance.diagonal(dim1=1, dim2=3).add_((kept @ seen.covariance).permute(0, 2, 3, 1))
        return mean, covariance.flatten(3).flatten(1, 2)


def _weighted(of_latents: Tensor, phi: Tensor) -> Tensor:
    """Features (M, N, H, L m) of combinations (M, N, H, L) of the latents of rows with features (M, N, m)."""
    return (of_latents.unsqueeze(-1) * phi[:, :, None, None]).flatten(-2)


def _summed(phi: Tensor, precision: Tensor, pulled: Tensor) -> tuple[Tensor, Tensor]:
    """Of all rows, (M, R, R) and (M, R), from those of their latents (M, N, L, L) and (M, N, L)."""
    m, n, n_latents = pulled.shape
    size = n_latents * phi.shape[-1]
    found = phi.new_empty(m, size, size)
    for part in blocks(m, n * size, IN_CACHE):
        own = phi[part]
        for latent, out in enumerate(found[part].split(phi.shape[-1], 1) if size else ()):
            weighted = (precision[part, :, latent].unsqueeze(-1) * own.unsqueeze(-2)).flatten(-2)
            out.copy_(own.mT @ weighted)
    return found, torch.einsum("mnl,mni->mli", pulled, phi).flatten(1)


def _solved(omega: Tensor, precision: Tensor, pulled: Tensor, constant: Tensor) -> Sparse:
    """From the precision (M, R, R) of the weights, and what they are pulled to times it (M, R)."""
    factor = factors(precision)
    return Sparse(omega, factor, solve_vectors(factor, pulled, upper=False), constant)
