"""What holds for every deep classifier."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sureshot.deep import DeepClassifier, TreeNetwork, load_deep_classifier
from sureshot.members import members
from sureshot.networks.log import read_log
from tests.deep.digits import NAMES, SETTINGS, digits, network, pretrained_accuracy, run

MARGIN = 0.03
"""How much less accurate than the softmax stage a network may be after four epochs: 16 of the 539 held-out digits."""


@contextmanager
def untouched_global_generator() -> Iterator[None]:
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def moved(classifier: DeepClassifier) -> DeepClassifier:
    """With parameters a little beside where they start, where some gradients are zero by symmetry."""
    seed = generator()
    with torch.no_grad():
        for parameter in classifier.parameters():
            parameter += 0.03 * torch.randn(parameter.shape, dtype=parameter.dtype, generator=seed)
    return classifier


def test_every_network_has_a_case() -> None:
    assert sorted(NAMES) == sorted(members(DeepClassifier, "sureshot.deep"))


@pytest.mark.parametrize("name", NAMES)
class TestDeepClassifier:
    def test_losses_reach_every_parameter(self, name: str) -> None:
        with untouched_global_generator():
            classifier, (x, y, *_) = moved(network(name)), digits()
            losses = classifier.losses(x[:50], y[:50], generator(), len(x))
        assert losses.shape == (50,)
        losses.mean().backward()
        for parameter, value in classifier.named_parameters():
            assert value.grad is not None, parameter
            assert float(value.grad.norm()) > 0, parameter

    def test_gradients_by_finite_differences(self, name: str) -> None:
        """Along a random direction of all parameters at once, in float64."""
        classifier, (x, y, *_) = moved(network(name).double()), digits()

        def loss() -> Tensor:
            return classifier.losses(x[:40].double(), y[:40], generator(), len(x)).mean()

        if isinstance(classifier, TreeNetwork):
            loss()
            classifier.step_size = 0.0  # the gradient is that at the Gaussians to which the step came
        loss().backward()
        parameters = list(classifier.parameters())
        seed = generator()
        direction = [torch.randn(p.shape, dtype=p.dtype, generator=seed) for p in parameters]
        gradients = [p.grad for p in parameters if p.grad is not None]
        expected = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True))
        ends = []
        with torch.no_grad():
            for step in (1e-6, -2e-6):
                for p, d in zip(parameters, direction, strict=True):
                    p += step * d
                ends.append(float(loss()))
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(expected, rel=1e-4)

    def test_probabilities_of_a_row_depend_on_it_alone(self, name: str) -> None:
        classifier, (_, _, x, _) = network(name).train(), digits()
        with untouched_global_generator():
            logs = classifier.log_probabilities(x[:30])
        assert classifier.training
        assert logs.shape == (30, 10)
        assert not logs.requires_grad
        sums = logs.exp().sum(1)
        torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-5)
        torch.testing.assert_close(classifier.log_probabilities(x[:30], at_once=7), logs, rtol=1e-4, atol=1e-4)

    def test_learns(self, name: str, tmp_path: Path) -> None:
        run(network(name), SETTINGS[name], tmp_path)
        records = read_log(tmp_path, "rows")
        losses = [record["loss"] for record in records if record["kind"] == "training"]
        scores = [record for record in records if record["kind"] == "validation"]
        assert losses[-1] < losses[0]
        assert scores[-1]["nll"] < scores[0]["nll"] or name == "softmax"
        assert scores[-1]["accuracy"] >= pretrained_accuracy() - MARGIN

    def test_a_resumed_run_is_the_uninterrupted_one(self, name: str, tmp_path: Path) -> None:
        settings = replace(SETTINGS[name], batch_size=256, milestones=(1,))
        run(network(name), replace(settings, epochs=2), tmp_path / "whole")
        run(network(name), replace(settings, epochs=1), tmp_path / "parts")
        run(network(name), replace(settings, epochs=2), tmp_path / "parts")
        for part in ("last.safetensors", "metrics.jsonl"):
            assert (tmp_path / "parts" / part).read_bytes() == (tmp_path / "whole" / part).read_bytes()
        # The header of the best checkpoint says how many epochs were asked for when it was written.
        one, other = (load_deep_classifier(tmp_path / part / "best.safetensors") for part in ("whole", "parts"))
        for key, value in one.state_dict().items():
            assert torch.equal(other.state_dict()[key], value), key

    def test_a_checkpoint_is_the_classifier_that_was_scored(self, name: str, tmp_path: Path) -> None:
        trained = run(network(name), replace(SETTINGS[name], epochs=1, batch_size=256), tmp_path)
        with untouched_global_generator():
            classifier = load_deep_classifier(tmp_path)  # the best one of the run
        _, _, x, y = digits()
        logs = classifier.log_probabilities(x)
        assert not classifier.training
        assert float((logs.argmax(1) == y).double().mean()) == trained.scores["accuracy"]
        assert float(-logs.gather(1, y.unsqueeze(1)).mean()) == trained.scores["nll"]
