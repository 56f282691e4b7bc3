"""Class trees from prototypes, and two that look at nothing.

A tree is good when its upper nodes ask easy questions: similar classes should stay together until far down. So
`build_tree` splits the classes' prototypes, mean embeddings scaled to unit length, into two clusters (`two_means`), and
each side again, until one class is left (Achituve et al. 2021, section 3.1). `balanced_random_tree` has the least
depth, `label_order_tree` is the stick-breaking construction of Linderman, Johnson & Adams 2015.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sureshot.likelihoods.sites import check_labels, check_weight
from sureshot.tree.class_tree import ClassTree, Integers, grow
from sureshot.tree.two_means import N_STARTS, two_means


def class_prototypes(
    x: Tensor,  # (N, D)
    y: Tensor,  # (N,) int64
    n_classes: int,
    weight: Tensor | None = None,  # (N,)
) -> Tensor:
    """The mean row of every class, (C, D) float64, the same bits in whatever order the rows come.

    A class without rows has a prototype of zero.
    """
    if x.dim() != 2 or y.shape != x.shape[:1]:
        raise ValueError(
            f"x must be a matrix and y have one label for each of its rows, got shapes {tuple(x.shape)} and "
            f"{tuple(y.shape)}."
        )
    if not bool(torch.isfinite(x).all()):
        raise ValueError("x must be finite, but it holds NaN or infinity.")
    check_labels(y, n_classes)
    check_weight(y, weight)
    share = torch.ones_like(y, dtype=torch.float64) if weight is None else weight.to(torch.float64)
    # Sums in the order of the values in each column, which is that of no row.
    values, order = (share.unsqueeze(-1) * x).sort(dim=0)
    sums = values.new_zeros(n_classes, x.shape[1]).scatter_add_(0, y[order], values)
    counts, place = share.sort()
    total = share.new_zeros(n_classes).scatter_add_(0, y[place], counts)
    return sums / torch.where(total > 0, total, 1).unsqueeze(-1)


def build_tree(
    prototypes: Tensor,  # (C, D), one row for each class; only directions matter
    seed: int = 0,  # of the starts of the clustering
    n_starts: int = N_STARTS,
) -> ClassTree:
    """A tree by top-down 2-means of the prototypes' directions.

    The same prototypes and seed give the same tree. Prototypes are put into an order that depends on their values
    alone, so that listing the classes in another order renames the classes of the tree and changes nothing else; only
    equal prototypes are told apart by their place. Where directions do not tell classes apart (equal prototypes, zero
    prototypes) a split is balanced.

    Raises
    ------
    ValueError
        For prototypes that are not a matrix of finite numbers with a row for each of one or more classes.
    """
    if prototypes.dim() != 2 or 0 in prototypes.shape:
        raise ValueError(f"prototypes must be a matrix (classes, features), got shape {tuple(prototypes.shape)}.")
    if not bool(torch.isfinite(prototypes).all()):
        label = int((~torch.isfinite(prototypes)).any(-1).nonzero()[0])
        raise ValueError(f"prototypes must be finite, but that of class {label} holds NaN or infinity.")
    if n_starts < 1:
        raise ValueError(f"n_starts must be at least 1, got {n_starts}.")
    directions = directions_of(prototypes.detach().cpu().to(torch.float64))
    rank = np.empty(len(directions), dtype=np.int64)
    rank[np.lexsort(directions.numpy().T[::-1])] = np.arange(len(directions))
    generator = torch.Generator().manual_seed(seed)

    def split(classes: Integers) -> tuple[Integers, Integers]:
        ordered = classes[np.argsort(rank[classes])]
        right = two_means(directions[torch.from_numpy(ordered)], generator, n_starts).numpy()
        return ordered[~right], ordered[right]

    return grow(len(directions), split)


def balanced_random_tree(n_classes: int, seed: int = 0) -> ClassTree:
    """A tree of least depth over classes in random order."""
    place = np.random.default_rng(seed).permutation(max(n_classes, 0))

    def split(classes: Integers) -> tuple[Integers, Integers]:
        shuffled = classes[np.argsort(place[classes])]
        middle = (len(classes) + 1) // 2
        return shuffled[:middle], shuffled[middle:]

    return grow(n_classes, split)


def label_order_tree(n_classes: int) -> ClassTree:
    """Class 0 against the rest, class 1 against the rest of these, and so on."""
    return grow(n_classes, lambda classes: (classes[:1], classes[1:]))


def directions_of(prototypes: Tensor) -> Tensor:
    """Rows at unit length, whatever their size; those of zero stay zero."""
    largest = prototypes.abs().amax(-1, keepdim=True)
    scaled = prototypes / torch.where(largest > 0, largest, 1)
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return scaled / torch.where(length > 0, length, 1)
