"""The whole evaluation on real learners: an oracle for its scores, what fixes it, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from sureshot.data.labelled import LabelledSet
from sureshot.meta.episodes import EpisodeProtocol, EpisodeSampler
from sureshot.meta.evaluation import Evaluation, compare, evaluate
from sureshot.meta.evaluation.calibration import at_temperature
from sureshot.meta.evaluation.passes import Exam, draw_tasks, task_inputs
from sureshot.meta.learners import ClassLearner, make_learner
from sureshot.metrics import summarise
from sureshot.networks.backbones import make_backbone
from sureshot.networks.seeds import generator_for

Clusters = Callable[..., LabelledSet]
MakeProtoNet = Callable[[float], ClassLearner]
PROTOCOL = EpisodeProtocol(5, 2, 6)


def quick(learner: ClassLearner, data: LabelledSet, **options: object) -> Evaluation:
    settings = {"n_tasks": 60, "out_of_episode": 30, "timing": False} | options
    return evaluate(learner, data, PROTOCOL, **settings)


def test_scores_are_those_of_nearest_prototypes_task_by_task(data: LabelledSet, learner: ClassLearner) -> None:
    """An oracle that loops over the same tasks with numpy."""
    found = quick(learner, data)
    rows = draw_tasks(EpisodeSampler(data, PROTOCOL), 60, generator_for(0, "tasks"))
    x, logs, truth = data.x.double().numpy(), [], []
    for task in range(60):
        support, support_y = x[rows.support_x[task]], rows.support_y[task].numpy()
        prototypes = np.stack([support[support_y == c].mean(0) for c in range(5)])
        distances = np.square(x[rows.query_x[task]][:, None] - prototypes).sum(-1)
        logs.append(log_softmax(-distances, axis=-1))
        truth.append(rows.query_y[task].numpy())
    expected = summarise(np.exp(np.concatenate(logs)), np.concatenate(truth))
    assert found.accuracy.mean == pytest.approx(expected.accuracy)
    assert found.calibration["none"].nll.mean == pytest.approx(expected.nll, rel=1e-5)
    assert found.calibration["none"].brier.mean == pytest.approx(expected.brier, rel=1e-5)
    assert found.calibration["none"].ece.mean == pytest.approx(expected.ece, rel=1e-4)
    assert len(found.accuracy.batch_means) == 5
    assert found.out_of_episode is not None
    assert 0.5 < found.out_of_episode.auroc.mean < 1.0
    assert "negative_max_standardised_logit" not in found.out_of_episode.scores


def test_the_seed_fixes_everything(data: LabelledSet, validation: LabelledSet, learner: ClassLearner) -> None:
    first, again = (quick(learner, data, validation=validation).as_dict() for _ in range(2))
    assert first == again
    assert quick(learner, data, seed=1).as_dict()["accuracy"] != first["accuracy"]
    json.dumps(first, allow_nan=False)


def test_global_generators_and_the_learner_are_left_alone(data: LabelledSet, learner: ClassLearner) -> None:
    learner.train()
    state = torch.get_rng_state()
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    quick(learner, data)
    assert learner.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in learner.state_dict().items())


def test_the_temperature_mends_a_learner_that_is_too_sure(
    data: LabelledSet, validation: LabelledSet, make_protonet: MakeProtoNet
) -> None:
    found = quick(make_protonet(3.0), data, validation=validation, n_tasks=200)
    assert found.temperature is not None
    assert found.temperature.value > 2
    plain, tempered = found.calibration["none"], found.calibration["temperature"]
    assert plain.temperature == 1.0
    assert tempered.temperature == found.temperature.value
    assert tempered.nll.mean < plain.nll.mean / 2
    assert tempered.ece.mean < plain.ece.mean / 2
    np.testing.assert_array_equal(found.per_task["none"].right, found.per_task["temperature"].right)


def test_temperatures_of_the_lowest_calibration_errors(
    data: LabelledSet, validation: LabelledSet, make_protonet: MakeProtoNet
) -> None:
    """Two more variants with temperatures of their own; each has the lowest error of its kind on validation tasks."""
    learner = make_protonet(0.5)
    options = {"validation": validation, "n_tasks": 60, "validation_tasks": 40}
    found = quick(learner, data, least_errors=True, **options)
    assert set(found.calibration) == {"none", "temperature", "least_ece", "least_mce"}
    usual = quick(learner, data, **options)
    assert set(usual.calibration) == {"none", "temperature"}
    assert usual.calibration["temperature"].as_dict() == found.calibration["temperature"].as_dict()
    # On the tasks that the temperatures were found on, by the evaluation itself.
    sampler = EpisodeSampler(validation, PROTOCOL)
    exam = Exam.draw(sampler, 40, 0, "validation tasks")
    answers = exam.answers(learner, task_inputs(learner, validation.x), generator_for(0, "validation adaptation"))
    for variant, score in (("least_ece", "ece"), ("least_mce", "mce")):
        chosen = found.calibration[variant].temperature
        assert 1.0 < chosen < 10
        errors = {
            t: getattr(summarise(at_temperature(answers[0], t), answers[1]), score)
            for t in (chosen, 1.0, 0.8 * chosen, 1.3 * chosen, found.calibration["temperature"].temperature)
        }
        assert errors[chosen] == min(errors.values())
    with pytest.raises(ValueError, match="least_errors needs validation classes"):
        quick(learner, data, least_errors=True)


def test_the_temperature_never_sees_test_classes(
    validation: LabelledSet, learner: ClassLearner, make_clusters: Clusters
) -> None:
    temperatures = {
        quick(learner, make_clusters(seed=seed), validation=validation, n_tasks=5).as_dict()["temperature"]["value"]
        for seed in (2, 3)
    }
    assert len(temperatures) == 1
    assert "temperature" not in quick(learner, make_clusters(), n_tasks=5).calibration


def test_fewer_validation_classes_than_ways(
    data: LabelledSet, learner: ClassLearner, caplog: pytest.LogCaptureFixture, make_clusters: Clusters
) -> None:
    with caplog.at_level(logging.INFO, logger="sureshot"):
        found = quick(learner, data, validation=make_clusters(n_classes=3, seed=5), n_tasks=5)
    assert found.temperature is not None
    assert found.temperature.protocol == dataclasses.replace(PROTOCOL, way=3)
    assert "3-way tasks" in caplog.text


def test_tasks_of_varying_size(data: LabelledSet, validation: LabelledSet, learner: ClassLearner) -> None:
    protocol = EpisodeProtocol((2, 6), (1, 5), (2, 6), unbalanced=True)
    found = evaluate(learner, data, protocol, n_tasks=50, validation=validation, out_of_episode=20, timing=False)
    counts = found.per_task["none"].count
    assert counts.min() < counts.max() <= 36
    assert found.out_of_episode is not None
    assert found.out_of_episode.scores["negative_max_logit"].inside.size < 20 * 36


def test_without_enough_classes_there_is_no_out_of_episode(
    learner: ClassLearner, caplog: pytest.LogCaptureFixture, make_clusters: Clusters
) -> None:
    with caplog.at_level(logging.INFO, logger="sureshot"):
        found = quick(learner, make_clusters(n_classes=8))
    assert found.out_of_episode is None
    assert found.as_dict()["out_of_episode"] is None
    assert "needs 10 classes" in caplog.text


def test_adaptation_time(data: LabelledSet, learner: ClassLearner) -> None:
    found = quick(learner, data, timing=True, out_of_episode=0).time
    assert found is not None
    assert 0 < found.single < 10
    assert found.batch_size == 60
    assert found.queries == 30
    assert json.dumps(found.as_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_tasks": 0}, "n_tasks must be at least 1"),
        ({"n_tasks": 3}, "n_batches must be at most the 3 tasks"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"out_of_episode": -1}, "out_of_episode must be at least 0"),
    ],
)
def test_numbers_out_of_range(
    data: LabelledSet, learner: ClassLearner, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        quick(learner, data, **options)


def test_a_class_with_too_few_rows_is_named(data: LabelledSet, learner: ClassLearner, make_clusters: Clusters) -> None:
    with pytest.raises(ValueError, match="class 'class 0' has 7 rows"):
        quick(learner, make_clusters(n_rows=7))
    with pytest.raises(ValueError, match="validation classes, for the temperature: class 'class 0' has 7 rows"):
        quick(learner, data, validation=make_clusters(n_rows=7))


@pytest.fixture(scope="module")
def images() -> LabelledSet:
    """Sixteen classes of blurred patterns with a little noise, 24 x 24 pixels."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.rand(12, 1, 6, 6, generator=generator).repeat_interleave(4, 2).repeat_interleave(4, 3)
    x = (patterns.repeat_interleave(12, 0) + 0.05 * torch.randn(144, 1, 24, 24, generator=generator)).clamp(0, 1)
    return LabelledSet((255 * x).byte(), torch.arange(12).repeat_interleave(12), tuple(map(str, range(12))))


