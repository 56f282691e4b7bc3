"""One policy of blocks and memory: how much is worked on at a time, and what conditioning takes.

Matrices of many classes, chains or problems are worked through in blocks, so that memory does not grow with their
number. Sizes are entries of the largest kind of array; a few such arrays are held at a time. Whoever is about to
condition asks the estimates first and refuses before anything is allocated.
"""

from __future__ import annotations

IN_CACHE = 2**18
"""Entries that stay in a core's cache: for work whose matrices are read more than once."""

AT_ONCE = 2**23
"""Entries of one array where memory is the bound, 67 MB in float64; about five arrays are held at a time."""

OF_DRAWS = 2**26
"""Entries of one array of a sampler: larger, since the order of its draws depends on the blocks."""


def blocks(count: int, entries: int, at_once: int = AT_ONCE) -> list[slice]:
    """Cut `count` members of so many entries each into slices of at most `at_once` entries, at least one member."""
    size = max(1, at_once // max(1, entries))
    return [slice(begin, begin + size) for begin in range(0, count, size)]


def entries_by_kernel_matrix(n_rows: int, n_latents: int, n_kernels: int = 1, in_blocks: bool = False) -> int:
    """Entries held while conditioning on N rows in function space.

    Latents are classes times chains; those that share kernel matrix and precisions count once. ``in_blocks`` of classes
    nothing is kept but vectors (`GramBlockPosterior`).
    """
    matrix = n_rows**2
    factors = n_latents * matrix
    held = max(matrix, min(factors, AT_ONCE)) if in_blocks else factors
    return 7 * (held + n_kernels * matrix)


def entries_by_features(
    n_rows: int,
    rank: int,
    n_latents: int,  # classes times chains
    n_factors: int,  # R x R, that are held at a time
    n_classes: int,
) -> int:
    """Entries held while conditioning on N rows by R features."""
    optimiser = 25 * rank * n_classes  # of the mode: pairs of steps and gradients
    return 4 * n_rows * rank + 4 * rank * rank * n_factors + 6 * n_rows * n_latents + optimiser


def entries_by_particles(n_particles: int, n_contrasts: float) -> float:
    """Entries held while particles, each with a kernel of its own, are conditioned on that many binary comparisons.

    As measured where all rows come in one batch; with half of them in the last batch it is 6.6.
    """
    return 8 * n_particles * n_contrasts**2


def entries_by_inducing(n_particles: int, n_rows: float, n_inducing: float, n_latents: int) -> float:
    """Entries held while particles see N rows through inducing inputs, with latents of their own for each class.

    As measured where all rows come in one batch.
    """
    of_rows = n_rows * (n_inducing + n_latents**2)
    return n_particles * (8 * of_rows + 10 * (n_inducing * n_latents) ** 2)
