"""Scores on validation classes, and what learners fit there."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from sureshot.data.labelled import FewShotData, LabelledSet
from sureshot.meta.evaluation.calibration import temperature_of
from sureshot.meta.evaluation.passes import adapt, embed_set
from sureshot.meta.learners.gp import GaussianProcessLearner
from sureshot.meta.training import TrainingConfig
from sureshot.meta.training.assembly import build_learner
from sureshot.meta.training.validation import Validator, _other_shots, _other_way


@pytest.mark.parametrize(
    ("way", "n_classes", "other"),
    [(5, 29, 20), (5, 12, 12), (5, 9, None), (30, 30, 10), (6, 6, 2), (3, 6, 6), (2, 3, None), (5, 5, None)],
)
def test_a_second_number_of_classes_well_away_from_the_first(way: int, n_classes: int, other: int | None) -> None:
    assert _other_way(way, n_classes) == other


@pytest.mark.parametrize(
    ("shots", "most", "other"),
    [(1, 100, 5), (1, 3, 3), (1, 1, None), (3, 100, 15), (3, 5, 1), (5, 100, 1), (20, 30, 1)],
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


def test_temperatures_are_those_of_tasks_of_two_sizes_and_two_numbers_of_shots(
    configure: Callable[..., TrainingConfig], data: FewShotData
) -> None:
    config = configure(learner={"name": "ove_mean_field_pl"})
    learner = build_learner(config, data.train)
    assert isinstance(learner, GaussianProcessLearner)
    validator = Validator(data.val, data.train, config.episodes.to_protocol(), config.validation)
    scores = validator(learner)
    ways = torch.tensor([3.0, 6.0, 3.0])
    shots = torch.tensor([1.0, 1.0, 5.0])
    temperatures = learner.temperature(ways, shots.unsqueeze(-1).expand(-1, 2))
    growth, shot_growth = float(learner.log_temperature[1]), float(learner.shot_growth)
    assert temperatures[1] / temperatures[0] == pytest.approx(2**growth)
    assert temperatures[2] / temperatures[0] == pytest.approx(5**shot_growth)
    learner.set_temperature(1.0)
    embeddings = embed_set(learner, data.val.x)
    for exam, temperature, way, n in zip(validator._temperature_exams, temperatures, ways, shots, strict=True):
        assert exam is not None
        assert (exam.way, exam.shots) == (way, n)
        assert len(exam.rows) * exam.way >= 1500
        batches = list(adapt(learner, exam.sampler, exam.rows, embeddings, batch_size=70, generator=torch.Generator()))
        probabilities = np.concatenate([batch.probabilities.reshape(-1, exam.way) for batch in batches])
        y = np.concatenate([batch.query_y.ravel() for batch in batches])
        most = float((way / 3 * n) ** 0.5)  # it grows or falls so fast at most
        bounded = min(max(temperature_of(probabilities, y) / float(temperatures[0]), 1 / most), most)
        assert bounded == pytest.approx(float(temperature / temperatures[0]), rel=1e-4)
    learner.set_temperature(float(temperatures[0]), 3, growth)
    assert validator(learner) == scores  # the same again, as temperatures start from one
    assert math.isfinite(scores.nll)


def test_tasks_without_an_error_do_not_make_a_temperature_run_away() -> None:
    y = torch.arange(60) % 6
    x = 30 * torch.eye(6)[y] + 0.01 * torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    easy = LabelledSet(x, y, tuple("abcdef"))
    config = TrainingConfig.from_dict(
        {
            "data": {"name": "easy"},
            "episodes": {"way": 3, "shots": 1},
            "backbone": {"name": "identity"},
            "learner": {"name": "ove_mean_field_pl"},
            "validation": {"tasks": 10, "queries": 3},
        }
    )
    learner = build_learner(config, easy)
    assert isinstance(learner, GaussianProcessLearner)
    scores = Validator(easy, easy, config.episodes.to_protocol(), config.validation)(learner)
    assert scores.accuracy == 1
    assert learner.temperature(torch.tensor([500.0]), torch.ones(1, 500)) < 5


def test_shots_are_the_geometric_mean_over_the_classes_that_have_rows(
    configure: Callable[..., TrainingConfig], data: FewShotData
) -> None:
    learner = build_learner(configure(learner={"name": "ove_mean_field_pl"}), data.train)
    assert isinstance(learner, GaussianProcessLearner)
    learner.set_temperature(2.0, shot_growth=0.5)
    sizes = torch.tensor([[1.0, 1.0, 1.0], [2.0, 8.0, 0.0], [16.0, 16.0, 16.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])
    found = learner.temperature(torch.full((5,), 3.0), sizes)
    torch.testing.assert_close(found, torch.tensor([2.0, 4.0, 8.0, 2.0, 2.0]))


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
