"""The most probable of many Gaussian classes without looking at all of them.

Classes that hang together in a tree are merged into one Gaussian, by its moments. A query meets the merged Gaussians of
the branches that hold at most some number of classes each, and then the classes of the branches that suit it best, each
by its own density. With C classes a query costs about the square root of C in the place of C. How many branches are
followed is the width of the beam: with all of them the answer is the dense one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sureshot.gaussian.ragged import size_buckets
from sureshot.incremental.two_covariances import Discriminants, PredictiveDensities, TwoCovariances
from sureshot.tree.class_tree import ClassTree

DENSE_CLASSES = 2000
"""With so many classes or fewer, all of them are looked at unless a beam is asked for: it is as fast."""

DEFAULT_BEAM = 64

_NONE = -1  # where a branch has fewer classes than another


@dataclass(frozen=True)
class ClassBeam:
    """Branches of a tree of classes, merged."""

    members: tuple[Tensor, ...]  # of each branch its classes, int64
    merged: Discriminants  # of the branches
    classes: Discriminants

    @classmethod
    def of(
        cls, tree: ClassTree, covariances: TwoCovariances, densities: PredictiveDensities, classes: Discriminants
    ) -> ClassBeam:
        """Branches of at most about ``sqrt(C / beam)`` classes, so that both stages cost about the same."""
        most = max(2, round((tree.n_classes / DEFAULT_BEAM) ** 0.5))
        leaves = torch.tensor(tree.leaves, device=densities.mean.device)
        members = tuple(leaves[begin:end] for begin, end in tree.branches(most))
        merged = [_merged(densities, own) for own in members]
        whole = PredictiveDensities(*(torch.stack(part) for part in zip(*merged, strict=True)))
        return cls(members, covariances.discriminants(whole, densities), classes)

    def candidates(self, z: Tensor, beam: int) -> tuple[Tensor, Tensor]:
        """Scores of the classes on the beam at queries (Q, R), and which they are, each (Q, K).

        Minus infinity where a query has fewer than K.
        """
        table = pad_sequence(list(self.members), batch_first=True, padding_value=_NONE)  # (B, K)
        chosen = self.merged.at(z).topk(min(beam, len(table)), dim=-1).indices  # (Q, b)
        flat = chosen.flatten()
        scores = z.new_full((len(flat), table.shape[1]), -torch.inf)
        asked = [own for own in flat.argsort(stable=True).split(torch.bincount(flat).tolist()) if len(own)]
        branches = flat.unique()
        for bucket in size_buckets(asked, rank=z.shape[1]):  # of branches, each with the queries that meet it
            classes = table[branches[bucket.problems]]
            found = self.classes.of(classes.clamp_min(0)).at(z[bucket.rows // chosen.shape[1]])  # (P, q, K)
            found = found.where((classes != _NONE).unsqueeze(1), torch.tensor(-torch.inf, dtype=z.dtype))
            scores[bucket.rows[bucket.present]] = found[bucket.present]
        return scores.view(len(z), -1), table[chosen].clamp_min(0).flatten(1)

    def enough(self, beam: int, k: int) -> int:
        """The beam, or the wider one whose branches hold k classes whichever they are."""
        smallest = torch.tensor(sorted(len(own) for own in self.members)).cumsum(0)
        return max(beam, int((smallest < k).sum()) + 1)


def _merged(densities: PredictiveDensities, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The Gaussian with the moments of an equal mixture of some classes."""
    mean = densities.mean[own]
    return (
        mean.mean(0),
        densities.variance[own].mean(0) + mean.var(0, correction=0),
        densities.mean_variance[own].mean(0),
    )
