"""What a fitted tree knows: latents of its nodes, probabilities of its classes.

A `TreePosterior` is frozen and consists of *parts*: the nodes that one kernel and one inference served. A fit has one
part. Joining two trees under a root (`TreePosterior.joined`) keeps the parts of both as they are, so that whatever is
asked about the classes below one of them, given that it is one of them, has the same answer as before, to the last bit.

The nodes are independent, so a query's latents are one Gaussian for each node, or one for each node and chain of a
sampler. Probabilities of chains are averaged node by node, then multiplied along the paths (Achituve et al. 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sureshot.computing.blocks import AT_ONCE, IN_CACHE, blocks
from sureshot.gaussian.posterior import LatentMoments, ProblemPosterior
from sureshot.tree.class_tree import ClassTree
from sureshot.tree.path_probabilities import (
    NodeRule,
    SideLogProbabilities,
    average_of_chains,
    class_log_probabilities,
    side_log_probabilities,
)
from sureshot.tree.problems import NodeBucket, NodeSettings
from sureshot.tree.shared_kernel import SharedKernel

_NEAR_CACHE = 4 * IN_CACHE


@dataclass(frozen=True)
class FittedBucket:
    """The posterior of some nodes."""

    problems: NodeBucket
    posterior: ProblemPosterior  # with leading dimensions (P, 1), before them chains if there are any


@dataclass(frozen=True)
class TreePart:
    """Nodes that share a kernel and an inference: a run of numbers."""

    first: int  # the number of the part's first node in the whole tree
    shared: SharedKernel
    settings: NodeSettings  # of the part's nodes
    buckets: tuple[FittedBucket, ...]  # of those that have rows, numbered within the part

    def moments(self, x: Tensor) -> Iterator[tuple[Tensor, slice, LatentMoments]]:
        """Some nodes (P,), some of the queries, and the nodes' latents there, (S, P, q), for all nodes and queries."""
        queries = self.shared.queries(x)
        without = torch.ones_like(self.settings.mean, dtype=torch.bool)
        for fitted in self.buckets:
            without[fitted.problems.nodes] = False
        if bool(without.any()):
            variance = self.settings.scale[without].unsqueeze(-1) * queries.variance
            mean = self.settings.mean[without].unsqueeze(-1).expand_as(variance)
            yield without.nonzero().flatten() + self.first, slice(None), LatentMoments(mean[None], variance[None])
        for fitted in self.buckets:
            problems, posterior = fitted.problems, fitted.posterior.held()
            count, n = problems.bucket.rows.shape
            width = n if self.shared.rank is None or n <= self.shared.whole else self.shared.rank
            # Few enough to stay near the cache, enough that factors are not read for a few queries each time.
            at_once = min(AT_ONCE, max(_NEAR_CACHE, count * width**2))
            for part in blocks(len(queries.variance), count * width, at_once):
                own = self.shared.bucket_queries(problems.bucket, problems.scale, self.shared.cut(queries, part))
                mean, variance = (values.squeeze(-2) for values in posterior.query(*own))
                chains = (-1, *mean.shape[-2:])
                yield problems.nodes + self.first, part, LatentMoments(mean.reshape(chains), variance.reshape(chains))


@dataclass(frozen=True)
class TreePosterior:
    """Posteriors of all nodes of a tree of classes."""

    tree: ClassTree
    parts: tuple[TreePart, ...]  # every node in one of them
    temperature: float = 1.0
    """What the classes' log probabilities are divided by before they are normalised again."""

    def latents(self, x: Tensor) -> LatentMoments:
        """Means and variances of the nodes' latents at queries, each (C - 1, Q); of chains those of their mixture."""
        return LatentMoments(*self._of_nodes(x, _mixed))

    def side_log_probabilities(self, x: Tensor, rule: NodeRule = "integral") -> SideLogProbabilities:
        """Log probabilities of the sides of every node at queries, each (C - 1, Q)."""

        def sides(moments: LatentMoments) -> tuple[Tensor, Tensor]:
            return average_of_chains(side_log_probabilities(*moments, rule))

        return SideLogProbabilities(*self._of_nodes(x, sides))

    def log_probabilities(
        self,
        x: Tensor,  # (Q, D), as the kernel takes them
        rule: NodeRule = "integral",
        below: int | None = None,  # a node: given that the class is below it; all classes by default
    ) -> Tensor:
        """Log probabilities of the classes at queries, (C, Q), by `temperature`.

        With ``below``, those of the classes of ``tree.subtree(below)``, in their order.
        """
        tree, sides = self.tree, self.side_log_probabilities(x, rule)
        if below is not None:
            inside = tree.nodes_below(below)
            # Copies of the sub-tree's own shape: sums over them have the same bits wherever the sub-tree hangs.
            tree, sides = tree.subtree(below), SideLogProbabilities(*(part[inside].clone() for part in sides))
        logs = class_log_probabilities(tree, sides)
        return logs if self.temperature == 1 else torch.log_softmax(logs / self.temperature, dim=-2)

    def probabilities(self, x: Tensor, rule: NodeRule = "integral", below: int | None = None) -> Tensor:
        """Probabilities of the classes at queries, (C, Q); see `log_probabilities`."""
        return self.log_probabilities(x, rule, below).exp()

    def joined(self, right: TreePosterior, root: TreePosterior) -> TreePosterior:
        """This tree and another under a root, whose posterior is that of a tree of two classes: 0 for this tree.

        The other's classes come after this one's. Temperatures belonged to the parts' own probabilities: that of the
        result is 1.
        """
        if root.tree.n_classes != 2:
            raise ValueError(
                f"root must separate two classes, this tree (0) from the other (1), but it has "
                f"{root.tree.n_classes} classes."
            )
        if root.tree.children != ((0, 1),):
            raise ValueError("root must have class 0, which is this tree, on its left side.")
        tree = self.tree.joined(right.tree)
        moved = [
            replace(part, first=part.first + shift)
            for posterior, shift in ((self, 1), (right, 1 + self.tree.n_nodes))
            for part in posterior.parts
        ]
        return TreePosterior(tree, (*root.parts, *moved))

    def _of_nodes(self, x: Tensor, answer: Callable[[LatentMoments], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Two answers (C - 1, Q) from the latents of some nodes at some queries at a time, (S, P, q)."""
        first = second = None
        for nodes, queries, moments in (found for part in self.parts for found in part.moments(x)):
            one, two = answer(moments)
            if first is None or second is None:
                first, second = (one.new_empty(self.tree.n_nodes, len(x)) for _ in range(2))
            first[nodes, queries], second[nodes, queries] = one, two
        if first is None or second is None:  # one class, or no query
            nothing = x.new_zeros(self.tree.n_nodes, len(x))
            return nothing, nothing
        return first, second


def _mixed(moments: LatentMoments) -> tuple[Tensor, Tensor]:
    """Mean and variance of the mixture of the chains, (P, q)."""
    mean, variance = moments
    return mean.mean(0), variance.mean(0) + mean.var(0, correction=0)