def test_robustness_corrupts_support_and_query_alike_for_every_learner(images: LabelledSet) -> None:
    learners = {
        name: make_learner("protonet", make_backbone("conv4", (1, 24, 24), n_filters=8, seed=4))
        for name in ("one", "other")
    }
    options = {"n_tasks": 30, "out_of_episode": 0, "timing": False, "robustness": 20, "severities": (1, 5)}
    found = compare(learners, images, PROTOCOL, **options)
    one, other = (evaluation.robustness for evaluation in found.evaluations.values())
    assert one == other
    assert one is not None
    assert (one.n_tasks, one.corrupted, len(one.scores)) == (20, "both", 6)
    assert one.clean_accuracy.mean == found.evaluations["one"].per_task["none"].accuracy[:20].mean()
    by = {(scores.kind, scores.severity): scores for scores in one.scores}
    assert by["gaussian_noise", 5].accuracy.mean < by["gaussian_noise", 1].accuracy.mean
    for scores in one.scores:
        assert scores.accuracy_change.mean == pytest.approx(scores.accuracy.mean - one.clean_accuracy.mean)
    queries_only = evaluate(learners["one"], images, PROTOCOL, corrupted="query", **options).robustness
    assert queries_only is not None
    assert queries_only.scores != one.scores
    json.dumps(one.as_dict(), allow_nan=False)


