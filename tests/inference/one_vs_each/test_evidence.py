"""Value and gradients of the evidence and of predictions given omega, against dense algebra and autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from experiments.pairwise import other_classes, pairwise_gram
from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.sites import Sites
from sureshot.inference.one_vs_each import evidence, query
from sureshot.inference.one_vs_each.evidence import mean_collapsed_log_evidence
from sureshot.inference.one_vs_each.gibbs import OneVsEachGibbsResult, query_moments, run_one_vs_each_gibbs
from sureshot.inference.one_vs_each.precision import PairPrecision, to_latent_rows
from sureshot.inference.one_vs_each.query import differentiable_query
from sureshot.inference.one_vs_each.structure import PairPrior, Pairs
from sureshot.likelihoods.one_vs_each import OneVsEach
from tests.likelihoods.star import star_precision
from tests.oracles.one_vs_each import collapsed_evidence, pairwise_mean

F64 = torch.float64
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def inputs(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=F64)


def squared_exponential(x: Tensor, z: Tensor) -> Tensor:
    squared = x.square().sum(-1).unsqueeze(-1) + z.square().sum(-1).unsqueeze(-2) - 2 * x @ z.mT
    return 4 * torch.exp(-0.5 * squared)


KERNELS = {"squared_exponential": squared_exponential, "linear, rank below N": lambda x, z: 2 * x @ z.mT}


class Problem:
    """Tasks of different composition, one with an absent class, and their chains."""

    def __init__(self, kernel: str, n: int = 12, n_classes: int = 4, n_chains: int = 3, weighted: bool = False):
        self.kernel, self.n_classes = KERNELS[kernel], n_classes
        self.x, self.z, self.a = inputs(3, n, 3), inputs(3, 5, 3, seed=8), inputs(3, n_classes, seed=2)
        self.y = torch.randint(0, n_classes, (3, n), generator=seeded(1))
        self.y[0] = self.y[0] % 2
        self.weight = torch.randint(0, 3, (3, n), generator=seeded(4)).to(F64) if weighted else None
        self.result = run_one_vs_each_gibbs(
            self.kernel(self.x, self.x), self.a, self.y, n_classes, n_chains, 3, self.weight, seeded(5)
        )

    def evidence(self, x: Tensor, a: Tensor) -> Tensor:
        return mean_collapsed_log_evidence(self.kernel(x, x), a, self.result.prior.star(), self.result.last)

    def query(self, x: Tensor, a: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        variance = self.kernel(z, z).diagonal(dim1=-2, dim2=-1)
        return differentiable_query(
            self.kernel(x, x), a, self.kernel(x, z), variance, self.result.prior, self.result.last
        )

    def autograd_evidence(self, x: Tensor, a: Tensor) -> Tensor:
        gram, omega = self.kernel(x, x), self.result.omega
        return collapsed_evidence(gram, a, self.y, self.n_classes, omega, self.weight).mean(0)

    def dense_query(self, x: Tensor, a: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """By the stars of `OneVsEach` and one CN x CN matrix for each chain."""
        (tasks, n), c = self.y.shape, self.n_classes
        gram, cross = self.kernel(x, x), self.kernel(x, z)
        star = star_precision(self.result.omega, self.y)  # (S, T, N, C, C)
        precision = torch.diag_embed(star.permute(0, 1, 3, 4, 2)).permute(0, 1, 2, 4, 3, 5).flatten(-2).flatten(2, 3)
        prior = torch.stack([torch.block_diag(*[gram[t]] * c) for t in range(tasks)])
        gain = torch.linalg.solve(torch.eye(c * n, dtype=F64) + precision @ prior, precision)
        shift = OneVsEach.shift(self.y, c, self.weight).flatten(1)
        centred = shift - (precision @ a.repeat_interleave(n, -1).unsqueeze(-1)).squeeze(-1)
        alpha = centred - (gain @ (prior @ centred.unsqueeze(-1))).squeeze(-1)
        mean = a.unsqueeze(-1) + alpha.unflatten(-1, (c, n)) @ cross
        blocks = gain.unflatten(-1, (c, n)).unflatten(2, (c, n))
        explained = torch.einsum("tnq,stcndm,tmq->stqcd", cross, blocks, cross)
        variance = self.kernel(z, z).diagonal(dim1=-2, dim2=-1)
        covariance = variance[..., None, None] * torch.eye(c, dtype=F64) - explained
        return mean.transpose(0, 1), covariance.transpose(0, 1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_evidence_equals_the_dense_value(kernel: str, weighted: bool) -> None:
    problem = Problem(kernel, weighted=weighted)
    omega, y, c = problem.result.omega, problem.y, problem.n_classes
    gram = problem.kernel(problem.x, problem.x)
    prior = GramPrior(pairwise_gram(gram, y, c).unsqueeze(1), pairwise_mean(problem.a, y, c).unsqueeze(1))
    precision = omega.mT.gather(-1, other_classes(y, c).expand(3, -1, -1, -1)).flatten(2).unsqueeze(2)
    counts = torch.ones(y.shape, dtype=F64) if problem.weight is None else problem.weight
    pairs = counts.repeat_interleave(c - 1, -1)
    dense = prior.condition(Sites(precision, 0.5 * pairs.unsqueeze(1).expand_as(precision))).log_evidence()
    expected = dense.mean(0) - pairs.sum(-1) * torch.log(torch.tensor(2.0, dtype=F64))
    torch.testing.assert_close(problem.evidence(problem.x, problem.a), expected, **CLOSE)
    torch.testing.assert_close(problem.autograd_evidence(problem.x, problem.a), expected, **CLOSE)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_gradient_of_the_evidence_equals_autograd(kernel: str, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(kernel, n=25, weighted=weighted)
    leaves = [part.clone().requires_grad_() for part in (problem.x, problem.a)]
    tasks = torch.tensor([1.0, -0.5, 2.0], dtype=F64)
    expected = torch.autograd.grad((tasks * problem.autograd_evidence(*leaves)).sum(), leaves)
    for block in (2**22, 1):  # all chains at once, and one at a time
        monkeypatch.setattr(evidence, "_LARGEST_BLOCK", block)
        found = torch.autograd.grad((tasks * problem.evidence(*leaves)).sum(), leaves)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_gradient_of_the_evidence_by_finite_differences() -> None:
    problem = Problem("squared_exponential", n=4, n_classes=3, n_chains=2)
    leaves = [part.clone().requires_grad_() for part in (problem.x, problem.a)]

    def at_fixed_omega(x: Tensor, a: Tensor) -> Tensor:
        prior = PairPrior.of_kernel(problem.kernel(x, x).detach(), a.detach(), problem.result.prior.pairs, "star")
        return mean_collapsed_log_evidence(problem.kernel(x, x), a, prior, problem.result.last)

    assert torch.autograd.gradcheck(at_fixed_omega, leaves)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("kernel", "n"), [("squared_exponential", 12), ("linear, rank below N", 12), ("linear, rank below N", 5)]
)
def test_query_and_its_gradient_equal_the_dense_posterior(
    kernel: str, n: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(kernel, n=n, weighted=weighted)
    leaves = [part.clone().requires_grad_() for part in (problem.x, problem.a, problem.z)]
    expected = problem.dense_query(*leaves)
    upstream = [inputs(*part.shape, seed=9 + i) for i, part in enumerate(expected)]
    gradient = torch.autograd.grad(expected, leaves, upstream)
    for block in (2**22, 200, 1):
        monkeypatch.setattr(query, "_LARGEST_BLOCK", block)
        found = problem.query(*leaves)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(torch.autograd.grad(found, leaves, upstream), gradient, rtol=1e-8, atol=1e-8)


def test_query_gradient_of_the_mean_alone() -> None:
    """A loss that leaves the covariance out, as at the posterior mean."""
    problem = Problem("squared_exponential", n=8)
    leaves = [part.clone().requires_grad_() for part in (problem.x, problem.a, problem.z)]
    expected = torch.autograd.grad(problem.dense_query(*leaves)[0].square().sum(), leaves)
    found = torch.autograd.grad(problem.query(*leaves)[0].square().sum(), leaves)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("n", [5, 12])
def test_query_without_gradient_is_that_of_the_sampler(n: int) -> None:
    problem = Problem("squared_exponential", n=n)
    cross = problem.kernel(problem.x, problem.z)
    mean, covariance = problem.query(problem.x, problem.a, problem.z)
    expected = problem.result.predict_latents(cross, torch.full((3, 5), 4.0, dtype=F64))
    torch.testing.assert_close((mean.transpose(0, 1), covariance.transpose(0, 1)), expected, **CLOSE)


def test_precision_is_the_inverse_of_noise_plus_prior() -> None:
    problem = Problem("squared_exponential", n=7)
    pairs, omega = problem.result.prior.pairs, problem.result.last
    prior = PairPrior.of_kernel(problem.kernel(problem.x, problem.x), problem.a, pairs, "dense")
    dense = prior.condition(omega)
    precision = PairPrecision.of_prior(prior.star(), omega)
    columns = inputs(3, 1, *pairs.point.shape[1:], 6, seed=3)
    scaled = (dense.root.unsqueeze(-1) * columns).unbind(-1)
    expected = torch.stack([dense.root * dense.solve(column) for column in scaled], -1)
    torch.testing.assert_close(precision.apply(columns), expected, **CLOSE)
    torch.testing.assert_close(precision.log_det, dense.log_det(), **CLOSE)
    with pytest.raises(ValueError, match="'star'"):
        PairPrecision.of_prior(prior, omega)


def test_latent_rows_are_the_latents_of_every_column() -> None:
    problem = Problem("squared_exponential", n=7)
    pairs = problem.result.prior.pairs
    values = inputs(3, 2, *pairs.point.shape[1:], 6) * pairs.count[:, None, :, :, None]
    expected = torch.stack([pairs.to_latents(column, 7) for column in values.unbind(-1)], -1)
    found = to_latent_rows(values, pairs, 7)
    torch.testing.assert_close(found, -expected.permute(0, 3, 1, 2, 4), **CLOSE)


def test_classes_can_be_permuted_at_fixed_omega() -> None:
    problem = Problem("squared_exponential", n=9)
    order = torch.tensor([2, 0, 3, 1])
    gram = problem.kernel(problem.x, problem.x).requires_grad_()
    first = problem.evidence(problem.x, problem.a)
    labels = order.argsort()[problem.y]
    pairs = Pairs.of_labels(labels, 4, None, F64)
    omega = problem.result.omega.transpose(0, 1)[:, :, order].gather(-1, pairs.point.unsqueeze(1).expand(-1, 3, -1, -1))
    prior = PairPrior.of_kernel(gram.detach(), problem.a[:, order], pairs, "star")
    last = omega * pairs.count.unsqueeze(1)
    second = mean_collapsed_log_evidence(gram, problem.a[:, order], prior, last)
    torch.testing.assert_close(second, first, **CLOSE)


@pytest.mark.parametrize("variance", [1.0, 100.0, 1e4])
def test_evidence_in_float32_agrees_with_float64(variance: float) -> None:
    """At the size of a five-shot task, from embeddings of tight classes: K's own blocks are nearly singular.

    Relative errors of solutions with B grow like its condition number, at most ``|B|``, times the unit roundoff; the
    square root of the number of data is for roundings that average out. Beyond a variance of 100 the value is not
    promised: its quadratic form multiplies what is wrong with the solution by S once more.
    """
    y = torch.arange(5).repeat_interleave(21).expand(2, 105)
    centres = torch.nn.functional.normalize(inputs(2, 5, 64), dim=-1)
    x = torch.nn.functional.normalize(centres[:, y[0]] + 0.02 * inputs(2, 105, 64, seed=1), dim=-1)
    wide = run_one_vs_each_gibbs(variance * x @ x.mT, 0.0, y, 5, 4, 1, generator=seeded(0))
    values, gradients = [], []
    for dtype in (F64, torch.float32):
        gram = (variance * x @ x.mT).to(dtype).requires_grad_()
        pairs = Pairs.of_labels(y, 5, None, dtype)
        prior = PairPrior.of_kernel(gram.detach(), torch.zeros(2, 5, dtype=dtype), pairs, "star")
        value = mean_collapsed_log_evidence(gram, torch.zeros(2, 5, dtype=dtype), prior, wide.last.to(dtype))
        assert value.dtype == dtype
        values.append(value.detach().double())
        gradients.append(torch.autograd.grad(value.sum(), gram)[0].double())
    pairs = Pairs.of_labels(y, 5, None, F64)
    S = PairPrior.of_kernel(variance * x @ x.mT, torch.zeros(2, 5, dtype=F64), pairs, "dense").dense
    assert S is not None
    root = wide.last.flatten(2).sqrt()
    largest = torch.linalg.eigvalsh(S.unsqueeze(1) * root.unsqueeze(-1) * root.unsqueeze(-2)).max()
    tolerance = 105**0.5 * torch.finfo(torch.float32).eps / 2 * float(1 + largest)
    if variance <= 100:
        torch.testing.assert_close(values[1], values[0], rtol=tolerance, atol=0)
    error = (gradients[1] - gradients[0]).abs().max() / gradients[0].abs().max()
    assert float(error) < tolerance


def test_rivals_far_below_do_not_count() -> None:
    """A class with prior mean -10^4 leaves the problem of the other classes."""
    x, y = inputs(1, 8, 3), torch.randint(0, 3, (1, 8), generator=seeded(1))
    gram = squared_exponential(x, x)
    small = run_one_vs_each_gibbs(gram, 0.0, y, 3, 2, 2, generator=seeded(0))
    mean = torch.tensor([[0.0, 0, 0, -1e4]], dtype=F64)
    large = run_one_vs_each_gibbs(gram, mean, y, 4, 2, 2, generator=seeded(0))
    assert float(large.omega[..., 3, :].abs().max()) == 0
    omega = torch.cat([small.omega, torch.zeros(2, 1, 1, 8, dtype=F64)], -2)
    pairs = large.prior.pairs
    last = omega.transpose(0, 1).gather(-1, pairs.point.unsqueeze(1).expand(-1, 2, -1, -1)) * pairs.count.unsqueeze(1)
    three = OneVsEachGibbsResult(small.omega, None, small.prior, small.last, small.batch)
    expected = mean_collapsed_log_evidence(gram, gram.new_zeros(1, 3), three.prior.star(), three.last)
    torch.testing.assert_close(mean_collapsed_log_evidence(gram, mean, large.prior.star(), last), expected, **CLOSE)
    cross = squared_exponential(x, inputs(1, 4, 3, seed=2))
    diagonal = torch.full((1, 4), 4.0, dtype=F64)
    few, many = (
        query_moments(small.prior, small.last, cross, diagonal),
        query_moments(large.prior, last, cross, diagonal),
    )
    torch.testing.assert_close(many[0][:, :, :3], few[0], **CLOSE)
    torch.testing.assert_close(many[1][..., :3, :3], few[1], **CLOSE)
