"""The one-vs-each sampler's algebra against dense computations; tests/statistical has their long-run behaviour."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from experiments.pairwise import pairs_to_classes, pairwise_gram
from sureshot.gaussian.algebra import symmetric_root
from sureshot.inference.one_vs_each.gibbs import (
    OneVsEachGibbsResult,
    OneVsEachState,
    one_vs_each_gibbs_step,
    run_one_vs_each_gibbs,
)
from sureshot.inference.one_vs_each.structure import PairPrior, Pairs
from sureshot.likelihoods.one_vs_each import OneVsEach
from tests.likelihoods.star import star_precision
from tests.oracles.one_vs_each import pairwise_mean

F64 = torch.float64


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def inputs(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=F64)


def squared_exponential(x: Tensor, z: Tensor, variance: float = 4.0) -> Tensor:
    return variance * torch.exp(-0.5 * torch.cdist(x, z) ** 2)


KERNELS = {
    "squared_exponential": squared_exponential,
    "linear, rank below N": lambda x, z: 3 * x @ z.mT,
    "with duplicate rows": lambda x, z: squared_exponential(x.round(), z.round()),
}


def dense_posterior(
    Kxx: Tensor, prior_mean: Tensor, y: Tensor, n_classes: int, omega: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mean and covariance of all latents (C N) by the stars of `OneVsEach` and a plain inverse."""
    n = y.shape[-1]
    star = star_precision(omega, y)  # (N, C, C)
    precision = torch.zeros(n_classes, n, n_classes, n, dtype=F64)
    for i in range(n):
        precision[:, i, :, i] = star[i]
    precision = precision.reshape(n_classes * n, n_classes * n)
    prior = torch.block_diag(*[Kxx] * n_classes)
    a = prior_mean.repeat_interleave(n)
    b = OneVsEach.shift(y, n_classes, weight).flatten()
    gain = torch.linalg.solve(torch.eye(len(prior), dtype=F64) + precision @ prior, precision)  # (I + L K)^-1 L
    covariance = prior - prior @ gain @ prior
    return a + covariance @ (b - precision @ a), covariance


def tasks(kernel: str, sizes: tuple[int, int, int] = (3, 12, 4)) -> tuple[Tensor, Tensor, Tensor]:
    n_tasks, n, n_classes = sizes
    x = inputs(n_tasks, n, 3)
    y = torch.randint(0, n_classes, (n_tasks, n), generator=seeded(1))
    y[0] = y[0] % 2  # a task with absent classes
    return KERNELS[kernel](x, x), inputs(n_tasks, n_classes, seed=2), y


