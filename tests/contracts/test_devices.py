"""The pure parts on a pretended device: torch's fake tensors know their device and raise where two devices meet.

Nothing is computed, so this needs no GPU and finds only what it is for: a constant made on the CPU, an index on the
wrong side. A branch on a value ends the pretence; what comes before it has been checked then. The device is a second
CPU, "cpu:1", which no tensor is on by mistake: where torch was built without CUDA, fake CUDA tensors cannot be sliced.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from sureshot.gaussian.evidence import site_log_evidence
from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.gram import GramPrior, matheron_sample
from sureshot.gaussian.gram_blocks import condition_by_blocks
from sureshot.gaussian.posterior import WithPriorClasses
from sureshot.gaussian.ragged import size_buckets
from sureshot.gaussian.recomputed import SiteWeightPosterior, SoftmaxWeightPosterior
from sureshot.gaussian.sites import Sites
from sureshot.incremental.gaussian_classes import GaussianClassesModel
from sureshot.incremental.strategy import ClassRows
from sureshot.incremental.two_covariances import TwoCovariances
from sureshot.inference.gibbs import GibbsState, gibbs_step
from sureshot.inference.least_squares import leave_one_out_path, regression_log_evidence, regression_sites
from sureshot.inference.mean_field import initial_posterior, mean_field_step
from sureshot.inference.natural_gradient import InducingBatch, InducingPrior, natural_gradient_step, prior_state
from sureshot.inference.objectives import evidence_bound
from sureshot.inference.one_vs_each.structure import PairPrior, Pairs
from sureshot.kernels import KERNEL_NAMES, make_kernel
from sureshot.kernels.dense import evaluate
from sureshot.likelihoods import LIKELIHOODS, Likelihood, MeanFieldLikelihood, get_likelihood
from sureshot.likelihoods.sites import ConjugateLikelihood

N, C, R, Q = 6, 3, 4, 5
DEVICE = torch.device("cpu:1")


def on_device(compute: Callable[[], object]) -> None:
    """Run on pretended tensors; every tensor of a result must be on their device."""
    compute()  # for real first: what is computed once and kept must not be a pretence
    with FakeTensorMode(allow_non_fake_inputs=True), DEVICE:
        try:
            found = compute()
        except DataDependentOutputException:
            return
        for part in found if isinstance(found, list | tuple) else (found,):
            assert not isinstance(part, Tensor) or part.device == DEVICE


def full(*shape: int) -> Tensor:
    return torch.ones(*shape, dtype=torch.float64)


def labels() -> Tensor:
    return torch.zeros(N, dtype=torch.int64)


def sites() -> Sites:
    return Sites(full(C, N), full(C, N))


def gram() -> GramPrior:
    return GramPrior(full(1, N, N), full(C, 1))


GAUSSIAN: dict[str, Callable[[], object]] = {
    "by kernel matrix": lambda: gram().condition(sites()).query(full(1, N, Q), full(1, Q)),
    "by features": lambda: FeaturePrior(full(1, N, R), full(C, 1)).condition(sites()).query(full(1, Q, R), full(1, Q)),
    "by features with residual": lambda: (
        FeaturePrior(full(1, N, R), full(C, 1), full(1, N)).condition(sites()).query(full(1, Q, R), full(1, Q))
    ),
    "shared precision": lambda: gram().condition(Sites(full(1, N), full(C, N))).mean,
    "with prior classes": lambda: WithPriorClasses(gram().condition(sites()), torch.arange(C), full(C + 2)).query(
        full(1, N, Q), full(1, Q)
    ),
    "density of values": lambda: (
        gram().log_density(full(C, N), full(1, N)),
        FeaturePrior(full(1, N, R), full(C, 1), full(1, N)).log_density(full(C, N), full(1, N)),
    ),
    "draws": lambda: FeaturePrior(full(1, N, R), full(C, 1), full(1, N)).draw(
        sites(), None, FeaturePrior(full(1, N, R), full(C, 1), full(1, N))
    ),
    "a bucket of problems": lambda: (
        size_buckets([torch.arange(N), torch.arange(N - 1)])[0].sites(Sites(full(2, C, N), full(2, C, N))).shift
    ),
    "evidence": lambda: gram().condition(sites()).log_evidence(),
    "divergence": lambda: gram().condition(sites()).kl(),
    "Matheron's rule": lambda: matheron_sample(gram(), sites(), full(C, N), None),
    "blocks of classes": lambda: condition_by_blocks(gram(), sites()).query(full(1, N, Q), full(1, Q)),
    "closed form": lambda: site_log_evidence(full(1, N, N), full(C, 1), *sites()),
    "from sites": lambda: SiteWeightPosterior(full(N, R), full(1, C, R), full(C), full(1, C, N)).query_mean(full(Q, R)),
    "of softmax": lambda: SoftmaxWeightPosterior(full(N, R), full(1, C, R), full(C), full(N), 1.0).precision,
    "least squares": lambda: gram().condition(regression_sites(full(C, N), full(N), 0.1)).mean,
    "its evidence": lambda: regression_log_evidence(gram(), full(C, N), full(N), 0.1),
    "its path": lambda: leave_one_out_path(full(N), full(N, N), full(C, N), full(C), full(N), full(2), full(N)).latent,
    "one-vs-each": lambda: (
        PairPrior.of_kernel(
            full(1, N, N), full(1, C), Pairs.of_labels(labels()[None], C, None, torch.float64), "star"
        ).mean
    ),
}


@pytest.mark.parametrize("name", GAUSSIAN)
def test_gaussian_algebra(name: str) -> None:
    on_device(GAUSSIAN[name])


def likelihood_of(name: str) -> tuple[Likelihood, int]:
    likelihood = get_likelihood(name)
    return likelihood, likelihood.n_latents(2 if name == "logistic" else C)


@pytest.mark.parametrize("rule", ["integral", "expected_log", "plug_in"])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_predictive_rules(name: str, rule: str) -> None:
    likelihood, n = likelihood_of(name)
    on_device(lambda: likelihood.predict(full(n, Q), full(n, Q), rule))  # type: ignore[arg-type]
    on_device(lambda: likelihood.predict(full(n, Q), full(Q, n, n), rule))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_steps(name: str) -> None:
    likelihood, n = likelihood_of(name)
    if not isinstance(likelihood, MeanFieldLikelihood):
        return

    def mean_field() -> object:
        prior = GramPrior(full(1, N, N), full(n, 1))
        start = initial_posterior(prior, likelihood, labels(), 2 if n == 1 else C)
        step = mean_field_step(start, prior, likelihood, labels(), full(N))
        return step[0].mean, evidence_bound(step[0], likelihood, labels(), full(N))

    def natural_gradient() -> object:
        prior = InducingPrior.whitened(R, torch.float64, full(1).device)
        batch = InducingBatch(full(1, N, R), full(1, N), full(1), labels(), full(N))
        start, scale = prior_state(prior, torch.Size([n])), torch.ones((), dtype=torch.float64)
        return natural_gradient_step(start, prior, likelihood, batch, scale)[0].linear

    def gibbs() -> object:
        assert isinstance(likelihood, ConjugateLikelihood)
        prior = FeaturePrior(full(1, N, R), full(n, 1))
        state = GibbsState(Sites(full(2, n, N), full(2, n, N)))
        return gibbs_step(state, prior, likelihood, labels(), None, None)[1].latents

    on_device(mean_field)
    on_device(natural_gradient)
    if isinstance(likelihood, ConjugateLikelihood):
        on_device(gibbs)


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_kernels(name: str) -> None:
    on_device(lambda: evaluate(make_kernel(name, R), full(N, R), full(Q, R)))
    on_device(lambda: evaluate(make_kernel(name, R), full(N, R), diag=True))


def arrived() -> GaussianClassesModel:
    covariances = TwoCovariances(full(R), full(R, R), full(R), full(R), full(1).squeeze())
    return GaussianClassesModel.of(covariances, ClassRows(full(N, R), labels(), full(N), torch.zeros(C).long()))


SESSIONS: dict[str, Callable[[], object]] = {
    "estimated": lambda: TwoCovariances.estimated(full(N, R), torch.arange(N) // 2).basis,
    "probabilities": lambda: arrived().log_probabilities(full(Q, R)),
    "latents": lambda: list(arrived().class_latents(full(Q, R))),
    "over the prior": lambda: arrived().covariances.first_over_prior(arrived().densities, full(Q, R)),
    "most probable": lambda: list(arrived().leading(full(Q, R), 2, None)),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_sessions(name: str) -> None:
    on_device(SESSIONS[name])


def test_the_pretence_notices_a_tensor_on_the_wrong_side() -> None:
    with pytest.raises(Exception, match="device"):
        on_device(lambda: full(3) + torch.ones(3, dtype=torch.float64, device="cpu"))  # one CPU if it were real
