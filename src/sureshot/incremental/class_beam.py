"""The most probable of many Gaussian classes without looking at all of them.

Classes whose means lie in similar directions are grouped, by k-means, and a group is merged into one Gaussian by its
moments. A query meets all merged Gaussians, and then the classes of the groups that suit it best, each by its own
density. With C classes a query costs about the square root of C in the place of C. How many groups are followed is the
width of the beam: with all of them the answer is the dense one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sureshot.computing.blocks import IN_CACHE
from sureshot.gaussian.ragged import size_buckets
from sureshot.incremental.two_covariances import Discriminants, PredictiveDensities, TwoCovariances
from sureshot.tree.build import directions_of

DEFAULT_BEAM = 128

_STEPS = 20  # of k-means; further ones change nothing that shows
_NONE = -1  # where a group has fewer classes than another


@dataclass(frozen=True)
class ClassBeam:
    """Groups of similar classes, merged."""

    members: tuple[Tensor, ...]  # of each group its classes, int64
    merged: Discriminants  # of the groups
    classes: Discriminants

    @classmethod
    def of(cls, covariances: TwoCovariances, densities: PredictiveDensities, classes: Discriminants) -> ClassBeam:
        """About ``sqrt(C beam)`` groups, so that both stages meet about as many Gaussians."""
        n_classes = len(densities.mean)
        members = _groups(densities.mean / covariances.within.sqrt(), round((n_classes * DEFAULT_BEAM) ** 0.5))
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
        groups = flat.unique()
        for bucket in size_buckets(asked, rank=z.shape[1], at_once=IN_CACHE):  # of groups, each with its queries
            classes = table[groups[bucket.problems]]
            found = self.classes.of(classes.clamp_min(0)).at(z[bucket.rows // chosen.shape[1]])  # (P, q, K)
            found = found.where((classes != _NONE).unsqueeze(1), torch.tensor(-torch.inf, dtype=z.dtype))
            scores[bucket.rows[bucket.present]] = found[bucket.present]
        return scores.view(len(z), -1), table[chosen].clamp_min(0).flatten(1)

    def enough(self, beam: int, k: int) -> int:
        """The beam, or the wider one whose groups hold k classes whichever they are."""
        smallest = torch.tensor(sorted(len(own) for own in self.members)).cumsum(0)
        return max(beam, int((smallest < k).sum()) + 1)


def _groups(means: Tensor, n_groups: int) -> tuple[Tensor, ...]:
    """Classes whose means (C, R) lie in similar directions; none of many more classes than there are on average."""
    distinct, place = directions_of(means).float().unique(dim=0, return_inverse=True)
    n_clusters = min(n_groups, max(1, len(distinct) // 2))
    from sklearn.cluster import KMeans  # takes long to import, and most models need none

    clustering = KMeans(n_clusters, n_init=1, max_iter=_STEPS, random_state=0).fit(distinct.cpu().numpy())
    group = torch.from_numpy(clustering.labels_).long().to(place.device)[place]
    most = -(-2 * len(means) // n_groups)
    whole = group.argsort(stable=True).split(torch.bincount(group).tolist())
    return tuple(part for own in whole if len(own) for part in own.chunk(-(-len(own) // most)))


def _merged(densities: PredictiveDensities, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The Gaussian with the moments of an equal mixture of some classes."""
    mean = densities.mean[own]
    return (
        mean.mean(0),
        densities.variance[own].mean(0) + mean.var(0, correction=0),
        densities.mean_variance[own].mean(0),
    )
