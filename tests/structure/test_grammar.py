"""The prior over structures by enumeration and by draws, and the kernels that structures are."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from sureshot.kernels import Expression, RationalQuadratic, evaluate, kernel_from_json
from sureshot.structure.canonical import canonical
from sureshot.structure.grammar import GRAMMARS, Grammar, KernelPrior
from sureshot.structure.leaves import LEAVES, LeafKind, LogNormal, Scales, register_leaf
from sureshot.structure.structure import Structure
from tests.structure.oracles import F64, seeded
from tests.structure.words import all_structures, structures

UNEVEN = Grammar({"LINEAR": 2.0, "MATERN": 1.0}, p_sum=0.2, p_product=0.15, max_depth=3)


def probability(prior: KernelPrior, structure: Structure, depth: int = 1) -> float:
    return math.exp(prior.log_probability(structure, depth))


def mean_size(prior: KernelPrior, depth: int = 1) -> float:
    operators = sum(prior.operator_probabilities(depth).values())
    return 1 + (2 * operators * mean_size(prior, depth + 1) if operators > 0 and depth < 200 else 0)


@pytest.mark.parametrize("grammar", [UNEVEN, Grammar({"CONSTANT": 1.0}, 0.3, 0.0, max_depth=3)])
def test_probabilities_sum_to_one(grammar: Grammar) -> None:
    prior = KernelPrior(grammar, 2)
    possible = all_structures(tuple(grammar.leaves), 7, 3)
    assert sum(probability(prior, one) for one in possible) == pytest.approx(1, abs=1e-12)
    for depth in (2, 3):
        below = [one for one in possible if one.depth <= 4 - depth]
        assert sum(probability(prior, one, depth) for one in below) == pytest.approx(1, abs=1e-12)


def test_what_the_grammar_cannot_make_has_no_probability() -> None:
    prior = KernelPrior(UNEVEN, 2)
    for text in ("CONSTANT", "LINEAR[0]", "LINEAR + CONSTANT"):
        assert prior.log_probability(Structure.parse(text)) == -math.inf
    deep = Structure(("+", "LINEAR", "+", "LINEAR", "+", "LINEAR", "LINEAR"))
    assert deep.depth == 4
    assert prior.log_probability(deep) == -math.inf
    assert prior.log_probability(Structure(("LINEAR",)), depth=4) == -math.inf
    products = KernelPrior(Grammar({"LINEAR": 1.0}, 0.0, 0.3), 1)
    assert products.log_probability(Structure.parse("LINEAR + LINEAR")) == -math.inf
    assert KernelPrior(Grammar(max_depth=1), 2).operator_probabilities(1) == {}


@pytest.mark.parametrize("depth", [1, 2])
def test_draws_have_the_probabilities(depth: int) -> None:
    prior, generator, n = KernelPrior(UNEVEN, 2), seeded(0), 5000
    counts = Counter(prior.sample(generator, depth) for _ in range(n))
    assert max(one.depth for one in counts) == 4 - depth
    expected = {one: n * probability(prior, one, depth) for one in all_structures(("LINEAR", "MATERN"), 7, 4 - depth)}
    common = [one for one in expected if expected[one] > 8]
    assert len(common) >= 10
    found = [counts[one] for one in common]
    masses = [expected[one] for one in common]
    if n - sum(masses) > 1:
        found, masses = [*found, n - sum(found)], [*masses, n - sum(masses)]
    assert chisquare(found, torch.tensor(masses, dtype=F64) * n / sum(masses)).pvalue > 1e-3


def test_numbers_of_the_defaults() -> None:
    """By enumeration of the sizes 1, 3 and 5, and by a recursion for the mean."""
    prior = KernelPrior(Grammar(), 4)
    leaf = "LINEAR"  # one of seven that are as probable
    for nodes, share in ((1, 0.643), (3, 0.148), (5, 0.068)):
        same = [one for one in all_structures((leaf,), 5, 5) if len(one) == nodes]
        total = sum(probability(prior, one) * 7 ** len(one.leaves) for one in same)
        assert total == pytest.approx(share, abs=5e-4)
    assert mean_size(prior) == pytest.approx(2.85, abs=5e-3)
    assert mean_size(KernelPrior(Grammar(max_depth=200), 4)) == pytest.approx(3.5, abs=1e-3)
    generator = seeded(0)
    sizes = torch.tensor([len(prior.sample(generator)) for _ in range(4000)], dtype=F64)
    assert abs(float(sizes.mean()) - 2.85) < 4 * float(sizes.std()) / 4000**0.5
    assert set(GRAMMARS["paper"]["leaves"]) == {"LINEAR", "SQUARED-EXPONENTIAL", "GAMMA-EXPONENTIAL"}
    assert Grammar.preset("paper").p_sum == Grammar.preset("default").p_sum == 5 / 28
    assert (Grammar.preset("paper").mean_variance, Grammar.preset("paper").scale) == (1, 1)
    assert (Grammar.preset("default").mean_variance, Grammar.preset("default").scale) == (30, 3)


def test_leaves_of_one_column() -> None:
    grammar = Grammar({"LINEAR": 1.0, "MATERN": 3.0}, p_one_column=0.4)
    prior = KernelPrior(grammar, 3)
    shares = prior.leaf_probabilities
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["MATERN"] == pytest.approx(0.45)
    assert shares["LINEAR[2]"] == pytest.approx(0.1 / 3)
    assert len(shares) == 8
    single = KernelPrior(Grammar({"LINEAR": 1.0}, p_one_column=1.0), 2)
    assert single.leaf_probabilities == {"LINEAR[0]": 0.5, "LINEAR[1]": 0.5}
    generator = seeded(0)
    counts = Counter(prior.sample_leaf(generator) for _ in range(4000))
    assert chisquare([counts[leaf] for leaf in shares], [4000 * p for p in shares.values()]).pvalue > 1e-3
    x, other = torch.randn(5, 3, generator=seeded(1), dtype=F64), torch.randn(5, 3, generator=seeded(2), dtype=F64)
    other[:, 1] = x[:, 1]
    for leaf in ("LINEAR[1]", "MATERN[1]"):
        k = prior.kernel(Structure((leaf,)), torch.randn(2, generator=seeded(3), dtype=F64))
        assert torch.equal(k(x), k(other))
        alone = KernelPrior(grammar, 1).kernel(Structure((leaf[:-3],)), torch.randn(2, generator=seeded(3), dtype=F64))
        torch.testing.assert_close(k(x), alone(x[:, 1:2]))


def test_a_grammar_draws_no_leaf_that_its_columns_are_too_few_for() -> None:
    assert "BROWNIAN" in KernelPrior(Grammar(), 2).leaf_probabilities
    without = Grammar({name: 1.0 for name in LEAVES if name != "BROWNIAN"})
    assert KernelPrior(Grammar(), 1).leaf_probabilities == KernelPrior(without, 1).leaf_probabilities
    both = KernelPrior(Grammar({"LINEAR": 1.0, "BROWNIAN": 1.0}, p_one_column=0.4), 2)
    assert both.leaf_probabilities == pytest.approx(
        {"LINEAR": 0.3, "BROWNIAN": 0.3, "LINEAR[0]": 0.2, "LINEAR[1]": 0.2}
    )
    assert KernelPrior(Grammar({"BROWNIAN": 2.0}), 1).leaf_probabilities == {"BROWNIAN": 1.0}  # nothing else is there


def test_length_scales_of_columns() -> None:
    prior, shared = KernelPrior(Grammar(per_column=True, scale=1), 3), KernelPrior(Grammar(), 3)
    k = Structure.parse("SQUARED-EXPONENTIAL x PERIODIC + LINEAR + GAMMA-EXPONENTIAL[1]")
    assert prior.leaf_sizes(k) == [4, 5, 2, 3]
    assert shared.leaf_sizes(k) == [2, 3, 2, 3]
    z = torch.tensor([0.3, 0.4, -1.0, 0.5, 2.0], dtype=F64)
    x = torch.randn(4, 3, generator=seeded(0), dtype=F64)
    lengthscales = 3**0.5 * z[2:].exp()
    distance = torch.cdist(x / lengthscales, x / lengthscales)
    sines = (torch.pi * (x.unsqueeze(1) - x) / z[1].exp()).sin()
    expected = {
        "SQUARED-EXPONENTIAL": (-0.5 * distance.square()).exp(),
        "MATERN": (1 + 3**0.5 * distance) * (-(3**0.5) * distance).exp(),
        "GAMMA-EXPONENTIAL": (-distance.pow(2 * torch.sigmoid(z[1]))).exp(),
        "PERIODIC": (-2 * (sines / lengthscales).square().sum(-1)).exp(),
    }
    assert expected.keys() == {name for name, kind in LEAVES.items() if kind.has_lengthscales}
    for name, value in expected.items():
        own = z if LEAVES[name].numbers == 2 else z[[0, 2, 3, 4]]
        torch.testing.assert_close(prior.kernel(Structure((name,)), own)(x), z[0].exp() * value, rtol=1e-6, atol=1e-7)


def test_leaves_by_their_formulas() -> None:
    prior, x = KernelPrior(Grammar(scale=1), 4), torch.randn(5, 4, generator=seeded(0), dtype=F64)
    z = torch.tensor([0.4, -0.7, 0.2], dtype=F64)
    amplitude, distance = z[0].exp(), torch.cdist(x, x)

    def gram(name: str) -> Tensor:
        structure = Structure((name,))
        return prior.kernel(structure, z[: prior.size(structure)])(x)

    def of_scale(number: Tensor) -> Tensor:
        return distance / (2 * number.exp())  # in units of the root of four columns

    sines = (torch.pi * (x.unsqueeze(1) - x) / z[1].exp()).sin().square().sum(-1)
    scaled = 3**0.5 * of_scale(z[1])
    same_side = x.unsqueeze(1) * x > 0
    paths = (torch.minimum(x.unsqueeze(1).abs(), x.abs()) * same_side).sum(-1)
    expected = {
        "LINEAR": amplitude * (z[1].exp() + x @ x.mT / 4),
        "BROWNIAN": amplitude * (z[1].exp() + paths / 4),
        "SQUARED-EXPONENTIAL": amplitude * (-0.5 * of_scale(z[1]).square()).exp(),
        "MATERN": amplitude * (1 + scaled) * (-scaled).exp(),
        "GAMMA-EXPONENTIAL": amplitude * (-of_scale(z[2]).pow(2 * torch.sigmoid(z[1]))).exp(),
        "PERIODIC": amplitude * (-2 * sines / (2 * z[2].exp()).square()).exp(),
        "CONSTANT": amplitude * torch.ones(5, 5, dtype=F64),
    }
    assert expected.keys() == LEAVES.keys()
    for name, value in expected.items():
        torch.testing.assert_close(gram(name), value, rtol=1e-6, atol=1e-7)
    assert prior.nugget(torch.tensor(0.0, dtype=F64)).item() == pytest.approx(1e-2 + 1e-6)
    assert prior.nugget(torch.tensor(-40.0, dtype=F64)).item() == pytest.approx(1e-6)
    wide = KernelPrior(Grammar(amplitude=LogNormal(1.0, 2.0), scale=3), 4)
    torch.testing.assert_close(wide.kernel(Structure(("CONSTANT",)), z[:1])(x)[0, 0], 3 * (1 + 2 * z[0]).exp())
    short = KernelPrior(Grammar(relative_lengthscale=LogNormal(-0.5, 0.3), scale=1), 4)
    scaled = distance / (2 * (-0.5 + 0.3 * z[1]).exp())
    torch.testing.assert_close(
        short.kernel(Structure(("SQUARED-EXPONENTIAL",)), z[:2])(x), amplitude * (-0.5 * scaled.square()).exp()
    )


@given(structures(largest=6), st.integers(0, 10**6), st.booleans())
@settings(max_examples=30)
def test_kernels_survive_json_and_gpytorch(structure: Structure, seed: int, per_column: bool) -> None:
    prior = KernelPrior(Grammar(per_column=per_column), 3)
    prior.check(structure)
    z, x = torch.randn(prior.size(structure), generator=seeded(seed), dtype=F64), torch.randn(6, 3, dtype=F64)
    k = prior.kernel(structure, z)
    assert kernel_from_json(json.loads(json.dumps(k.to_json(), allow_nan=False))) == k
    twin = k.to_gpytorch()
    with torch.no_grad():
        torch.testing.assert_close(evaluate(twin, x), k(x), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(Expression.from_gpytorch(twin)(x), k(x), rtol=1e-9, atol=1e-9)


@given(structures(largest=5), st.booleans())
@settings(max_examples=20)
def test_batches_of_parameters_are_kernels_of_their_own(structure: Structure, per_column: bool) -> None:
    """Sums add and products multiply what their operands are."""
    prior, x = (
        KernelPrior(Grammar(per_column=per_column, scale=1), 3),
        torch.randn(4, 3, generator=seeded(1), dtype=F64),
    )
    z = torch.randn(2, prior.size(structure), generator=seeded(0), dtype=F64)
    grams = prior.kernel(structure, z)(x)
    for one, own in zip(z, grams, strict=True):
        torch.testing.assert_close(prior.kernel(structure, one)(x).expand(4, 4), own)
    if len(structure) > 1:
        sizes = prior.leaf_sizes(structure)
        first, second = (structure.subtree(child) for child in structure.children(0))
        at = sum(sizes[: len(first.leaves)])
        a, b = prior.kernel(first, z[:, :at])(x), prior.kernel(second, z[:, at:])(x)
        torch.testing.assert_close(grams, a + b if structure.symbols[0] == "+" else a * b)


@pytest.fixture
def rational_quadratic() -> Iterator[LeafKind]:
    def kernel(z: Tensor, scales: Scales) -> Expression:
        return scales.amplitude(z[..., 0]) * RationalQuadratic(scales.lengthscale(z[..., 2:]), z[..., 1].exp())

    kind = LeafKind("RATIONAL-QUADRATIC", kernel, numbers=2, has_lengthscales=True)
    register_leaf(kind)
    yield kind
    del LEAVES[kind.name]


def test_a_leaf_of_ones_own(rational_quadratic: LeafKind) -> None:
    name = rational_quadratic.name
    with pytest.raises(ValueError, match="there is a leaf 'RATIONAL-QUADRATIC' already"):
        register_leaf(rational_quadratic)
    prior = KernelPrior(Grammar({"LINEAR": 1.0, name: 1.0}, p_one_column=0.5), 2)
    generator = seeded(0)
    assert any(name in symbol for symbol in prior.sample(generator).symbols for _ in range(50))
    k = Structure.parse(f"{name} + LINEAR x {name}[1]")
    prior.check(k)
    assert prior.kernel(k, torch.zeros(3, prior.size(k), dtype=F64))(torch.randn(4, 2, dtype=F64)).shape == (3, 4, 4)
    assert str(canonical(Structure.parse(f"{name} x CONSTANT + {name}"))) == f"{name} + {name}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"leaves": {}}, "must have a leaf"),
        ({"leaves": {"LINAER": 1.0}}, "no leaf 'LINAER'.*LINEAR"),
        ({"leaves": {"LINEAR": 0.0}}, "weight of LINEAR must be positive"),
        ({"leaves": {"LINEAR": math.inf}}, "weight of LINEAR must be positive and finite"),
        ({"p_sum": -0.1}, "must not be negative"),
        ({"p_sum": 0.6, "p_product": 0.4}, "together less than 1"),
        ({"p_sum": math.nan}, "together less than 1"),
        ({"max_depth": 0}, "max_depth must be at least 1"),
        ({"p_one_column": 1.1}, "p_one_column must lie between 0 and 1"),
        ({"scale": 0.0}, "scale must be positive and finite"),
        ({"mean_variance": -1.0}, "mean_variance must not be negative"),
        ({"least_nugget": -1.0}, "least_nugget must not be negative"),
        ({"leaves": ["LINEAR"]}, r"leaves must be weights by name, .*, got \['LINEAR'\]"),
        ({"leaves": {1: 1.0}}, "there is no leaf 1;"),
        ({"leaves": {"LINEAR": "a"}}, "the weight of LINEAR must be a number, got 'a'"),
        ({"leaves": {"LINEAR": True}}, "the weight of LINEAR must be a number, got True"),
        ({"p_sum": "a"}, "p_sum must be a number, got 'a'"),
        ({"max_depth": 2.5}, "max_depth must be a whole number, got 2.5"),
        ({"max_depth": True}, "max_depth must be a whole number, got True"),
        ({"per_column": "no"}, "per_column must be true or false, got 'no'"),
        ({"nugget": 3}, "nugget must be a LogNormal, which has mean and sd, got 3"),
        ({"amplitude": {"mean": 0.0, "sd": 1.0}}, "amplitude must be a LogNormal"),
    ],
)
def test_wrong_values_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Grammar(**arguments)


def test_numbers_become_those_of_python() -> None:
    leaves = {"LINEAR": np.float32(1), "PERIODIC": 2}
    grammar = Grammar(
        leaves, max_depth=np.int64(3), per_column=np.bool_(True), scale=2, nugget=LogNormal(np.float64(1.0), 2)
    )
    assert Grammar.from_json(json.loads(json.dumps(grammar.to_json()))) == grammar
    leaves["LINEAR"] = 5
    assert grammar.leaves == {"LINEAR": 1, "PERIODIC": 2}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"leaves": [1]}, "the leaves of a grammar are pairs of a name and a weight"),
        ({"leaves": [["LINAER", 1.0]]}, "no leaf 'LINAER'"),
        ({"nugget": 3}, "nugget must have the entries mean, sd, got 3"),
        ({"nugget": {"mean": 0.0}}, "nugget must have the entries mean, sd, got mean"),
        ({"amplitude": {"mean": "a", "sd": 1.0}}, "amplitude: mean must be a number, got 'a'"),
        ({"amplitude": {"mean": 0.0, "sd": -1.0}}, "amplitude: mean and sd must be finite, and sd not negative"),
        ({"amplitude": {"mean": math.nan, "sd": 1.0}}, "amplitude: mean and sd must be finite"),
        ({"scale": {"mean": 0.0, "sd": 1.0}}, "scale must be a number, got {'mean': 0.0, 'sd': 1.0}"),
        ({"per_column": "no"}, "per_column must be true or false, got 'no'"),
        ({"depth": 3}, "a grammar must have the entries leaves, .*, got leaves, "),
    ],
)
def test_wrong_json_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Grammar.from_json({**Grammar().to_json(), **changed})
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"a grammar must have the entries leaves, .*, got None"):
        Grammar.from_json(None)


def test_wrong_names_are_named() -> None:
    prior = KernelPrior(Grammar(), 2)
    with pytest.raises(ValueError, match=r"no grammar 'papre'.*paper"):
        Grammar.preset("papre")
    with pytest.raises(ValueError, match=r"no leaf 'MATERM'.*MATERN"):
        prior.check(Structure.parse("LINEAR + MATERM"))
    with pytest.raises(ValueError, match="looks at column 2, but rows have 2 columns"):
        prior.check(Structure.parse("LINEAR[2]"))


@pytest.mark.parametrize("name", ["+", "x", "", "A[1]", "my leaf", "2ND"])
def test_a_leaf_has_a_name_that_texts_of_structures_can_hold(name: str, rational_quadratic: LeafKind) -> None:
    with pytest.raises(
        ValueError, match="the name of a leaf is letters, digits, dashes and underlines behind a letter"
    ):
        register_leaf(replace(rational_quadratic, name=name))
    assert name not in LEAVES
