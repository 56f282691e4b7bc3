"""One-vs-each by Gibbs for batches of tasks: contract, padding, randomness, and the direction of the gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sureshot.gaussian.gram import GramPrior
from sureshot.inference.one_vs_each.gibbs import run_one_vs_each_gibbs
from sureshot.meta.learners.one_vs_each_gibbs import OneVsEachGibbs
from sureshot.meta.learners.task_inference import TaskProblem
from tests.oracles.one_vs_each import collapsed_evidence

F64 = torch.float64
ZERO = torch.tensor(0.0, dtype=F64)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def embeddings(*shape: int, seed: int = 0) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape, generator=seeded(seed), dtype=F64), dim=-1)


def few_shot(
    n_tasks: int = 2, rows: int = 3, n_classes: int = 4, variance: float = 4.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings of separated classes, their kernel (T, 1, N, N), labels."""
    y = torch.arange(n_classes).repeat(rows).expand(n_tasks, -1)
    centres = embeddings(n_tasks, n_classes, 8)
    x = torch.nn.functional.normalize(centres[:, y[0]] + 0.3 * embeddings(n_tasks, y.shape[1], 8, seed=1), dim=-1)
    return x, (variance * x @ x.mT).unsqueeze(1), y


def test_evidence_is_that_of_the_drawn_variables() -> None:
    _, gram, y = few_shot()
    mean = torch.randn(2, 4, 1, generator=seeded(3), dtype=F64)
    value = OneVsEachGibbs(5, n_sweeps_evidence=3).evidence(TaskProblem(GramPrior(gram, mean), y, 4), seeded(0))[0]
    drawn = run_one_vs_each_gibbs(gram.squeeze(1), mean.squeeze(-1), y, 4, 5, 3, generator=seeded(0))
    expected = collapsed_evidence(gram.squeeze(1), mean.squeeze(-1), y, 4, drawn.omega).mean(0)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)


def test_the_posterior_is_that_of_its_own_number_of_sweeps() -> None:
    _, gram, y = few_shot()
    mean = torch.randn(2, 4, 1, generator=seeded(3), dtype=F64)
    inference = OneVsEachGibbs(5, n_sweeps_evidence=1, n_sweeps_posterior=4)
    found = inference.posterior(TaskProblem(GramPrior(gram, mean), y, 4), seeded(0))[0]
    expected = run_one_vs_each_gibbs(gram.squeeze(1), mean.squeeze(-1), y, 4, 5, 4, generator=seeded(0))
    torch.testing.assert_close(found.result.omega, expected.omega, rtol=0, atol=0)


@pytest.mark.parametrize("mean", [ZERO, torch.full((1, 4, 1), 0.5, dtype=F64), torch.zeros(2, 4, 1, dtype=F64)])
@pytest.mark.parametrize("start", ["prior", "mean_field"])
def test_shapes_and_repetition(start: str, mean: Tensor) -> None:
    _, gram, y = few_shot()
    inference = OneVsEachGibbs(3, 2, 2, start)  # type: ignore[arg-type]
    gram, mean = gram.requires_grad_(), mean.clone().requires_grad_()
    values = [inference.evidence(TaskProblem(GramPrior(gram, mean), y, 4), seeded(seed))[0] for seed in (0, 0, 1)]
    assert values[0].shape == (2,)
    torch.testing.assert_close(values[1], values[0], rtol=0, atol=0)
    assert not torch.equal(values[2], values[0])
    gradients = torch.autograd.grad(values[0].sum(), (gram, mean))
    assert gradients[0].shape == gram.shape
    assert gradients[1].shape == mean.shape
    torch.testing.assert_close(gradients[1].sum(), ZERO, atol=1e-9, rtol=0)  # a common shift changes nothing

    posterior = inference.posterior(TaskProblem(GramPrior(gram, mean), y, 4), seeded(0))[0]
    m, v = posterior.query(gram[..., :5], gram.diagonal(dim1=-2, dim2=-1)[..., :5])
    assert m.shape == (3, 2, 4, 5)
    assert v.shape == (3, 2, 5, 4, 4)
    again = inference.posterior(TaskProblem(GramPrior(gram, mean), y, 4), seeded(0))[0]
    torch.testing.assert_close(again.query(gram[..., :5], gram.diagonal(dim1=-2, dim2=-1)[..., :5])[0], m)
    assert all(bool((part.abs() > 0).any()) for part in torch.autograd.grad(m[..., 0, :].sum(), (gram, mean)))


