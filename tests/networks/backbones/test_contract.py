"""What every backbone must do: one battery over all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sureshot.networks.backbones import BACKBONE_NAMES, Backbone, backbone_from_config, make_backbone
from tests.networks.backbones.with_timm import needs_timm

CASES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("conv4", (1, 28, 28), {"n_filters": 8}),
    ("conv4", (3, 32, 32), {"n_filters": (4, 4, 8, 8)}),
    ("conv4", (1, 12, 12), {"n_filters": 4, "n_poolings": 2}),
    ("resnet12", (3, 32, 32), {"widths": (4, 6, 8, 10)}),
    ("resnet12", (1, 33, 32), {"widths": (4, 6, 8, 10), "average_pool": False}),
    ("resnet18", (3, 32, 32), {"width": 0.125}),
    ("resnet18", (1, 64, 64), {"width": 0.125, "n_features": 20}),
    ("identity", (6,), {}),
    ("identity", (8, 2), {"normalise": True}),
    ("linear", (6,), {}),
    ("linear", (6,), {"n_features": 4, "normalise": True}),
    ("linear", (8, 2), {"rank": 3}),
    ("mlp", (6,), {"hidden": (5, 7)}),
    ("mlp", (6,), {"n_features": 9, "normalise": True}),
    ("lstm", (7, 2), {"hidden": 6}),
    ("lstm", (7, 2), {"hidden": 6, "layers": 2, "bidirectional": True, "pooling": "last"}),
]
TIMM = [
    ("timm", (3, 32, 32), {"model": "test_resnet"}),
    ("timm", (1, 32, 32), {"model": "test_vit", "arguments": {"img_size": 32}}),
]
every_backbone = pytest.mark.parametrize(
    ("name", "shape", "options"), [*CASES, *(pytest.param(*case, marks=needs_timm) for case in TIMM)]
)


def rows(shape: tuple[int, ...], n: int = 5, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))


def test_every_name_has_a_case() -> None:
    assert {name for name, _, _ in [*CASES, *TIMM]} == set(BACKBONE_NAMES)


@contextmanager
def float64_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@every_backbone
def test_weights_whatever_the_default_dtype(name: str, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    expected = make_backbone(name, shape, **options).state_dict()
    with float64_by_default():
        found = make_backbone(name, shape, **options).state_dict()
    for weight, value in expected.items():
        torch.testing.assert_close(found[weight], value, rtol=0, atol=0)


@every_backbone
def test_features(name: str, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    backbone = make_backbone(name, shape, **options)
    x = rows(shape)
    features = backbone(x)
    assert features.shape == (5, backbone.n_features)
    assert features.dtype == torch.float32
    assert torch.isfinite(features).all()
    backbone.eval()
    torch.testing.assert_close(backbone(x)[2:3], backbone(x[2:3]))
    if options.get("normalise"):
        torch.testing.assert_close(backbone(x).norm(dim=-1), torch.ones(5))


@every_backbone
def test_every_parameter_learns(name: str, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    backbone = make_backbone(name, shape, **options)
    # some parameters start where others have no gradient (low rank, residual): one step away they all must
    optimiser = torch.optim.SGD(backbone.parameters(), 0.1) if list(backbone.parameters()) else None
    probe = torch.randn(5, backbone.n_features, generator=torch.Generator().manual_seed(3))
    for _ in range(2):
        backbone.zero_grad()
        if optimiser is not None:
            (backbone(rows(shape)) * probe).sum().backward()
            optimiser.step()
    for key, parameter in backbone.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key
        assert parameter.grad.abs().max() > 0, key


@every_backbone
def test_seed_decides_and_the_global_generator_is_left_alone(
    name: str, shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    state = torch.random.get_rng_state()
    seeds = [{"seed": seed} for seed in (3, 3, 4)] if name != "identity" else [{}] * 3
    first, again, other = (make_backbone(name, shape, **options, **seed).state_dict() for seed in seeds)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(first[key], again[key]) for key in first)
    if name != "identity" and not (name == "linear" and not options):  # which start as the identity, without chance
        assert any(not torch.equal(first[key], other[key]) for key in first)


@every_backbone
def test_config_rebuilds(name: str, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    backbone = make_backbone(name, shape, **options)
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(0.1)
    backbone(rows(shape))  # moves running statistics
    rebuilt = backbone_from_config(json.loads(json.dumps(backbone.config)))
    rebuilt.load_state_dict(backbone.state_dict())
    assert rebuilt.config == backbone.config
    assert rebuilt.n_features == backbone.n_features
    x = rows(shape, seed=1)
    assert torch.equal(rebuilt.eval()(x), backbone.eval()(x))


@pytest.mark.parametrize(("name", "shape", "options"), [case for case in CASES if len(case[1]) == 3])
def test_memory_format_does_not_matter(name: str, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    backbone = make_backbone(name, shape, **options).double()
    x = rows(shape).double()
    torch.testing.assert_close(backbone(x), backbone(x.contiguous(memory_format=torch.channels_last)))
    plain = make_backbone(name, shape, **options).double()
    for parameter in plain.parameters():
        parameter.data = parameter.data.contiguous()
    torch.testing.assert_close(plain(x), backbone(x))


def has_recurrence_in_bfloat16() -> bool:
    """Whether PyTorch has recurrent networks in bfloat16 on this processor; its library wants AVX-512 for them."""
    try:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            torch.nn.LSTM(2, 2)(torch.zeros(1, 1, 2))
    except RuntimeError:
        return False
    return True


@every_backbone
def test_bfloat16_is_near(name: str, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    if name == "lstm" and not has_recurrence_in_bfloat16():
        pytest.skip("this processor has no recurrent networks in bfloat16")
    backbone = make_backbone(name, shape, **options)
    x = rows(shape, 20)
    exact = backbone(x)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = backbone(x).float()
    assert (rounded - exact).norm() < 0.05 * exact.norm()


@every_backbone
def test_wrong_rows_are_refused(name: str, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    backbone = make_backbone(name, shape, **options)
    with pytest.raises(ValueError, match=r"expected floating-point inputs, got torch.uint8: .* scaled"):
        backbone(torch.zeros(2, *shape, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"expected .*, got "):
        backbone(rows((*shape[:-1], shape[-1] + 1)))
    with pytest.raises(ValueError, match=r"expected .*, got "):
        backbone(rows(shape)[0])


@settings(max_examples=50)
@given(shape=st.lists(st.integers(1, 4), min_size=0, max_size=4).map(tuple))
def test_any_other_shape_is_named(shape: tuple[int, ...]) -> None:
    backbone = make_backbone("identity", (3,))
    if shape == (3,):
        assert backbone(torch.zeros(2, 3)).shape == (2, 3)
    else:
        with pytest.raises(ValueError, match="expected vectors of length 3, got"):
            backbone(torch.zeros(2, *shape))


@pytest.mark.parametrize(
    ("backbone", "got", "message"),
    [
        (("conv4", (1, 28, 28)), (3, 28, 28), "expected images of 1 channel 28x28, got images of 3 channels 28x28"),
        (("conv4", (1, 28, 28)), (1, 28, 32), "expected images of 1 channel 28x28, got images of 1 channel 28x32"),
        (("lstm", (8, 2)), (8, 3), "expected sequences of length 8 with 2 channels, got .* with 3 channels"),
        (("linear", (384,)), (768,), "expected vectors of length 384, got vectors of length 768"),
    ],
)
def test_messages(backbone: tuple[str, tuple[int, ...]], got: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_backbone(*backbone)(rows(got))


def test_unknown_names_options_and_shapes() -> None:
    with pytest.raises(ValueError, match=r"unknown backbone 'conv5' .did you mean 'conv4'.*; choose one of conv4, "):
        make_backbone("conv5", (1, 28, 28))
    with pytest.raises(ValueError, match="'conv4' has no option 'filters'; it has n_filters, n_poolings, seed"):
        make_backbone("conv4", (1, 28, 28), filters=3)
    with pytest.raises(ValueError, match="conv4 takes images"):
        make_backbone("conv4", (384,))
    with pytest.raises(ValueError, match="needs images of at least 16x16 pixels, got images of 1 channel 8x8"):
        make_backbone("conv4", (1, 8, 8))
    with pytest.raises(ValueError, match="lstm takes sequences"):
        make_backbone("lstm", (3, 32, 32))
    with pytest.raises(ValueError, match="positive sizes of one row"):
        make_backbone("identity", ())
    with pytest.raises(ValueError, match="'input_shape' is missing"):
        backbone_from_config({"name": "conv4"})


def test_a_backbone_is_abstract() -> None:
    with pytest.raises(TypeError):
        Backbone("mine", (3,), 3, {})  # type: ignore[abstract]
