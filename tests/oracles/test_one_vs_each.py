"""The evidence over all pairs against explicit inverses over all latents, and its published gradient."""

import math

import pytest
import torch
from torch.nn.functional import one_hot

from experiments.pairwise import pairwise_differences, pairwise_gram
from tests.oracles.one_vs_each import collapsed_evidence

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
ZERO = torch.tensor(0.0, dtype=torch.float64)


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def collapsed_problem(n, classes, seed=0):
    """Two chains, two tasks."""
    x = normal(2, n, 2, seed=seed)
    gram = 2 * torch.exp(-0.5 * torch.cdist(x, x) ** 2)
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (2, n), generator=generator)
    others = 1 - one_hot(y, classes).mT
    omega = 0.4 * torch.rand(2, 2, classes, n, generator=generator, dtype=torch.float64) * others
    return gram, normal(2, classes, seed=seed + 1), y, omega


def dense_collapsed(gram, a, y, classes, omega, weight):
    """One task, one chain: the Gaussian integral over all C N latents with explicit inverses."""
    n = y.numel()
    prior = torch.kron(torch.eye(classes, dtype=torch.float64), gram)
    means = a.repeat_interleave(n)
    A = torch.zeros(n, classes - 1, classes, n, dtype=torch.float64)
    differences = pairwise_differences(y, classes, torch.float64)
    rates, counts = [], []
    for datum in range(n):
        A[datum, :, :, datum] = differences[datum]
        rates += [omega[c, datum] for c in range(classes) if c != int(y[datum])]
        counts += [weight[datum]] * (classes - 1)
    A, rate, count = A.flatten(2).flatten(0, 1), torch.stack(rates), torch.stack(counts)
    inverse = torch.linalg.inv(prior)
    precision = inverse + A.T @ torch.diag(rate) @ A
    linear = inverse @ means + 0.5 * A.T @ count
    value = 0.5 * (linear @ torch.linalg.solve(precision, linear) - means @ inverse @ means)
    return value - 0.5 * (torch.logdet(precision) + torch.logdet(prior)) - math.log(2) * count.sum()


@pytest.mark.parametrize(("n", "classes"), [(3, 3), (5, 2), (18, 5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_collapsed_evidence_is_the_dense_integral(n, classes, weighted):
    gram, a, y, omega = collapsed_problem(n, classes)
    gram = gram + 0.05 * torch.eye(n, dtype=torch.float64)
    weight = 0.5 + torch.arange(n, dtype=torch.float64) / n if weighted else torch.ones(n, dtype=torch.float64)
    values = collapsed_evidence(gram, a, y, classes, omega, weight if weighted else None)
    assert values.shape == (2, 2)
    for chain in range(2):
        for task in range(2):
            expected = dense_collapsed(gram[task], a[task], y[task], classes, omega[chain, task], weight)
            torch.testing.assert_close(values[chain, task], expected, **CLOSE)


@pytest.mark.parametrize(("n", "classes"), [(4, 3), (18, 5)])
def test_collapsed_evidence_has_the_published_gradient(n, classes):
    """beta = W^1/2 B^-1 (1/2 W^-1/2 1 - W^1/2 abar), G = (beta beta' - W^1/2 B^-1 W^1/2)/2, gathered to K."""
    gram, a, y, omega = (part[0] for part in collapsed_problem(n, classes, seed=3))
    omega = omega[0]
    gram = gram.clone().requires_grad_()
    value = collapsed_evidence(gram, a, y, classes, omega)
    (autograd,) = torch.autograd.grad(value, gram)
    with torch.no_grad():
        differences = pairwise_differences(y, classes, torch.float64)
        rate = omega.T[torch.arange(classes) != y.unsqueeze(-1)]
        abar = (differences @ a).flatten()
        S = pairwise_gram(gram, y, classes)
        root = rate.sqrt()
        B = torch.eye(rate.numel(), dtype=torch.float64) + root.unsqueeze(-1) * S * root
        beta = root * torch.linalg.solve(B, 0.5 / root - root * abar)
        G = 0.5 * (beta.outer(beta) - root.unsqueeze(-1) * torch.linalg.inv(B) * root)
        flat = differences.flatten(0, 1)
        dK = ((flat @ flat.T) * G).reshape(n, classes - 1, n, classes - 1).sum((1, 3))
    torch.testing.assert_close(0.5 * (autograd + autograd.T), dK, rtol=1e-8, atol=1e-9)


def test_collapsed_evidence_does_not_see_the_common_mean():
    gram, a, y, omega = collapsed_problem(5, 3, seed=4)
    first = collapsed_evidence(gram, a, y, 3, omega)
    torch.testing.assert_close(collapsed_evidence(gram, a + 2.5, y, 3, omega), first, **CLOSE)
    level = collapsed_evidence(gram, torch.full_like(a, 7.0), y, 3, omega)
    torch.testing.assert_close(collapsed_evidence(gram, ZERO, y, 3, omega), level, **CLOSE)
