"""Scores on validation classes, and what learners fit there."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from sureshot.data.labelled import FewShotData, LabelledSet
from sureshot.meta.evaluation.calibration import temperature_of
from sureshot.meta.evaluation.passes import embed_set
from sureshot.meta.learners.gp import GaussianProcessLearner
from sureshot.meta.training import TrainingConfig
from sureshot.meta.training.episodic import build_learner
from sureshot.meta.training.validation import Validator, _other_shots, _other_way


@pytest.mark.parametrize(
    ("way", "n_classes", "other"),
    [(5, 29, 20), (5, 12, 12), (5, 9, None), (30, 30, 10), (6, 6, 2), (3, 6, 6), (2, 3, None), (5, 5, None)],
)
def test_a_second_number_of_classes_well_away_from_the_first(way: int, n_classes: int, other: int | None) -> None:
    assert _other_way(way, n_classes) == other


@pytest.mark.parametrize(
    ("shots", "most", "other"),
    [(1, 100, 5), (1, 3, 3), (1, 1, None), (2, 100, 1), (5, 5, 1)],
)
def test_a_second_number_of_shots_well_away_from_the_first(shots: int, most: int, other: int | None) -> None:
    assert _other_shots(shots, most) == other


def test_a_validation_set_of_one_class(configure: Callable[..., TrainingConfig], data: FewShotData) -> None:
    config = configure()
    one = data.val.select_classes([4])
    with pytest.raises(ValueError, match=r"^validation classes: there is only one class \('pattern 4'\)"):
        Validator(one, data.train, config.episodes.to_protocol(), config.validation)


def test_fewer_validation_classes_than_the_way_are_noted(
    configure: Callable[..., TrainingConfig], data: FewShotData, caplog: pytest.LogCaptureFixture
) -> None:
    config = configure(episodes={"way": 4})
    with caplog.at_level(logging.INFO, "sureshot"):
        Validator(data.val, data.train, config.episodes.to_protocol(), config.validation)
        assert not caplog.messages
        Validator(data.val.select_classes([0, 2, 5]), data.train, config.episodes.to_protocol(), config.validation)
    assert caplog.messages == ["validation is on 3-way tasks: there are no more validation classes"]


def clusters(spread: float, n_classes: int = 12, n_rows: int = 20) -> LabelledSet:
    """Rows around a random centre for each class."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n_classes).repeat_interleave(n_rows)
    x = torch.randn(n_classes, 20, generator=generator)[y] + spread * torch.randn(len(y), 20, generator=generator)
    return LabelledSet(x, y, tuple(f"cluster {k}" for k in range(n_classes)))


def on_clusters(**validation: int) -> TrainingConfig:
    return TrainingConfig.from_dict(
        {
            "data": {"name": "clusters"},
            "episodes": {"way": 3, "shots": 1},
            "backbone": {"name": "identity"},
            "learner": {"name": "ove_mean_field_pl"},
            "validation": {"tasks": 10, "queries": 3} | validation,
        }
    )


def test_temperatures_are_those_of_tasks_of_two_sizes_and_two_numbers_of_shots() -> None:
    data, config = clusters(spread=1.2), on_clusters()
    learner = build_learner(config, data)
    assert isinstance(learner, GaussianProcessLearner)
    validator = Validator(data, data, config.episodes.to_protocol(), config.validation)
    scores = validator(learner)
    ways, shots = torch.tensor([3.0, 12.0, 3.0]), torch.tensor([1.0, 1.0, 5.0])
    temperatures = learner.temperature(ways, shots.unsqueeze(-1).expand(-1, 2))
    growth, shot_growth = float(learner.log_temperature[1]), float(learner.shot_growth)
    assert -0.5 < growth < 0.5
    assert 0 < shot_growth < 0.5
    learner.set_temperature(1.0)
    embeddings = embed_set(learner, data.x)
    for exam, temperature, way, n in zip(validator._temperature_exams, temperatures, ways, shots, strict=True):
        assert exam is not None
        protocol = exam.sampler.protocol
        assert (protocol.way, protocol.shots) == (way, n)
        assert len(exam.rows) * way >= 1500
        batches = list(replace(exam, batch_size=70).adapt(learner, embeddings, torch.Generator()))
        probabilities = np.concatenate([batch.probabilities.reshape(-1, protocol.ways[1]) for batch in batches])
        y = np.concatenate([batch.query_y.ravel() for batch in batches])
        assert temperature_of(probabilities, y) == pytest.approx(float(temperature), rel=1e-4)
    learner.set_temperature(float(temperatures[0]), 3, growth, 1, shot_growth)
    assert validator(learner) == scores  # the same again, as temperatures start from one
    assert math.isfinite(scores.nll)


