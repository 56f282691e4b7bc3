"""Mean field a block of classes at a time gives what it gives for all classes at once."""

import pytest
import torch

from sureshot.computing.blocks import AT_ONCE
from sureshot.gaussian.gram import GramPrior
from sureshot.inference.mean_field_blocks import mean_field_by_blocks
from sureshot.inference.objectives import evidence_bound
from sureshot.likelihoods import LogisticSoftmax, OneVsEach
from sureshot.likelihoods.sites import MeanFieldLikelihood
from sureshot.meta.learners.mean_field import TaskMeanField
from sureshot.meta.learners.task_inference import TaskProblem

LIKELIHOODS: dict[str, MeanFieldLikelihood] = {
    "one_vs_each": OneVsEach(),
    "logistic_softmax": LogisticSoftmax(0.5),
    "poisson_gamma": LogisticSoftmax(0.5, "poisson_gamma"),
}


def problem(n_classes: int, n: int, n_kernels: int) -> tuple[GramPrior, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A prior for rows, their labels and weights, and the kernel with some queries."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n_kernels, n + 3, 4, generator=generator, dtype=torch.float64)
    gram = 9 * torch.exp(-0.3 * torch.cdist(x, x).square())
    y = torch.arange(n) % n_classes
    weight = 0.5 + torch.rand(n, generator=generator, dtype=torch.float64)
    mean = torch.linspace(-1, 1, n_classes, dtype=torch.float64).unsqueeze(-1)
    return GramPrior(gram[:, :n, :n], mean), y, weight, gram[:, :n, n:]


SMALL = [(name, 4, 12, n_kernels) for name in LIKELIHOODS for n_kernels in (1, 4)]


@pytest.mark.parametrize(("name", "n_classes", "n", "n_kernels"), [*SMALL, ("one_vs_each", 2400, 64, 1)])
def test_blocks_change_nothing(name: str, n_classes: int, n: int, n_kernels: int) -> None:
    likelihood = LIKELIHOODS[name]
    prior, y, weight, cross = problem(n_classes, n, n_kernels)
    assert (n_classes * n * n > AT_ONCE) == (n_classes == 2400)  # several blocks
    n_steps = 3
    found = mean_field_by_blocks(prior, likelihood, y, n_classes, weight, n_steps)
    expected = TaskMeanField(likelihood, n_steps).posterior(
        TaskProblem(
            GramPrior(prior.gram.unsqueeze(0), prior.mean.unsqueeze(0)), y.unsqueeze(0), n_classes, weight.unsqueeze(0)
        ),
        torch.Generator(),
    )[0]
    close = {"rtol": 1e-8, "atol": 1e-8}
    for part in ("mean", "variance", "log_det", "quadratic", "alpha"):
        torch.testing.assert_close(getattr(found, part), getattr(expected, part)[0, 0], **close)
    torch.testing.assert_close(found.trace(), expected.trace()[0, 0], **close)
    torch.testing.assert_close(found.kl(), expected.kl()[0, 0], **close)
    if name != "poisson_gamma":
        bound = evidence_bound(expected, likelihood, y.unsqueeze(0), weight.unsqueeze(0))
        torch.testing.assert_close(evidence_bound(found, likelihood, y, weight), bound[0, 0], **close)
    variance = torch.full((1, 3), 9.0, dtype=torch.float64)
    means, variances = found.query(cross, variance)
    expected_means, expected_variances = expected.query(cross.unsqueeze(0), variance.unsqueeze(0))
    torch.testing.assert_close(means, expected_means[0, 0], **close)
    torch.testing.assert_close(variances, expected_variances[0, 0], **close)
    torch.testing.assert_close(found.query_mean(cross), means)


def test_a_row_of_weight_zero_is_no_row() -> None:
    prior, y, weight, cross = problem(4, 12, 1)
    weight[3] = 0
    found = mean_field_by_blocks(prior, OneVsEach(), y, 4, weight, 5)
    kept = torch.arange(12) != 3
    without = GramPrior(prior.gram[:, kept][:, :, kept], prior.mean)
    expected = mean_field_by_blocks(without, OneVsEach(), y[kept], 4, weight[kept], 5)
    torch.testing.assert_close(found.query_mean(cross), expected.query_mean(cross[:, kept]))
    torch.testing.assert_close(found.variance[:, kept], expected.variance)