@pytest.mark.parametrize("kernel", KERNELS)
def test_star_and_dense_factors_agree(kernel: str) -> None:
    Kxx, mean, y = tasks(kernel)
    pairs = Pairs.of_labels(y, 4, None, F64)
    dense = PairPrior.of_kernel(Kxx, mean, pairs, "dense")
    star = PairPrior.of_kernel(Kxx, mean, pairs, "star")
    used = pairs.count.unsqueeze(1)
    omega = torch.rand(3, 2, *pairs.point.shape[1:], generator=seeded(3), dtype=F64) * used
    values = torch.randn(omega.shape, generator=seeded(4), dtype=F64) * used
    columns = inputs(3, *pairs.point.shape[1:], 5, 4, seed=5)
    first, second = dense.condition(omega), star.condition(omega)
    torch.testing.assert_close(second.solve(values), first.solve(values), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(second.quadratic(columns), first.quadratic(columns), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(second.log_det(), first.log_det(), rtol=1e-9, atol=1e-9)
    applied = (values.flatten(2) @ dense.dense).view_as(values) * used
    torch.testing.assert_close(dense.apply(values) * used, applied, rtol=1e-9, atol=1e-9)


def test_rows_are_the_pairs_in_another_order() -> None:
    Kxx, mean, y = tasks("squared_exponential")
    pairs = Pairs.of_labels(y, 4, None, F64)
    prior = PairPrior.of_kernel(Kxx, mean, pairs, "dense")
    for t in range(3):
        used = pairs.count[t].flatten() > 0
        rival = torch.arange(4).repeat_interleave(pairs.point.shape[2])
        key = (pairs.point[t].flatten() * 4 + rival)[used].argsort()  # by datum, then by class
        rows = used.nonzero().squeeze(-1)[key]
        assert len(rows) == 12 * 3
        assert prior.dense is not None
        torch.testing.assert_close(prior.dense[t][rows][:, rows], pairwise_gram(Kxx[t], y[t], 4))
        torch.testing.assert_close(prior.mean[t].flatten()[rows], pairwise_mean(mean[t], y[t], 4))
        values = torch.zeros(prior.mean[t].numel(), dtype=F64)
        values[rows] = inputs(36, seed=6)
        latents = pairs.to_latents(values.view(1, 1, 4, -1).expand(3, 1, 4, -1), 12)[t, 0]
        torch.testing.assert_close(latents, pairs_to_classes(values[rows], y[t], 4))


@pytest.mark.parametrize("factorisation", ["dense", "star"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_query_moments_equal_the_dense_posterior(kernel: str, factorisation: str) -> None:
    Kxx, mean, y = tasks(kernel, (2, 6, 3))
    weight = torch.tensor([[1, 2, 1, 1, 0, 3], [1, 1, 1, 1, 1, 1]], dtype=F64)
    result = run_one_vs_each_gibbs(
        Kxx,
        mean,
        y,
        3,
        n_chains=2,
        n_sweeps=3,
        weight=weight,
        generator=seeded(7),
        factorisation=factorisation,
    )
    assert result.omega.shape == (2, 2, 3, 6)
    x, z = inputs(2, 6, 3), inputs(2, 4, 3, seed=8)
    cross, diagonal = KERNELS[kernel](x, z), KERNELS[kernel](z, z).diagonal(dim1=-2, dim2=-1)
    m, v = result.predict_latents(cross, diagonal)
    assert m.shape == (2, 2, 3, 4)
    assert v.shape == (2, 2, 4, 3, 3)
    for s, t in itertools.product(range(2), range(2)):
        joint = KERNELS[kernel](torch.cat([x[t], z[t]]), torch.cat([x[t], z[t]]))  # queries as data of weight 0
        labels = torch.cat([y[t], torch.zeros(4, dtype=torch.int64)])
        omega = torch.cat([result.omega[s, t], torch.zeros(3, 4, dtype=F64)], -1)
        counts = torch.cat([weight[t], torch.zeros(4, dtype=F64)])
        expected, covariance = dense_posterior(joint, mean[t], labels, 3, omega, counts)
        torch.testing.assert_close(m[s, t], expected.view(3, 10)[:, 6:], rtol=1e-8, atol=1e-8)
        by_query = covariance.view(3, 10, 3, 10)
        for q in range(4):
            torch.testing.assert_close(v[s, t, q], by_query[:, 6 + q, :, 6 + q], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("factorisation", ["dense", "star"])
def test_draws_have_the_dense_posterior_moments(factorisation: str) -> None:
    Kxx, mean, y = (part[:1] for part in tasks("squared_exponential", (1, 4, 3)))
    pairs = Pairs.of_labels(y, 3, None, F64)
    prior = PairPrior.of_kernel(Kxx, mean, pairs, factorisation)
    omega = (torch.rand(pairs.count.shape, generator=seeded(3), dtype=F64) * pairs.count).unsqueeze(1)
    n_draws = 40_000
    drawn = prior.draw(omega.expand(-1, n_draws, -1, -1), seeded(4))
    psi = pairs.to_classes(drawn * pairs.count.unsqueeze(1), 4)[0].flatten(1)  # (draws, C N)
    m, v = dense_posterior(Kxx[0], mean[0], y[0], 3, pairs.to_classes(omega, 4)[0, 0])
    onto = torch.zeros(3, 4, 3, 4, dtype=F64)
    for n, c in itertools.product(range(4), range(3)):
        onto[c, n, y[0, n], n] += 1
        onto[c, n, c, n] -= 1
    onto = onto.reshape(12, 12)
    expected, covariance = onto @ m, onto @ v @ onto.mT
    error = covariance.diagonal().sqrt() / n_draws**0.5
    assert bool(((psi.mean(0) - expected).abs() <= 4.5 * error + 1e-12).all())
    scale = (covariance.diagonal()[:, None] * covariance.diagonal() + covariance**2).sqrt() / n_draws**0.5
    assert bool(((psi.T.cov() - covariance).abs() <= 4.5 * scale + 1e-12).all())


def probabilities(result: OneVsEachGibbsResult, cross: Tensor, diagonal: Tensor) -> Tensor:
    return OneVsEach().predict(*result.predict_latents(cross, diagonal), "integral").mean(0)


def test_float32_agrees_with_float64() -> None:
    """The same omega give the same prediction; draws differ since the generators' streams do."""
    x = torch.nn.functional.normalize(inputs(4, 25, 16), dim=-1)
    z = torch.nn.functional.normalize(inputs(4, 9, 16, seed=1), dim=-1)
    y = torch.arange(5).repeat_interleave(5).expand(4, 25)
    pairs = Pairs.of_labels(y, 5, None, F64)
    omega = 0.25 * torch.rand(4, 3, *pairs.point.shape[1:], generator=seeded(2), dtype=F64)
    for variance, tolerance in ((1.0, 2e-6), (100.0, 2e-3)):
        Kxx, cross = variance * x @ x.mT, variance * x @ z.mT
        moments = {}
        for dtype in (torch.float32, F64):
            like = Pairs.of_labels(y, 5, None, dtype)
            prior = PairPrior.of_kernel(Kxx.to(dtype), torch.zeros(4, 5, dtype=dtype), like, "star")
            result = OneVsEachGibbsResult(omega, None, prior, omega.to(dtype), torch.Size((4,)))
            moments[dtype] = result.predict_latents(cross, torch.full((4, 9), variance, dtype=F64))
        for narrow, wide in zip(moments[torch.float32], moments[F64], strict=True):
            assert narrow.dtype == torch.float32
            error = (narrow.double() - wide).abs().max() / wide.abs().max()
            assert float(error) < tolerance


def test_common_mode_keeps_its_prior_and_a_common_shift_changes_no_probability() -> None:
    Kxx, mean, y = tasks("squared_exponential", (2, 6, 3))
    cross = squared_exponential(inputs(2, 6, 3), inputs(2, 4, 3, seed=9))
    diagonal = torch.full((2, 4), 4.0, dtype=F64)
    first = run_one_vs_each_gibbs(Kxx, mean, y, 3, 4, 5, generator=seeded(0))
    second = run_one_vs_each_gibbs(Kxx, mean + 1.5, y, 3, 4, 5, generator=seeded(0))
    m, v = first.predict_latents(cross, diagonal)
    shifted, same = second.predict_latents(cross, diagonal)
    torch.testing.assert_close(m.sum(-2), mean.sum(-1, keepdim=True).expand(4, 2, 4))
    torch.testing.assert_close(shifted, m + 1.5)
    torch.testing.assert_close(same, v)
    torch.testing.assert_close(v.sum((-2, -1)), 3 * diagonal.expand(4, 2, 4))


def test_classes_can_be_permuted() -> None:
    Kxx, mean, y = tasks("squared_exponential", (2, 8, 4))
    order = torch.tensor([2, 0, 3, 1])
    pairs, other = (Pairs.of_labels(labels, 4, None, F64) for labels in (y, order.argsort()[y]))
    omega = torch.rand(2, 1, 4, 8, generator=seeded(1), dtype=F64) * (y[:, None, None] != torch.arange(4)[:, None])
    results = []
    for layout, means, values in ((pairs, mean, omega), (other, mean[:, order], omega[:, :, order])):
        prior = PairPrior.of_kernel(Kxx, means, layout, "star")
        last = values.gather(-1, layout.point.unsqueeze(1)) * layout.count.unsqueeze(1)
        result = OneVsEachGibbsResult(values, None, prior, last, torch.Size((2,)))
        results.append(result.predict_latents(Kxx, Kxx.diagonal(dim1=-2, dim2=-1)))
    torch.testing.assert_close(results[1][0], results[0][0][:, :, order])
    torch.testing.assert_close(results[1][1], results[0][1][..., order, :][..., order])


def test_one_vs_each_weight_of_two_equals_a_repeated_row() -> None:
    """The conditionals are equal: the sums of two PG(1, psi) are PG(2, psi)."""
    Kxx, mean, y = (part[1] for part in tasks("squared_exponential", (2, 5, 3)))
    twice = torch.tensor([0, 0, 1, 2, 3, 4])
    weight = torch.tensor([2.0, 1, 1, 1, 1], dtype=F64)
    merged = run_one_vs_each_gibbs(Kxx, mean, y, 3, 3, 4, weight=weight, generator=seeded(3))
    omega = merged.omega.clone()
    omega[..., 0] /= 2
    repeated_pairs = Pairs.of_labels(y[twice][None], 3, None, F64)
    prior = PairPrior.of_kernel(Kxx[twice][:, twice][None], mean[None], repeated_pairs, "star")
    values = omega[..., twice].unsqueeze(1).transpose(0, 1)  # (T = 1, S, C, N)
    last = values.gather(-1, repeated_pairs.point.unsqueeze(1).expand(-1, 3, -1, -1))
    last = last * repeated_pairs.count.unsqueeze(1)
    repeated = OneVsEachGibbsResult(omega, None, prior, last, torch.Size())
    first = merged.predict_latents(Kxx, Kxx.diagonal())
    second = repeated.predict_latents(Kxx[twice], Kxx.diagonal())
    torch.testing.assert_close(first, second)


def test_one_vs_each_keeps_traces_and_repeats_itself() -> None:
    Kxx, mean, y = tasks("squared_exponential", (2, 6, 3))
    result = run_one_vs_each_gibbs(Kxx, mean, y, 3, 4, 7, generator=seeded(5), keep="all")
    again = run_one_vs_each_gibbs(Kxx, mean, y, 3, 4, 7, generator=seeded(5))
    assert result.differences is not None
    assert result.differences.shape == (7, 4, 2, 3, 6)
    torch.testing.assert_close(again.omega, result.omega, rtol=0, atol=0)
    assert again.differences is None
    own = y.unsqueeze(-2) == torch.arange(3).unsqueeze(-1)
    assert bool((result.omega[..., own] == 0).all())
    assert bool((result.omega[..., ~own] > 0).all())


def test_one_vs_each_step_is_pure_and_can_start_from_a_gaussian() -> None:
    Kxx, mean, y = tasks("squared_exponential", (2, 6, 3))
    pairs = Pairs.of_labels(y, 3, None, F64)
    prior = PairPrior.of_kernel(Kxx, mean, pairs, "auto")
    state = OneVsEachState(0.2 * pairs.count.unsqueeze(1).repeat(1, 4, 1, 1))
    before = state.omega.clone()
    after, info = one_vs_each_gibbs_step(state, prior, seeded(0))
    torch.testing.assert_close(state.omega, before, rtol=0, atol=0)
    assert after.omega.shape == info.differences.shape == before.shape
    centre = inputs(2, 3, 6, seed=4)
    started = run_one_vs_each_gibbs(
        Kxx, mean, y, 3, 2, 1, start=(centre, torch.zeros_like(centre)), keep="all", generator=seeded(0)
    )
    assert started.differences is not None
    own = centre.gather(-2, y.unsqueeze(-2))
    torch.testing.assert_close(started.differences[0], (own - centre).expand(2, -1, -1, -1))


def test_one_vs_each_start_has_the_variances_asked_for() -> None:
    """Of independent latents; a difference has the sum of its two."""
    Kxx, mean, y = (part[0] for part in tasks("squared_exponential", (1, 4, 3)))
    n_chains, centre = 20_000, inputs(3, 4, seed=4)
    variance = torch.tensor([0.04, 1.0, 9.0], dtype=F64)[:, None] * torch.tensor([1.0, 0.5, 2.0, 3.0], dtype=F64)
    started = run_one_vs_each_gibbs(
        Kxx, mean, y, 3, n_chains, 1, start=(centre, variance), keep="all", generator=seeded(0)
    )
    assert started.differences is not None
    rivals = y != torch.arange(3).unsqueeze(-1)
    drawn = started.differences[0][:, rivals]
    own, own_variance = centre.gather(0, y[None]), variance.gather(0, y[None])
    expected, spread = (own - centre)[rivals], (own_variance + variance)[rivals]
    assert float(((drawn.mean(0) - expected) / (spread / n_chains).sqrt()).abs().max()) < 4.5
    assert float((drawn.var(0) / spread - 1).abs().max()) < 4.5 * (2 / n_chains) ** 0.5


def test_one_vs_each_gradient_graph_is_never_built() -> None:
    Kxx, mean, y = tasks("squared_exponential", (2, 6, 3))
    result = run_one_vs_each_gibbs(Kxx.requires_grad_(), mean.requires_grad_(), y, 3, 2, 2, generator=seeded(0))
    assert not result.omega.requires_grad


@settings(max_examples=25)
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=7),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 1e4]),
    narrow=st.booleans(),
)
def test_any_labels_and_scales_give_finite_predictions(labels: list[int], scale: float, narrow: bool) -> None:
    dtype = torch.float32 if narrow else F64
    y = torch.tensor(labels)
    x = inputs(len(labels), 2)
    Kxx = (scale * x @ x.mT).to(dtype)
    for factorisation in ("dense", "star"):
        result = run_one_vs_each_gibbs(
            Kxx,
            0.5,
            y,
            5,
            2,
            3,
            generator=seeded(0),
            factorisation=factorisation,  # type: ignore[arg-type]
        )
        m, v = result.predict_latents(Kxx, Kxx.diagonal())
        assert bool(torch.isfinite(m).all())
        assert bool(torch.isfinite(v).all())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_classes": 1}, "at least 2"),
        ({"n_classes": 2}, r"labels from 0 to n_classes - 1 = 1, but holds 0 to 2"),
        ({"n_chains": 0}, "n_chains and n_sweeps"),
        ({"n_sweeps": 0}, "n_chains and n_sweeps"),
        ({"weight": torch.tensor([1.0, 0.5, 1.0])}, "mean_field"),
        ({"weight": torch.tensor([1.0, -1.0, 1.0])}, "weight"),
        ({"Kxx": torch.eye(2)}, "N = 3"),
        ({"Kxx": torch.tensor([[1.0, 2, 0], [2, 1, 0], [0, 0, 1]])}, "positive semi-definite"),
    ],
)
def test_one_vs_each_bad_input(arguments: dict, message: str) -> None:
    good = {"Kxx": torch.eye(3), "prior_mean": 0.0, "y": torch.tensor([0, 1, 2]), "n_classes": 3}
    with pytest.raises(ValueError, match=message):
        run_one_vs_each_gibbs(**{**good, **arguments})


def test_symmetric_root_of_singular_matrices() -> None:
    x = inputs(2, 7, 3)
    gram = x @ x.mT
    root = symmetric_root(gram)
    torch.testing.assert_close(root @ root.mT, gram)