def test_query_without_a_graph_builds_none() -> None:
    _, gram, y = few_shot()
    with torch.no_grad():
        posterior = OneVsEachGibbs(3).posterior(TaskProblem(GramPrior(gram, ZERO), y, 4), seeded(0))[0]
        mean, covariance = posterior.query(gram, gram.diagonal(dim1=-2, dim2=-1))
    assert not mean.requires_grad
    assert not covariance.requires_grad
    assert bool((torch.linalg.eigvalsh(covariance) > 0).all())


def test_padded_rows_change_nothing_but_the_random_stream() -> None:
    """The sampler's draws depend on the padded size, so evidence and prediction are compared at the same draws."""
    _, gram, y = few_shot(n_tasks=1)
    padded = torch.full((1, 1, 15, 15), 7.0, dtype=F64)  # whatever a padded row holds
    padded[..., :12, :12] = gram
    labels = torch.cat([y, torch.tensor([[2, 0, 2]])], -1)
    weight = torch.cat([torch.ones(1, 12, dtype=F64), torch.zeros(1, 3, dtype=F64)], -1)
    inference = OneVsEachGibbs(4, 2, 2)
    padded.requires_grad_()
    value = inference.evidence(TaskProblem(GramPrior(padded, ZERO), labels, 4, weight), seeded(0))[0]
    posterior = inference.posterior(TaskProblem(GramPrior(padded, ZERO), labels, 4, weight), seeded(0))[0]
    omega = posterior.result.omega
    assert float(omega[..., 12:].abs().max()) == 0
    plain = gram.squeeze(1).clone().requires_grad_()
    expected = collapsed_evidence(plain, ZERO, y, 4, omega[..., :12]).mean(0)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
    (found,) = torch.autograd.grad(value.sum(), padded)
    (wanted,) = torch.autograd.grad(expected.sum(), plain)
    torch.testing.assert_close(found[0, 0, :12, :12], 0.5 * (wanted + wanted.mT)[0], rtol=1e-9, atol=1e-9)
    assert float(found[..., 12:].abs().max()) == 0
    junk = torch.cat([gram[..., :5], 3 * torch.ones(1, 1, 3, 5, dtype=F64)], -2)
    first = posterior.query(junk, gram.diagonal(dim1=-2, dim2=-1)[..., :5])
    second = posterior.query(
        torch.cat([gram[..., :5], torch.zeros(1, 1, 3, 5, dtype=F64)], -2), torch.full((1, 1, 5), 4.0, dtype=F64)
    )
    torch.testing.assert_close(first, second, rtol=1e-10, atol=1e-10)


def test_float32_is_close_to_float64_on_average() -> None:
    _, gram, y = few_shot(n_tasks=4, rows=4)
    values = []
    for dtype in (F64, torch.float32):
        prior = GramPrior(gram.to(dtype), ZERO.to(dtype))
        drawn = [OneVsEachGibbs(20).evidence(TaskProblem(prior, y, 4), seeded(seed))[0] for seed in range(10)]
        assert drawn[0].dtype == dtype
        values.append(torch.stack(drawn).double())
    error = (values[0].var(0) / 10 + values[1].var(0) / 10).sqrt()
    assert bool(((values[0].mean(0) - values[1].mean(0)).abs() < 4.5 * error).all())


def test_posterior_draws_and_a_prior_draw_disagree_about_the_output_scale() -> None:
    """Well-separated classes ask for a larger scale; one sweep from the prior asks for a smaller one."""
    x, _, y = few_shot(rows=7)
    log_scale = torch.full((2, 1, 1, 1), 3.0, dtype=F64, requires_grad=True)

    def slope(inference: OneVsEachGibbs) -> Tensor:
        gram = log_scale.exp() * (x @ x.mT).unsqueeze(1)
        value = inference.evidence(TaskProblem(GramPrior(gram, ZERO), y, 4), seeded(0))[0]
        return torch.autograd.grad(value.sum(), log_scale)[0].flatten()

    published, ours = slope(OneVsEachGibbs(20)), slope(OneVsEachGibbs(20, 20, start="mean_field"))
    long = slope(OneVsEachGibbs(20, 60))
    assert bool((published < 0).all())
    assert bool((ours > 0).all())
    assert bool((long > 0).all())
    assert abs(float((ours - long).mean())) < 0.5 * float(long.mean())


def test_bad_arguments() -> None:
    for wrong, message in (
        ({"start": "posterior"}, "start"),
        ({"n_chains": 0}, "n_chains"),
        ({"n_sweeps_posterior": 0}, "n_sweeps"),
    ):
        with pytest.raises(ValueError, match=message):
            OneVsEachGibbs(**wrong)  # type: ignore[arg-type]
    _, gram, y = few_shot()
    with pytest.raises(ValueError, match="one kernel for all classes"):
        OneVsEachGibbs(2).evidence(TaskProblem(GramPrior(gram.expand(-1, 4, -1, -1), ZERO), y, 4), seeded(0))
