"""Mean field for tasks: which part of the gradient the inner steps carry, and what pairs of classes count for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.sites import Sites
from sureshot.likelihoods import LogisticSoftmax, OneVsEach
from sureshot.likelihoods.sites import Carried, MeanFieldLikelihood
from sureshot.meta.learners.absent_classes import ABSENT_MEAN
from sureshot.meta.learners.mean_field import RELEASED_SHAPES, TaskMeanField
from sureshot.meta.learners.task_inference import TaskProblem

T, C, N, Q = 2, 3, 6, 4
Y = torch.tensor([[0, 1, 2, 0, 1, 2], [2, 2, 0, 1, 1, 1]])
CLOSE = {"rtol": 1e-10, "atol": 1e-10}
LIKELIHOODS = [OneVsEach(), LogisticSoftmax(), LogisticSoftmax(0.5, "poisson_gamma")]
NAMES = ["one_vs_each", "logistic_softmax", "poisson_gamma"]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def blocks(n: int = N, scale: float = 6.0) -> tuple[Tensor, Tensor, Tensor]:
    """Kernel of the support (T, 1, N, N), between it and queries, and at the queries."""
    x = torch.randn(T, 1, n + Q, 2, generator=generator(1), dtype=torch.float64)
    full = scale * torch.exp(-0.5 * torch.cdist(x, x) ** 2)
    return full[..., :n, :n], full[..., :n, n:], full.diagonal(dim1=-2, dim2=-1)[..., n:]


MEAN = torch.tensor([0.2, -0.4, 0.1], dtype=torch.float64).reshape(1, C, 1)


def sites_by_hand(likelihood: MeanFieldLikelihood, gram: Tensor, n_steps: int) -> tuple[Sites, Carried]:
    """Steps from the prior, each followed by the posterior with explicit inverses."""
    mean, variance = MEAN.expand(T, C, N), gram.diagonal(dim1=-2, dim2=-1).expand(T, C, N)
    sites, carried = likelihood.step(mean, variance, Y, None)
    for _ in range(n_steps - 1):
        mean, covariance = posterior_by_hand(gram, sites)
        sites, carried = likelihood.step(mean, covariance.diagonal(dim1=-2, dim2=-1), Y, None, carried)
    return sites, carried


def posterior_by_hand(gram: Tensor, sites: Sites) -> tuple[Tensor, Tensor]:
    inverse = torch.linalg.inv(gram)
    covariance = torch.linalg.inv(inverse + torch.diag_embed(sites.precision))
    pull = sites.shift + (inverse @ MEAN.expand(T, C, N).unsqueeze(-1)).squeeze(-1)
    return (covariance @ pull.unsqueeze(-1)).squeeze(-1), covariance


def bound_by_hand(likelihood: MeanFieldLikelihood, gram: Tensor, sites: Sites, carried: Carried) -> Tensor:
    """The local terms less the divergence of two Gaussians, (T,)."""
    mean, covariance = posterior_by_hand(gram, sites)
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    distributions = torch.distributions
    divergence = distributions.kl_divergence(
        distributions.MultivariateNormal(mean, covariance),
        distributions.MultivariateNormal(MEAN.expand(T, C, N), gram.expand(T, C, N, N)),
    )
    return likelihood.bound_after_step(mean, variance, Y, None, carried) - divergence.sum(-1)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=NAMES)
@pytest.mark.parametrize("n_steps", [1, 3])
def test_the_evidence_is_the_bound_after_the_steps(likelihood: MeanFieldLikelihood, n_steps: int) -> None:
    gram, _, _ = blocks()
    expected = bound_by_hand(likelihood, gram, *sites_by_hand(likelihood, gram, n_steps))
    for detached in (False, True):
        found = TaskMeanField(likelihood, n_steps, detached).evidence(
            TaskProblem(GramPrior(gram, MEAN), Y, C), generator()
        )[0]
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=NAMES)
@pytest.mark.parametrize("detached", [False, True])
def test_detached_steps_are_constants_of_the_gradient(likelihood: MeanFieldLikelihood, detached: bool) -> None:
    """Slopes in the output scale by central differences, with the sites moving along or staying where they were."""
    gram, cross, diagonal = blocks()
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    rule = TaskMeanField(likelihood, 2, detached)
    prior = GramPrior(scale * gram, MEAN)
    evidence = rule.evidence(TaskProblem(prior, Y, C), generator())[0].sum()
    centre, variance = rule.posterior(TaskProblem(prior, Y, C), generator())[0].query(scale * cross, scale * diagonal)
    predicted = centre.square().sum() + variance.sum()
    found = [torch.autograd.grad(value, scale, retain_graph=True)[0] for value in (evidence, predicted)]

    def values(size: float, of_sites: float) -> tuple[Tensor, Tensor]:
        sites, carried = sites_by_hand(likelihood, of_sites * gram, 2)
        mean, covariance = posterior_by_hand(size * gram, sites)
        gain = torch.linalg.solve(gram, cross).mT  # the scale cancels
        centre = MEAN + (gain @ (mean - MEAN).unsqueeze(-1)).squeeze(-1)
        inside = (gain @ covariance * gain).sum(-1)
        outside = size * (diagonal - (gain * cross.mT).sum(-1))
        moments = centre.square().sum() + (inside + outside).sum()
        return bound_by_hand(likelihood, size * gram, sites, carried).sum(), moments

    width = 1e-5

    def slopes(sites_move: bool) -> list[Tensor]:
        up, down = (values(1 + step, 1 + step if sites_move else 1.0) for step in (width, -width))
        return [(one - other) / (2 * width) for one, other in zip(up, down, strict=True)]

    for slope, expected, other in zip(found, slopes(not detached), slopes(detached), strict=True):
        torch.testing.assert_close(slope, expected, rtol=1e-6, atol=1e-6)
        assert abs(float(expected - other)) > 1e-3  # else this test would say nothing


@pytest.mark.parametrize("n_classes", [2, 3, 5, 9])
def test_pairs_of_a_row_count_as_so_many_whatever_their_number(n_classes: int) -> None:
    """4 pairs a row among C classes are weights of 4 / (C - 1): whole numbers here, or their inverses."""
    gram, cross, diagonal = blocks()
    prior = GramPrior(gram, torch.zeros((), dtype=torch.float64))
    share = 4 / (n_classes - 1)
    counted = TaskMeanField(OneVsEach(), 4, pairs_per_row=4.0)
    plain = TaskMeanField(OneVsEach(), 4)
    own = torch.tensor([1.0, 2.0, 0.0, 1.0, 0.5, 3.0], dtype=torch.float64).expand(T, N)
    for weight in (None, own):
        shares = torch.full((T, N), share, dtype=torch.float64) if weight is None else share * weight
        first = counted.evidence(TaskProblem(prior, Y, n_classes, weight), generator())[0]
        torch.testing.assert_close(
            first, plain.evidence(TaskProblem(prior, Y, n_classes, shares), generator())[0], **CLOSE
        )
        ours = counted.posterior(TaskProblem(prior, Y, n_classes, weight), generator())[0].query(cross, diagonal)
        theirs = plain.posterior(TaskProblem(prior, Y, n_classes, shares), generator())[0].query(cross, diagonal)
        torch.testing.assert_close(ours, theirs, **CLOSE)


def test_pairs_of_a_padded_task_are_those_that_it_has() -> None:
    """Three classes padded to five: weights of 4 / 2, which are two copies of each row."""
    gram, cross, diagonal = blocks()
    mean = torch.zeros(1, 5, 1, dtype=torch.float64)
    mean[:, 3:] = ABSENT_MEAN
    rule = TaskMeanField(OneVsEach(), 4, pairs_per_row=4.0)
    twice = torch.arange(N).repeat_interleave(2)
    copied, labels = GramPrior(gram[..., twice, :][..., twice], mean[:, :3]), Y[:, twice]
    plain = TaskMeanField(OneVsEach(), 4)
    found = rule.evidence(TaskProblem(GramPrior(gram, mean), Y, 5), generator())[0]
    torch.testing.assert_close(found, plain.evidence(TaskProblem(copied, labels, 3), generator())[0], **CLOSE)
    ours = rule.posterior(TaskProblem(GramPrior(gram, mean), Y, 5), generator())[0].query(cross, diagonal)
    theirs = plain.posterior(TaskProblem(copied, labels, 3), generator())[0].query(cross[..., twice, :], diagonal)
    for padded, small in zip(ours, theirs, strict=True):
        torch.testing.assert_close(padded[:, :, :3], small, **CLOSE)


PAPER = LogisticSoftmax(0.5, "poisson_gamma")
SHAPE = (T, C, N)


def test_a_warm_start_goes_on_where_the_tasks_before_ended() -> None:
    """Two warm steps after two are four: on the same tasks, sites and bound are those of twice as many cold ones."""
    prior = GramPrior(blocks()[0], torch.zeros((), dtype=torch.float64))
    warm, cold = TaskMeanField(PAPER, 2, warm_start=True), TaskMeanField(PAPER, 4)
    first, state = warm.evidence(TaskProblem(prior, Y, C), generator())
    torch.testing.assert_close(first, TaskMeanField(PAPER, 2).evidence(TaskProblem(prior, Y, C), generator())[0])
    second, _ = warm.evidence(TaskProblem(prior, Y, C), generator(), start=state)
    torch.testing.assert_close(second, cold.evidence(TaskProblem(prior, Y, C), generator())[0])
    assert state is not None
    assert not any(value.requires_grad for value in state.values())
    posterior, after = warm.posterior(TaskProblem(prior, Y, C), generator(), start=state)
    torch.testing.assert_close(posterior.mean, cold.posterior(TaskProblem(prior, Y, C), generator())[0].mean)
    assert after is not None


def test_classes_meet_themselves_whatever_the_order_of_the_rows() -> None:
    prior = GramPrior(blocks()[0], torch.zeros((), dtype=torch.float64))
    rule = TaskMeanField(PAPER, 2, warm_start=True)
    _, state = rule.evidence(TaskProblem(prior, Y, C), generator())
    expected, _ = rule.evidence(TaskProblem(prior, Y, C), generator(), start=state)
    # Rows in the order of their classes, those of one class in the order that they had.
    labels, order = Y.sort(dim=-1, stable=True)
    gram = torch.stack([prior.gram[t][..., rows, :][..., rows] for t, rows in enumerate(order)])
    found, after = rule.evidence(TaskProblem(GramPrior(gram, prior.mean), labels, C), generator(), start=state)
    torch.testing.assert_close(found, expected)
    assert after is not None
    assert after["y"].equal(labels)


def test_tasks_of_other_sizes_start_at_the_prior() -> None:
    prior = GramPrior(blocks()[0], torch.zeros((), dtype=torch.float64))
    rule = TaskMeanField(PAPER, 2, warm_start=True)
    _, state = rule.evidence(TaskProblem(prior, Y, C), generator())
    other = Y.clone()
    other[0] = torch.tensor([0, 0, 0, 0, 1, 2])
    found, _ = rule.evidence(TaskProblem(prior, other, C), generator(), start=state)
    cold = TaskMeanField(PAPER, 2).evidence(TaskProblem(prior, other, C), generator())[0]
    torch.testing.assert_close(found[0], cold[0])
    assert not torch.isclose(found[1], cold[1])
    small = GramPrior(prior.gram[..., :4, :4], prior.mean)
    found, _ = rule.evidence(TaskProblem(small, Y[:, :4], C), generator(), start=state)
    torch.testing.assert_close(found, TaskMeanField(PAPER, 2).evidence(TaskProblem(small, Y[:, :4], C), generator())[0])


def test_the_covariance_may_come_first() -> None:
    """Sigma with the omega of the step before, by hand: the second step's precisions are the first one's."""
    gram = blocks()[0]
    prior = GramPrior(gram, torch.zeros((), dtype=torch.float64))
    zeros = torch.zeros(SHAPE, dtype=torch.float64)
    first, carried = PAPER.step(zeros, prior.variance.expand(SHAPE), Y, None)
    middle = prior.condition(first)
    second, carried = PAPER.step(middle.mean, middle.variance, Y, None, carried)
    last = prior.condition(Sites(first.precision, second.shift))
    expected = PAPER.bound_after_step(last.mean, last.variance, Y, None, carried) - last.kl()
    rule = TaskMeanField(PAPER, 2, covariance_first=True)
    torch.testing.assert_close(rule.evidence(TaskProblem(prior, Y, C), generator())[0], expected)
    # What is carried over is the newer omega.
    _, state = replace(rule, warm_start=True).evidence(TaskProblem(prior, Y, C), generator())
    assert state is not None
    order = Y.sort(dim=-1, stable=True).indices.unsqueeze(1).expand(SHAPE)
    torch.testing.assert_close(state["precision"], second.precision.gather(-1, order))


def test_steps_until_convergence() -> None:
    prior = GramPrior(blocks()[0], torch.zeros((), dtype=torch.float64))
    found = TaskMeanField(PAPER, 500, tolerance=1e-9).evidence(TaskProblem(prior, Y, C), generator())[0]
    torch.testing.assert_close(found, TaskMeanField(PAPER, 500).evidence(TaskProblem(prior, Y, C), generator())[0])
    few = TaskMeanField(PAPER, 500, tolerance=0.5).evidence(TaskProblem(prior, Y, C), generator())[0]
    assert bool((few < found).all())


def test_first_shapes_are_drawn_and_change_the_start_only() -> None:
    prior = GramPrior(blocks()[0], torch.zeros((), dtype=torch.float64))
    drawn = TaskMeanField(PAPER, 1, first_shape=RELEASED_SHAPES)
    first, again = (drawn.evidence(TaskProblem(prior, Y, C), generator(seed))[0] for seed in (0, 0))
    assert first.equal(again)
    assert not torch.isclose(first, drawn.evidence(TaskProblem(prior, Y, C), generator(1))[0]).any()
    fixed = TaskMeanField(PAPER, 1, first_shape=(1 + C / 2, 1 + C / 2)).evidence(TaskProblem(prior, Y, C), generator())[
        0
    ]
    torch.testing.assert_close(fixed, TaskMeanField(PAPER, 1).evidence(TaskProblem(prior, Y, C), generator())[0])
    low, high = (
        TaskMeanField(PAPER, 400, first_shape=(shape, shape)).evidence(TaskProblem(prior, Y, C), generator())[0]
        for shape in (1.0, 9.0)
    )
    torch.testing.assert_close(low, high)


def test_a_detached_tilting_changes_gradients_only() -> None:
    detached = LogisticSoftmax(0.5, "poisson_gamma", detach_tilting=True)
    results = []
    for likelihood in (PAPER, detached):
        gram = blocks()[0].clone().requires_grad_()
        prior = GramPrior(gram, torch.zeros((), dtype=torch.float64))
        bound = TaskMeanField(likelihood, 2).evidence(TaskProblem(prior, Y, C), generator())[0]
        results.append((bound.detach(), torch.autograd.grad(bound.sum(), gram)[0]))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-9, atol=1e-9)
    assert not torch.isclose(results[0][1], results[1][1]).all()


def test_the_released_bound_can_exceed_the_evidence() -> None:
    """By sum over the data of alpha (1 - 1/C): no bound, and on this task above the evidence by brute force."""
    gram, y = 0.1 * torch.eye(2, dtype=torch.float64).expand(1, 1, 2, 2), torch.tensor([[0, 1]])
    prior = GramPrior(gram, torch.zeros((), dtype=torch.float64))
    released = LogisticSoftmax(1.0, "poisson_gamma", released_bound=True)
    correct = LogisticSoftmax(1.0, "poisson_gamma")
    bounds = [
        TaskMeanField(rule, 50).evidence(TaskProblem(prior, y, 2), generator())[0] for rule in (released, correct)
    ]
    draws = 0.1**0.5 * torch.randn(200_000, 2, 2, dtype=torch.float64, generator=generator())
    evidence = correct.log_likelihood(draws, y.expand(len(draws), 2)).sum(-1).exp().mean().log()
    assert float(bounds[1]) < float(evidence) < float(bounds[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"likelihood": OneVsEach(), "first_shape": (5.0, 10.0)}, "belongs to the augmentation"),
        ({"likelihood": PAPER, "first_shape": (5.0, 1.0)}, "the smaller first"),
        ({"likelihood": PAPER, "tolerance": 0.0}, "must be positive"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TaskMeanField(**options)


def test_options_of_another_augmentation() -> None:
    with pytest.raises(ValueError, match="poisson_gamma"):
        LogisticSoftmax(1.0, released_bound=True)
