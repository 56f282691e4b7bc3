"""A member of a regression given all rows, whose kernel matrix is never made.

Means are exact, ``m + k_*' a`` with ``a = C^-1 (y - m)``. Variances would take a solution for each query: they are
those given the rows nearest to it, which are never less, and equal where these are all rows. A row left out, with its
latent variance v given the nearest others and noise d, is told ``y - a (d + v)`` by all others, as
``1 / (C^-1)_ii = d + v``; of which a share s is left out, ``y - a (d + s v)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sureshot.approximations.gridded import kiss, kronecker, toeplitz
from sureshot.approximations.products import Products, conditioned
from sureshot.approximations.tiles import Tiles
from sureshot.computing.layout import aligned
from sureshot.estimators.gp.number_member import GlobalNumberMember, LocalNumberMember, NumberMember, NumberMoments
from sureshot.estimators.gp.plan import Locality, Plan
from sureshot.estimators.numbers.support import NumberSupport
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.estimators.rows.preprocessing import kernel_inputs

PRODUCTS: dict[str, Any] = {"iterative": Tiles, "toeplitz": toeplitz, "kronecker": kronecker, "kiss": kiss}
"""What makes the products of a scaled leaf at rows, by the name of the approximation."""


@dataclass(frozen=True)
class Solved:
    """What was found, as a file keeps it."""

    approximation: str
    n_neighbours: int  # that variances are given
    dual: Tensor  # (N, P)
    log_evidence: float  # in nats

    def check_parts(self) -> None:
        """ValueError for what no fit has found."""
        if self.approximation not in PRODUCTS or self.n_neighbours < 1 or self.dual.ndim != 2:
            raise ValueError("malformed solution")


@dataclass(frozen=True)
class SolvedNumberMember(NumberMember):
    """By products of its kernel."""

    products: Products
    solved: Solved
    mean: Tensor  # (P,), of all numbers
    nearby: LocalNumberMember  # of the same kernel and noise
    lots: np.ndarray  # (N,), of the rows

    @classmethod
    def of(cls, plan: Plan, support: NumberSupport, rows: LabelledRows, solved: Solved) -> SolvedNumberMember:
        """By what was found."""
        scale, local = float(plan.kernel.outputscale), plan.kernel.replace(outputscale=support.x.new_ones(()))
        model = replace(plan.model, noise=plan.model.noise / scale)
        near = replace(plan, kernel=local, model=model, local=Locality(solved.n_neighbours, scale))
        products = PRODUCTS[solved.approximation](plan.kernel, support.x)
        nearby = LocalNumberMember.of(near, support, rows)
        return cls(plan, products, solved, support.targets[1], nearby, rows.lots)

    @classmethod
    def found(
        cls,
        plan: Plan,
        support: NumberSupport,
        rows: LabelledRows,
        approximation: str,
        n_neighbours: int,  # that variances are given
        seed: int,
        known: NumberMember | None = None,  # of the same plan and like rows: where to start, if it is of this kind
    ) -> SolvedNumberMember:
        """By solving for rows."""
        products, residual = PRODUCTS[approximation](plan.kernel, support.x), support.residuals
        noise = plan.model.noise / support.weight
        start = known.dual_of(rows) if isinstance(known, SolvedNumberMember) else None
        dual, log_det = conditioned(products, residual, noise, torch.Generator().manual_seed(seed), start)
        each = log_det - noise.log().sum() + support.weight.sum() * math.log(2 * math.pi * plan.model.noise)
        evidence = -0.5 * float((residual * dual).sum() + residual.shape[1] * each)
        return cls.of(plan, support, rows, Solved(approximation, n_neighbours, aligned(dual), evidence))

    @property
    def log_evidence(self) -> float:
        """In nats; an estimate where the log determinant is one."""
        return self.solved.log_evidence

    def dual_of(self, rows: LabelledRows) -> Tensor:
        """(N, P) of these rows, zero for those that it does not have."""
        order = self.lots.argsort()
        place = order[np.searchsorted(self.lots, rows.lots, sorter=order).clip(max=len(order) - 1)]
        same = aligned((self.lots[place] == rows.lots).astype(float), self.mean.device)
        return same[:, None] * self.solved.dual[torch.from_numpy(place).to(self.mean.device)]

    @torch.no_grad()
    def latents(self, queries: Tensor) -> NumberMoments:
        x = kernel_inputs(queries.numpy(), self.plan.scaling, self.mean.device)
        mean = self.mean + self.products.of_queries(x, self.solved.dual)
        return self.nearby.latents(queries)._replace(mean=mean)

    @torch.no_grad()
    def left_out(self, support: NumberSupport, rows: LabelledRows, place: Tensor) -> NumberMoments:
        near, place = self.nearby.left_out(support, rows, place), place.to(self.mean.device)
        unknown = near.noise / support.weight[place] + support.left_out[place] * near.variance
        return near._replace(mean=support.numbers.mT[place] - self.solved.dual[place] * unknown[:, None])

    def pulls(
        self, support: NumberSupport, rows: LabelledRows, queries: Tensor, place: Tensor, share: Tensor
    ) -> Tensor:
        """Given the nearest rows."""
        return self.nearby.pulls(support, rows, queries, place, share)


def evidence_of(members: Sequence[NumberMember]) -> float:
    """Log evidence of the first that is given all rows at once; NaN if there is none."""
    given_all = (one for one in members if isinstance(one, GlobalNumberMember | SolvedNumberMember))
    return next((one.log_evidence for one in given_all), math.nan)
