"""Presets: what they stand for, and which options learners take."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sureshot.likelihoods import OneVsEach, Softmax
from sureshot.meta.learners.gp import GaussianProcessLearner, class_major
from sureshot.meta.learners.mean_field import TaskMeanField
from sureshot.meta.learners.prediction import class_probabilities
from sureshot.meta.learners.presets import GP_LEARNER_NAMES, PRESETS, gaussian_process_settings
from sureshot.meta.learners.registry import learner_from_config, make_learner
from sureshot.meta.tasks import Tasks
from sureshot.networks.backbones import make_backbone


def identity() -> nn.Module:
    return make_backbone("identity", (4,))


@pytest.mark.parametrize("name", GP_LEARNER_NAMES)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_builds_a_learner(name: str, preset: str) -> None:
    options = {"n_base_classes": 7} if name == "ove_mean_field_transfer" else {}
    learner = make_learner(name, identity(), preset=preset, **options)
    assert isinstance(learner, GaussianProcessLearner)
    assert learner.config["preset"] == preset


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        ("ove_mean_field_pl", "predictive_likelihood", "sofmax", "one of 'own', .*did you mean 'softmax'"),
        ("ove_mean_field_pl", "inference", "gibs", "one of 'mean_field', 'gibbs'"),
        ("cdkt_ml", "detach_inner", "yes", "true or false"),
        ("cdkt_ml", "augmentation", "x", "one of"),
        ("cdkt_ml", "n_steps", 2.5, "a whole number"),
        ("ove_gibbs_ml", "start", "nowhere", "one of 'prior', 'mean_field'"),
        ("ove_gibbs_ml", "outputscale", "x", "a number"),
        ("ove_gibbs_ml", "n_chains", 0, "at least 1"),
        ("ove_mean_field_pl", "constant", -1.0, "relative variance"),
        ("dkt", "rule", "released_expected_log", "belongs to one-vs-each"),
        ("dkt", "n_step", 3, "has no option 'n_step'"),
    ],
)
def test_values_that_an_option_does_not_take_are_refused(name: str, option: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_learner(name, identity(), **{option: value})


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("ove_mean_field_pl", "temperature", 0.2),
        ("ove_mean_field_pl", "n_chains", 3),
        ("ove_mean_field_pl", "noise", 5.0),
        ("ove_mean_field_transfer", "n_steps", 2),
        ("ove_mean_field_ml", "predictive_split", "first_rows"),
        ("logistic_softmax_gibbs_pl", "augmentation", "poisson_gamma"),
        ("cdkt_ml", "pairs_per_row", 4.0),
        ("cdkt_ml", "n_base_classes", 7),
        ("dkt", "start", "mean_field"),
        ("ove_mean_field_transfer", "learn_outputscale", True),
        ("ove_gibbs_pl", "prior_mean", -5.0),
        ("ove_mean_field_pl", "learn_prior_mean", True),
    ],
)
def test_options_that_would_change_nothing_are_refused(name: str, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"the option {option} of {name} would change nothing: it belongs to"):
        gaussian_process_settings(name, "recommended", **{option: value})


WARM = {"warm_start": True, "covariance_first": True}
QUIRKS = {"random_shapes": True, "detach_tilting": True}


@pytest.mark.parametrize(
    ("name", "released"),
    [("cdkt_ml", QUIRKS | {"released_bound": True}), ("cdkt_pl", QUIRKS | {"predictive_split": "first_rows"})],
)
def test_the_presets_of_cdkt(name: str, released: dict[str, Any]) -> None:
    """Algorithm 1 of the paper; every quirk of its code; and cold steps by options."""
    paper, code = (asdict(gaussian_process_settings(name, preset)) for preset in ("paper", "released-code"))
    assert paper["n_steps"] == 2
    assert paper["n_steps_prediction"] == 20
    assert {key: paper[key] for key in WARM} == WARM
    assert not any(paper[key] == value for key, value in released.items())
    assert {key: code[key] for key in code if code[key] != paper[key]} == released | {"n_steps_prediction": 30}
    cold = make_learner(name, identity(), preset="paper", warm_start=False, covariance_first=False)
    assert isinstance(cold, GaussianProcessLearner)
    assert cold.training_inference == TaskMeanField(cold.training_inference.likelihood, 2)


def test_a_learner_keeps_the_settings_that_it_was_made_with() -> None:
    config = make_learner("ove_mean_field_pl", identity(), pairs_per_row=3.0).config
    assert config["options"] == {"pairs_per_row": 3.0}
    config["settings"]["n_steps_prediction"] = 7  # what the preset stood for then
    del config["settings"]["detach_inner"]  # a setting that did not exist then
    learner = learner_from_config(config, identity())
    assert isinstance(learner, GaussianProcessLearner)
    assert learner.prediction_inference.pairs_per_row == 3  # type: ignore[attr-defined]
    assert learner.prediction_inference.n_steps == 7  # type: ignore[attr-defined]
    assert learner.config["settings"]["n_steps_prediction"] == 7


@pytest.mark.parametrize(("changes", "message"), [({"n_stepps": 3}, "n_stepps"), ({"n_steps": "x"}, "whole number")])
def test_settings_of_no_learner(changes: dict[str, Any], message: str) -> None:
    config = make_learner("ove_mean_field_pl", identity()).config
    with pytest.raises(ValueError, match=message):
        learner_from_config({**config, "settings": config["settings"] | changes}, identity())


def test_an_unknown_kernel_is_refused_even_where_none_is_used() -> None:
    with pytest.raises(ValueError, match=r"unknown kernel 'cosin' \(did you mean 'cosine'\?\)"):
        make_learner("protonet", identity(), kernel="cosin")


def test_a_kernel_of_a_learner_that_has_none() -> None:
    with pytest.raises(ValueError, match="learner 'protonet' has no kernel, so 'rbf' would change nothing"):
        make_learner("protonet", identity(), kernel="rbf")


def test_options_beside_the_rest_as_an_early_version_wrote_them() -> None:
    config = {"name": "cdkt_pl", "preset": "paper", "kernel": "rbf", "precision": "float32", "tasks_per_pass": 1}
    learner = learner_from_config(config | {"temperature": 0.5}, identity())
    assert learner.config["settings"]["temperature"] == 0.5


def test_the_normalisation_of_one_vs_each_is_a_switch() -> None:
    learner = make_learner("ove_gibbs_pl", identity(), preset="paper", normalisation="expected_softmax")
    assert isinstance(learner, GaussianProcessLearner)
    assert isinstance(learner.predictive_likelihood, OneVsEach)
    assert learner.predictive_likelihood.normalisation == "expected_softmax"


def test_the_released_rule_takes_the_variance_for_a_deviation() -> None:
    mean = torch.tensor([[0.3, -0.5, 1.1], [0.1, 0.4, -0.2]], dtype=torch.float64)  # (S, C)
    root = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    covariance = root @ root.mT
    found = class_probabilities(
        OneVsEach(), mean.view(2, 1, 3, 1), covariance.view(2, 1, 1, 3, 3), "released_expected_log"
    )
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    logs = np.zeros(3)
    for chain in range(2):
        for own in range(3):
            for other in {0, 1, 2} - {own}:
                part = covariance[chain]
                spread = float(part[own, own] + part[other, other] - 2 * part[own, other])
                values = float(mean[chain, own] - mean[chain, other]) + spread * nodes  # the deviation is its root
                logs[own] += -(weights * np.logaddexp(0, -values)).sum() / weights.sum() / 2
    expected = np.exp(logs) / np.exp(logs).sum()
    np.testing.assert_allclose(found[0, :, 0].numpy(), expected, atol=1e-4)
    with pytest.raises(ValueError, match="belongs to one-vs-each"):
        class_probabilities(Softmax(), mean.view(2, 1, 3, 1), covariance.view(2, 1, 1, 3, 3), "released_expected_log")


@pytest.mark.parametrize(("shots", "queries", "classes"), [(1, 16, [0] * 5), (5, 16, [0] * 21 + [1] * 4)])
def test_the_released_split_conditions_on_the_rows_of_one_or_two_classes(
    shots: int, queries: int, classes: list[int]
) -> None:
    way = 5
    support_y, query_y = torch.arange(way).repeat(1, shots), torch.arange(way).repeat(1, queries)
    place = torch.arange(way * (shots + queries), dtype=torch.float32).view(1, -1, 1)
    split = class_major(Tasks(place[:, : way * shots], support_y, place[:, way * shots :], query_y, way))
    assert split.support_y.tolist() == [classes]
    assert split.query_y.shape == query_y.shape
    rows = torch.cat([split.support_x, split.query_x], 1).flatten().long()
    assert sorted(rows.tolist()) == list(range(way * (shots + queries)))  # every row once
    assert torch.equal(torch.cat([split.support_y, split.query_y], 1)[0], rows % way)  # each with its label


def test_the_papers_deep_kernel_transfer_has_a_kernel_for_each_of_five_classes() -> None:
    learner = make_learner("dkt", identity(), preset="paper")
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(1, 10, 4, generator=generator), torch.arange(5).repeat(1, 2)
    probabilities = learner.condition(x, y).predict(x)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(1, 10))
    learner(Tasks(x, y, x, y, 5)).sum().backward()
    with pytest.raises(ValueError, match="hyper-parameters for 5 classes"):
        learner.condition(x, y % 3)
