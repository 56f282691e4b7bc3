"""Methods whose network goes on learning: what sessions change, what they keep, and what is refused."""

from __future__ import annotations

import copy
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn import functional

from sureshot.deep import (
    ClassifierSettings,
    ClassifierTraining,
    GrowingClassifier,
    ProxyNetwork,
    SoftmaxNetwork,
    TripletNetwork,
    held_out_rows,
)
from sureshot.deep.training import Penalty
from sureshot.evaluation.methods import make_method
from sureshot.incremental.trained import NetworkMethod, make_trained
from sureshot.incremental.trained.distillation import recorded_stages
from sureshot.incremental.trained.exemplars import Exemplars, unit_directions
from sureshot.incremental.trained.icarl import distillation
from sureshot.incremental.trained.importance import importance
from sureshot.incremental.trained.podnet import PODNet
from sureshot.incremental.trained.semantic_drift import SemanticDrift, drift
from sureshot.networks import Processes, train
from sureshot.networks.backbones import make_backbone
from tests.incremental.trained.test_parts import herded_by_hand, pooled_by_hand

CONV = {"name": "conv4", "n_filters": 3}
BASE = {"epochs": 20, "batch_size": 8, "learning_rate": 0.1}
NAMES = ("fine_tuning", "icarl", "podnet", "sdc")


def squares(labels: list[int], n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images 16 x 16 in bytes with a bright square in one of four corners, the labels in turn."""
    y = np.array(labels * n)
    x = np.random.default_rng(seed).integers(0, 80, (len(y), 1, 16, 16)).astype(np.uint8)
    for image, label in zip(x, y.tolist(), strict=True):
        image[0, 8 * (label // 2) :, 8 * (label % 2) :][:8, :8] += 150
    return x, y


def noise(labels: list[int], n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images that say nothing about their labels, so that there is something to learn."""
    x, y = squares(labels, n, seed)
    return np.random.default_rng(seed).integers(0, 256, x.shape).astype(np.uint8), y


def method(name: str, **options: Any) -> NetworkMethod[Any]:
    given = {"backbone": CONV, "base": BASE, "later": {"epochs": 3, "learning_rate": 0.01}}
    if name == "podnet":
        given["balanced"] = {"epochs": 2}
    return make_trained(name, **(given | options))


def taught(name: str, **options: Any) -> NetworkMethod[Any]:
    """After the base session, whose network is trained once for all options of what comes after."""
    if not options:
        return copy.deepcopy(_taught(name))
    found = method(name, **options)
    found._trained_base = lambda *_: copy.deepcopy(_taught(name)._current().classifier)  # type: ignore[method-assign]
    return found.fit(*squares([0, 1], 10, 0))


@lru_cache
def _taught(name: str) -> NetworkMethod[Any]:
    return method(name).fit(*squares([0, 1], 10, 0))


def state(classifier: GrowingClassifier) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in classifier.state_dict().items()}


@pytest.mark.parametrize("name", NAMES)
def test_images_in_two_sessions(name: str) -> None:
    found = taught(name)
    base = found._current()
    before = state(base.classifier)
    found.partial_fit(*noise([3, 2], 4, 1))
    assert found.classes_.tolist() == [0, 1, 2, 3]
    p = found.predict_proba(squares([0, 1, 2, 3], 3, 2)[0])
    assert p.shape == (12, 4)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    assert found.memory().n_classes == 4
    # What was known is a value: the network of the base session is as it was, and the new one is another.
    after = found._current().classifier.state_dict()
    for key, value in base.classifier.state_dict().items():
        assert torch.equal(value, before[key]), key
        if "running" in key:
            assert torch.equal(after[key], value), key
    assert any(not torch.equal(after[key], before[key]) for key in before if "convolution" in key)


@pytest.mark.parametrize("name", NAMES)
def test_a_session_that_diverges_changes_nothing(name: str) -> None:
    found = taught(name, later={"epochs": 3, "learning_rate": 1e30, "optimiser": "sgd"})
    x = squares([0, 1, 2], 3, 2)[0]
    before = found._current(), found.predict_proba(x), found.outlier_score(x)
    with pytest.raises(ValueError, match="diverged"):
        found.partial_fit(*noise([2, 3], 4, 1))
    assert found._current() is before[0]
    np.testing.assert_array_equal(found.predict_proba(x), before[1])
    np.testing.assert_array_equal(found.outlier_score(x), before[2])


