"""Anderson mixing: the fixed point of a slow map in a fraction of its steps.

From the last few points and their images under the map one sees how residuals change with points, and the next point
is the one whose residual would vanish were the map linear. A point that turns out worse than its predecessor is
forgotten with its history, by whoever knows what worse is, and the map's own step is taken (`Mixing.moved`).

References: Anderson 1965; Walker & Ni 2011.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

DEPTH = 5
"""Differences of points that are kept: on nodes of embeddings 3 and 8 take as many steps."""


@dataclass(frozen=True)
class Mixing:
    """The last points of each problem, the newest last, and where the map takes them; NaN while there are fewer."""

    points: Tensor  # (..., k, n)
    images: Tensor  # (..., k, n)

    @classmethod
    def start(cls, point: Tensor) -> Mixing:
        """Without a point yet, for such as this one (..., n)."""
        return cls(*(point.new_full((*point.shape[:-1], DEPTH + 1, point.shape[-1]), torch.nan),) * 2)

    def moved(self, point: Tensor, image: Tensor, worse: Tensor) -> Mixing:
        """With one more point (..., n) and its image, or, of the problems (...) that got worse, with the last alone.

        The next point of the latter is the image of the last one: a step of the map itself.
        """
        which = worse[..., None, None]
        return Mixing(
            *(
                torch.where(which, old[..., -1:, :], torch.cat([old[..., 1:, :], new.unsqueeze(-2)], -2))
                for old, new in ((self.points, point), (self.images, image))
            )
        )

    def some(self, chosen: Tensor, n: int) -> Mixing:
        """Of some problems, a mask of the first dimension, the first n coordinates."""
        return Mixing(self.points[chosen][..., :n], self.images[chosen][..., :n])

    def next(self) -> Tensor:
        """The point to try next, (..., n)."""
        residuals = self.images - self.points
        change, moves = (part.diff(dim=-2).nan_to_num(0.0) for part in (residuals, self.images))
        gram = change @ change.mT
        size = gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        resolution = torch.finfo(gram.dtype)
        ridge = (resolution.eps**0.6 * size + resolution.tiny) * torch.eye(DEPTH, dtype=gram.dtype, device=gram.device)
        share = torch.linalg.solve(gram + ridge, change @ residuals[..., -1:, :].mT)
        return self.images[..., -1, :] - (share.mT @ moves).squeeze(-2)
