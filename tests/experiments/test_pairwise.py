"""One-vs-each as differences of latents, against the definition spelt out."""

import torch

from experiments.pairwise import (
    latents_to_pairs,
    other_classes,
    pairs_to_classes,
    pairwise_differences,
    pairwise_gram,
)

Y = torch.tensor([[2, 0, 1, 1], [0, 0, 2, 1]])
C = 3


def kernel():
    points = torch.randn(2, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.exp(-0.5 * torch.cdist(points, points) ** 2)


def test_other_classes_leave_out_the_label():
    assert other_classes(Y, C)[0].tolist() == [[0, 1], [1, 2], [0, 2], [0, 2]]


def test_gram_has_the_published_multipliers():
    gram = kernel()
    values = pairwise_gram(gram, Y, C)
    for task in range(2):
        labels = Y[task].tolist()
        pairs = [(n, c) for n in range(4) for c in range(C) if c != labels[n]]
        for i, (n, c) in enumerate(pairs):
            for j, (m, d) in enumerate(pairs):
                multiplier = int(labels[n] == labels[m]) - int(labels[n] == d) - int(c == labels[m]) + int(c == d)
                torch.testing.assert_close(values[task, i, j], multiplier * gram[task, n, m])


def test_back_to_classes_is_the_transpose():
    values = torch.randn(2, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    f = torch.randn(2, C, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    psi = latents_to_pairs(f, Y)
    torch.testing.assert_close(
        psi, torch.einsum("tnpc,tcn->tnp", pairwise_differences(Y, C, torch.float64), f).flatten(-2)
    )
    torch.testing.assert_close((values * psi).sum(), (pairs_to_classes(values, Y, C) * f).sum())