def test_robustness_is_for_images(data: LabelledSet, learner: ClassLearner) -> None:
    assert quick(learner, data, robustness=10).robustness is None


def test_unknown_corruption_is_refused_before_any_work(images: LabelledSet) -> None:
    learner = make_learner("protonet", make_backbone("conv4", (1, 24, 24), n_filters=2))
    for options in ({"corruptions": ("fog",)}, {"severities": (0,)}, {"corrupted": "support"}):
        said: list[str] = []
        with pytest.raises(ValueError, match=next(iter(options))):
            quick(learner, images, progress=lambda what, fraction, said=said: said.append(what), **options)
        assert said == []


def test_comparison_is_paired(data: LabelledSet, make_protonet: MakeProtoNet) -> None:
    learners = {"plain": make_protonet(1.0), "same": make_protonet(1.0), "sure": make_protonet(2.0)}
    found = compare(learners, data, PROTOCOL, n_tasks=80, out_of_episode=20, timing=False, reference="plain")
    same, sure = found.differences["same"], found.differences["sure"]
    assert (same.accuracy.mean, same.accuracy.standard_error, same.nll.mean) == (0.0, 0.0, 0.0)
    assert sure.accuracy.mean == pytest.approx(0.0, abs=1e-9)
    assert sure.nll.mean > 0
    separate = [found.evaluations[name].calibration["none"].nll.standard_error for name in ("plain", "sure")]
    assert sure.nll.standard_error < math.hypot(*separate)
    assert sure.auroc is not None
    assert sure.auroc.mean == pytest.approx(0.0, abs=1e-6)  # a factor leaves the ranking alone
    table = found.table()
    assert list(table.index) == ["plain", "same", "sure"]
    assert np.isnan(table.loc["plain", "nll_difference"])
    assert table.loc["sure", "nll_difference"] == sure.nll.mean
    assert table["temperature"].isna().all()
    json.dumps(found.as_dict(), allow_nan=False)


def test_comparison_names_the_learner_that_failed(data: LabelledSet, make_protonet: MakeProtoNet) -> None:
    learners = {"good": make_protonet(1.0), "broken": make_protonet(float("nan"))}
    with pytest.raises(ValueError, match="broken: the embedding of"):
        compare(learners, data, PROTOCOL, n_tasks=5, out_of_episode=0, timing=False)
    with pytest.raises(ValueError, match="reference: expected one of good, broken"):
        compare(learners, data, PROTOCOL, reference="bad")
