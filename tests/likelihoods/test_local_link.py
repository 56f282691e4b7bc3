"""From local regressions to probabilities of labels."""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats

from sureshot.likelihoods.local_link import LabelLink, NumberLink

Y = torch.tensor([0, 2, 2, 1])
LINK = LabelLink(Y, torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64))
MEAN = torch.tensor([[0.3, -0.2, -0.1], [-0.2, -0.1, 0.3]], dtype=torch.float64)
VARIANCE = torch.tensor([0.1, 0.9], dtype=torch.float64)
NOISE = torch.tensor(0.2, dtype=torch.float64)


def test_targets_are_labels_less_frequencies() -> None:
    expected = np.eye(3)[[[2, 1]]] - [0.25, 0.25, 0.5]
    np.testing.assert_allclose(LINK.targets(torch.tensor([[1, 3]])), expected)


def test_densities_are_those_of_the_formula() -> None:
    parameters = torch.tensor([3.0, 2.0], dtype=torch.float64, requires_grad=True)
    found = LINK.log_density(parameters, MEAN, VARIANCE, NOISE, torch.tensor([0, 2]))
    odds = np.array([0.25, 0.25, 0.5]) * np.exp(3 * MEAN.numpy() / np.sqrt(1 + 2 * VARIANCE.numpy())[:, None])
    expected = np.log((odds / odds.sum(1, keepdims=True))[[0, 1], [0, 2]])
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-12)
    assert torch.autograd.gradcheck(
        lambda p: LINK.log_density(p, MEAN, VARIANCE, NOISE, torch.tensor([0, 2])), parameters
    )


def test_without_rows_nearby_classes_are_as_frequent_as_ever() -> None:
    nothing = torch.zeros(1, 3, dtype=torch.float64)
    p = torch.softmax(LINK.logits(5.0, 1.0, nothing, torch.ones(1, dtype=torch.float64)), -1)
    torch.testing.assert_close(p[0], LINK.frequency)


def test_latents_have_about_the_mean_probabilities_of_the_link() -> None:
    mean, variance = LINK.latents(3.0, 1.0, MEAN, VARIANCE)
    draws = torch.randn(20_000, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    average = torch.softmax(mean + variance.sqrt()[:, None] * draws, -1).mean(0)
    torch.testing.assert_close(average, torch.softmax(LINK.logits(3.0, 1.0, MEAN, VARIANCE), -1), atol=0.03, rtol=0)


def test_numbers_are_normal_with_the_noise_and_the_doubt_of_the_regression() -> None:
    numbers = torch.tensor([[0.5, -1.0], [2.0, 0.1], [-0.3, 0.4]], dtype=torch.float64)
    link, scale = NumberLink(numbers), torch.tensor([1.7], dtype=torch.float64, requires_grad=True)
    place, mean = torch.tensor([2, 0]), MEAN[:, :2]
    found = link.log_density(scale, mean, VARIANCE, NOISE, place)
    deviation = np.sqrt(1.7 * (VARIANCE + 0.2).numpy())[:, None]
    expected = stats.norm.logpdf(numbers[place].numpy(), mean.numpy(), deviation).sum(1)
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-12)
    assert torch.autograd.gradcheck(lambda one: link.log_density(one, mean, VARIANCE, NOISE, place), scale)
    assert link.width == 2
    assert torch.equal(link.targets(place), numbers[place])
