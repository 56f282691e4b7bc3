"""The binary problems of a tree: at each node, on which side of it are the rows of the classes below it?

All nodes are solved in buckets of similar size (`sureshot.gaussian.ragged`). With the rows sorted by the place of their
class among the tree's leaves, those of a node stand side by side, its left ones first; nothing is held for each node
but two numbers. A node below which there are no rows has no problem: it keeps its prior.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.gaussian.prior import Prior
from sureshot.gaussian.ragged import Bucket, size_buckets
from sureshot.likelihoods.sites import check_weight, count_classes
from sureshot.tree.class_tree import ClassTree
from sureshot.tree.shared_kernel import SharedKernel


@dataclass(frozen=True)
class NodeSettings:
    """The prior of the latents of each node beside its kernel."""

    mean: Tensor  # (C - 1,)
    scale: Tensor  # (C - 1,), output scales: what multiplies the kernel

    @classmethod
    def of(
        cls,
        tree: ClassTree,
        like: Tensor,
        prior_mean: float | Tensor,  # of all nodes, or (C - 1,)
        output_scale: float | Tensor,  # of all nodes, or (C - 1,)
    ) -> NodeSettings:
        """Checked, one number for each node."""
        mean = _for_nodes("prior_mean", prior_mean, tree, like)
        scale = _for_nodes("output_scale", output_scale, tree, like)
        if bool((scale <= 0).any()):
            raise ValueError(f"output_scale must be positive, got {float(scale.min()):g}.")
        return cls(mean, scale)


@dataclass(frozen=True)
class NodeBucket:
    """The problems of some nodes, padded to the size of the largest."""

    nodes: Tensor  # (P,) int64
    bucket: Bucket
    sides: Tensor  # (P, n) int64, 0 left and 1 right
    weight: Tensor  # (P, n), zero for padding
    mean: Tensor  # (P,), prior means
    scale: Tensor  # (P,), output scales

    def prior(self, shared: SharedKernel) -> Prior:
        """The prior of the nodes at their rows."""
        return shared.prior(self.bucket, self.mean, self.scale)

    def some(self, chosen: Tensor) -> NodeBucket:
        """Those of the nodes that `chosen` (P,) bool says, padded to the size of the largest of them."""
        present = self.bucket.present[chosen]
        n = int(present.sum(-1).max())
        bucket = Bucket(self.bucket.problems[chosen], self.bucket.rows[chosen, :n], present[:, :n])
        sides, weight = self.sides[chosen, :n], self.weight[chosen, :n]
        return NodeBucket(self.nodes[chosen], bucket, sides, weight, self.mean[chosen], self.scale[chosen])


def node_buckets(
    tree: ClassTree,
    shared: SharedKernel,
    y: Tensor,  # (N,) int64
    weight: Tensor | None,  # (N,)
    settings: NodeSettings,
) -> list[NodeBucket]:
    """The problems of all nodes that have rows below them.

    Raises
    ------
    ValueError
        For labels that are not classes of the tree, weights that are negative or no numbers, or another number of
        labels than the kernel has rows.
    """
    _check_rows(tree, shared, y, weight)
    if not tree.n_nodes:
        return []
    places = torch.tensor(tree.positions, device=y.device)[y]  # (N,)
    order = places.argsort(stable=True)
    begin, middle, end = (torch.tensor(part, device=y.device) for part in tree.spans)
    first, last = (torch.searchsorted(places[order], part) for part in (begin, end))
    nodes = (last > first).nonzero().flatten()
    members = [order[first[k] : last[k]] for k in nodes.tolist()]
    shares = shared.values.new_ones(len(y)) if weight is None else weight.to(shared.values)
    found = []
    for bucket in size_buckets(members, rank=shared.rank, whole=shared.whole):
        own = nodes[bucket.problems]
        sides = (bucket.values(places) >= middle[own].unsqueeze(-1)).long()
        present = bucket.values(shares) * bucket.present
        found.append(NodeBucket(own, bucket, sides, present, settings.mean[own], settings.scale[own]))
    return found


def _check_rows(tree: ClassTree, shared: SharedKernel, y: Tensor, weight: Tensor | None) -> None:
    """Refuse labels and weights that do not belong to the tree and the kernel's rows (ValueError)."""
    n_rows = len(shared.values)
    if y.dim() != 1 or len(y) != n_rows:
        raise ValueError(f"y must have one label for each of the kernel's {n_rows} rows, got shape {tuple(y.shape)}.")
    count_classes(y, tree.n_classes)
    if weight is not None:
        if not bool(torch.isfinite(weight).all()):
            raise ValueError("weight must be finite, but it holds NaN or infinity.")
        check_weight(y, weight)


def _for_nodes(name: str, value: float | Tensor, tree: ClassTree, like: Tensor) -> Tensor:
    values = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    if values.dim() > 1 or (values.dim() == 1 and len(values) != tree.n_nodes):
        raise ValueError(
            f"{name} must be one number or one for each of the {tree.n_nodes} nodes, got shape {tuple(values.shape)}."
        )
    if not bool(torch.isfinite(values).all()):
        raise ValueError(f"{name} must be finite, but it holds NaN or infinity.")
    return values.expand(tree.n_nodes)