@pytest.mark.parametrize("name", NAMES)
def test_more_rows_of_old_classes(name: str) -> None:
    found = taught(name)
    base = found._current().classifier
    before = state(base)
    found.partial_fit(*noise([0, 1], 3, 1))
    assert all(torch.equal(value, before[key]) for key, value in base.state_dict().items())
    found.partial_fit(*squares([0, 2], 3, 1))
    assert found.classes_.tolist() == [0, 1, 2]
    assert np.isfinite(found.predict_proba(squares([0, 1, 2], 3, 2)[0])).all()


@pytest.mark.parametrize("name", ["icarl", "podnet"])
def test_the_budget_of_exemplars(name: str) -> None:
    found = taught(name, n_exemplars=3).partial_fit(*squares([2], 2, 1)).partial_fit(*squares([3, 0], 5, 2))
    kept = found._current().kept
    exemplars = kept if isinstance(kept, Exemplars) else kept.exemplars
    assert torch.bincount(exemplars.y).tolist() == [3, 3, 2, 3]
    assert exemplars.x.dtype == torch.uint8
    head = sum(
        p.numel() for n, p in found._current().classifier.named_parameters() if n.startswith(("linear", "proxies"))
    )
    means = kept.means.numel() if name == "icarl" else 0
    assert found.memory().of_classes == head + 11 * (256 + 1) + means


def test_icarl_predicts_by_means_of_its_exemplars() -> None:
    found = taught("icarl").partial_fit(*squares([2, 3], 4, 1))
    known = found._current()
    x = squares([0, 1, 2, 3], 3, 2)[0]
    unit = unit_directions(known.classifier.embeddings(torch.from_numpy(x)))
    of_exemplars = unit_directions(known.classifier.embeddings(known.kept.exemplars.x))
    means = torch.stack([of_exemplars[known.kept.exemplars.y == c].mean(0) for c in range(4)])
    cosines = unit @ unit_directions(means).mT
    np.testing.assert_allclose(found.predict_proba(x), torch.softmax(known.kept.scale * cosines, 1), rtol=1e-5)
    np.testing.assert_allclose(found.outlier_score(x), 1 - cosines.amax(1), atol=1e-6)


def test_exemplars_are_chosen_by_the_network_after_the_session() -> None:
    found, (x, y) = taught("icarl"), noise([2, 3], 12, 1)
    before = found._current().classifier
    found.partial_fit(x, y)
    choices = []
    for network in (found._current().classifier, before):
        z = network.embeddings(torch.from_numpy(x))
        choices.append([x[y == label][sorted(herded_by_hand(z[y == label], 5))] for label in (2, 3)])
    kept = found._current().kept.exemplars
    for label, expected in zip((2, 3), choices[0], strict=True):
        own = kept.x[kept.y == label].numpy()
        assert {row.tobytes() for row in own} == {row.tobytes() for row in expected}
    assert not all(np.array_equal(one, other) for one, other in zip(*choices, strict=True))


