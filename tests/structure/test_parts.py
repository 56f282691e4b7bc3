"""Parts of additive kernels, against dense arithmetic of each of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import i0

from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.numbers import started
from sureshot.structure.parts import decomposed
from sureshot.structure.prediction import moments
from sureshot.structure.smc import smc_step
from sureshot.structure.structure import Structure
from tests.structure.oracles import F64, seeded
from tests.structure.test_numbers import PRIOR, QUERIES, STILL, X, Y, still


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LINEAR", "LINEAR"),
        ("CONSTANT x CONSTANT", "CONSTANT"),
        ("CONSTANT x MATERN", "MATERN"),
        ("LINEAR x PERIODIC", "LINEAR + PERIODIC + LINEAR x PERIODIC"),
        ("(GAMMA-EXPONENTIAL + PERIODIC) x MATERN", "MATERN + GAMMA-EXPONENTIAL x MATERN + MATERN x PERIODIC"),
        ("SQUARED-EXPONENTIAL + SQUARED-EXPONENTIAL + LINEAR + LINEAR", "LINEAR + SQUARED-EXPONENTIAL"),
    ],
)
def test_products_are_distributed_over_sums(text: str, expected: str) -> None:
    prior = KernelPrior(Grammar.preset("default"), 1)
    state = started(prior, 3, seeded(4), Structure.parse(text))
    state, _ = smc_step(state, X, Y, seeded(0), STILL)
    (form,) = decomposed(state, QUERIES)
    assert form.formula == expected
    assert form.weight == pytest.approx(1)


@pytest.mark.parametrize("name", ["LINEAR", "PERIODIC", "BROWNIAN"])
@pytest.mark.parametrize("width", [1, 2])
def test_what_a_constant_leaves_is_a_kernel(name: str, width: int) -> None:
    """And no larger one does: a period has no mean, a line no offset."""
    prior = KernelPrior(Grammar.preset("default"), width)
    z = torch.randn(prior.size(Structure((name,))), generator=seeded(2), dtype=F64)
    kernel, constant = prior.leaf(name, z)
    x = torch.linspace(-3, 3, 41, dtype=F64).unsqueeze(-1).repeat(1, width)
    x[:, -1] = x[:, -1].roll(7)
    gram = kernel(x) - constant
    assert torch.linalg.eigvalsh(gram).min() > -1e-9 * float(constant)
    if name == "PERIODIC":
        phase = torch.arange(64, dtype=F64) * z[1].exp() / 64
        grid = torch.cartesian_prod(*[phase] * width).view(-1, width)
        assert float(kernel(grid)[0].mean()) == pytest.approx(float(constant), rel=1e-9)
    else:
        origin = torch.zeros(1, width, dtype=F64)
        assert float(kernel(origin)) == pytest.approx(float(constant))


@pytest.mark.parametrize("grammar", ["series", "default"])
def test_parts_add_up_to_the_function(grammar: str) -> None:
    state = still(8, prior=KernelPrior(Grammar.preset(grammar), 1))
    forms = decomposed(state, QUERIES)
    assert sum(form.weight for form in forms) == pytest.approx(1)
    assert [form.weight for form in forms] == sorted((form.weight for form in forms), reverse=True)
    total = sum(form.weight * form.mean for form in forms)
    expected = torch.einsum("m,mq->q", state.log_weights.exp(), moments(state, QUERIES)[0][:, 0])
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-8)
    for form in forms:
        assert form.parts[-1].formula == "CONSTANT"
        assert all((part.deviation >= 0).all() for part in form.parts)


def test_a_part_is_that_of_dense_arithmetic() -> None:
    structure = Structure.parse("(LINEAR + PERIODIC) x SQUARED-EXPONENTIAL")
    state = started(PRIOR, 1, seeded(4), structure)
    state, _ = smc_step(state, X, Y, seeded(0), STILL)
    z = state.particles.z[0]
    linear, periodic, bump = (one.numpy() for one in z[1:].split(PRIOR.leaf_sizes(structure)))
    every = np.concatenate([X, QUERIES])
    gap = every - every.T
    smooth = np.exp(bump[0]) * np.exp(-(gap**2) / (2 * np.exp(bump[1]) ** 2))
    inverse, period = np.exp(-2 * periodic[2]), 0.3 * np.exp(1.25 * periodic[1])
    wave = np.exp(periodic[0]) * np.exp((np.cos(2 * np.pi * gap / period) - 1) * inverse)
    mean = np.exp(periodic[0]) * i0(inverse) * np.exp(-inverse)
    grams = {
        "SQUARED-EXPONENTIAL": (np.exp(linear[0] + linear[1]) + mean) * smooth,
        "LINEAR x SQUARED-EXPONENTIAL": np.exp(linear[0]) * every * every.T * smooth,
        "PERIODIC x SQUARED-EXPONENTIAL": (wave - mean) * smooth,
    }
    whole = sum(grams.values()) + 1.0 + float(PRIOR.nugget(z[0])) * np.eye(20)
    centring = np.eye(20)
    centring[:, :16] -= 1 / 16  # takes the mean over the rows with numbers off
    expected = {name: (centring @ gram @ centring.T, centring @ gram) for name, gram in grams.items()}
    means = sum(gram[:16].mean(0) for gram in grams.values())
    level = np.full((20, 20), 1.0 + sum(gram[:16, :16].mean() for gram in grams.values()))
    expected["CONSTANT"] = (level, np.broadcast_to(1.0 + means, (20, 20)))
    (form,) = decomposed(state, QUERIES)
    assert {part.formula for part in form.parts} == set(expected)
    for part in form.parts:
        own, cross = expected[part.formula]
        gain = np.linalg.solve(whole[:16, :16], cross[16:, :16].T)
        np.testing.assert_allclose(part.mean, gain.T @ Y.numpy(), atol=1e-8)
        left = own.diagonal()[16:] - (cross[16:, :16].T * gain).sum(0)
        np.testing.assert_allclose(part.deviation**2, left, atol=1e-8)
