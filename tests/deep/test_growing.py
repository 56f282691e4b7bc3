"""Proxies and triplets against their definitions, and classes that are added."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sureshot.deep import GrowingClassifier, ProxyNetwork, SoftmaxNetwork, TripletNetwork
from sureshot.deep.triplet import class_means, triplet_losses
from sureshot.networks.backbones import make_backbone

GENERATOR = torch.Generator()


def rows(n: int, seed: int = 0, width: int = 5) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed))


def three_classes(kind: str) -> GrowingClassifier:
    """On the identity."""
    x, y, backbone = rows(12), torch.arange(12) % 3, make_backbone("linear", (5,))
    if kind == "softmax":
        return SoftmaxNetwork(backbone, 3)
    if kind == "triplet":
        return TripletNetwork.of_embeddings(backbone, x, y, 3, margin=0.3)
    return ProxyNetwork.of_embeddings(backbone, x, y, 3, per_class=2, scale=3.0)


def test_the_loss_of_proxies_by_hand() -> None:
    network = three_classes("cosine_proxies")
    assert isinstance(network, ProxyNetwork)
    x, y = rows(4, seed=1), torch.tensor([0, 2, 1, 2])
    losses = network.embedded_losses(x, y, GENERATOR, 4)
    for row, label, loss in zip(x, y.tolist(), losses.tolist(), strict=True):
        scores = []
        for proxies in network.proxies.detach():
            cosines = [float(functional.cosine_similarity(row, proxy, dim=0)) for proxy in proxies]
            weights = [math.exp(value) for value in cosines]
            scores.append(sum(w * c for w, c in zip(weights, cosines, strict=True)) / sum(weights))
        others = sum(math.exp(3 * score) for c, score in enumerate(scores) if c != label)
        assert loss == pytest.approx(max(0.0, -math.log(math.exp(3 * (scores[label] - 0.6)) / others)), abs=1e-5)
    assert float(losses.detach().max()) > 0
    p = network.predictor()(x).exp()
    torch.testing.assert_close(p, torch.softmax(3 * network.scores(x), 1))


def test_a_row_beyond_the_margin_has_no_loss() -> None:
    network = ProxyNetwork(make_backbone("identity", (2,)), torch.tensor([[[1.0, 0.0]], [[-1.0, 0.0]]]), scale=20.0)
    losses = network.embedded_losses(torch.tensor([[5.0, 0.0]]), torch.tensor([0]), GENERATOR, 1)
    assert losses.tolist() == [0.0]


def test_proxies_begin_at_the_rows_of_a_small_class() -> None:
    x, y = rows(3), torch.tensor([0, 0, 1])
    network = ProxyNetwork.of_embeddings(make_backbone("identity", (5,)), x, y, 2, per_class=4)
    unit = functional.normalize(x, dim=-1)
    assert {tuple(row) for row in network.proxies[0].tolist()} == {tuple(row) for row in unit[:2].tolist()}
    assert {tuple(row) for row in network.proxies[1].tolist()} == {tuple(unit[2].tolist())}


def test_triplets_by_hand() -> None:
    z, y = functional.normalize(rows(9, seed=2), dim=-1), [0, 0, 0, 1, 1, 2, 0, 1, 3]
    losses = triplet_losses(z, torch.tensor(y), 0.3)
    for a in range(9):
        found = []
        for p in range(9):
            for n in range(9):
                if p != a and y[p] == y[a] and y[n] != y[a]:
                    near, far = float((z[a] - z[p]).square().sum()), float((z[a] - z[n]).square().sum())
                    found.append(max(0.0, near - far + 0.3))
        wrong = [value for value in found if value > 0]
        assert float(losses[a]) == pytest.approx(sum(wrong) / max(1, len(wrong)), abs=1e-5)
    assert float(losses[5]) == float(losses[8]) == 0


def test_without_a_triplet_there_is_no_gradient_but_a_loss() -> None:
    network = three_classes("triplet")
    x = rows(2).requires_grad_()
    for y in ([0, 1], [1, 1]):
        losses = network.embedded_losses(x, torch.tensor(y), GENERATOR, 2)
        losses.mean().backward()
        assert losses.tolist() == [0.0, 0.0]


def test_class_means_follow_the_batches() -> None:
    network = three_classes("triplet")
    assert isinstance(network, TripletNetwork)
    before, x = network.means.clone(), rows(3, seed=3)
    network.embedded_losses(x, torch.tensor([2, 0, 2]), GENERATOR, 3)
    unit = functional.normalize(x, dim=-1)
    torch.testing.assert_close(network.means[1], before[1])
    torch.testing.assert_close(network.means[0], 0.9 * before[0] + 0.1 * unit[1])
    torch.testing.assert_close(network.means[2], 0.9 * before[2] + 0.1 * (unit[0] + unit[2]) / 2)
    p = network.predictor()(x).exp()
    cosines = functional.cosine_similarity(x.unsqueeze(1), network.means, dim=-1)
    torch.testing.assert_close(p, torch.softmax(16 * cosines, 1))


@pytest.mark.parametrize("kind", ["softmax", "cosine_proxies", "triplet"])
def test_further_classes_leave_the_others_as_they_are(kind: str) -> None:
    network, x, y = three_classes(kind), rows(6, seed=4), torch.tensor([4, 3, 4, 3, 3, 4])
    network.precision = "bfloat16"
    with torch.no_grad():
        for parameter in network.parameters():  # as if it had been trained
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(6))
    state = {name: value.clone() for name, value in network.state_dict().items()}
    grown = network.grown(network.backbone(x), y, 5)
    assert (grown.n_classes, grown.precision, network.n_classes) == (5, "bfloat16", 3)
    assert {**grown.config, "n_classes": 3} == network.config
    asked = rows(7, seed=5)
    before, after = network.predictor()(asked), grown.predictor()(asked)
    assert after.shape == (7, 5)
    torch.testing.assert_close(after[:, :3].log_softmax(1), before)
    with torch.no_grad():
        for parameter in grown.parameters():
            parameter += 1
    for name, value in network.state_dict().items():
        assert torch.equal(value, state[name]), name
    again = type(grown).from_config(grown.config)
    again.load_state_dict(grown.state_dict())
    torch.testing.assert_close(again.predictor()(asked), grown.predictor()(asked))


def test_means_of_new_classes_and_classes_without_rows() -> None:
    x, y = rows(4), torch.tensor([2, 3, 2, 2])
    unit = functional.normalize(x, dim=-1)
    torch.testing.assert_close(class_means(x, y, range(2, 4)), torch.stack([unit[[0, 2, 3]].mean(0), unit[1]]))
    for kind in ("cosine_proxies", "triplet"):
        with pytest.raises(ValueError, match="y must hold each of the labels from 3 to 4"):
            three_classes(kind).grown(x, torch.full((4,), 3), 5)


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k in ("cosine_proxies", "triplet") for n in ("margin", "scale")])
def test_options_out_of_range(kind: str, name: str) -> None:
    options: dict[str, Any] = {name: 0.0}
    make = {"cosine_proxies": ProxyNetwork, "triplet": TripletNetwork}[kind]
    with pytest.raises(ValueError, match=f"{name} must be positive and finite, got 0.0"):
        make.of_embeddings(make_backbone("identity", (5,)), rows(4), torch.arange(4) % 2, 2, **options)
