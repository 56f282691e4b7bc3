"""Projections start with the geometry of their inputs."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from sureshot.networks.backbones import make_backbone


def cosines(x: torch.Tensor) -> torch.Tensor:
    unit = functional.normalize(x, dim=-1)
    return unit @ unit.T


X = torch.randn(40, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "options"), [("linear", {}), ("linear", {"rank": 4}), ("mlp", {}), ("mlp", {"hidden": (3, 4)})]
)
def test_starts_as_the_identity(name: str, options: dict[str, object]) -> None:
    torch.testing.assert_close(make_backbone(name, (64,), **options)(X), X)


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_widening_is_an_isometry(name: str) -> None:
    wide = make_backbone(name, (64,), n_features=100)(X)
    torch.testing.assert_close(wide @ wide.T, X @ X.T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_narrowing_keeps_lengths_and_angles_nearly(name: str) -> None:
    narrow = make_backbone(name, (64,), n_features=32)(X)
    assert (narrow.square().sum() / X.square().sum()).item() == pytest.approx(1, abs=0.1)
    # entries of a random projection scatter by about sqrt(1 / 32 - 1 / 64)
    assert (cosines(narrow) - cosines(X)).std() < 2 * (1 / 32 - 1 / 64) ** 0.5


def test_low_rank_changes_only_so_many_directions() -> None:
    backbone = make_backbone("linear", (64,), rank=3, bias=False)
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(1))
    assert sum(parameter.numel() for parameter in backbone.parameters()) == 2 * 3 * 64
    assert torch.linalg.matrix_rank(backbone(X) - X) == 3


def test_sequences_are_flattened_in_order() -> None:
    x = torch.arange(12.0).reshape(2, 3, 2)
    assert torch.equal(make_backbone("identity", (3, 2))(x), torch.arange(12.0).reshape(2, 6))


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="rank must be 1 to 64 and keeps the width of 64, got rank 3 with 32"):
        make_backbone("linear", (64,), rank=3, n_features=32)
    with pytest.raises(ValueError, match="rank must be 1 to 64"):
        make_backbone("linear", (64,), rank=65)
    with pytest.raises(ValueError, match="n_features must be at least 1"):
        make_backbone("mlp", (64,), n_features=0)
    with pytest.raises(ValueError, match="without any take 'linear'"):
        make_backbone("mlp", (64,), hidden=())