@pytest.mark.parametrize("queries", [3, 18])
def test_tasks_without_an_error_do_not_make_a_temperature_run_away(queries: int) -> None:
    easy, config = clusters(spread=0.001), on_clusters(queries=queries)  # 18 of 20 rows leave two shots at most
    learner = build_learner(config, easy)
    assert isinstance(learner, GaussianProcessLearner)
    scores = Validator(easy, easy, config.episodes.to_protocol(), config.validation)(learner)
    assert scores.accuracy == 1
    at_first = learner.temperature(torch.tensor([3.0]), torch.ones(1, 3))
    assert learner.temperature(torch.tensor([500.0]), torch.ones(1, 500)) < 5
    after_many_rows = learner.temperature(torch.tensor([3.0]), torch.full((1, 3), 1e4)) / at_first
    assert 1 <= after_many_rows <= 20**0.5 + 1e-3


def test_shots_are_the_geometric_mean_over_the_classes_that_have_rows(
    configure: Callable[..., TrainingConfig], data: FewShotData
) -> None:
    learner = build_learner(configure(learner={"name": "ove_mean_field_pl"}), data.train)
    assert isinstance(learner, GaussianProcessLearner)
    learner.set_temperature(2.0, shot_growth=0.5)
    sizes = torch.tensor([[1.0, 1.0, 1.0], [2.0, 8.0, 0.0], [16.0, 16.0, 16.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])
    found = learner.temperature(torch.full((5,), 3.0), sizes)
    torch.testing.assert_close(found, torch.tensor([2.0, 4.0, 8.0, 2.0, 2.0]))
    learner.set_temperature(2.0, shots=40, shot_growth=0.5)  # from 20 on all are alike
    found = learner.temperature(torch.full((2,), 3.0), torch.tensor([[40.0] * 3, [1000.0] * 3]))
    torch.testing.assert_close(found, torch.tensor([2.0, 2.0]))


def test_probabilities_are_tempered_by_the_number_of_a_tasks_own_classes_and_rows(
    configure: Callable[..., TrainingConfig], data: FewShotData
) -> None:
    learner = build_learner(configure(learner={"name": "ove_mean_field_pl"}), data.train).eval()
    x = torch.rand(2, 4, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([[0, 1, 2, 3], [0, 1, 1, 0]])
    present = torch.tensor([[True] * 4, [True, True, False, False]])

    def logits() -> torch.Tensor:
        return learner.condition(x, y, 4, class_mask=present).predict(x).log()

    plain = logits()
    learner.set_temperature(2.0, way=4, growth=1.0)
    tempered = logits()
    for task, (temperature, n) in enumerate(((2.0, 4), (1.0, 2))):
        expected = (plain[task, :, :n] / temperature).log_softmax(-1)
        torch.testing.assert_close(tempered[task, :, :n], expected, atol=1e-5, rtol=1e-5)
    learner.set_temperature(2.0, way=4, growth=1.0, shots=2, shot_growth=0.5)
    tempered = logits()  # the first task has one row of each class, the second two of each
    for task, (temperature, n) in enumerate(((2.0 * 0.5**0.5, 4), (1.0, 2))):
        expected = (plain[task, :, :n] / temperature).log_softmax(-1)
        torch.testing.assert_close(tempered[task, :, :n], expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="ProtoNet has no temperature"):
        build_learner(configure(), data.train).set_temperature(2.0)