def test_prototypes_move_by_the_estimated_drift_session_after_session() -> None:
    found = taught("sdc")
    means = found._current().kept.means
    for labels, seed in (([2, 3], 1), ([4, 5], 2)):
        before, (x, y) = found._current().classifier, noise(labels, 4, seed)
        found.partial_fit(x, y)
        rows = [unit_directions(net.embeddings(torch.from_numpy(x))) for net in (before, found._current().classifier)]
        assert float((rows[0] - rows[1]).norm()) > 1e-4
        new = torch.stack([rows[1][torch.from_numpy(y == label)].mean(0) for label in labels])
        means = torch.cat([means + drift(rows[0], rows[1], means, 0.3), new])
        torch.testing.assert_close(found._current().kept.means, means)
    assert found._current().kept.counts.tolist() == [9, 9, 4, 4, 4, 4]  # one of each base class is kept aside
    # More rows of a class: its mean is that of all, those that came before moved by the drift.
    before, (x, y) = found._current().classifier, noise([0, 4], 3, 3)
    found.partial_fit(x, y)
    rows = [unit_directions(net.embeddings(torch.from_numpy(x))) for net in (before, found._current().classifier)]
    means = means + drift(rows[0], rows[1], means, 0.3)
    for label, count in ((0, 9), (4, 4)):
        means[label] = (count * means[label] + rows[1][torch.from_numpy(y == label)].sum(0)) / (count + 3)
    torch.testing.assert_close(found._current().kept.means, means)
    cosines = rows[1] @ functional.normalize(means, dim=-1).mT
    np.testing.assert_allclose(found.outlier_score(x), 1 - cosines.amax(1), rtol=0, atol=1e-6)
    scale = found._current().kept.scale
    np.testing.assert_allclose(found.predict_proba(x), torch.softmax(scale * cosines, 1), rtol=1e-5)


