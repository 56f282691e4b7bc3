"""The contract of every posterior, by priors of every kind: dense Gaussians by explicit inverses, in float64.

A case gives a posterior, what its prior says of the queries, and the Gaussian over all latents at rows and queries that
it stands for: a joint prior and what the data add to its precision. Add a posterior by adding a line to `CASES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields

import pytest
import torch
from torch import Tensor

from sureshot.gaussian import (
    FeaturePrior,
    GramPrior,
    Posterior,
    Prior,
    Queries,
    SitePosterior,
    Sites,
    WithPriorClasses,
    condition_by_blocks,
    size_buckets,
)
from sureshot.gaussian.posterior import leave_one_out
from sureshot.gaussian.recomputed import FactorWeightPosterior, SiteWeightPosterior, SoftmaxWeightPosterior
from sureshot.inference.mean_field import fit_mean_field
from sureshot.inference.natural_gradient import fit_natural_gradient
from sureshot.inference.one_vs_each.gibbs import run_one_vs_each_gibbs
from sureshot.inference.one_vs_each.posterior import OneVsEachPosterior, OneVsEachWeightPosterior
from sureshot.likelihoods import OneVsEach

F64 = torch.float64
C, N, Q, R = 3, 6, 4, 4
CLOSE = {"rtol": 1e-9, "atol": 1e-9}
Y = torch.tensor([0, 1, 2, 2, 1, 0])
MEANS = torch.tensor([0.3, -0.4, 0.1], dtype=F64)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=seeded(seed))


PHI = normal(N + Q, R, seed=1)  # features of rows and queries
OWN = normal(C, N + Q, R, seed=2)  # of kernels of their own
RESIDUAL = 0.2 + torch.rand(N + Q, dtype=F64, generator=seeded(3))
SITES = Sites(normal(C, N, seed=4).exp().index_fill(-1, torch.tensor(2), 0), normal(C, N, seed=5))
SITES = Sites(SITES.precision, SITES.shift.masked_fill(SITES.precision == 0, 0))
SHARED = Sites(SITES.precision[:1], SITES.shift)


@dataclass(frozen=True)
class Dense:
    """The Gaussian over C x (N + Q) latents, classes leading."""

    mean: Tensor  # (C, N + Q)
    covariance: Tensor  # (C (N + Q), C (N + Q))

    @classmethod
    def given(cls, prior: Tensor, mean: Tensor, precision: Tensor, shift: Tensor) -> Dense:
        """From class kernels (C, M, M) and means (C,), with a precision (C N, C N) and shift (C N,) of the rows."""
        joint = torch.block_diag(*prior)
        rows = torch.cat([c * prior.shape[-1] + torch.arange(N) for c in range(len(prior))])
        a = mean.repeat_interleave(prior.shape[-1])
        # Without inverting the prior, which may be singular: K - K_r (P^-1 + K_rr)^-1 K_r' in the form of P.
        between, own = joint[:, rows], joint[rows][:, rows]
        gain = between @ torch.linalg.inv(torch.eye(len(rows), dtype=F64) + precision @ own)
        found = a + gain @ (shift - precision @ a[rows])
        return cls(found.view(len(prior), -1), joint - gain @ precision @ between.mT)

    def blocks(self) -> Tensor:
        """Covariances over the classes at every latent, (N + Q, C, C)."""
        n_classes, m = self.mean.shape
        full = self.covariance.view(n_classes, m, n_classes, m).permute(1, 3, 0, 2)
        return full.diagonal(dim1=0, dim2=1).movedim(-1, 0)


@dataclass(frozen=True)
class Found:
    """A posterior, its queries, and what it stands for; one dense Gaussian for each chain."""

    posterior: Posterior
    queries: Queries
    dense: list[Dense]
    lead: tuple[int, ...] = ()  # leading dimensions of its moments


def kernels(own: bool = False, residual: bool = False) -> Tensor:
    """Joint kernel matrices of the classes, (C, N + Q, N + Q)."""
    phi = OWN if own else PHI.expand(C, -1, -1)
    joint = phi @ phi.mT
    return joint + torch.diag(RESIDUAL) if residual else joint


def of_sites(joint: Tensor, sites: Sites, means: Tensor = MEANS) -> Dense:
    precision = torch.diag(sites.precision.expand(len(joint), N).flatten())
    return Dense.given(joint, means, precision, sites.shift.flatten())


def gram_queries(joint: Tensor) -> Queries:
    return Queries(joint[:, :N, N:], joint.diagonal(dim1=-2, dim2=-1)[:, N:])


def by_gram(own: bool, sites: Sites, blocks: bool = False) -> Found:
    joint = kernels(own, residual=True)
    held = joint if own else joint[:1]
    queries = gram_queries(held)
    prior = GramPrior(held[:, :N, :N], MEANS.unsqueeze(-1), lambda x: queries)
    posterior = condition_by_blocks(prior, sites) if blocks else prior.condition(sites)
    return Found(posterior, prior.queries(PHI[N:]), [of_sites(joint, sites)])


def feature_prior(own: bool, residual: bool) -> FeaturePrior:
    phi = OWN if own else PHI.unsqueeze(0)
    queries = Queries(phi[:, N:], phi[:, N:].square().sum(-1) + (RESIDUAL[N:] if residual else 0))
    return FeaturePrior(phi[:, :N], MEANS.unsqueeze(-1), RESIDUAL[:N] if residual else None, lambda x: queries)


def by_features(own: bool, residual: bool, sites: Sites) -> Found:
    prior = feature_prior(own, residual)
    dense = of_sites(kernels(own, residual), sites)
    return Found(prior.condition(sites), prior.queries(PHI[N:]), [dense])


def chains_of_tasks() -> Found:
    """Two chains of two tasks that share a kernel matrix; the dense Gaussians of the second task."""
    joint = kernels(residual=True)[:1]
    precision, shift = torch.rand(2, 2, C, N, dtype=F64, generator=seeded(6)), normal(2, 2, C, N, seed=7)
    prior = GramPrior(joint[None, :, :N, :N].expand(2, 1, N, N), MEANS.view(1, C, 1))
    queries = Queries(*(part.expand(2, *part.shape) for part in gram_queries(joint)))
    dense = [of_sites(kernels(residual=True), Sites(precision[s, 1], shift[s, 1])) for s in range(2)]
    return Found(prior.condition(Sites(precision, shift)), queries, dense, (2, 2))


def in_a_bucket() -> Found:
    """One of three problems over subsets of the rows, padded to the size of the others."""
    joint = kernels(residual=True)[:1]
    (bucket,) = size_buckets([torch.arange(N), torch.tensor([0, 1, 3, 4]), torch.arange(1, N)], largest_waste=3)
    prior = GramPrior(bucket.gram(joint[0, :N, :N]), MEANS.unsqueeze(-1))
    sites = Sites(*(part[:, bucket.rows].transpose(0, 1) for part in SITES))
    posterior = prior.condition(bucket.sites(sites))
    cross = joint[0, :N, N:][bucket.rows].unsqueeze(1)
    place = int((bucket.problems == 1).nonzero())
    absent = torch.tensor([2, 5])
    mine = Sites(*(part.index_fill(-1, absent, 0) for part in SITES))
    order = [place, *(p for p in range(3) if p != place)]
    moved = Queries(cross, joint.diagonal(dim1=-2, dim2=-1)[:, N:].expand(3, 1, Q))
    return Found(_Reordered(posterior, order[::-1]), moved, [of_sites(kernels(residual=True), mine)], (3,))


@dataclass(frozen=True)
class _Reordered(Posterior):
    """Problems in another order, the one that is compared last."""

    inner: Posterior
    order: list[int]

    def query(self, cross: Tensor, prior_variance: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        mean, spread = self.inner.query(cross, prior_variance)
        return mean[self.order], spread[self.order]

    def query_mean(self, cross: Tensor) -> Tensor:
        return self.inner.query_mean(cross)[self.order]


def weight_queries(residual: bool = True) -> Queries:
    return Queries(PHI[None, N:], (PHI[N:].square().sum(-1) + (RESIDUAL[N:] if residual else 0))[None])


def at_queries_only() -> Tensor:
    """Kernels of rows whose variance the features explain and queries with a residual."""
    return kernels() + torch.diag(RESIDUAL.index_fill(0, torch.arange(N), 0))


def chain_sites() -> list[Sites]:
    return [SITES, Sites(2 * SITES.precision, -SITES.shift)]


def in_weight_space(shared: bool) -> Found:
    chains = [Sites(s.precision[:1] if shared else s.precision, s.shift) for s in chain_sites()]
    weights = torch.stack([feature_prior(False, False).condition(s).weights for s in chains])
    precision = torch.stack([s.precision for s in chains])
    posterior = SiteWeightPosterior(PHI[:N], weights, MEANS, precision)
    return Found(posterior, weight_queries(), [of_sites(at_queries_only(), s) for s in chains], (2,))


def by_factors() -> Found:
    parts = [feature_prior(False, False).condition(s) for s in chain_sites()]
    weights, factors = torch.stack([p.weights for p in parts]), torch.stack([p.factor for p in parts])
    posterior = FactorWeightPosterior(PHI[:N], weights, MEANS, factors)
    return Found(posterior, weight_queries(), [of_sites(at_queries_only(), s) for s in chain_sites()], (2,))


def of_softmax() -> Found:
    weights = normal(1, C, R, seed=8)
    row_weight = 1 + torch.arange(N, dtype=F64)
    latent = (MEANS[:, None] + weights[0] @ PHI[:N].mT) / 0.7
    p = torch.softmax(latent, 0)
    precision = row_weight * p * (1 - p) / 0.7**2
    joint = at_queries_only()
    # The sites whose posterior has these weights as its mean: A w = Phi' (b - W a).
    moved = torch.linalg.pinv(PHI[:N].mT)
    A = torch.eye(R, dtype=F64) + PHI[:N].mT @ (precision.unsqueeze(-1) * PHI[:N])
    shift = (moved @ (A @ weights[0].unsqueeze(-1))).squeeze(-1) + precision * MEANS[:, None]
    posterior = SoftmaxWeightPosterior(PHI[:N], weights, MEANS, row_weight, 0.7)
    return Found(posterior, weight_queries(), [of_sites(joint, Sites(precision, shift))], (1,))


def coupled(joint: Tensor, omega: Tensor, means: Tensor, y: Tensor = Y) -> Dense:
    """One-vs-each given Polya-Gamma variables (C, N): ``A' W A`` and ``A' 1/2`` with ``A f = f_y - f_c``."""
    n_classes = len(joint)
    precision, shift = torch.zeros(2, n_classes * N, n_classes * N, dtype=F64)[0], torch.zeros(n_classes * N, dtype=F64)
    for n in range(N):
        for c in range(n_classes):
            if c != int(y[n]):
                row = torch.zeros(n_classes * N, dtype=F64)
                row[int(y[n]) * N + n], row[c * N + n] = 1, -1
                precision += omega[c, n] * torch.outer(row, row)
                shift += 0.5 * row
    return Dense.given(joint, means, precision, shift)


def one_vs_each(method: str) -> Found:
    joint = kernels(residual=True)
    options = {"n_chains": 2, "n_sweeps": 2, "generator": seeded(9), "factorisation": method}
    result = run_one_vs_each_gibbs(joint[:1, :N, :N], MEANS[None], Y[None], C, **options)  # type: ignore[arg-type]
    posterior = OneVsEachPosterior(result, joint[:1, :N, :N], MEANS[None])
    dense = [coupled(joint, omega[0], MEANS) for omega in result.omega]
    return Found(posterior, Queries(*(part[None] for part in gram_queries(joint[:1]))), dense, (2, 1))


def one_vs_each_weights() -> OneVsEachWeightPosterior:
    phi, mean = PHI[:N], 0.3
    result = run_one_vs_each_gibbs(phi @ phi.mT, mean, Y, C, n_chains=2, n_sweeps=2, generator=seeded(9))
    return OneVsEachWeightPosterior.of_chains(phi, result, mean, Y, torch.ones(N, dtype=F64))


def one_vs_each_by_features() -> Found:
    posterior = one_vs_each_weights()
    means = torch.full((C,), 0.3, dtype=F64)
    dense = [coupled(at_queries_only(), omega, means) for omega in posterior.result.omega]
    return Found(posterior, weight_queries(), dense, (2,))


def with_prior_classes(couple: bool) -> Found:
    inner = one_vs_each_by_features() if couple else in_weight_space(shared=False)
    present, means = torch.tensor([0, 2, 3]), torch.full((5,), 0.7, dtype=F64)
    dense = []
    for part in inner.dense:
        whole = torch.full((5, N + Q), 0.7, dtype=F64).index_copy(0, present, part.mean)
        prior = torch.block_diag(*at_queries_only()[:1].expand(5, -1, -1)).view(5, N + Q, 5, N + Q)
        block = part.covariance.view(C, N + Q, C, N + Q)
        for i, c in enumerate(present):
            for j, d in enumerate(present):
                prior[c, :, d] = block[i, :, j]
        dense.append(Dense(whole, prior.reshape(5 * (N + Q), -1)))
    return Found(WithPriorClasses(inner.posterior, present, means), inner.queries, dense, (2,))


def natural_gradients() -> Found:
    prior = feature_prior(False, residual=False)
    found = fit_natural_gradient(
        prior.features, OneVsEach(), Y, prior_mean=prior.mean, n_classes=C, n_epochs=300, schedule=lambda step: 1.0
    )
    sites = fit_mean_field(prior, OneVsEach(), Y, None, C, max_steps=300, tolerance=0.0).sites
    return Found(found, weight_queries(), [of_sites(at_queries_only(), sites)])


CASES: dict[str, Callable[[], Found]] = {
    "kernel matrix": lambda: by_gram(False, SITES),
    "kernel matrix, shared precision": lambda: by_gram(False, SHARED),
    "kernel matrices of classes": lambda: by_gram(True, SITES),
    "kernel matrices of classes, shared precision": lambda: by_gram(True, SHARED),
    "blocks of classes": lambda: by_gram(False, SITES, blocks=True),
    "blocks of classes with own kernels": lambda: by_gram(True, SITES, blocks=True),
    "features": lambda: by_features(False, False, SITES),
    "features of classes": lambda: by_features(True, False, SITES),
    "features, shared precision": lambda: by_features(False, False, SHARED),
    "features with residual": lambda: by_features(False, True, SITES),
    "features of classes with residual": lambda: by_features(True, True, SITES),
    "features with residual, shared precision": lambda: by_features(False, True, SHARED),
    "chains of tasks": chains_of_tasks,
    "a bucket of problems": in_a_bucket,
    "weights": lambda: in_weight_space(shared=False),
    "weights, shared precision": lambda: in_weight_space(shared=True),
    "weights by factors": by_factors,
    "weights of softmax": of_softmax,
    "one-vs-each, dense": lambda: one_vs_each("dense"),
    "one-vs-each, star": lambda: one_vs_each("star"),
    "one-vs-each by features": one_vs_each_by_features,
    "with prior classes": lambda: with_prior_classes(couple=False),
    "with prior classes, coupled": lambda: with_prior_classes(couple=True),
    "natural gradients": natural_gradients,
}
every_case = pytest.mark.parametrize("name", CASES)


@pytest.fixture(scope="module")
def found() -> dict[str, Found]:
    return {}


def of(name: str, found: dict[str, Found]) -> Found:
    if name not in found:
        found[name] = CASES[name]()
    return found[name]


@every_case
def test_queries_are_those_of_dense_gaussians(name: str, found: dict[str, Found]) -> None:
    case = of(name, found)
    mean, spread = case.posterior.query(*case.queries)
    n_classes = len(case.dense[0].mean)
    assert mean.shape == (*case.lead, n_classes, Q)
    last = mean.reshape(-1, *mean.shape[-2:])[-len(case.dense) :]
    if len(case.lead) == 2:  # chains of tasks: the last task
        last = mean[:, -1]
    coupled_classes = spread.dim() > mean.dim()
    spreads = spread[:, -1] if len(case.lead) == 2 else spread.reshape(-1, *spread.shape[len(case.lead) :])
    spreads = spreads[-len(case.dense) :]
    close = {"rtol": 1e-5, "atol": 1e-6} if name == "natural gradients" else CLOSE
    if name == "weights of softmax":
        close = {"rtol": 1e-3, "atol": 1e-3}  # of the information, as much may be left out
    for chain, dense in enumerate(case.dense):
        if name != "weights of softmax":
            torch.testing.assert_close(last[chain], dense.mean[:, N:], **close)
        expected = dense.blocks()[N:]
        if not coupled_classes:
            expected = expected.diagonal(dim1=-2, dim2=-1).mT
        torch.testing.assert_close(spreads[chain], expected, **close)


@every_case
def test_parts_of_an_answer_agree(name: str, found: dict[str, Found]) -> None:
    case = of(name, found)
    mean, spread = case.posterior.query(*case.queries)
    torch.testing.assert_close(case.posterior.query_mean(case.queries.cross), mean, **CLOSE)
    variance = spread.diagonal(dim1=-2, dim2=-1).mT if spread.dim() > mean.dim() else spread
    torch.testing.assert_close(case.posterior.query_variance(*case.queries), variance, **CLOSE)
    classes = torch.arange(Q) % mean.shape[-2]
    some = case.posterior.query_variance(*case.queries, classes)
    torch.testing.assert_close(some, variance[..., classes, torch.arange(Q)], **CLOSE)
    torch.testing.assert_close(case.posterior.held().query(*case.queries), (mean, spread), **CLOSE)


@every_case
def test_a_query_does_not_depend_on_those_beside_it(name: str, found: dict[str, Found]) -> None:
    case = of(name, found)
    cross, variance = case.queries
    along = -1 if cross.shape[-1] == Q and cross.shape[-2] == N else -2
    alone = Queries(cross.narrow(along, 1, 1), variance[..., 1:2])
    mean, spread = case.posterior.query(*alone)
    all_means, all_spreads = case.posterior.query(*case.queries)
    torch.testing.assert_close(mean, all_means[..., 1:2], **CLOSE)
    expected = all_spreads[..., 1:2, :, :] if spread.dim() > mean.dim() else all_spreads[..., 1:2]
    torch.testing.assert_close(spread, expected, **CLOSE)


@every_case
def test_posteriors_are_frozen(name: str, found: dict[str, Found]) -> None:
    posterior = of(name, found).posterior
    with pytest.raises(FrozenInstanceError):
        setattr(posterior, fields(posterior)[0].name, None)  # type: ignore[arg-type]


ON_SITES = [name for name in CASES if name.startswith(("kernel", "blocks", "features", "one more"))]


@pytest.mark.parametrize("name", ON_SITES)
def test_moments_and_numbers_at_the_rows(name: str, found: dict[str, Found]) -> None:
    """Marginals, divergence, evidence and cavities of sites, by the dense Gaussians."""
    case = of(name, found)
    posterior, dense = case.posterior, case.dense[0]
    assert isinstance(posterior, SitePosterior)
    own = "classes" in name and name != "blocks of classes"
    joint = kernels(own, residual="features" not in name or "residual" in name)
    torch.testing.assert_close(posterior.mean, dense.mean[:, :N], **CLOSE)
    variance = dense.blocks()[:N].diagonal(dim1=-2, dim2=-1).mT
    torch.testing.assert_close(posterior.variance, variance, **CLOSE)
    w, b = (part.expand(C, N) for part in posterior.sites)
    kl, evidence = torch.zeros(2, dtype=F64)
    for c in range(C):
        K, root = joint[c, :N, :N], w[c].sqrt()
        B = torch.eye(N, dtype=F64) + root[:, None] * K * root
        alpha = b[c] - w[c] * dense.mean[c, :N]
        moved = dense.mean[c, :N] - MEANS[c]
        inverse = torch.linalg.inv(B)
        kl += 0.5 * (inverse.trace() - N + torch.logdet(B) + moved @ alpha)
        centred = b[c] - w[c] * MEANS[c]
        fit = centred @ K @ centred - centred @ K @ (root[:, None] * inverse * root) @ K @ centred
        evidence += (MEANS[c] * b[c] - 0.5 * MEANS[c] ** 2 * w[c]).sum() + 0.5 * fit - 0.5 * torch.logdet(B)
        for n in range(N):
            without = Sites(w.clone(), b.clone())
            without.precision[c, n] = without.shift[c, n] = 0
            again = of_sites(joint, without)
            cavity = leave_one_out(posterior.mean, posterior.variance, *posterior.sites)
            torch.testing.assert_close(cavity[0][c, n], again.mean[c, n], rtol=1e-7, atol=1e-8)
            expected = again.blocks()[n, c, c]
            torch.testing.assert_close(cavity[1][c, n], expected, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(posterior.kl(), kl, **CLOSE)
    torch.testing.assert_close(posterior.log_evidence(), evidence, **CLOSE)


PRIORS: dict[str, Callable[[], tuple[Prior, Tensor]]] = {
    "kernel matrix": lambda: (GramPrior(kernels(residual=True)[:1, :N, :N], MEANS.unsqueeze(-1)), kernels(False, True)),
    "kernel matrices of classes": lambda: (
        GramPrior(kernels(True, True)[:, :N, :N], MEANS.unsqueeze(-1)),
        kernels(True, True),
    ),
    "features": lambda: (feature_prior(False, False), kernels()),
    "features of classes": lambda: (feature_prior(True, False), kernels(True)),
    "features with residual": lambda: (feature_prior(False, True), kernels(False, True)),
    "features of classes with residual": lambda: (feature_prior(True, True), kernels(True, True)),
}
every_prior = pytest.mark.parametrize("name", PRIORS)


@every_prior
@pytest.mark.parametrize("shared", [False, True])
def test_densities_of_observed_values(name: str, shared: bool) -> None:
    prior, joint = PRIORS[name]()
    precision = 0.5 + SITES.precision[: 1 if shared else C]
    residual = normal(C, N, seed=11)
    found = prior.log_density(residual, precision) + 0.5 * (precision / (2 * torch.pi)).log().sum(-1)
    for c in range(C):
        noise = torch.diag(1 / precision.expand(C, N)[c])
        normal_ = torch.distributions.MultivariateNormal(torch.zeros(N, dtype=F64), joint[c, :N, :N] + noise)
        torch.testing.assert_close(found[c], normal_.log_prob(residual[c]), **CLOSE)


@every_prior
def test_unobserved_values_have_no_density(name: str) -> None:
    prior, joint = PRIORS[name]()
    residual = normal(C, N, seed=12)
    seen = SITES.precision > 0
    found = prior.log_density(residual.masked_fill(~seen, 1e6), SITES.precision)
    for c in range(C):
        kept = seen[c]
        K, w, r = joint[c, :N, :N][kept][:, kept], SITES.precision[c, kept], residual[c, kept]
        expected = -0.5 * (
            r @ torch.linalg.solve(K + torch.diag(1 / w), r)
            + torch.logdet(torch.diag(w) @ K + torch.eye(len(r), dtype=F64))
        )
        torch.testing.assert_close(found[c], expected, rtol=1e-8, atol=1e-8)


@every_prior
def test_prior_variances_and_draws(name: str) -> None:
    """Draws of prior and posterior have the moments of the dense Gaussians, to four standard errors."""
    prior, joint = PRIORS[name]()
    rows = joint[:, :N, :N]
    torch.testing.assert_close(prior.variance.expand(C, N), rows.diagonal(dim1=-2, dim2=-1), **CLOSE)
    draws = 20_000
    sampler = prior.sampler()
    expected = of_sites(joint, SITES)
    posterior = torch.stack([expected.covariance.view(C, N + Q, C, N + Q)[c, :N, c, :N] for c in range(C)])
    sites = Sites(*(part.expand(draws, C, N) for part in SITES))
    for drawn, mean, covariance in (
        (prior.sample(torch.Size((draws, C)), seeded(13)), MEANS.unsqueeze(-1).expand(C, N), rows),
        (sampler.sample(torch.Size((draws, C)), seeded(14)), MEANS.unsqueeze(-1).expand(C, N), rows),
        (prior.draw(sites, seeded(15), sampler), expected.mean[:, :N], posterior),
    ):
        spread = covariance.diagonal(dim1=-2, dim2=-1)
        assert bool(((drawn.mean(0) - mean).abs() < 4.5 * (spread / draws).sqrt() + 1e-9).all())
        centred = drawn - mean
        second = torch.einsum("scn,scm->cnm", centred, centred) / draws
        error = ((spread.unsqueeze(-1) * spread.unsqueeze(-2) + covariance.square()) / draws).sqrt()
        assert bool(((second - covariance).abs() < 4.8 * error + 1e-9).all())


@every_prior
def test_a_prior_without_a_kernel_says_so(name: str) -> None:
    prior, _ = PRIORS[name]()
    if prior.covariance is None:
        with pytest.raises(ValueError, match="covariance="):
            prior.queries(PHI[N:])


@every_prior
def test_gradients_of_the_evidence_flow(name: str) -> None:
    """Twice differentiable where automatic differentiation runs through `condition`: finite differences agree."""
    prior, _ = PRIORS[name]()
    held = (prior.gram,) if isinstance(prior, GramPrior) else (prior.features,)  # type: ignore[attr-defined]

    def evidence(values: Tensor, shift: Tensor) -> Tensor:
        sites = Sites(SITES.precision, shift)
        if isinstance(prior, GramPrior):
            return GramPrior(0.5 * (values + values.mT), prior.mean).condition(sites).log_evidence()
        assert isinstance(prior, FeaturePrior)
        return FeaturePrior(values, prior.mean, prior.residual).condition(sites).log_evidence()

    leaves = (held[0].clone().requires_grad_(), SITES.shift.clone().requires_grad_())
    assert torch.autograd.gradcheck(evidence, leaves)
