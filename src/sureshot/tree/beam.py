"""The most probable classes of a tree without asking all of its nodes.

A class is at most as probable as any node on its path. So from the root down, a level at a time, only the branches are
followed that may still hold one of the k classes asked for: a branch over n classes with probability p has one of at
least p / n, and whatever is less probable than the k-th largest of these is left. Of the others the `beam` most
probable are followed, all if there is no beam, and then the k classes are exact. A query costs a few nodes for each
level of the tree, each of which meets its own queries only.

Temperature divides log probabilities before they are normalised over all classes; those that were not reached count as
if they shared the probability of their branch equally. So at temperature one probabilities are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.gaussian.posterior import LatentMoments
from sureshot.gaussian.ragged import Bucket, size_buckets
from sureshot.tree.path_probabilities import (
    NodeRule,
    SideLogProbabilities,
    average_of_chains,
    side_log_probabilities,
)
from sureshot.tree.posterior import FittedBucket, TreePart, TreePosterior
from sureshot.tree.shared_kernel import PairedQueries

_NONE = -1  # in the place of a child, where there is no branch


class LeadingClasses(NamedTuple):
    """Classes of queries, first the most probable; both (Q, k)."""

    log_probabilities: Tensor
    classes: Tensor  # int64


class Branches(NamedTuple):
    """What is followed for each query: children as `ClassTree.children` has them, and their log probabilities."""

    children: Tensor  # (Q, B) int64
    logs: Tensor  # (Q, B), minus infinity where there is none

    def of(self, chosen: Tensor) -> Branches:
        """Those at some places (Q, b)."""
        return Branches(self.children.gather(-1, chosen), self.logs.gather(-1, chosen))


def leading_classes(
    posterior: TreePosterior,
    x: Tensor,  # (Q, D)
    k: int,  # at most C
    beam: int | None = None,  # branches that are followed at most, k at least; None for no bound
    temperature: float = 1.0,  # a further one, beside the posterior's
    rule: NodeRule = "integral",
) -> LeadingClasses:
    """The k most probable classes of queries; of equally probable ones the first comes first."""
    tree = posterior.tree
    pairs = torch.tensor(tree.children, device=x.device).reshape(-1, 2)
    n_classes = tree.n_classes
    counts = torch.ones(n_classes + tree.n_nodes, device=x.device, dtype=torch.float64)
    counts[n_classes:] = torch.tensor(tree.spans.end - tree.spans.begin, device=x.device)
    hotter = posterior.temperature * temperature
    sides = NodeSides(posterior, x, rule)
    root = n_classes if tree.n_nodes else 0
    found = Branches(
        torch.full((len(x), 1), root, device=x.device), torch.zeros(len(x), 1, dtype=torch.float64, device=x.device)
    )
    left_out = found.logs.new_full((len(x),), -torch.inf)
    while bool((open_ := found.children >= n_classes).any()):
        query, place = open_.nonzero().T
        nodes = found.children[open_] - n_classes
        first, second = found, Branches(torch.full_like(found.children, _NONE), torch.full_like(found.logs, -torch.inf))
        before = found.logs[open_]
        for branches, child, more in zip((first, second), pairs[nodes].T, sides.at(nodes, query), strict=True):
            branches.children[query, place], branches.logs[query, place] = child, before + more
        found = Branches(*(torch.cat(part, -1) for part in zip(first, second, strict=True)))
        there = found.children != _NONE
        size = counts[found.children.clamp_min(0)].log()
        width = found.logs.shape[-1]
        least = torch.where(there, found.logs - size, -torch.inf).topk(min(k, width)).values[:, -1:]
        matters = there & (found.logs >= least)
        most = int(matters.sum(-1).max())
        most = most if beam is None else min(most, max(beam, k))
        order = torch.where(matters, found.logs, -torch.inf).topk(most).indices
        kept = torch.zeros_like(matters).scatter(-1, order, True) & matters
        mass = (1 - 1 / hotter) * size + found.logs / hotter
        left_out = torch.logaddexp(left_out, torch.where(there & ~kept, mass, -torch.inf).logsumexp(-1))
        kept = kept.gather(-1, order)
        found = found.of(order)
        found = Branches(
            found.children.where(kept, torch.tensor(_NONE)), found.logs.where(kept, torch.tensor(-torch.inf))
        )
    found = found.of(found.children.where(found.children >= 0, n_classes).argsort(stable=True))
    found = found.of(found.logs.argsort(dim=-1, descending=True, stable=True))
    logs = found.logs / hotter
    whole = torch.logaddexp(left_out, logs.logsumexp(-1))
    return LeadingClasses((logs - whole.unsqueeze(-1))[:, :k], found.children[:, :k])


class NodeSides:
    """Log probabilities of the sides of nodes, each asked about queries of its own."""

    def __init__(self, posterior: TreePosterior, x: Tensor, rule: NodeRule) -> None:
        self._rule = rule
        self._groups: list[tuple[TreePart, FittedBucket | None, PairedQueries]] = []
        self._group, self._place = torch.empty(2, posterior.tree.n_nodes, dtype=torch.int64, device=x.device)
        for part in posterior.parts:
            paired = part.shared.paired(x)
            every = torch.arange(len(part.settings.mean), device=x.device)
            self._enter(part, None, paired, every)  # those without rows; the others are entered again
            for fitted in part.buckets:
                self._enter(part, fitted, paired, fitted.problems.nodes)

    def _enter(self, part: TreePart, fitted: FittedBucket | None, paired: PairedQueries, nodes: Tensor) -> None:
        self._group[part.first + nodes] = len(self._groups)
        self._place[part.first + nodes] = torch.arange(len(nodes), device=nodes.device)
        self._groups.append((part, fitted, paired))

    def at(self, nodes: Tensor, queries: Tensor) -> SideLogProbabilities:
        """Of pairs of a node and a query, numbers (M,); each (M,)."""
        group = self._group[nodes]
        order = group.argsort(stable=True)
        counts = torch.bincount(group, minlength=len(self._groups)).tolist()
        found = None
        for number, own in enumerate(order.split(counts)):
            if not len(own):
                continue
            for pairs, moments in self._moments(number, self._place[nodes[own]], queries[own]):
                answer = average_of_chains(side_log_probabilities(*moments, self._rule))
                if found is None:
                    found = SideLogProbabilities(*(side.new_empty(len(nodes)) for side in answer))
                for whole, side in zip(found, answer, strict=True):
                    whole[own[pairs.rows[pairs.present]]] = side[pairs.present]
        assert found is not None
        return found

    def _moments(self, number: int, places: Tensor, queries: Tensor) -> Iterator[tuple[Bucket, LatentMoments]]:
        """Latents (S, P, m) of the nodes at some places of a group, with which of the pairs these are, (P, m)."""
        part, fitted, paired = self._groups[number]
        which, counts = places.unique(return_counts=True)
        members = places.argsort(stable=True).split(counts.tolist())
        if fitted is None:
            for pairs in size_buckets(members, rank=1):
                own = which[pairs.problems]
                variance = part.settings.scale[own].unsqueeze(-1) * paired.variance[queries[pairs.rows]]
                mean = part.settings.mean[own].unsqueeze(-1).expand_as(variance)
                yield pairs, LatentMoments(mean.unsqueeze(0), variance.unsqueeze(0))
            return
        whole = fitted.problems.bucket
        for pairs in size_buckets(members, rank=whole.rows.shape[1]):
            own = which[pairs.problems]
            bucket = Bucket(whole.problems[own], whole.rows[own], whole.present[own])
            asked = paired.of(bucket, fitted.problems.scale[own], queries[pairs.rows])
            mean, spread = (values.squeeze(-2) for values in fitted.posterior.some(own).query(*asked))
            chains = (-1, *mean.shape[-2:])
            yield pairs, LatentMoments(mean.reshape(chains), spread.reshape(chains))