def test_importance_is_the_mean_over_the_rows_of_all_sessions() -> None:
    found = taught("sdc", penalty="mas", gamma=0.0, importance_rows=5, later={"epochs": 1, "learning_rate": 1e-12})
    first = found._current().kept
    found.partial_fit(*squares([2], 3, 1))
    second = found._current().kept
    assert (first.n_rows, second.n_rows) == (5, 8)
    new = importance(found._current().classifier.backbone, torch.from_numpy(squares([2], 3, 1)[0]))
    for name, value in second.weights.items():
        torch.testing.assert_close(value, (5 * first.weights[name] + 3 * new[name]) / 8, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("penalty", ["lwf", "mas"])
def test_what_forgetting_costs_holds_the_network_back(penalty: str) -> None:
    moved = {}
    for gamma in (0.0, 1e5):
        found = taught("sdc", penalty=penalty, gamma=gamma, later={"epochs": 10, "learning_rate": 1e-3})
        x = torch.from_numpy(noise([2, 3], 4, 1)[0])
        before = unit_directions(found._current().classifier.embeddings(x))
        found.partial_fit(*noise([2, 3], 4, 1))
        moved[gamma] = float((unit_directions(found._current().classifier.embeddings(x)) - before).norm())
    assert moved[1e5] < 0.5 * moved[0.0]


def test_what_a_session_costs_before_anything_has_changed() -> None:
    """Nothing, whatever the classes that are new say; and then something."""
    x, y = (torch.from_numpy(part) for part in squares([0, 1, 2, 3], 2, 3))
    inputs, new = x.float() / 255, y >= 2

    def costs(penalty: Penalty, classifier: GrowingClassifier) -> list[Tensor]:
        found = [penalty(inputs, classifier.encoded(inputs)).detach()]
        with torch.no_grad():
            for parameter in classifier.backbone.parameters():
                parameter += 0.1
        return [*found, penalty(inputs, classifier.encoded(inputs)).detach()]

    def larger(name: str, **options: Any) -> tuple[NetworkMethod[Any], GrowingClassifier, GrowingClassifier]:
        found = taught(name, **options)
        old = found._current().classifier
        return found, old, old.grown(old.encoded(inputs[new]), y[new], 4).eval()

    def check(unchanged: Tensor, changed: Tensor, expected: Tensor) -> None:
        assert float(unchanged.abs().max()) < 1e-6 < 1e-3 < float(changed.min())
        torch.testing.assert_close(changed.double(), expected.double(), rtol=1e-3, atol=1e-5)

    def both(grown: GrowingClassifier, old: GrowingClassifier) -> tuple[Tensor, Tensor]:
        return grown.encoded(inputs).detach().double(), old.encoded(inputs).detach().double()

    def apart(grown: GrowingClassifier, old: GrowingClassifier) -> Tensor:
        now, then = (part / part.square().sum(1, keepdim=True).sqrt() for part in both(grown, old))
        return (now - then).square().sum(1)

    _, old, grown = larger("icarl")
    unchanged, changed = costs(distillation(grown, old), grown)
    weight, bias = (part.detach().double() for part in (old.linear.weight, old.linear.bias))
    new_odds, old_odds = (((z @ weight.mT + bias) @ torch.tensor([-1.0, 1.0]).double()) / 2 for z in both(grown, old))
    p, q = torch.sigmoid(old_odds), torch.sigmoid(new_odds)  # of the second of two classes, at temperature 2
    check(unchanged, changed, 4 * (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()))
    for penalty in ("lwf", "mas"):
        drifting, old, grown = larger("sdc", penalty=penalty, gamma=3.0)
        assert isinstance(drifting, SemanticDrift)
        known = drifting._current()
        unchanged, changed = costs(drifting._penalty(grown, known), grown)
        if penalty == "mas":  # all weights have moved by .1
            total = sum(float(value.sum()) for value in known.kept.weights.values())
            check(unchanged, changed, torch.full((len(y),), 3 * 0.01 * total))
        else:
            check(unchanged, changed, 3 * apart(grown, old))
    pod, old, grown = larger("podnet")
    assert isinstance(pod, PODNet)
    with recorded_stages(grown.backbone) as now, recorded_stages(old.backbone) as then:
        unchanged, changed = costs(pod._penalty(old, 2.0, now, then), grown)
        spatial = pooled_by_hand([part.detach() for part in now], [part.detach() for part in then])
    check(unchanged, changed, 2 * (3 * torch.tensor(spatial) + apart(grown, old)))


def test_what_podnet_does_with_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Distances count the root of 4 classes over the session's 2; then the proxies alone learn from exemplars."""
    factors, plain = [], PODNet._penalty

    def heard(self: PODNet, old: GrowingClassifier, factor: float, *maps: Any) -> Penalty:
        factors.append(factor)
        return plain(self, old, factor, *maps)

    monkeypatch.setattr(PODNet, "_penalty", heard)
    still = {"epochs": 1, "learning_rate": 1e-12}
    found = taught("podnet", later=still, balanced={"epochs": 3, "learning_rate": 0.5})
    before = state(found._current().classifier)
    found.partial_fit(*noise([3, 2], 4, 1))
    assert factors == [pytest.approx(2**0.5)]
    after = found._current().classifier.state_dict()
    for key, value in before.items():
        if key.startswith("backbone"):
            torch.testing.assert_close(after[key], value)
    assert float((after["proxies"][:2] - before["proxies"]).abs().max()) > 1e-3


@pytest.mark.parametrize("name", ["icarl", "sdc"])
def test_the_scale_of_cosines_is_that_of_rows_kept_aside(name: str) -> None:
    """The most probable one, log-normal beforehand around 16, with a standard deviation of 2."""
    found = taught(name)._current()
    x, y = (torch.from_numpy(part) for part in squares([0, 1], 10, 0))
    aside = held_out_rows(y, 0.05, 0)
    assert int(aside.sum()) == 2
    z, means = found.classifier.embeddings(x[aside]).double().numpy(), found.kept.means.numpy()
    cosines = (z @ means.T) / np.linalg.norm(z, axis=1)[:, None] / np.linalg.norm(means, axis=1)

    def loss(log_scale: float) -> float:
        scores = math.exp(log_scale) * cosines
        nll = np.logaddexp(scores[:, 0], scores[:, 1]) - scores[[0, 1], y[aside].numpy()]
        return float(nll.sum() + (log_scale - math.log(16)) ** 2 / (2 * 2**2))

    expected = minimize_scalar(loss, bounds=(-5, 12), method="bounded", options={"xatol": 1e-8}).x
    assert found.kept.scale == pytest.approx(math.exp(expected), rel=1e-5)


def test_another_network_continues_the_softmax_at_a_tenth_of_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = []

    def untrained(self: Any, classifier: GrowingClassifier, x: Any, y: Any, aside: Any, settings: Any) -> Any:
        stages.append((classifier.name, settings.learning_rate))
        return classifier.eval()

    monkeypatch.setattr(NetworkMethod, "_train_base", untrained)
    method("podnet").fit(*squares([0, 1], 10, 0))
    assert stages == [("softmax", 0.1), ("cosine_proxies", pytest.approx(0.01))]


def trained_checkpoint(folder: Path, kind: str = "softmax", swapped: bool = False) -> Path:
    """Of the base session's two classes."""
    x, y = (torch.from_numpy(part) for part in squares([0, 1], 10, 0))
    y = 1 - y if swapped else y
    backbone = make_backbone("conv4", (1, 16, 16), n_filters=3)
    network: GrowingClassifier = SoftmaxNetwork(backbone, 2)
    if kind != "softmax":
        make = {"cosine_proxies": ProxyNetwork, "triplet": TripletNetwork}[kind]
        network = make.of_embeddings(backbone, network.embeddings(x), y, 2)
    settings = ClassifierSettings(epochs=20, batch_size=8, learning_rate=0.1, validate_every=0)
    alone = Processes(0, 1, torch.device("cpu"))
    trainee = ClassifierTraining(network, x, y, settings, alone)
    return train(trainee, trainee.loop_settings(), folder, alone).best


@pytest.mark.parametrize(("name", "kind"), [("icarl", "softmax"), ("podnet", "cosine_proxies"), ("sdc", "triplet")])
def test_a_checkpoint_is_the_base_sessions_network(name: str, kind: str, tmp_path: Path) -> None:
    path = trained_checkpoint(tmp_path, kind)
    one, other = (make_method(name, checkpoint=str(path), later={"epochs": 2}) for _ in range(2))
    x = squares([0, 1, 2], 3, 2)[0]
    for found in (one, other):
        found.fit(*squares([0, 1], 10, 0)).partial_fit(*squares([2], 4, 1))
    np.testing.assert_array_equal(one.predict_proba(x), other.predict_proba(x))


def test_checkpoints_that_do_not_fit(tmp_path: Path) -> None:
    softmax = trained_checkpoint(tmp_path / "softmax")
    base = squares([0, 1], 10, 0)
    for name, path, rows, message in (
        ("sdc", softmax, base, "holds a network 'softmax', sdc begins with 'triplet'"),
        ("icarl", softmax, squares([0, 1, 2], 5, 0), "knows 2 classes, the base session has 3"),
        (
            "icarl",
            softmax,
            (base[0][..., :8], base[1]),
            "X: expected images of 1 channel 16x16, as .* takes, got .*16x8",
        ),
        (
            "icarl",
            trained_checkpoint(tmp_path / "swapped", swapped=True),
            base,
            "but would be about 20 if its classes were in another order",
        ),
        ("icarl", tmp_path / "gone.safetensors", base, "gone.safetensors"),
    ):
        found = make_method(name, checkpoint=str(path))
        with pytest.raises((ValueError, OSError), match=message):
            found.fit(*rows)
        with pytest.raises(ValueError, match="has learnt nothing yet"):
            found.predict_proba(rows[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint": "a", "base": {}}, "checkpoint is a trained network: leave backbone and base out"),
        ({"backbone": {"name": "conv5"}}, "unknown backbone 'conv5'"),
        ({"backbone": {"name": "conv4", "filters": 3}}, "backbone 'conv4' has no option 'filters'"),
        ({"base": {"epoch": 3}}, r"unknown key base.epoch \(did you mean 'epochs'\?\)"),
        ({"later": {"learning_rate": "fast"}}, "later.learning_rate must be a number, got 'fast'"),
        ({"later": {"seed": 3}}, "later.seed cannot be set: the method's seed is used"),
        ({"later": {"validate_every": 3}}, "later.validate_every cannot be set: there are no rows"),
        ({"later": {"epochs": 0}}, "epochs must be at least 1"),
    ],
)
def test_options_are_checked_before_anything_is_trained(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_method("fine_tuning", **options)


def test_the_seed_is_that_of_the_weights_too() -> None:
    x, y = squares([0, 1], 3, 0)
    begun = [
        method("fine_tuning", seed=seed, base={"epochs": 1, "learning_rate": 1e-12}).fit(x, y) for seed in (0, 0, 1)
    ]
    first, same, other = (next(one._known.classifier.backbone.parameters()) for one in begun)
    assert torch.equal(first, same)
    assert not torch.allclose(first, other)
