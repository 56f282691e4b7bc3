"""Batch statistics and the centre of embeddings follow the inputs they are fitted to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from sureshot.data.labelled import FewShotData, LabelledSet
from sureshot.meta.evaluation.passes import embed_set
from sureshot.meta.learners.base import ClassLearner
from sureshot.meta.training import TrainingConfig
from sureshot.meta.training.episodic import build_learner
from sureshot.meta.training.normalisation import fit_normalisation, shrunk
from sureshot.networks.backbones import as_inputs

NAMES = ("ove_mean_field_pl", "ove_mean_field_transfer")


def fitted(learner: ClassLearner, base: LabelledSet, validation: LabelledSet, seed: int = 0) -> ClassLearner:
    fit_normalisation(learner, base, validation, torch.Generator().manual_seed(seed))
    return learner


def vectors(n_classes: int, shift: float = 0.0, seed: int = 0) -> LabelledSet:
    """Ten rows about each of some random class means in 8 dimensions."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n_classes).repeat_interleave(10)
    x = shift + torch.randn(n_classes, 8, generator=generator)[y] + 0.1 * torch.randn(len(y), 8, generator=generator)
    return LabelledSet(x, y, tuple(map(str, range(n_classes))))


@pytest.fixture(params=NAMES)
def learner(
    request: pytest.FixtureRequest, configure: Callable[..., TrainingConfig], data: FewShotData
) -> ClassLearner:
    return build_learner(configure(learner={"name": request.param}), data.train)


def test_statistics_are_those_of_the_inputs(learner: ClassLearner, data: FewShotData) -> None:
    fitted(learner, data.train, data.val)  # 60 rows make one batch
    first = learner.backbone.blocks[0]  # type: ignore[union-attr, index]
    with torch.no_grad():
        maps = first.convolution(as_inputs(data.val.x))
    torch.testing.assert_close(first.normalisation.running_mean, maps.mean((0, 2, 3)))
    torch.testing.assert_close(first.normalisation.running_var, maps.var((0, 2, 3)))
    assert first.normalisation.momentum == 0.1


def test_embeddings_are_centred_in_use_and_not_in_training(learner: ClassLearner, data: FewShotData) -> None:
    fitted(learner, data.train, data.val)
    assert (embed_set(learner, data.val.x) < 0).any()
    learner.train()
    assert (learner.embed(as_inputs(data.val.x)[None]) >= 0).all()  # as the last rectifier leaves them


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_kept_and_the_order_of_the_inputs_does_not_matter(
    learner: ClassLearner, data: FewShotData, training: bool
) -> None:
    learner.train(training)
    before = embed_set(fitted(learner, data.train, data.val), data.test.x)
    assert learner.training is training
    assert all(module.training is training for module in learner.modules())
    order = torch.randperm(len(data.val.x), generator=torch.Generator().manual_seed(7))
    shuffled = LabelledSet(data.val.x[order], data.val.y[order], data.val.class_names)
    again = embed_set(fitted(learner, data.train, shuffled, seed=3), data.test.x)
    torch.testing.assert_close(again, before, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("shift", [0.0, 20.0])
def test_the_centre_moves_to_another_domain_and_not_with_chance(shift: float) -> None:
    config = TrainingConfig.from_dict(
        {"data": {"name": "tiny"}, "backbone": {"name": "identity"}, "learner": {"name": NAMES[0]}}
    )
    base, validation = vectors(40, seed=1), vectors(5, shift, seed=2)
    learner = fitted(build_learner(config, base), base, validation)
    centre = validation.x[:1] - embed_set(learner, validation.x[:1])
    there = validation.x.mean(0)
    if shift == 0:
        assert centre.norm() < there.norm()  # which is nothing but chance
    else:
        torch.testing.assert_close(centre[0], there, atol=0.1, rtol=0)


def test_estimates_are_shrunk_by_what_chance_makes_of_their_difference() -> None:
    """Over random problems the shrunk estimate is nearer to the truth than either end."""
    generator = torch.Generator().manual_seed(0)
    loss = torch.zeros(3)
    for _ in range(300):
        truth = torch.randn(20, generator=generator) * 0.3
        start, there = torch.zeros(20), truth + 0.4 * torch.randn(20, generator=generator)
        found = shrunk(start, there, torch.tensor(20 * 0.4**2))
        loss += torch.stack([(guess - truth).square().sum() for guess in (found, start, there)])
    assert loss[0] < loss[1:].min()
    ends = torch.zeros(3), torch.tensor([3.0, 0.0, 4.0])
    torch.testing.assert_close(shrunk(*ends, torch.tensor(0.0)), ends[1])
    torch.testing.assert_close(shrunk(*ends, torch.tensor(10.0)), 0.6 * ends[1])
    torch.testing.assert_close(shrunk(*ends, torch.tensor(99.0)), ends[0])
    torch.testing.assert_close(shrunk(ends[1], ends[1], torch.tensor(0.0)), ends[1])


def test_learners_without_a_centre_say_so(data: FewShotData, configure: Callable[..., TrainingConfig]) -> None:
    learner = build_learner(configure(), data.train)
    assert not learner.fits_normalisation
    with pytest.raises(ValueError, match="ProtoNet does not centre its embeddings"):
        learner.set_centre(torch.zeros(4))


def test_a_failure_leaves_the_learner_as_it_was(learner: ClassLearner, data: FewShotData) -> None:
    learner.eval()
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    wrong = replace(data.train, x=data.train.x.repeat(1, 3, 1, 1))  # found out when validation inputs have been seen
    with pytest.raises(ValueError, match="expected images of 1 channel"):
        fitted(learner, wrong, data.val)
    assert not learner.training
    assert all(torch.equal(value, before[name]) for name, value in learner.state_dict().items())
    first = learner.backbone.blocks[0]  # type: ignore[union-attr, index]
    assert first.normalisation.momentum == 0.1
