"""Penalties, importance, drift and exemplars against their definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sureshot.incremental.trained.distillation import (
    embedding_distance,
    output_divergence,
    pooled_maps_distance,
    recorded_stages,
)
from sureshot.incremental.trained.exemplars import Exemplars
from sureshot.incremental.trained.importance import distance_by_importance, importance
from sureshot.incremental.trained.mean_cosines import cosines, fitted_scale, mean_directions
from sureshot.incremental.trained.semantic_drift import drift
from sureshot.networks.backbones import Backbone, make_backbone


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def pooled_by_hand(new: Sequence[Tensor], old: Sequence[Tensor]) -> list[float]:
    """POD-spatial of every row of two lists of maps, equation 5 of Douillard et al. 2020, by the mean over stages."""

    def pooled(maps: np.ndarray) -> np.ndarray:
        channels, height, width = maps.shape
        over_width = [sum(maps[c, h, w] ** 2 for w in range(width)) for c in range(channels) for h in range(height)]
        over_height = [sum(maps[c, h, w] ** 2 for h in range(height)) for c in range(channels) for w in range(width)]
        together = np.array(over_width + over_height)
        return together / np.sqrt((together**2).sum())

    def distance(row: int) -> float:
        pairs = [(pooled(one[row].numpy()), pooled(other[row].numpy())) for one, other in zip(new, old, strict=True)]
        return float(np.mean([((one - other) ** 2).sum() for one, other in pairs]))

    return [distance(row) for row in range(len(new[0]))]


def herded_by_hand(rows: Tensor, n: int) -> list[int]:
    """Places of the rows that, one after the other, bring the mean of the chosen directions nearest to that of all."""
    unit, chosen = functional.normalize(rows.double(), dim=-1), list[int]()
    for _ in range(n):
        gaps = [
            float((unit.mean(0) - unit[[*chosen, i]].mean(0)).norm()) if i not in chosen else math.inf
            for i in range(len(unit))
        ]
        chosen.append(int(np.argmin(gaps)))
    return chosen


def test_divergence_of_outputs_by_hand() -> None:
    new, old = torch.tensor([[1.0, 0.0], [2.0, 4.0]]), torch.tensor([[0.0, 0.0], [2.0, 4.0]])
    found = output_divergence(new, old, 2.0)
    p = 1 / (1 + math.exp(-0.5))
    assert float(found[0]) == pytest.approx(4 * (0.5 * math.log(0.5 / p) + 0.5 * math.log(0.5 / (1 - p))), abs=1e-6)
    assert float(found[1]) == 0


def test_distance_of_embeddings_is_that_of_directions() -> None:
    new, old = torch.tensor([[2.0, 0.0], [3.0, 0.0]]), torch.tensor([[0.0, 5.0], [1.0, 0.0]])
    assert embedding_distance(new, old).tolist() == pytest.approx([2.0, 0.0])


def test_pooled_maps_by_hand() -> None:
    """Sums of squares over the width and over the height, side by side, one row after the other."""
    new = [normal(2, 3, 4, 5), normal(2, 2, 2, 2, seed=1)]
    old = [normal(2, 3, 4, 5, seed=2), normal(2, 2, 2, 2, seed=3)]
    assert pooled_maps_distance(new, old).tolist() == pytest.approx(pooled_by_hand(new, old), rel=1e-5)
    assert pooled_maps_distance(new, new).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("name", "sizes"), [("conv4", (8, 4, 2, 1)), ("resnet12", (8, 4, 2, 1)), ("resnet18", (16, 8, 4, 2))]
)
def test_stages_of_backbones(name: str, sizes: tuple[int, ...]) -> None:
    options = {"conv4": {"n_filters": 2}, "resnet12": {"widths": (2, 2, 2, 2)}, "resnet18": {"width": 1 / 32}}[name]
    backbone = make_backbone(name, (1, 16, 16), **options)
    with recorded_stages(backbone) as maps:
        features = backbone(normal(3, 1, 16, 16))
        assert [tuple(one.shape) for one in maps] == [
            (3, *one.shape[1:2], side, side) for one, side in zip(maps, sizes, strict=True)
        ]
        last = maps[-1].mean((2, 3)) if name != "conv4" else maps[-1].flatten(1)
        torch.testing.assert_close(last, features)
    before = maps[-1]
    backbone(normal(3, 1, 16, 16, seed=1))
    assert maps[-1] is before  # nothing is recorded afterwards
    assert make_backbone("mlp", (4,)).stages() == []


def small() -> Backbone:
    return make_backbone("conv4", (1, 16, 16), n_filters=2).eval()


def test_importance_is_the_mean_size_of_single_rows_gradients() -> None:
    backbone, x = small(), normal(4, 1, 16, 16)
    found = importance(backbone, x)
    assert found.keys() == dict(backbone.named_parameters()).keys()
    step = 1e-4
    backbone = backbone.double()
    for name, parameter in backbone.named_parameters():
        place = (0,) * parameter.dim()
        slopes = []
        for row in x.double():
            ends = []
            for sign in (1, -1):
                with torch.no_grad():
                    parameter[place] += sign * step
                    ends.append(float(backbone(row.unsqueeze(0)).square().sum()))
                    parameter[place] -= sign * step
            slopes.append(abs(ends[0] - ends[1]) / (2 * step))
        assert float(found[name][place]) == pytest.approx(np.mean(slopes), rel=1e-3, abs=1e-4), name


def test_importance_of_a_linear_map_in_closed_form() -> None:
    backbone, x = make_backbone("linear", (3,), n_features=2), normal(5, 3)
    weight = backbone.map.weight
    assert isinstance(weight, nn.Parameter)
    expected = (2 * (x @ weight.mT).unsqueeze(2) * x.unsqueeze(1)).abs().mean(0)
    torch.testing.assert_close(importance(backbone, x)["map.weight"], expected.detach())


def test_moving_weights_costs_by_their_importance() -> None:
    backbone = make_backbone("linear", (2,), n_features=1)
    before = {name: value.detach().clone() for name, value in backbone.named_parameters()}
    weights = {"map.weight": torch.tensor([[2.0, 3.0]]), "map.bias": torch.tensor([5.0])}
    assert float(distance_by_importance(backbone, before, weights).detach()) == 0
    with torch.no_grad():
        for value in backbone.parameters():
            value += 0.5
    assert float(distance_by_importance(backbone, before, weights).detach()) == pytest.approx(0.25 * (2 + 3 + 5))


def test_drift_by_hand() -> None:
    before, after, prototypes = normal(6, 3).double(), normal(6, 3, seed=1).double(), normal(2, 3, seed=2).double()
    found = drift(before, after, prototypes, 0.7)
    for c in range(2):
        weights = [math.exp(-float((before[i] - prototypes[c]).square().sum()) / (2 * 0.49)) for i in range(6)]
        expected = sum(w * (after[i] - before[i]) for i, w in enumerate(weights)) / sum(weights)
        torch.testing.assert_close(found[c], expected)
    # Rows beyond the range of the exponential still have a nearest one.
    far = drift(before + 1e3, after, prototypes, 1e-3)
    assert bool(torch.isfinite(far).all())
    assert not drift(before, before, prototypes, 0.7).any()


def test_exemplars_bring_their_mean_nearest_to_the_class_mean() -> None:
    x, y = normal(20, 4), torch.arange(20) % 2
    kept = Exemplars(x, y).herded(lambda rows: 3 * rows, 2, 4)
    assert torch.bincount(kept.y).tolist() == [4, 4]
    assert kept.numbers() == 8 * 4 + 8
    for c in range(2):
        torch.testing.assert_close(kept.x[kept.y == c], x[y == c][herded_by_hand(x[y == c], 4)])
    more = kept.with_rows(normal(2, 4, seed=1), torch.tensor([2, 1])).herded(lambda rows: rows, 3, 4)
    assert torch.bincount(more.y).tolist() == [4, 4, 1]


def test_mean_directions_and_cosines() -> None:
    embeddings, y = torch.tensor([[2.0, 0.0], [0.0, 3.0], [4.0, 0.0]]), torch.tensor([0, 0, 2])
    means, counts = mean_directions(embeddings, y, 3)
    assert means.tolist() == [[0.5, 0.5], [0.0, 0.0], [1.0, 0.0]]
    assert counts.tolist() == [2, 0, 1]
    half = math.sqrt(0.5)
    assert cosines(torch.tensor([[0.0, 7.0], [0.0, 0.0]]), means).flatten().tolist() == pytest.approx(
        [half] + [0.0] * 5
    )


def test_the_scale_of_cosines_is_fitted_to_rows_kept_aside() -> None:
    sure = torch.tensor([[0.9, 0.1]] * 40).double()
    y = torch.zeros(40, dtype=torch.int64)
    mixed = y.clone()
    mixed[:16] = 1
    assert fitted_scale(sure, y) > 16 > fitted_scale(sure, mixed)
    assert fitted_scale(sure[:0], y[:0]) == 16
